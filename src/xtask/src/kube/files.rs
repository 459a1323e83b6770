//! Files that are nobody else's business: tokens, keys and what names them.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a file for its owner alone, and the folders above it.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    let wrong = || format!("write {}", path.display());
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).and_then(|mut file| file.write_all(bytes)).with_context(wrong)
}

/// Makes a folder for its owner alone, with those above it.
///
/// # Errors
/// When it cannot be made.
pub(super) fn make_folder(folder: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("create folder {}", folder.display()))
}
