//! Which object a new mark becomes: decided by what the server serves, and by whose device it is.

use cluster::Server;
use cluster::mark::Form;

use crate::target::Found;

/// Where the way out is described.
const RULES: &str = "turn the gate DRADeviceTaintRules on, with DRADeviceTaints, and a version of rules in kube-apiserver's --runtime-config \
     (resource.k8s.io/v1beta2=true in 1.36, resource.k8s.io/v1alpha3=true before)";

/// Why a device cannot be marked on this server. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormError {
    /// Only a rule would do, and there are none.
    #[error(
        "this API server ({version}) serves no DeviceTaintRule, and the driver {driver} does not follow DeviceMarks: nobody would act on a mark of its device; {RULES}"
    )]
    Foreign {
        /// The server's version.
        version: String,
        /// The device's driver.
        driver: String,
    },
    /// Our own kind is not installed either.
    #[error(
        "this API server ({version}) serves neither DeviceTaintRules nor DeviceMarks: install DeviceMarks with `kubectl apply -f deploy/chart/crds`, or {RULES}"
    )]
    NotInstalled {
        /// The server's version.
        version: String,
    },
    /// A taint in a slice would be lost.
    #[error(
        "this API server ({version}) serves no DeviceTaintRule and stores no taints of ResourceSlices: turn the gate DRADeviceTaints on (it is on by default since 1.36)"
    )]
    NotStored {
        /// The server's version.
        version: String,
    },
    /// Whether a taint in a slice would be lost is not known.
    #[error(
        "this API server ({version}) serves no DeviceTaintRule, and whether it stores taints of ResourceSlices cannot be told: you may not create \
         resourceslices, with which that is tried (a dry run), and no slice has a taint. Ask somebody who may, or turn the gate DRADeviceTaints on \
         (it is on by default since 1.36)"
    )]
    Unsure {
        /// The server's version.
        version: String,
    },
}

/// The forms of marks that a server serves, in the order in which they are looked through.
pub(crate) fn served(server: &Server) -> Result<Vec<Form>, FormError> {
    let forms: Vec<Form> = server.rules.map(Form::Rule).into_iter().chain(server.marks.then_some(Form::Mark)).collect();
    if forms.is_empty() { Err(FormError::NotInstalled { version: server.version.clone() }) } else { Ok(forms) }
}

/// The form of a new mark: a rule where there are rules, else a DeviceMark where the device's driver follows those.
pub(crate) fn of_new(server: &Server, found: &Found) -> Result<Form, FormError> {
    let version = || server.version.clone();
    match server.rules {
        Some(rules) => Ok(Form::Rule(rules)),
        None if !found.follows_marks => Err(FormError::Foreign { version: version(), driver: found.id.driver.clone() }),
        None if !server.marks => Err(FormError::NotInstalled { version: version() }),
        None => Ok(Form::Mark),
    }
}

/// Whether slices carry taints here: as the server answered. Where it did not, one that is there is a sign, and else its version says.
pub(crate) fn check_stored(server: &Server, answered: Option<bool>, seen: bool) -> Result<(), FormError> {
    /// From here on the gate is on by default.
    const BETA: (u32, u32) = (1, 36);
    match answered {
        Some(true) => Ok(()),
        Some(false) => Err(FormError::NotStored { version: server.version.clone() }),
        None if seen || server.release >= BETA => Ok(()),
        None => Err(FormError::Unsure { version: server.version.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::RuleVersion;
    use taints::object::{DeviceId, Identity};

    fn server(rules: Option<RuleVersion>, marks: bool) -> Server {
        Server { version: "v1.36.3".into(), release: (1, 36), rules, marks }
    }

    fn found(driver: &str, follows_marks: bool) -> Found {
        let id = DeviceId { driver: driver.into(), pool: "n1".into(), device: "gpu-0".into() };
        Found { id, identity: Identity::default(), taints: Vec::new(), follows_marks }
    }

    #[test]
    fn a_rule_is_preferred_and_a_mark_is_for_who_follows_it() {
        let beta = Some(RuleVersion::V1beta2);
        let rule = Ok(Form::Rule(RuleVersion::V1beta2));
        for (follows, marks) in [(true, true), (true, false), (false, true), (false, false)] {
            assert_eq!(of_new(&server(beta, marks), &found("d", follows)), rule);
        }
        assert_eq!(of_new(&server(None, true), &found("d", true)), Ok(Form::Mark));
    }

    #[test]
    fn a_refusal_names_the_way_out() {
        let text =
            |marks, follows| of_new(&server(None, marks), &found("foreign.org", follows)).unwrap_err().to_string();
        let foreign = text(true, false);
        for part in ["v1.36.3", "foreign.org", "DRADeviceTaintRules", "--runtime-config"] {
            assert!(foreign.contains(part), "{foreign}");
        }
        let missing = text(false, true);
        assert!(missing.contains("deploy/chart/crds") && missing.contains("DRADeviceTaintRules"), "{missing}");
        assert_eq!(served(&server(None, false)).unwrap_err().to_string(), missing);
    }

    #[test]
    fn a_server_that_drops_taints_is_no_place_for_a_mark() {
        let old = Server { version: "v1.35.4".into(), release: (1, 35), ..server(None, true) };
        assert_eq!(check_stored(&old, Some(true), false), Ok(()));
        assert_eq!(check_stored(&old, None, true), Ok(()), "a taint in a slice is a sign");
        assert_eq!(check_stored(&server(None, true), None, false), Ok(()));
        for (server, answered, words) in
            [(&old, None, "cannot be told"), (&server(None, true), Some(false), "stores no taints")]
        {
            let refused = check_stored(server, answered, false).unwrap_err().to_string();
            assert!(refused.contains("gate DRADeviceTaints on") && refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn marks_of_both_forms_are_looked_through() {
        let forms = [Form::Rule(RuleVersion::V1), Form::Mark];
        assert_eq!(served(&server(Some(RuleVersion::V1), true)), Ok(forms.to_vec()));
        assert_eq!(served(&server(None, true)), Ok(vec![Form::Mark]));
    }
}
