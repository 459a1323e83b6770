//! `node-match` and `device-match`: one toleration against one taint, and the scheduler's and kubelet's questions about many.

use serde::Deserialize;
use serde_json::json;
use taints::{Taint, Toleration, device, node};

use super::given::{self, GivenTaint};
use super::{Answer, Case};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pair {
    toleration: Toleration,
    taint: GivenTaint,
    #[serde(default)]
    comparison_operators_enabled: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Many {
    question: String,
    taints: Vec<GivenTaint>,
    tolerations: Vec<Toleration>,
    #[serde(default)]
    static_pod: bool,
    #[serde(default)]
    comparison_operators_enabled: bool,
}

pub(super) fn node(case: &Case) -> Result<Answer, serde_json::Error> {
    if case.given.get("question").is_some() {
        return many(case);
    }
    let given = Pair::deserialize(&case.given)?;
    let tolerated = node::tolerates(&given.toleration, &given.taint.into(), given.comparison_operators_enabled);
    Ok(Answer::Got(json!({ "tolerated": tolerated })))
}

pub(super) fn device(case: &Case) -> Result<Answer, serde_json::Error> {
    let given = Pair::deserialize(&case.given)?;
    let tolerated = device::tolerates(&given.toleration, &given.taint.into());
    Ok(Answer::Got(json!({ "tolerated": tolerated })))
}

fn many(case: &Case) -> Result<Answer, serde_json::Error> {
    let given = Many::deserialize(&case.given)?;
    let (taints, tolerations) = (given::taints(given.taints), given.tolerations);
    let numbers = given.comparison_operators_enabled;
    let got = match given.question.as_str() {
        "scheduler-filter" => {
            let first = node::first_untolerated(&taints, &tolerations, numbers);
            json!({ "schedulable": first.is_none(), "firstUntolerated": first.map(key_and_effect) })
        }
        "scheduler-score-raw" => {
            let count = node::intolerable_soft(&taints, &tolerations, numbers);
            json!({ "intolerablePreferNoSchedule": count, "lowerIsBetter": true })
        }
        "kubelet-admit" => {
            json!({ "admitted": node::kubelet_admits(&taints, &tolerations, given.static_pod, numbers) })
        }
        _ => return Ok(Answer::NotBuilt),
    };
    Ok(Answer::Got(got))
}

fn key_and_effect(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}
