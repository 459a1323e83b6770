//! From API types to what the rules read.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use taints::{Operator, Taint, Toleration};

/// A node's taints.
pub(crate) fn taints(node: &core::Node) -> Vec<Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().map(taint).collect()
}

fn taint(taint: &core::Taint) -> Taint {
    Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: taint.effect.as_str().into(),
        time_added: taint.time_added.as_ref().map(|Time(time)| *time),
    }
}

/// A pod's tolerations of node taints.
pub(crate) fn tolerations(pod: &core::Pod) -> Vec<Toleration> {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    tolerations
        .iter()
        .map(|t| {
            toleration(t.key.as_ref(), t.operator.as_ref(), t.value.as_ref(), t.effect.as_ref(), t.toleration_seconds)
        })
        .collect()
}

/// What a device request tolerates.
pub(crate) fn device_tolerations(tolerations: Option<&Vec<resource::DeviceToleration>>) -> Vec<Toleration> {
    tolerations
        .into_iter()
        .flatten()
        .map(|t| {
            toleration(t.key.as_ref(), t.operator.as_ref(), t.value.as_ref(), t.effect.as_ref(), t.toleration_seconds)
        })
        .collect()
}

fn toleration(
    key: Option<&String>,
    operator: Option<&String>,
    value: Option<&String>,
    effect: Option<&String>,
    toleration_seconds: Option<i64>,
) -> Toleration {
    Toleration {
        key: key.cloned().unwrap_or_default(),
        operator: Operator::from(operator.cloned().unwrap_or_default()),
        value: value.cloned().unwrap_or_default(),
        effect: effect.filter(|effect| !effect.is_empty()).map(|effect| effect.as_str().into()),
        toleration_seconds,
    }
}

/// As an allocation result stores it.
pub(crate) fn to_device_toleration(toleration: &Toleration) -> resource::DeviceToleration {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    resource::DeviceToleration {
        key: text(&toleration.key),
        operator: Some(toleration.operator.as_str().to_owned()),
        value: text(&toleration.value),
        effect: toleration.effect.as_ref().map(|effect| effect.as_str().to_owned()),
        toleration_seconds: toleration.toleration_seconds,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn device_tolerations_survive_the_way_there_and_back() {
        let written = json!([
            {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 10},
            {"operator": "Exists"},
        ]);
        let read: Vec<resource::DeviceToleration> = serde_json::from_value(written.clone()).unwrap();
        let back: Vec<_> = device_tolerations(Some(&read)).iter().map(to_device_toleration).collect();
        assert_eq!(serde_json::to_value(back).unwrap(), written);
    }

    #[test]
    fn an_empty_effect_is_every_effect() {
        let pod: core::Pod = serde_json::from_value(
            json!({"metadata": {}, "spec": {"containers": [], "tolerations": [{"key": "a", "effect": ""}]}}),
        )
        .unwrap();
        assert_eq!(tolerations(&pod)[0].effect, None);
        assert_eq!(tolerations(&pod)[0].operator, Operator::Equal);
    }
}
