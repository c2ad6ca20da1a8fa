//! Counting the fleet. Pure.

use farshore_shared::names::Labels;
use farshore_shared::wire::{GroupId, UnixSeconds};

use super::judge::{Evidence, judge};
use super::read::Found;
use crate::record::{ClusterState, Summary};

/// The most groups that are counted one by one; of the others only the fleet's counts tell.
const GROUPS: usize = 20_000;

/// A cluster that was counted.
#[derive(Debug, Clone)]
pub struct Counted {
    /// How it is.
    pub state: ClusterState,
    /// What a person should look at first.
    pub message: String,
}

impl Found {
    /// How this cluster is.
    #[must_use]
    pub fn judge(&self, published: impl Fn(&GroupId) -> Option<u64>, now: UnixSeconds) -> Counted {
        let roster = self.entry.roster.as_ref();
        let evidence = Evidence {
            roster,
            published: roster.and_then(|roster| published(&roster.group)),
            facts: self.facts.as_ref(),
            heard: self.heard,
            listening_since: self.listening_since,
        };
        let (state, message) = judge(&evidence, now);
        Counted { state, message }
    }

    /// Its labels: those that the fleet repository gives it win over those of its registration.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        let declared = self.entry.roster.as_ref().and_then(|roster| roster.labels.as_ref());
        declared.unwrap_or(&self.entry.labels)
    }
}

/// Adds clusters to a summary.
pub fn count(
    summary: &mut Summary,
    clusters: &[Found],
    published: impl Fn(&GroupId) -> Option<u64>,
    now: UnixSeconds,
) {
    for found in clusters {
        let state = found.judge(&published, now).state;
        summary.fleet.add(state);
        let Some(roster) = &found.entry.roster else { continue };
        if summary.groups.len() < GROUPS || summary.groups.contains_key(&roster.group) {
            summary.groups.entry(roster.group).or_default().add(state);
        }
    }
}
