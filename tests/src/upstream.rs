//! What kube-controller-manager's evictors did beside what our controller, which only observes, says that it would do.
//!
//! In: the pods that were evicted, and our controller's log. Out: a row a pod, and the rows that nothing explains. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

/// How far upstream's eviction may be from our deadline, either way. A second for times that are cut to whole seconds: that of its condition, and that of
/// a taint. Two for a busy machine: each counts a node's taint from when it saw it itself, and upstream's workers take their time.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(3);

/// Our controller says so when a deadline is new or moved.
const WOULD_LEAVE: &str = "would leave at its deadline";
/// And so when it is over before its time.
const STAYS: &str = "would stay after all";

/// One pod, and when each would evict it; absent where it stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The pod.
    pub pod: String,
    /// When upstream evicted it.
    pub upstream: Option<Timestamp>,
    /// When we would.
    pub ours: Option<Timestamp>,
    /// The case that decides for a difference.
    pub case: Option<&'static str>,
}

impl Row {
    /// Whether both do the same, as far as whole seconds and a busy machine can tell.
    #[must_use]
    pub fn agrees(&self) -> bool {
        match (self.upstream, self.ours) {
            (Some(upstream), Some(ours)) => upstream.duration_since(ours).abs() <= TOLERANCE,
            (upstream, ours) => upstream.is_none() && ours.is_none(),
        }
    }

    /// Whether they differ, and no case says that they should.
    #[must_use]
    pub fn is_unexplained(&self) -> bool {
        !self.agrees() && self.case.is_none()
    }

    fn cells(&self) -> [String; 5] {
        let time = |time: Option<Timestamp>| time.map_or_else(|| "stays".to_owned(), |time| format!("{time:.1}"));
        let difference = match (self.upstream, self.ours) {
            (Some(upstream), Some(ours)) => format!("{:+.1} s", upstream.duration_since(ours).as_secs_f64()),
            (None, None) => "none".to_owned(),
            (Some(_), None) => "only upstream".to_owned(),
            (None, Some(_)) => "only ours".to_owned(),
        };
        let case = match (self.agrees(), self.case) {
            (true, _) => "-",
            (false, Some(case)) => case,
            (false, None) => "UNEXPLAINED",
        };
        [self.pod.clone(), time(self.upstream), time(self.ours), difference, case.to_owned()]
    }
}

/// The rows as lines of a table; the difference is upstream's time less ours.
#[must_use]
pub fn table(rows: &[Row]) -> Vec<String> {
    let head = ["POD", "UPSTREAM", "OURS", "DIFFERENCE", "CASE"].map(str::to_owned);
    let lines: Vec<[String; 5]> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
    let width = |column: usize| lines.iter().map(|cells| cells[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    let line = |cells: &[String; 5]| {
        let cells: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect()
}

#[derive(Deserialize)]
struct Line {
    fields: Fields,
}

#[derive(Deserialize)]
struct Fields {
    message: String,
    #[serde(default)]
    pod: String,
    deadline: Option<Timestamp>,
}

/// The deadlines that our controller's log told last, by the name of the pod. Lines that are no JSON, or about something else, say nothing.
#[must_use]
pub fn deadlines(log: &str) -> BTreeMap<String, Timestamp> {
    let mut told = BTreeMap::new();
    for Line { fields } in log.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        let name = fields.pod.rsplit('/').next().unwrap_or_default().to_owned();
        match fields.deadline {
            Some(deadline) if fields.message.starts_with(WOULD_LEAVE) => drop(told.insert(name, deadline)),
            _ if fields.message.starts_with(STAYS) => drop(told.remove(&name)),
            _ => {}
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn row(upstream: Option<i64>, ours: Option<i64>, case: Option<&'static str>) -> Row {
        Row { pod: "p".to_owned(), upstream: upstream.map(at), ours: ours.map(at), case }
    }

    #[test]
    fn whole_seconds_and_a_busy_machine_are_no_difference_and_more_is() {
        for (upstream, ours) in [(None, None), (Some(7), Some(10)), (Some(10), Some(10)), (Some(13), Some(10))] {
            assert!(row(upstream, ours, None).agrees(), "{upstream:?} {ours:?}");
        }
        for (upstream, ours) in [(None, Some(1)), (Some(1), None), (Some(6), Some(10)), (Some(14), Some(10))] {
            assert!(row(upstream, ours, None).is_unexplained(), "{upstream:?} {ours:?}");
            assert!(!row(upstream, ours, Some("NE-013")).is_unexplained());
        }
    }

    #[test]
    fn the_table_shows_what_differs_and_why() {
        let lines = table(&[row(Some(10), Some(4), Some("NE-022")), row(None, Some(4), None), row(None, None, None)]);
        assert!(lines[0].starts_with("POD") && lines[0].ends_with("CASE"));
        assert!(lines[1].contains("+6.0 s") && lines[1].ends_with("NE-022"), "{}", lines[1]);
        assert!(lines[2].contains("only ours") && lines[2].ends_with("UNEXPLAINED"), "{}", lines[2]);
        assert!(lines[3].ends_with("none        -") || lines[3].ends_with('-'), "{}", lines[3]);
    }

    #[test]
    fn the_last_deadline_counts_and_one_that_was_taken_back_does_not() {
        let would = |pod: &str, second: i64| {
            format!(
                r#"{{"level":"INFO","fields":{{"message":"{WOULD_LEAVE}; x","pod":"story/{pod}","deadline":"{}"}}}}"#,
                at(second)
            )
        };
        let stays = format!(r#"{{"fields":{{"message":"{STAYS}; x","pod":"story/b"}}}}"#);
        let log = ["no JSON", &would("a", 1), &would("b", 2), &would("a", 3), &stays, "{}"].join("\n");
        assert_eq!(deadlines(&log), BTreeMap::from([("a".to_owned(), at(3))]));
    }
}
