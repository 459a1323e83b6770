//! Opening and closing the library.

use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::NvmlLib;

use super::{Calls, number, text};
use crate::nvml::{Code, CudaVersion, OpenError, Versions};

/// An open NVML. Threads share it; the last one to let go closes it.
#[derive(Debug)]
pub(in crate::nvml) struct Session {
    nvml: Nvml,
}

impl Session {
    /// Opens the first of several libraries that can be: what is wrong with one file says nothing about the next.
    pub(in crate::nvml) fn open_first(paths: &[PathBuf]) -> Result<Self, OpenError> {
        let mut told: Option<OpenError> = None;
        for path in paths {
            match Self::open(path) {
                Ok(session) => {
                    tracing::info!(library = %path.display(), "NVML library opened");
                    return Ok(session);
                }
                Err(error) if !error.is_of_file() => return Err(error),
                Err(error) if told.as_ref().is_some_and(|told| told.weight() >= error.weight()) => {}
                Err(error) => told = Some(error),
            }
        }
        Err(match told {
            None => no_library(Path::new(""), "no path was given"),
            Some(OpenError::NoLibrary { path, reason, .. }) => {
                OpenError::NoLibrary { path, reason, others: paths.len() - 1 }
            }
            Some(error) => error,
        })
    }

    /// Loads and initialises the library at a path, or of a name that the dynamic loader finds.
    fn open(path: &Path) -> Result<Self, OpenError> {
        refuse_incomplete(path)?;
        match Nvml::builder().lib_path(path.as_os_str()).init() {
            Ok(nvml) => Ok(Self { nvml }),
            Err(NvmlError::LibloadingError(error)) => Err(no_library(path, &error.to_string())),
            Err(NvmlError::DriverNotLoaded) => Err(OpenError::NotLoaded),
            Err(NvmlError::LibRmVersionMismatch) => Err(OpenError::VersionMismatch),
            Err(error) => Err(OpenError::Failed { code: Code(error.into()) }),
        }
    }

    pub(super) fn library(&self) -> &NvmlLib {
        self.nvml.lib()
    }

    /// From driver 580.82 on some fields have other numbers.
    pub(super) fn has_new_field_numbers(&self) -> bool {
        self.nvml.field_id_scheme() == nvml_wrapper::FieldIdScheme::V13Update1
    }
}

/// Refuses a library that could not be closed or is of no use. The wrapper panics in `drop` without the first two, so this is
/// looked at before it initialises anything.
fn refuse_incomplete(path: &Path) -> Result<(), OpenError> {
    // SAFETY: loading a library runs its initialisers; it is the administrator who names it.
    let library = unsafe { NvmlLib::new(path) }.map_err(|error| no_library(path, &error.to_string()))?;
    let needed = [
        ("nvmlShutdown", library.nvmlShutdown.is_ok()),
        ("nvmlEventSetFree", library.nvmlEventSetFree.is_ok()),
        ("nvmlInit_v2", library.nvmlInit_v2.is_ok()),
        ("nvmlDeviceGetCount_v2", library.nvmlDeviceGetCount_v2.is_ok()),
        ("nvmlDeviceGetHandleByIndex_v2", library.nvmlDeviceGetHandleByIndex_v2.is_ok()),
        ("nvmlDeviceGetHandleByPciBusId_v2", library.nvmlDeviceGetHandleByPciBusId_v2.is_ok()),
        ("nvmlDeviceGetPciInfo_v3", library.nvmlDeviceGetPciInfo_v3.is_ok()),
        ("nvmlDeviceGetUUID", library.nvmlDeviceGetUUID.is_ok()),
    ];
    let missing: Vec<_> = needed.iter().filter(|(_, there)| !there).map(|(name, _)| *name).collect();
    if missing.is_empty() { Ok(()) } else { Err(OpenError::Unusable { path: path.to_owned(), missing }) }
}

fn no_library(path: &Path, reason: &str) -> OpenError {
    OpenError::NoLibrary { path: path.to_owned(), reason: reason.to_owned(), others: 0 }
}

impl Calls<'_> {
    /// What the library tells of itself; what it does not tell is absent.
    pub(in crate::nvml) fn versions(&self) -> Versions {
        Versions {
            driver: text!(self, 80, nvmlSystemGetDriverVersion()).ok(),
            nvml: text!(self, 80, nvmlSystemGetNVMLVersion()).ok(),
            cuda: number!(self, nvmlSystemGetCudaDriverVersion_v2()).ok().and_then(cuda_version),
        }
    }
}

/// NVML encodes 12.4 as 12040.
fn cuda_version(number: i32) -> Option<CudaVersion> {
    let number = u32::try_from(number).ok()?;
    Some(CudaVersion { major: number / 1000, minor: number % 1000 / 10 })
}

#[cfg(test)]
mod tests {
    use super::{CudaVersion, cuda_version};

    #[test]
    fn cuda_versions_are_decoded() {
        assert_eq!(cuda_version(12_040), Some(CudaVersion { major: 12, minor: 4 }));
        assert_eq!(cuda_version(13_010), Some(CudaVersion { major: 13, minor: 1 }));
        assert_eq!(cuda_version(-1), None);
    }
}
