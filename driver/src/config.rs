//! The flags. Each is an environment variable too, so that a manifest can set it from the node.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use taints::validate::is_dns_subdomain;

/// The node agent of Device Taint Manager: finds GPUs through NVML, publishes them, prepares claims, and taints the ones that
/// are unwell.
#[derive(Clone, Debug, Parser)]
#[command(name = "gpu-driver", version, about, long_about = None)]
pub struct Config {
    /// Name of the Node object of this machine; also the name of its pool.
    #[arg(long, env = "NODE_NAME", value_parser = node_name)]
    pub node_name: String,

    /// Kubeconfig file. Without it, $KUBECONFIG, ~/.kube/config and then the pod's service account are tried.
    #[arg(long, env = "GPU_DRIVER_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Name of the DRA driver, and domain of its taints.
    #[arg(long, env = "GPU_DRIVER_NAME", default_value = "gpu.devicetaint.dev", value_parser = driver_name)]
    pub driver_name: String,

    /// Kubelet's root. The sockets are in plugins_registry and plugins below it; the path must be the same on the host.
    #[arg(long, env = "GPU_DRIVER_KUBELET_ROOT", default_value = "/var/lib/kubelet", value_name = "DIR")]
    pub kubelet_root: PathBuf,

    /// Where the container runtime looks for dynamic CDI specs.
    #[arg(long, env = "GPU_DRIVER_CDI_ROOT", default_value = "/var/run/cdi", value_name = "DIR")]
    pub cdi_root: PathBuf,

    /// Where findings, identities of cards and checkpoints of claims are kept. Must survive restarts.
    #[arg(long, env = "GPU_DRIVER_STATE_DIR", default_value = "/var/lib/device-taint-manager", value_name = "DIR")]
    pub state_dir: PathBuf,

    /// A mounted sysfs.
    #[arg(long, env = "GPU_DRIVER_SYSFS_ROOT", default_value = "/sys", value_name = "DIR")]
    pub sysfs_root: PathBuf,

    /// File with an id that changes at every boot.
    #[arg(
        long,
        env = "GPU_DRIVER_BOOT_ID_FILE",
        default_value = "/proc/sys/kernel/random/boot_id",
        value_name = "FILE"
    )]
    pub boot_id_file: PathBuf,

    /// Directory with the nodes nvidia0, nvidiactl and so on.
    #[arg(long, env = "GPU_DRIVER_DEV_ROOT", default_value = "/dev", value_name = "DIR")]
    pub dev_root: PathBuf,

    /// The NVML library: a path, or a name that the dynamic loader finds. Several, with commas between them, are tried in this order.
    #[arg(
        long,
        env = "GPU_DRIVER_NVML_LIBRARY",
        default_value = "libnvidia-ml.so.1",
        value_delimiter = ',',
        value_name = "PATH"
    )]
    pub nvml_library: Vec<PathBuf>,

    /// Rows that replace rows of the shipped policy.
    #[arg(long, env = "GPU_DRIVER_POLICY", value_name = "FILE")]
    pub policy: Option<PathBuf>,

    /// Where /metrics, /healthz and /readyz are served. With port 0 the port is printed.
    #[arg(long, env = "GPU_DRIVER_LISTEN", default_value = "0.0.0.0:9400", value_name = "ADDR")]
    pub listen: SocketAddr,

    /// How often every GPU's state is read, such as 15s or 500ms.
    #[arg(long, env = "GPU_DRIVER_POLL_INTERVAL", default_value = "15s", value_name = "TIME")]
    pub poll_interval: Span,

    /// How long a GPU must need no recovery before that counts, where no reset was seen.
    #[arg(long, env = "GPU_DRIVER_QUIET_PERIOD", default_value = "30m", value_name = "TIME")]
    pub quiet_period: Span,

    /// Publish and prepare GPUs that another DRA driver or a device plugin offers too. Without it such GPUs are left to the other one, since a GPU
    /// that two give away is used twice.
    #[arg(long, env = "GPU_DRIVER_IGNORE_OTHER_OWNERS")]
    pub ignore_other_owners: bool,

    /// How long another owner of a GPU must be gone before the GPU is offered again. Longer than a start of kubelet, which takes away what every driver
    /// and plugin offers, and they put it back within half a minute.
    #[arg(long, env = "GPU_DRIVER_OTHER_OWNER_GRACE", default_value = "60s", value_name = "TIME")]
    pub other_owner_grace: Span,

    /// How logs are written to standard error. Their level is set by RUST_LOG.
    #[arg(long, env = "GPU_DRIVER_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A length of time of at least a millisecond and at most a year: a whole number with `ms`, `s`, `m` or `h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let milliseconds: u64 = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err("write a whole number with ms, s, m or h, such as 15s".to_owned()),
        };
        let number: u64 = number.parse().map_err(|_| "it must begin with a whole number, such as 15s".to_owned())?;
        let span = Duration::from_millis(number.saturating_mul(milliseconds));
        let year = Duration::from_secs(365 * 24 * 3600);
        if span.is_zero() || span > year {
            return Err("it must be longer than nothing and at most a year".to_owned());
        }
        Ok(Self(span))
    }
}

/// A pool name is one or more DNS subdomains; a node's name is one.
fn node_name(text: &str) -> Result<String, String> {
    subdomain(text, 253, "the name of a Node object")
}

fn driver_name(text: &str) -> Result<String, String> {
    subdomain(text, 63, "the name of a DRA driver")
}

fn subdomain(text: &str, max: usize, what: &str) -> Result<String, String> {
    if text.len() <= max && is_dns_subdomain(text) {
        return Ok(text.to_owned());
    }
    Err(format!("{what} is lower-case letters, digits, '-' and '.', at most {max} characters"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{CommandFactory, Parser};

    use super::{Config, Span};

    #[test]
    fn flags_are_consistent() {
        Config::command().debug_assert();
    }

    #[test]
    fn only_the_node_must_be_named() {
        let config = Config::try_parse_from(["gpu-driver", "--node-name", "node-a"]).unwrap();
        assert_eq!(config.driver_name, "gpu.devicetaint.dev");
        assert_eq!(config.poll_interval, Span(Duration::from_secs(15)));
    }

    #[test]
    fn several_libraries_keep_their_order() {
        let line = ["gpu-driver", "--node-name", "a", "--nvml-library", "/a/nvml.so,nvml.so", "--nvml-library", "/b"];
        let config = Config::try_parse_from(line).unwrap();
        assert_eq!(config.nvml_library, ["/a/nvml.so", "nvml.so", "/b"].map(std::path::PathBuf::from));
    }

    #[test]
    fn what_does_not_parse_ends_with_code_2() {
        for bad in [
            &["--node-name", "Node_A"][..],
            &["--node-name", "a", "--poll-interval", "15"],
            &["--node-name", "a", "--poll-interval", "0s"],
            &["--node-name", "a", "--listen", "here"],
            &["--node-name", "a", "--driver-name", "-x"],
            &["--node-name", "a", "--no-such-flag"],
        ] {
            let error = Config::try_parse_from(std::iter::once("gpu-driver").chain(bad.iter().copied())).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad:?}");
        }
    }

    #[test]
    fn times_are_read_with_their_unit() {
        for (text, want) in [("500ms", 500), ("15s", 15_000), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(want))), "{text}");
        }
        for bad in ["", "s", "1.5s", "-1s", "1d", "99999999999999999999h", "9999h99"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }
}
