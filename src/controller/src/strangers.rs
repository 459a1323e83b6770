//! Claims that are reserved for something that is neither a pod nor a pod group: whoever uses the device by them is not found,
//! and so neither judged nor evicted. A person has to know.

use std::collections::HashMap;

use taints::fleet::{Change, Fleet};
use taints::object::{Claim, Consumer, Key};

/// The consumers of each claim that we cannot follow.
#[derive(Debug, Default)]
pub struct Strangers(HashMap<Key, Vec<Consumer>>);

impl Strangers {
    /// Takes a change; answers with the consumers that it brought.
    pub fn take<'c>(&mut self, change: &'c Change) -> Vec<(&'c Key, &'c Consumer)> {
        match change {
            Change::Claim(claim) => self.set(claim).into_iter().map(|consumer| (&claim.key, consumer)).collect(),
            Change::ClaimGone(key) => {
                self.0.remove(key);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn set<'c>(&mut self, claim: &'c Claim) -> Vec<&'c Consumer> {
        let now: Vec<&Consumer> = Fleet::unresolved(claim).collect();
        if now.is_empty() {
            self.0.remove(&claim.key);
            return now;
        }
        let kept = now.iter().copied().cloned().collect();
        let before = self.0.insert(claim.key.clone(), kept).unwrap_or_default();
        now.into_iter().filter(|consumer| !before.contains(consumer)).collect()
    }

    /// How many claims have such a consumer.
    #[must_use]
    pub fn claims(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumer(resource: &str, name: &str) -> Consumer {
        Consumer { api_group: String::new(), resource: resource.into(), name: name.into(), uid: name.into() }
    }

    fn reserved(consumers: &[Consumer]) -> Change {
        Change::Claim(Claim { key: Key::new("ml", "c"), reserved_for: consumers.to_vec(), ..Claim::default() })
    }

    #[test]
    fn each_is_told_of_once_and_counted_until_it_is_gone() {
        let mut strangers = Strangers::default();
        let (pod, job, batch) = (consumer("pods", "p"), consumer("jobs", "j"), consumer("jobs", "k"));
        assert!(strangers.take(&reserved(std::slice::from_ref(&pod))).is_empty());
        assert_eq!(strangers.take(&reserved(&[pod.clone(), job.clone()])), [(&Key::new("ml", "c"), &job)]);
        assert!(strangers.take(&reserved(std::slice::from_ref(&job))).is_empty());
        assert_eq!(strangers.take(&reserved(&[job.clone(), batch.clone()])).len(), 1);
        assert_eq!(strangers.claims(), 1);
        strangers.take(&reserved(&[pod]));
        assert_eq!(strangers.claims(), 0);
        strangers.take(&reserved(&[job]));
        strangers.take(&Change::ClaimGone(Key::new("ml", "c")));
        assert_eq!(strangers.claims(), 0);
    }
}
