//! The command line, and what it means.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use taints::plan::{Mode, Modes};
use taints::verdict::{Careful, Settings};

/// Evicts exactly the pods that share a tainted device, with the node's taints in the same verdict.
///
/// Runs beside kube-controller-manager (observe, the default: it only tells) or instead of its evictors (enforce).
#[derive(Clone, Debug, Parser)]
#[command(name = "device-taint-controller", version)]
pub struct Args {
    /// Kubeconfig file. Without it: $KUBECONFIG, then ~/.kube/config, then the service account of the pod.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// What to do about taints of devices.
    #[arg(long, env = "DEVICE_MODE", value_enum, default_value_t = ModeArg::Observe)]
    pub device_mode: ModeArg,

    /// What to do about taints of nodes.
    #[arg(long, env = "NODE_MODE", value_enum, default_value_t = ModeArg::Observe)]
    pub node_mode: ModeArg,

    /// A NoSchedule taint that evicts nevertheless, by key and perhaps value. May be given several times.
    #[arg(long, env = "CAREFUL", value_name = "KEY[=VALUE]", value_delimiter = ',')]
    pub careful: Vec<Careful>,

    /// Where /metrics, /healthz and /readyz are served. With port 0 the address is printed on stdout.
    #[arg(long, env = "LISTEN", value_name = "ADDR", default_value = "0.0.0.0:9401")]
    pub listen: SocketAddr,

    /// Directory for the first observations of taints without a time. Without it, such countdowns begin anew after a restart.
    #[arg(long, env = "STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    /// Form of the log on stderr. RUST_LOG sets what is logged.
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// A mode as the command line writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Evict at the deadline.
    Enforce,
    /// Only tell.
    Observe,
}

/// A form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Enforce => Self::Enforce,
            ModeArg::Observe => Self::Observe,
        }
    }
}

impl Args {
    /// What is done about the taints of each source.
    #[must_use]
    pub fn modes(&self) -> Modes {
        Modes { device: self.device_mode.into(), node: self.node_mode.into() }
    }

    /// How pods are judged.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings { careful: self.careful.clone(), ..Settings::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_evicted_unless_asked_for() {
        let args = Args::try_parse_from(["device-taint-controller"]).unwrap();
        assert_eq!(args.modes(), Modes { device: Mode::Observe, node: Mode::Observe });
        assert!(args.settings().careful.is_empty());
    }

    #[test]
    fn careful_may_be_repeated() {
        let line = ["c", "--device-mode", "enforce", "--careful", "a.b/c", "--careful", "a.b/d=x"];
        let args = Args::try_parse_from(line).unwrap();
        assert_eq!(args.careful.len(), 2);
        assert_eq!(args.modes().device, Mode::Enforce);
    }

    #[test]
    fn a_careful_taint_that_is_none_is_refused_with_what_was_meant() {
        let error = Args::try_parse_from(["c", "--careful", "=="]).unwrap_err().to_string();
        assert!(error.contains("key=value"), "{error}");
    }
}
