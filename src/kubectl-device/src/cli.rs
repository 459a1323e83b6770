//! The command line: what can be asked, parsed and no more.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::{SignedDuration, Timestamp};

use crate::mark::{self, WishError};
use crate::target::{self, TargetError};

/// Single devices of a cluster: which are there, who uses them, which are tainted and why.
// No wrapping of help: an example that is broken in two cannot be copied.
#[derive(Debug, Parser)]
#[command(name = "kubectl device", bin_name = "kubectl device", version, term_width = 0)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which cluster.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// The kubeconfig file to use
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List devices: health, taints, and who uses them
    List(ListArguments),
    /// Taint one device, by a DeviceTaintRule that anyone can read (a DeviceMark where the server has no rules)
    #[command(after_help = TAINT_EXAMPLES)]
    Taint(TaintArguments),
    /// Take such a taint away again
    #[command(after_help = UNTAINT_EXAMPLES)]
    Untaint(UntaintArguments),
}

const TAINT_EXAMPLES: &str = "Examples:
  # No new work on this GPU; what runs goes on
  kubectl device taint node-1/gpu-0000-3b-00-0 devicetaint.dev/maintenance=fan:NoSchedule --reason \"fan is loud\"

  # Evict what runs on it too, for two hours at most
  kubectl device taint node-1/gpu-0000-3b-00-0 devicetaint.dev/maintenance=fan:NoExecute --expires-in 2h";

const UNTAINT_EXAMPLES: &str = "Examples:
  kubectl device untaint node-1/gpu-0000-3b-00-0 devicetaint.dev/maintenance:NoExecute

  # Every effect of the key
  kubectl device untaint node-1/gpu-0000-3b-00-0 devicetaint.dev/maintenance";

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Only devices of these nodes
    #[arg(value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    /// How to write the answer
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Output {
    /// Columns
    Table,
    /// More columns
    Wide,
    /// JSON, one object a device
    Json,
    /// NODE/DEVICE, one a line
    Name,
}

#[derive(Debug, Args)]
pub(crate) struct TaintArguments {
    /// The device
    #[arg(value_name = "NODE/DEVICE", value_parser = device)]
    pub(crate) target: String,
    /// The taint: key=value:Effect or key:Effect, with effect NoSchedule, NoExecute or None
    #[arg(value_name = "TAINT", value_parser = wished)]
    pub(crate) taint: String,
    /// Why, for those who read it later
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Take the taint away after this time, such as 90m, 2h or 3d
    #[arg(long, value_name = "TIME", value_parser = span, conflicts_with = "expires_at")]
    pub(crate) expires_in: Option<SignedDuration>,
    /// Take the taint away at this moment, in RFC 3339
    #[arg(long, value_name = "MOMENT")]
    pub(crate) expires_at: Option<Timestamp>,
    /// Change the value of a taint that is there with this key and effect; reason and expiry change without it
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// The DRA driver, where several publish a device of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) driver: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UntaintArguments {
    /// The device
    #[arg(value_name = "NODE/DEVICE", value_parser = device)]
    pub(crate) target: String,
    /// The taint: key:Effect, or key for every effect; a value and a trailing minus are ignored
    #[arg(value_name = "TAINT", value_parser = unwished)]
    pub(crate) taint: String,
    /// The DRA driver, where several publish a device of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) driver: Option<String>,
}

/// Checks `NODE/DEVICE` before anything is asked of a cluster.
fn device(text: &str) -> Result<String, TargetError> {
    target::split(text).map(|_| text.to_owned())
}

/// Checks a taint to put there.
fn wished(text: &str) -> Result<String, WishError> {
    mark::parse(text).map(|_| text.to_owned())
}

/// Checks a taint to take away.
fn unwished(text: &str) -> Result<String, WishError> {
    mark::pattern(text).map(|_| text.to_owned())
}

/// Reads `90s`, `45m`, `2h`, `3d`.
fn span(text: &str) -> Result<SignedDuration, String> {
    let wrong = || format!("`{text}` is no time: write a number and one of s, m, h, d, such as 2h");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let number: i64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let whole = number.checked_mul(seconds).filter(|seconds| *seconds > 0).ok_or_else(wrong)?;
    Ok(SignedDuration::from_secs(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn examples_keep_their_lines() {
        let help = |name: &str| {
            let mut command = Arguments::command();
            command.build();
            command.find_subcommand_mut(name).unwrap().render_help().to_string()
        };
        for (name, examples) in [("taint", TAINT_EXAMPLES), ("untaint", UNTAINT_EXAMPLES)] {
            let help = help(name);
            for line in examples.lines() {
                assert!(help.lines().any(|shown| shown == line), "{line:?} is broken in:\n{help}");
            }
        }
    }

    #[test]
    fn words_that_name_no_device_or_taint_are_refused_before_a_cluster_is_asked() {
        for words in [["taint", "foo", "bar:NoSchedule"], ["taint", "n1/gpu-0", "bar"], ["untaint", "foo", "bar"]] {
            let error = Arguments::try_parse_from(["device"].iter().chain(&words)).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(
                error.to_string().contains("`foo` names no device") || error.to_string().contains("bar"),
                "{error}"
            );
        }
        assert!(Arguments::try_parse_from(["device", "untaint", "n1/gpu-0", "bar-"]).is_ok());
    }

    #[test]
    fn times_are_read_and_nonsense_is_refused() {
        assert_eq!(span("2h"), Ok(SignedDuration::from_secs(7_200)));
        assert_eq!(span("3d"), Ok(SignedDuration::from_secs(259_200)));
        for wrong in ["", "h", "2", "-1h", "0s", "1w", "9223372036854775807d", "2\u{fc}"] {
            assert!(span(wrong).unwrap_err().contains("number"), "{wrong:?}");
        }
    }
}
