//! Reading a file of cases, with errors that name file, line and field.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// One case.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Its stable name.
    pub id: String,
    /// What it is about.
    #[serde(default)]
    pub title: String,
    /// Which runner it is for.
    pub kind: String,
    /// The input.
    pub given: Value,
    /// What Kubernetes does.
    #[serde(default)]
    expect: Option<Value>,
    /// What we do where we differ on purpose.
    #[serde(default)]
    decided: Option<Value>,
}

impl Case {
    /// What is expected of us.
    #[must_use]
    pub fn expected(&self) -> &Value {
        self.decided.as_ref().or(self.expect.as_ref()).unwrap_or(&Value::Null)
    }
}

/// Why a file is not a file of cases.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("{file}: cannot be read: {source}")]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not JSON, or not an array of cases.
    #[error("{file}:{line}:{column}: not an array of cases: {message}", line = source.line(), column = source.column(), message = message(source))]
    Parse {
        /// The file.
        file: PathBuf,
        /// What was found instead.
        source: serde_json::Error,
    },
    /// A case expects nothing.
    #[error("{file}:{line}: case {id}: neither expect nor decided is there: nothing would be checked")]
    NothingExpected {
        /// The file.
        file: PathBuf,
        /// The line on which the case stands.
        line: usize,
        /// The case.
        id: String,
    },
    /// What a case gives cannot be read.
    #[error("{file}:{line}: case {id}: given: {message}")]
    Given {
        /// The file.
        file: PathBuf,
        /// The line on which the case stands.
        line: usize,
        /// The case.
        id: String,
        /// The field and what is wrong with it.
        message: String,
    },
}

/// What serde says, without the place, which we give in front.
fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

pub(super) struct Loaded {
    file: PathBuf,
    text: String,
    pub(super) cases: Vec<Case>,
}

pub(super) fn read(file: &Path) -> Result<Loaded, LoadError> {
    let file = file.to_owned();
    let text = fs::read_to_string(&file).map_err(|source| LoadError::Read { file: file.clone(), source })?;
    let cases: Vec<Case> =
        serde_json::from_str(&text).map_err(|source| LoadError::Parse { file: file.clone(), source })?;
    let loaded = Loaded { file, text, cases };
    match loaded.cases.iter().find(|case| case.expect.is_none() && case.decided.is_none()) {
        Some(case) => Err(LoadError::NothingExpected {
            file: loaded.file.clone(),
            line: loaded.line_of(&case.id),
            id: case.id.clone(),
        }),
        None => Ok(loaded),
    }
}

impl Loaded {
    pub(super) fn bad_case(&self, case: &Case, error: &serde_json::Error) -> LoadError {
        LoadError::Given {
            file: self.file.clone(),
            line: self.line_of(&case.id),
            id: case.id.clone(),
            message: message(error),
        }
    }

    /// The line on which a case's id stands, counted from one.
    fn line_of(&self, id: &str) -> usize {
        let quoted = Value::from(id).to_string();
        self.text.lines().position(|line| line.contains(&quoted)).map_or(1, |line| line + 1)
    }
}
