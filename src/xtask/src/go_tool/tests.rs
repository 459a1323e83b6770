//! Builds with a shell as the go command: `sh build ...` runs the script `build` of the module's folder. (To run a file that was just written can
//! fail with "text file busy" while another test forks.)

use super::*;

const KUBECTL: Program = Program { package: "k8s.io/kubernetes/cmd/kubectl", name: "kubectl" };
const KUBELET: Program = Program { package: "k8s.io/kubernetes/cmd/kubelet", name: "kubelet" };
const ETCD: Program = Program { package: "go.etcd.io/etcd/server/v3", name: "etcd" };

struct Bench {
    folder: tempfile::TempDir,
    at: Surroundings,
}

impl Bench {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = Surroundings { go: PathBuf::from("sh"), cache: folder.path().join("cache") };
        fs::write(folder.path().join("build"), script).unwrap();
        let bench = Self { folder, at };
        bench.write_mod("module m\n\nrequire k8s.io/kubernetes v1.37.2\n");
        fs::write(bench.folder.path().join("go.sum"), "").unwrap();
        bench
    }

    fn write_mod(&self, text: &str) {
        fs::write(self.folder.path().join("go.mod"), text).unwrap();
    }

    fn ensure_built(&self, programs: &[Program]) -> Result<PathBuf> {
        let folder = self.folder.path().to_owned();
        let module =
            GoModule { folder, source: "k8s.io/kubernetes", stamp: Stamp::Kubernetes, tags: "no_zfs", programs };
        module.ensure_built(&self.at)
    }

    /// A line for each run of go: the packages it was asked for.
    fn runs(&self) -> String {
        fs::read_to_string(self.folder.path().join("runs")).unwrap()
    }
}

/// Behind `-o FOLDER` stand the packages.
const WRITES_PROGRAMS: &str = r#"while [ "$1" != -o ]; do all="$all $1"; shift; done; out=$2; shift 2
echo "$@" >> runs; for package; do echo "$all" > "$out${package##*/}"; done"#;

#[test]
fn builds_once_and_stamps_the_version() {
    let bench = Bench::new(WRITES_PROGRAMS);
    let folder = bench.ensure_built(&[KUBECTL]).unwrap();
    assert_eq!(bench.ensure_built(&[KUBECTL]).unwrap(), folder);
    assert_eq!(bench.runs(), "k8s.io/kubernetes/cmd/kubectl\n");
    let arguments = fs::read_to_string(folder.join("kubectl")).unwrap();
    assert!(arguments.contains("-X k8s.io/component-base/version.gitVersion=v1.37.2"), "{arguments}");
    assert!(arguments.contains("version.gitMajor=1 ") && arguments.contains("version.gitMinor=37"), "{arguments}");
    assert!(arguments.contains("-tags no_zfs"), "{arguments}");
}

#[test]
fn only_what_is_missing_is_built_in_one_run() {
    let bench = Bench::new(WRITES_PROGRAMS);
    bench.ensure_built(&[KUBECTL]).unwrap();
    let more = Program { package: "k8s.io/kubernetes/cmd/kube-proxy", name: "kube-proxy" };
    let folder = bench.ensure_built(&[KUBECTL, KUBELET, more]).unwrap();
    assert_eq!(
        bench.runs(),
        "k8s.io/kubernetes/cmd/kubectl\nk8s.io/kubernetes/cmd/kubelet k8s.io/kubernetes/cmd/kube-proxy\n"
    );
    assert!(folder.join("kubelet").exists() && folder.join("kube-proxy").exists());
}

#[test]
fn what_go_calls_a_program_skips_the_major_version() {
    assert_eq!(ETCD.built_name(), "server");
    assert_eq!(KUBECTL.built_name(), "kubectl");
    let shim = Program { package: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", name: "shim" };
    assert_eq!(shim.built_name(), "containerd-shim-runc-v2");
}

#[test]
fn another_go_mod_is_another_program() {
    let bench = Bench::new(WRITES_PROGRAMS);
    let first = bench.ensure_built(&[KUBECTL]).unwrap();
    bench.write_mod("module m\n\nrequire (\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n");
    let second = bench.ensure_built(&[KUBECTL]).unwrap();
    assert_ne!(first, second);
    assert!(second.to_string_lossy().contains("/kubernetes-v1.36.3-"), "{}", second.display());
}

#[test]
fn a_failed_build_leaves_no_program_and_the_next_run_tries_again() {
    let bench = Bench::new("echo run >> runs; exit 3");
    for _ in 0..2 {
        let told = bench.ensure_built(&[KUBECTL]).unwrap_err().to_string();
        assert!(told.contains(KUBECTL.package) && told.contains("exit status: 3"), "{told}");
    }
    assert_eq!(bench.runs(), "run\nrun\n");
}

#[test]
fn two_runs_at_once_build_once() {
    let bench = Bench::new(WRITES_PROGRAMS);
    std::thread::scope(|scope| {
        for run in [scope.spawn(|| bench.ensure_built(&[KUBECTL])), scope.spawn(|| bench.ensure_built(&[KUBECTL]))] {
            assert!(run.join().unwrap().unwrap().join("kubectl").exists());
        }
    });
    assert_eq!(bench.runs(), "k8s.io/kubernetes/cmd/kubectl\n");
}

#[test]
fn a_missing_go_is_said_with_what_to_install() {
    let mut bench = Bench::new("");
    bench.at.go = bench.folder.path().join("no-go");
    let told = bench.ensure_built(&[KUBECTL]).unwrap_err().to_string();
    assert!(told.contains("is not on PATH") && told.contains("install Go 1.26"), "{told}");
}

#[test]
fn a_go_mod_without_the_source_is_an_error() {
    let bench = Bench::new("");
    bench.write_mod("module m\n");
    let told = bench.ensure_built(&[KUBECTL]).unwrap_err().to_string();
    assert!(told.contains("requires no version of k8s.io/kubernetes"), "{told}");
}

#[test]
fn the_cache_follows_xdg() {
    let folder = |xdg: Option<&str>, home: Option<&str>| cache_folder(xdg.map(Into::into), home.map(Into::into)).ok();
    assert_eq!(folder(Some("/c"), Some("/h")), Some("/c/device-taint-manager".into()));
    assert_eq!(folder(Some("relative"), Some("/h")), Some("/h/.cache/device-taint-manager".into()));
    assert_eq!(folder(None, Some("/h")), Some("/h/.cache/device-taint-manager".into()));
    assert_eq!(folder(None, None), None);
}
