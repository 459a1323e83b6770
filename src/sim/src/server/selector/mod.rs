//! Label selectors, as text of a query and as the objects of the API.

mod fields;

use serde_json::Value;

use super::value::{at, list, text};

pub(crate) use fields::FieldSelector;

/// A conjunction of label requirements; the empty one matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Reads a selector as queries carry it: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>5`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parts = split_outside_parentheses(text);
        let requirements = parts.iter().map(|part| requirement(part)).collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    /// Reads a `LabelSelector` object. Null selects nothing, which is none here.
    pub(crate) fn of_object(selector: &Value) -> Option<Self> {
        let labels = at(selector, &["matchLabels"]).as_object();
        if selector.is_null() {
            return None;
        }
        let mut requirements: Vec<Requirement> = labels
            .into_iter()
            .flatten()
            .map(|(key, value)| Requirement {
                key: key.clone(),
                test: Test::In(vec![value.as_str().unwrap_or_default().to_owned()]),
            })
            .collect();
        for expression in list(selector, &["matchExpressions"]) {
            let values = list(expression, &["values"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
            let test = match text(expression, &["operator"]) {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Absent,
                _ => return None,
            };
            requirements.push(Requirement { key: text(expression, &["key"]).to_owned(), test });
        }
        Some(Self { requirements })
    }

    /// Whether the labels of an object fit.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        if self.requirements.is_empty() {
            return true;
        }
        let labels = at(object, &["metadata", "labels"]);
        self.requirements.iter().all(|requirement| requirement.holds(labels.get(&requirement.key)))
    }
}

impl Requirement {
    fn holds(&self, label: Option<&Value>) -> bool {
        let value = label.and_then(Value::as_str);
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            Test::NotIn(values) => !value.is_some_and(|value| values.iter().any(|v| v == value)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Above(bound) => number().is_some_and(|n| n > *bound),
            Test::Below(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_i32);
    for (index, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn requirement(part: &str) -> Result<Requirement, String> {
    let made = |key: &str, test: Test| Ok(Requirement { key: key.trim().to_owned(), test });
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some(key) = part.strip_prefix('!') {
        return made(key, Test::Absent);
    }
    if let Some((head, values)) = part.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(|| format!("unclosed parenthesis in selector {part:?}"))?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        return match head.trim().rsplit_once(' ') {
            Some((key, "in")) => made(key, Test::In(values)),
            Some((key, "notin")) => made(key, Test::NotIn(values)),
            _ => Err(format!("selector {part:?} needs in or notin before the parenthesis")),
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return made(key, Test::NotIn(one(value)));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return made(key, Test::In(one(value)));
    }
    for (sign, test) in [('>', Test::Above as fn(i64) -> Test), ('<', Test::Below)] {
        if let Some((key, value)) = part.split_once(sign) {
            let bound = value.trim().parse().map_err(|_| format!("{value:?} in selector {part:?} is no integer"))?;
            return made(key, test(bound));
        }
    }
    if part.contains(' ') {
        return Err(format!("unable to parse requirement: {part:?}"));
    }
    made(part, Test::Exists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fits(selector: &str, labels: Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn equality_and_sets() {
        assert!(fits("", json!({})));
        assert!(fits("a=b,c!=d", json!({"a": "b"})));
        assert!(!fits("a==b", json!({"a": "c"})));
        assert!(fits("a in (x, y),b notin (z)", json!({"a": "y"})));
        assert!(!fits("b notin (z)", json!({"b": "z"})));
        assert!(fits("a,!b", json!({"a": ""})));
        assert!(!fits("a,!b", json!({"a": "", "b": "1"})));
        assert!(fits("n>4,n<6", json!({"n": "5"})));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["a in (x", "a of (x)", "a b", "n>x"] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn selector_objects_join_labels_and_expressions() {
        let selector = json!({"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "t", "operator": "Exists"}]});
        let selector = LabelSelector::of_object(&selector).unwrap();
        assert!(selector.matches(&json!({"metadata": {"labels": {"app": "a", "t": "1"}}})));
        assert!(!selector.matches(&json!({"metadata": {"labels": {"app": "a"}}})));
        assert!(LabelSelector::of_object(&Value::Null).is_none());
        assert!(LabelSelector::of_object(&json!({})).unwrap().matches(&json!({})));
    }
}
