//! Allocations in words.

use std::fmt::{self, Display, Formatter};

use super::{Answer, Denied, Failure};

impl Display for Denied {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongNode => f.write_str("the node cannot use it"),
            Self::Pool(problem) => problem.fmt(f),
            Self::Selector => f.write_str("the selectors do not match it"),
            Self::SelectorError(message) => write!(f, "a selector failed on it: {message}"),
            Self::Untolerated { taint, origin, nearest } => {
                write!(f, "taint {taint} ({origin}) is not tolerated")?;
                nearest.as_ref().map_or(Ok(()), |nearest| write!(f, ": {nearest}"))
            }
            Self::Taken(Some(claim)) => write!(f, "claim {claim} has it"),
            Self::Taken(None) => f.write_str("another claim has it"),
        }
    }
}

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "request {}, device {}: ", self.request, self.device)?;
        match &self.denied {
            Some(denied) => denied.fmt(f),
            None => f.write_str("may have it"),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew { request, needed, available } => {
                write!(f, "request {request} needs {needed} devices and may have {available}")
            }
            Self::NotAll { request, device: Some(device) } => {
                write!(f, "request {request} asks for all devices, and {device} cannot be had")
            }
            Self::NotAll { request, device: None } => {
                write!(f, "request {request} asks for all devices, and none matches")
            }
            Self::Selector { request, device, message } => {
                write!(f, "a selector of request {request} failed on device {device}: {message}")
            }
            Self::Together => f.write_str("each request can be satisfied alone, but not all together"),
            Self::TooComplex => f.write_str(
                "no combination of devices was found in reasonable time: ask for less, or select more narrowly",
            ),
        }
    }
}
