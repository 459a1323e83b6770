//! Compiled selectors and their answers, kept until the devices change: the same few expressions are asked for every pod.

use std::collections::HashMap;

use cluster::cel::Selector;
use taints::alloc::Candidate;
use taints::object::DeviceId;

/// More expressions than this are not remembered: classes and templates have few.
const MOST: usize = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Selectors {
    compiled: HashMap<String, Result<Selector, String>>,
    answers: HashMap<String, HashMap<DeviceId, Result<bool, String>>>,
}

impl Selectors {
    /// The devices changed: what was answered about them does not hold any more.
    pub(super) fn forget_answers(&mut self) {
        self.answers.clear();
        if self.compiled.len() > MOST {
            self.compiled.clear();
        }
    }

    /// Whether the device matches all expressions.
    pub(super) fn all_match(&mut self, expressions: &[String], candidate: &Candidate<'_>) -> Result<bool, String> {
        for expression in expressions {
            if !self.matches(expression, candidate)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn matches(&mut self, expression: &str, candidate: &Candidate<'_>) -> Result<bool, String> {
        if let Some(answer) = self.answers.get(expression).and_then(|answers| answers.get(&candidate.id)) {
            return answer.clone();
        }
        if !self.compiled.contains_key(expression) {
            let selector = Selector::compile(expression).map_err(|error| error.to_string());
            self.compiled.insert(expression.to_owned(), selector);
        }
        let answer = match &self.compiled[expression] {
            Ok(selector) => selector
                .matches(candidate.device, &candidate.id.driver)
                .map_err(|error| format!("CEL runtime error: {error}")),
            Err(error) => Err(error.clone()),
        };
        self.answers.entry(expression.to_owned()).or_default().insert(candidate.id.clone(), answer.clone());
        answer
    }
}
