//! Waiting for a change of the control file: by inotify on its folder, so that a rename over it is seen, else by looking often.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

use crate::clock::now;

/// How often the file is looked at where inotify does not work.
const WITHOUT_INOTIFY: Duration = Duration::from_millis(2);
/// How long a wait goes on before the file is looked at once more: some file systems tell inotify nothing.
const AT_MOST: Duration = Duration::from_millis(100);

/// Sees changes of one file from its creation on, also those between two waits.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: Option<OwnedFd>,
    name: OsString,
}

impl Watch {
    pub(crate) fn new(file: &Path) -> Self {
        Self { inotify: open(file).ok(), name: file.file_name().unwrap_or_default().to_owned() }
    }

    /// Returns when the file has changed, when `timeout` is over, or a little earlier than either.
    pub(crate) fn wait(&self, timeout: Duration) {
        let Some(fd) = &self.inotify else {
            sleep(timeout.min(WITHOUT_INOTIFY));
            return;
        };
        let end = now() + timeout.min(AT_MOST);
        loop {
            let left = end.saturating_duration_since(now());
            if left.is_zero() || !readable(fd, left) || names_in(fd).contains(&self.name) {
                return;
            }
        }
    }
}

fn open(file: &Path) -> rustix::io::Result<OwnedFd> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let changes = inotify::WatchFlags::MODIFY
        | inotify::WatchFlags::CLOSE_WRITE
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::CREATE
        | inotify::WatchFlags::DELETE;
    inotify::add_watch(&fd, folder, changes)?;
    Ok(fd)
}

fn readable(fd: &OwnedFd, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, Timespec::try_from(timeout).ok().as_ref()).is_ok_and(|ready| ready > 0)
}

/// Without a descriptor, poll only waits.
fn sleep(time: Duration) {
    // An interruption only makes the caller look early.
    poll(&mut [], Timespec::try_from(time).ok().as_ref()).ok();
}

/// Empties the queue.
fn names_in(fd: &OwnedFd) -> Vec<OsString> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(fd, &mut buffer);
    let mut names = Vec::new();
    while let Ok(event) = reader.next() {
        names.extend(event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned()));
    }
    names
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::{AT_MOST, WITHOUT_INOTIFY, Watch};
    use crate::clock::now;

    const LONG: Duration = Duration::from_secs(10);

    fn rename_over(file: &Path) {
        let other = file.with_extension("new");
        std::fs::write(&other, "new").unwrap();
        std::fs::rename(&other, file).unwrap();
    }

    #[test]
    fn a_change_before_the_wait_ends_it_at_once_and_only_one_wait() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("control.json");
        let watch = Watch::new(&file);
        rename_over(&file);
        let begin = now();
        watch.wait(LONG);
        assert!(begin.elapsed() < AT_MOST, "{:?}", begin.elapsed());
        let begin = now();
        watch.wait(LONG);
        assert!(begin.elapsed() >= AT_MOST, "what was seen is not seen again");
    }

    #[test]
    fn another_file_in_the_folder_ends_no_wait() {
        let folder = tempfile::tempdir().unwrap();
        let watch = Watch::new(&folder.path().join("control.json"));
        std::fs::write(folder.path().join("calls.jsonl"), "log").unwrap();
        let begin = now();
        watch.wait(LONG);
        assert!(begin.elapsed() >= AT_MOST);
    }

    #[test]
    fn without_inotify_the_file_is_looked_at_often() {
        let watch = Watch { inotify: None, name: "control.json".into() };
        let begin = now();
        watch.wait(LONG);
        assert!(begin.elapsed() >= WITHOUT_INOTIFY && begin.elapsed() < LONG);
    }
}
