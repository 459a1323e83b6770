//! `cargo xtask kube up`: from nothing to a node that runs pods, or to nothing again.
//!
//! folder claimed and swept -> files written -> etcd and containerd -> API server -> controllers, scheduler, kubelet -> images -> node Ready ->
//! cluster.json. An error on the way, or Ctrl-C, stops all that was started and leaves the logs.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::access::{self, NODE};
use super::files::{make_folder, write_private};
use super::flags::{Component, Plan};
use super::further::{self, Further};
use super::interrupt::Interrupt;
use super::kubectl::{Answer, Kubectl, hindrance, in_default_namespace};
use super::layout::RunDir;
use super::ports::Ports;
use super::process::{self, Running};
use super::record::{self, Cluster};
use super::sweep::{Keep, sweep};
use super::wait::Stopwatch;
use super::{UpArgs, build, cgroup, images, network, node, pki, say, wait};

/// How long each step may take: on two busy cores the API server needs half a minute.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster takes some 100 MB, and pods a bit more.
const SPACE: u64 = 1 << 30;

pub(super) fn run(args: &UpArgs) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "a real cluster needs root: mounts, network namespaces and cgroups are made; run it with sudo, or in CI as root"
    );
    let run = RunDir::new(&args.run)?;
    let _lock = run.claim()?;
    ensure_not_running(&run)?;
    let started = clean_and_start(args, &run);
    if started.is_err() && !run.path("logs").exists() {
        // Nothing in it would help anybody.
        run.remove()?;
    }
    let (cluster, took) = started?;
    say(&format!(
        "Kubernetes {} is up after {:.1} s: {} Ready, the server is {}",
        cluster.version,
        took.as_secs_f64(),
        further::names(args.nodes),
        cluster.server
    ));
    say(&format!("stop it with: cargo xtask kube down --run {}", run.root().display()));
    writeln!(io::stdout(), "export KUBECONFIG={}", cluster.kubeconfig.display())?;
    Ok(())
}

/// What can go wrong at once comes before the build, which can take long. Gives the time that it took after the build, too.
fn clean_and_start(args: &UpArgs, run: &RunDir) -> Result<(Cluster, Duration)> {
    ensure_space(run)?;
    sweep(run, Keep::Nothing).context("clean what an earlier cluster left")?;
    let ports = Ports::choose(args.port)?;
    let programs = build::ensure(args.version)?;
    let further = Further::build(run, args.nodes)?;
    let watch = Stopwatch::start();
    let plan = Plan {
        version: args.version,
        stock: args.stock,
        upstream_evictor: args.upstream_evictor,
        ports,
        run,
        programs: &programs,
        further: &further,
    };
    Ok((start_or_sweep(&plan)?, watch.elapsed()))
}

/// A cluster of which all components run is not swept away. One of which some have died is.
fn ensure_not_running(run: &RunDir) -> Result<()> {
    // A record that cannot be read is one that a crash left.
    let Some(cluster) = Cluster::read(run).unwrap_or_default() else { return Ok(()) };
    let marked = process::marked(run)?;
    let lives = |component: &record::Component| {
        marked.iter().any(|pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(component.pid))
    };
    let root = run.root().display();
    ensure!(
        !cluster.components.values().all(lives),
        "Kubernetes {} runs in {root} already: stop it with `cargo xtask kube down --run {root}`, or name another folder with --run",
        cluster.version
    );
    say(&format!("cleaning what a crash left in {root}"));
    Ok(())
}

fn ensure_space(run: &RunDir) -> Result<()> {
    let root = run.root();
    let disk = rustix::fs::statvfs(root).with_context(|| format!("ask how much space {} has", root.display()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    ensure!(
        free >= SPACE,
        "no space: {} has {} MiB free, a cluster wants {} MiB; name a folder on another disk with --run",
        root.display(),
        free >> 20,
        SPACE >> 20
    );
    Ok(())
}

fn start_or_sweep(plan: &Plan<'_>) -> Result<Cluster> {
    let started = Interrupt::listen().and_then(|interrupt| Start::new(plan, interrupt)).and_then(Start::run);
    if started.is_err()
        && let Err(error) = sweep(plan.run, Keep::Logs)
    {
        say(&format!("warning: not all was stopped: {error:#}"));
    }
    started
}

/// A cluster on its way up.
struct Start<'a> {
    plan: &'a Plan<'a>,
    run: &'a RunDir,
    environment: BTreeMap<String, String>,
    kubectl: Kubectl,
    running: Vec<Running>,
    interrupt: Interrupt,
}

impl<'a> Start<'a> {
    fn new(plan: &'a Plan<'a>, interrupt: Interrupt) -> Result<Self> {
        let run = plan.run;
        write_files(run, &plan.ports)?;
        cgroup::make(run)?;
        network::add_node_address(run, plan.ports.pods().node())?;
        let environment = process::environment(run, plan.programs.containerd_folder());
        let kubectl = Kubectl { program: plan.programs.kubernetes("kubectl"), kubeconfig: run.path("kubeconfig") };
        Ok(Self { plan, run, environment, kubectl, running: Vec::new(), interrupt })
    }

    fn run(mut self) -> Result<Cluster> {
        let plan = self.plan;
        say(&format!("starting Kubernetes {} in {}", plan.version, self.run.root().display()));
        self.start(plan.etcd())?;
        self.start(plan.containerd())?;
        // It repeats its calls to etcd while that comes up.
        self.start(plan.apiserver())?;
        self.wait_for_containerd()?;
        images::import(self.run, &plan.programs.containerd_folder().join("ctr"))?;
        self.wait_for_server()?;
        access::claim_readers().iter().try_for_each(|object| self.kubectl.create(object))?;
        self.start(plan.controllers())?;
        self.start(plan.scheduler())?;
        self.start(plan.kubelet())?;
        self.wait_for_pods_to_be_possible()?;
        self.start_further_nodes()?;
        let cluster = self.record();
        cluster.write(self.run)?;
        Ok(cluster)
    }

    fn start(&mut self, component: Component) -> Result<()> {
        self.running.push(process::start(self.run, component, &self.environment)?);
        Ok(())
    }

    fn wait_for_containerd(&mut self) -> Result<()> {
        let socket = self.run.containerd_socket();
        self.wait("containerd", "listen", move || Ok(UnixStream::connect(&socket).err().map(|error| error.to_string())))
    }

    fn wait_for_server(&mut self) -> Result<()> {
        let (port, kubectl) = (self.plan.ports.api, self.kubectl.clone());
        self.wait("kube-apiserver", "be ready", move || {
            // Cheaper than a kubectl that finds nobody.
            if let Err(error) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                return Ok(Some(error.to_string()));
            }
            missing(kubectl.get("/readyz")?)
        })
    }

    /// The node takes pods, and a pod finds its account and the authority to trust.
    fn wait_for_pods_to_be_possible(&mut self) -> Result<()> {
        let kubectl = self.kubectl.clone();
        self.wait_for_node("kubelet", NODE)?;
        for resource in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = in_default_namespace(resource);
            self.wait("kube-controller-manager", &format!("make {resource}"), || missing(kubectl.get(&path)?))?;
        }
        Ok(())
    }

    fn wait_for_node(&mut self, kubelet: &str, node: &str) -> Result<()> {
        let (kubectl, path) = (self.kubectl.clone(), format!("/api/v1/nodes/{node}"));
        self.wait(kubelet, &format!("make node {node} ready"), || {
            Ok(match kubectl.get(&path)? {
                Answer::Text(node) => hindrance(&node),
                Answer::Nothing(told) => Some(told),
            })
        })
    }

    /// All at once, then each is waited for.
    fn start_further_nodes(&mut self) -> Result<()> {
        let nodes = self.plan.further.make(self.run)?;
        for node in &nodes {
            self.start(node.kubelet.clone())?;
            self.start(node.agent.clone())?;
        }
        for node in &nodes {
            self.wait_for_node(&node.kubelet.name, &node.name)?;
            let (kubectl, path) = (self.kubectl.clone(), further::slices_of(&node.name));
            self.wait(&node.agent.name, "publish its GPUs", || {
                Ok(match kubectl.get(&path)? {
                    Answer::Text(slices) => further::hindrance(&slices),
                    Answer::Nothing(told) => Some(told),
                })
            })?;
        }
        Ok(())
    }

    /// Waits until `hindrance` has nothing to say, while all that was started runs.
    fn wait(&mut self, component: &str, to: &str, mut hindrance: impl FnMut() -> Result<Option<String>>) -> Result<()> {
        let mut last = String::new();
        let reached = wait::until(PATIENCE, || {
            self.interrupt.ensure_not_told()?;
            self.running.iter_mut().try_for_each(|running| running.ensure_alive(self.run))?;
            match hindrance()? {
                None => Ok(Some(())),
                Some(words) => {
                    last = words;
                    Ok(None)
                }
            }
        })?;
        if reached.is_none() {
            bail!(
                "{component} did not {to} within {} s: {last}; {}",
                PATIENCE.as_secs(),
                process::log_end(self.run, component)
            );
        }
        Ok(())
    }

    fn record(&self) -> Cluster {
        let (run, programs) = (self.run, self.plan.programs);
        let component = |running: &Running| {
            let record = record::Component {
                pid: running.pid(),
                program: running.component.program.clone(),
                arguments: running.component.arguments.clone(),
                environment: self.environment.clone(),
                log: run.log(&running.component.name),
            };
            (running.component.name.clone(), record)
        };
        Cluster {
            version: self.plan.version.to_string(),
            stock: self.plan.stock,
            upstream_evictor: self.plan.upstream_evictor,
            kubeconfig: run.path("kubeconfig"),
            server: access::server(self.plan.ports.api),
            ca: run.path("pki/ca.crt"),
            node: NODE.to_owned(),
            node_address: self.plan.ports.pods().node().to_string(),
            kubelet_root: run.path("kubelet"),
            cdi_root: run.path("cdi"),
            containerd_address: run.containerd_socket(),
            busybox_image: images::TOOLBOX.to_owned(),
            ctr: programs.containerd_folder().join("ctr"),
            kubectl: programs.kubernetes("kubectl"),
            helm: programs.helm(),
            dra_test_driver: programs.test_driver(),
            components: self.running.iter().map(component).collect(),
        }
    }
}

/// An answer that is not there yet, as a hindrance.
fn missing(answer: Answer) -> Result<Option<String>> {
    Ok(match answer {
        Answer::Text(_) => None,
        Answer::Nothing(told) => Some(told),
    })
}

fn write_files(run: &RunDir, ports: &Ports) -> Result<()> {
    for folder in ["logs/pods", "cdi", "cni", "containerd", "kubelet", "s"] {
        make_folder(&run.path(folder))?;
    }
    pki::write(run, ports.pods().node())?;
    access::write(run, ports.api)?;
    write_json(&run.path("kubelet.json"), &node::kubelet(run, ports))?;
    write_json(&run.path("cni/10-pods.conflist"), &node::pod_network(run, ports))?;
    write_private(&run.path("containerd/config.toml"), node::containerd(run).as_bytes())
}

fn write_json(path: &Path, value: &serde_json::Value) -> Result<()> {
    write_private(path, &serde_json::to_vec_pretty(value)?)
}
