//! Being asked to end: whoever starts programs listens, so that none of them outlives it.

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

/// The signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Asked {
    /// As the system calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    /// The exit code of a program that it ended, as shells write it.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// Waits until one comes.
///
/// # Errors
/// When the system does not let us listen.
pub async fn asked_to_end() -> Result<Asked> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => Ok(Asked::Interrupt),
        _ = terminate.recv() => Ok(Asked::Terminate),
    }
}
