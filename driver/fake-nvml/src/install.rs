//! Putting the library where a program can load it: for tests and the demo.

use std::io;
use std::path::{Path, PathBuf};

use crate::control::Control;
use crate::place::CONTROL_BESIDE;

/// File name of the library as Cargo builds it.
pub const BUILT_AS: &str = "libnvidia_ml.so";
/// File name under which programs load it.
pub const LOADED_AS: &str = "libnvidia-ml.so.1";

/// The library that was built along with the running test or program: beside it, in `deps`, or one folder up.
///
/// # Errors
///
/// `NotFound` with the command that builds it.
pub fn built_library() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folders = program.ancestors().skip(1).take(2);
    let places = folders.flat_map(|folder| [folder.join(BUILT_AS), folder.join("deps").join(BUILT_AS)]);
    let mut places = places.filter(|place| place.is_file());
    places.next().ok_or_else(|| {
        let message = format!("{BUILT_AS} is not beside {}; run: cargo build -p fake-nvml", program.display());
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// A machine of its own in a folder: a copy of the library and the control file that drives it. A process may load several.
#[derive(Debug)]
pub struct Machine {
    /// What to load.
    pub library: PathBuf,
    /// The control file.
    pub control: PathBuf,
}

impl Machine {
    /// Copies `built` into `folder` and writes `control` beside it.
    ///
    /// # Errors
    ///
    /// What the system said, or `InvalidData` for a control that the library would refuse.
    pub fn install(built: &Path, folder: &Path, control: &Control) -> io::Result<Self> {
        let machine = Self { library: folder.join(LOADED_AS), control: folder.join(CONTROL_BESIDE) };
        // A copy and not a link: the loader takes two paths to one file for one library, with one state.
        std::fs::copy(built, &machine.library)?;
        machine.set(control)?;
        Ok(machine)
    }

    /// Replaces the control file.
    ///
    /// # Errors
    ///
    /// As [`Control::write_atomically`].
    pub fn set(&self, control: &Control) -> io::Result<()> {
        control.write_atomically(&self.control)
    }

    /// Takes functions out of the copied library, as an older driver lacks them. Call it before the library is loaded.
    ///
    /// A symbol cannot be hidden while a library runs. So its name in the file's table of dynamic names is spoiled; the loader's
    /// hash table still leads to the entry, the comparison of names fails, and `dlsym` says that there is none.
    ///
    /// # Errors
    ///
    /// `NotFound` for a name that the library does not have, else what the system said.
    pub fn without(self, functions: &[&str]) -> io::Result<Self> {
        let mut bytes = std::fs::read(&self.library)?;
        for function in functions {
            spoil(&mut bytes, function)?;
        }
        std::fs::write(&self.library, bytes)?;
        Ok(self)
    }
}

fn spoil(bytes: &mut [u8], function: &str) -> io::Result<()> {
    let name: Vec<u8> = [b"\0", function.as_bytes(), b"\0"].concat();
    let mut found = false;
    let mut from = 0;
    while let Some(at) = position(&bytes[from..], &name) {
        bytes[from + at + 1] = b'X';
        found = true;
        from += at + name.len() - 1;
    }
    if found {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("the library has no symbol {function}")))
}

fn position(bytes: &[u8], name: &[u8]) -> Option<usize> {
    bytes.windows(name.len()).position(|window| window == name)
}
