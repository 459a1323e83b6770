//! Reading and writing the control file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Control;

/// Why a control file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It cannot be read.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It holds nothing: an editor empties a file before it writes it.
    #[error("{}: is empty", .0.display())]
    Empty(PathBuf),
    /// It is no JSON, or a field is unknown or of another type.
    #[error("{}:{line}:{column}: {}{message}", path.display(), in_field(field))]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The last field that was read before the error.
        field: Option<String>,
        /// What is wrong.
        message: String,
    },
    /// It can be read, but makes no sense.
    #[error("{}: {message}", path.display())]
    Meaning {
        /// The file.
        path: PathBuf,
        /// Path of the field, and what is wrong.
        message: String,
    },
}

fn in_field(field: &Option<String>) -> String {
    field.as_ref().map(|name| format!("field `{name}`: ")).unwrap_or_default()
}

impl Control {
    /// Reads and checks a control file.
    ///
    /// # Errors
    ///
    /// File, line and field of what is wrong.
    pub fn read(path: &Path) -> Result<Self, ControlError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| ControlError::Read { path: path.to_owned(), error })?;
        Self::parse(&text, path)
    }

    /// Reads and checks the text of a control file; `path` is for messages.
    ///
    /// # Errors
    ///
    /// As [`Control::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ControlError> {
        if text.trim_ascii().is_empty() {
            return Err(ControlError::Empty(path.to_owned()));
        }
        let control: Self = serde_json::from_str(text).map_err(|error| ControlError::Syntax {
            path: path.to_owned(),
            line: error.line(),
            column: error.column(),
            field: field_before(text, error.line(), error.column()),
            message: without_position(&error),
        })?;
        control.check().map_err(|message| ControlError::Meaning { path: path.to_owned(), message })?;
        Ok(control)
    }

    /// Replaces the file in one step (write beside it, then rename), so that no reader sees half of it.
    ///
    /// # Errors
    ///
    /// What the system said, or `InvalidData` for a control that its reader would refuse.
    pub fn write_atomically(&self, path: &Path) -> io::Result<()> {
        self.check().map_err(|message| io::Error::new(io::ErrorKind::InvalidData, message))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.write_all(b"\n")?;
        file.persist(path)?;
        Ok(())
    }
}

/// serde_json ends its messages with the position, which stands in front here.
fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let end = message.rfind(" at line ").unwrap_or(message.len());
    message[..end].to_owned()
}

/// The last `"name":` before a position.
fn field_before(text: &str, line: usize, column: usize) -> Option<String> {
    let lines_before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let read = text.as_bytes().get(..(lines_before + column).min(text.len()))?;
    let mut end = read.len();
    loop {
        let colon = read[..end].iter().rposition(|byte| *byte == b':')?;
        let name = read[..colon].trim_ascii_end().strip_suffix(b"\"");
        if let Some(name) = name
            && let Some(start) = name.iter().rposition(|byte| *byte == b'"')
        {
            return String::from_utf8(name[start + 1..].to_vec()).ok();
        }
        end = colon;
    }
}
