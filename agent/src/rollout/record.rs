//! What a site remembers of a rollout across power cuts. Pure.

use farshore_shared::digest::Digest;
use farshore_shared::wire::{Check, CheckOutcome, FailedRevision};
use serde::{Deserialize, Serialize};

use crate::object::ObjectKey;
use crate::waves::Phase;

/// The most bytes of what a test or a hook printed that are kept.
pub const LOG_LIMIT: usize = 2 << 10;
/// The most checks of one service that are told.
const CHECKS_TOLD: usize = 10;

/// What has happened in one revision of one service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The revision.
    pub revision: Digest,
    /// The hooks and tests that have ended in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Run>,
    /// That it was given up, if it was: it is not tried again by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedRevision>,
}

/// A hook or a test that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// What ran.
    pub key: ObjectKey,
    /// In which phase.
    pub phase: Phase,
    /// How it ended.
    pub outcome: CheckOutcome,
    /// Why, where there is something to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The end of what it printed, where it was read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log: String,
}

impl Record {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(revision: Digest) -> Self {
        Self { revision, runs: vec![], failed: None }
    }

    /// How something ended in a phase, if it has.
    #[must_use]
    pub fn run(&self, key: &ObjectKey, phase: Phase) -> Option<&Run> {
        self.runs.iter().find(|run| run.key == *key && run.phase == phase)
    }

    /// Forgets that anything failed, so that it is tried again. Gives whether there was anything to forget.
    pub fn retry(&mut self) -> bool {
        let before = self.clone();
        self.failed = None;
        self.runs.retain(|run| run.outcome == CheckOutcome::Passed);
        *self != before
    }

    /// What is told of it: its tests, and its hooks that failed.
    #[must_use]
    pub fn checks(&self) -> Vec<Check> {
        let told =
            self.runs.iter().filter(|run| run.phase == Phase::Test || run.outcome == CheckOutcome::Failed);
        told.take(CHECKS_TOLD).map(Run::told).collect()
    }
}

impl Run {
    fn told(&self) -> Check {
        Check {
            object: self.key.to_string(),
            outcome: self.outcome,
            message: self.message.clone(),
            log: self.log.clone(),
        }
    }
}

/// The end of a text that has at most so many bytes.
#[must_use]
pub fn tail(text: &str, limit: usize) -> &str {
    let from = text.len().saturating_sub(limit);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, phase: Phase, outcome: CheckOutcome) -> Run {
        let key = ObjectKey { group: "batch".into(), kind: "Job".into(), namespace: None, name: name.into() };
        Run { key, phase, outcome, message: String::new(), log: String::new() }
    }

    #[test]
    fn tests_and_failed_hooks_are_told() {
        use CheckOutcome::{Failed, Passed};
        let mut record = Record::new(Digest::of(b"1"));
        record.runs = vec![
            run("before", Phase::PreSync, Passed),
            run("after", Phase::PostSync, Failed),
            run("smoke", Phase::Test, Passed),
        ];
        let told: Vec<_> = record.checks().into_iter().map(|check| (check.object, check.outcome)).collect();
        assert_eq!(told, [("Job.batch after".into(), Failed), ("Job.batch smoke".into(), Passed)]);
        record.runs = vec![run("smoke", Phase::Test, Passed); 50];
        assert_eq!(record.checks().len(), CHECKS_TOLD);
    }

    #[test]
    fn a_retry_forgets_what_failed_and_not_what_passed() {
        let mut record = Record::new(Digest::of(b"1"));
        record.runs =
            vec![run("a", Phase::PreSync, CheckOutcome::Passed), run("b", Phase::Test, CheckOutcome::Failed)];
        record.failed = Some(FailedRevision { commit: "c".into(), why: "b".into(), at: 1 });
        assert!(record.retry());
        assert!(record.failed.is_none() && record.runs.len() == 1);
        assert!(!record.retry(), "there is nothing left to forget");
    }

    #[test]
    fn the_end_of_a_text_is_cut_between_letters() {
        assert_eq!(tail("abc", 2), "bc");
        assert_eq!(tail("abc", 9), "abc");
        assert_eq!(tail("aä", 1), "");
        assert_eq!(tail("", 0), "");
    }
}
