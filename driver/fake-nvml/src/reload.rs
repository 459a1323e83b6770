//! The control file as the running library sees it: read again when it changes, kept as it was when the new text makes no sense.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::clock::wall;
use crate::control::{Control, ControlError};
use crate::machine::Machine;

/// The resolution of a file's time can be as coarse as this. A file that was changed within it before it was read may have
/// changed again without showing it.
const COARSEST_TIME: Duration = Duration::from_millis(50);

/// What shows that a file is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    size: u64,
    inode: u64,
}

/// A control file.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    seen: Option<(Stamp, SystemTime)>,
    machine: Arc<Machine>,
    complaint: Option<String>,
}

impl Source {
    /// Reads the file for the first time; here a file that cannot be used is an error.
    pub(crate) fn open(path: PathBuf) -> Result<Self, String> {
        let control = Control::read(&path).map_err(|error| error.to_string())?;
        Ok(Self { path, seen: None, machine: Arc::new(Machine::new(control)), complaint: None })
    }

    /// The machine of this moment.
    pub(crate) fn machine(&mut self) -> Arc<Machine> {
        match self.stamp() {
            Ok(stamp) if self.is_known(stamp) => {}
            Ok(stamp) => self.read(stamp),
            Err(problem) => self.complain(problem),
        }
        Arc::clone(&self.machine)
    }

    fn stamp(&self) -> Result<Stamp, String> {
        let about = std::fs::metadata(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))?;
        let modified = about.modified().map_err(|error| format!("{}: {error}", self.path.display()))?;
        Ok(Stamp { modified, size: about.len(), inode: about.ino() })
    }

    fn is_known(&self, stamp: Stamp) -> bool {
        self.seen.is_some_and(|(seen, read_at)| {
            let settled = read_at.duration_since(seen.modified).is_ok_and(|age| age > COARSEST_TIME);
            seen == stamp && settled
        })
    }

    fn read(&mut self, stamp: Stamp) {
        self.seen = Some((stamp, wall()));
        match Control::read(&self.path) {
            Ok(control) if control == self.machine.control => {}
            Ok(control) => {
                self.machine = Arc::new(Machine::new(control));
                self.complaint = None;
            }
            // Between the two steps of a writer that empties the file first. What it writes comes as another change.
            Err(ControlError::Empty(_)) => {}
            Err(error) => self.complain(format!("{error}; the state before stays")),
        }
    }

    /// Says each thing once, not at every call.
    fn complain(&mut self, problem: String) {
        if self.complaint.as_ref() != Some(&problem) {
            tell(&problem);
            self.complaint = Some(problem);
        }
    }
}

/// A library has nobody but stderr to tell; one without a stderr cannot be told.
pub(crate) fn tell(message: &str) {
    std::io::stderr().write_all(format!("fake-nvml: {message}\n").as_bytes()).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Profile;

    #[test]
    fn a_file_that_is_being_written_anew_is_waited_for_and_a_wrong_one_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpus.json");
        let text = |count| serde_json::to_string(&Control::server(Profile::H100, count, 1)).unwrap();
        std::fs::write(&path, text(2)).unwrap();
        let mut source = Source::open(path.clone()).unwrap();
        let mut after = |text: &str| {
            std::fs::write(&path, text).unwrap();
            (source.machine().control.gpus.len(), source.complaint.clone())
        };
        assert_eq!(after(""), (2, None));
        assert_eq!(after(&text(3)), (3, None));
        let (count, complaint) = after("{");
        assert_eq!(count, 3);
        assert!(complaint.unwrap().contains("the state before stays"));
    }
}
