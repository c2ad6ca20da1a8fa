//! Whether a cluster is as it should be. Pure.

use farshore_shared::wire::{ServiceState, UnixSeconds};

use crate::index::SeenShard;
use crate::record::{ClusterState, Facts, RosterRef};

/// A cluster is unreachable when it was not heard for so many polls,
pub const POLLS_MISSED: u64 = 3;
/// and so many seconds.
pub const GRACE: u64 = 60;
/// The poll interval of a cluster that has not told its own, in seconds.
pub const POLL: u64 = 120;

/// What is known of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// Its roster, once it has one.
    pub roster: Option<&'a RosterRef>,
    /// The sequence of what is published for its group.
    pub published: Option<u64>,
    /// Its last report.
    pub facts: Option<&'a Facts>,
    /// When it was last heard.
    pub heard: Option<UnixSeconds>,
    /// Since when anybody would know of it, where that may be later.
    pub listening_since: Option<UnixSeconds>,
}

/// The state of a cluster, and what a person should look at first.
#[must_use]
pub fn judge(evidence: &Evidence<'_>, now: UnixSeconds) -> (ClusterState, String) {
    let Some(heard) = evidence.heard else {
        return (ClusterState::NeverSeen, "enrolled, but never heard: is its agent running?".into());
    };
    let poll = evidence.facts.map_or(POLL, |facts| facts.poll_seconds);
    let patience = poll.saturating_mul(POLLS_MISSED).saturating_add(GRACE);
    // Whoever has just begun to listen cannot say that somebody is silent.
    let counted = evidence.listening_since.map_or(heard, |since| since.max(heard));
    if now.saturating_sub(counted) > patience {
        return (ClusterState::Unreachable, format!("not heard for {}", age(now.saturating_sub(heard))));
    }
    let Some(facts) = evidence.facts else {
        return (ClusterState::Converging, "has not told its state yet".into());
    };
    match facts.worst {
        Some(ServiceState::Failed) => (ClusterState::Failed, facts.message.clone()),
        Some(ServiceState::Waiting | ServiceState::Held) => (ClusterState::Converging, facts.message.clone()),
        Some(ServiceState::Applied) | None => match lag(evidence, facts) {
            Some(lag) if facts.message.is_empty() => (ClusterState::Converging, lag),
            Some(_) => (ClusterState::Converging, facts.message.clone()),
            None => (ClusterState::Converged, facts.message.clone()),
        },
    }
}

/// When a cluster was last heard, as far as anybody knows.
#[must_use]
pub fn heard(facts: Option<&Facts>, noted: [Option<UnixSeconds>; 2]) -> Option<UnixSeconds> {
    let reported = facts.map(|facts| facts.received / 1000);
    noted.into_iter().chain([reported]).flatten().max()
}

/// Since when an index would know of a cluster that it does not know.
#[must_use]
pub fn listening_since(index: Option<&SeenShard>, now: UnixSeconds) -> Option<UnixSeconds> {
    // An index that keeps times and was told none has just been emptied.
    index.map(|index| index.since.unwrap_or(now))
}

/// What a cluster does not hold of what is published for it.
fn lag(evidence: &Evidence<'_>, facts: &Facts) -> Option<String> {
    let Some(roster) = evidence.roster else { return Some("no roster is published for it yet".into()) };
    let Some(published) = evidence.published else {
        return Some("nothing is published for its group yet".into());
    };
    let Some(holds) = facts.holds else { return Some("has accepted nothing yet".into()) };
    // The roster, too: bodies of two groups may have the same sequence.
    if holds.epoch == roster.epoch && holds.group == published && holds.roster >= roster.sequence {
        return None;
    }
    Some(match holds.group == published {
        true => "has not accepted its newest roster yet".into(),
        false => format!("holds {}, published is {published}", holds.group),
    })
}

/// How long, in its largest whole unit.
#[must_use]
pub fn age(seconds: u64) -> String {
    match seconds {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7200 => format!("{}m", s / 60),
        s @ 7200..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use farshore_shared::digest::Digest;
    use farshore_shared::wire::Holds;

    use super::*;

    const NOW: u64 = 1_000_000;

    fn roster() -> RosterRef {
        RosterRef {
            group: Digest::of(b"g"),
            floor: 1,
            epoch: 1,
            sequence: 7,
            digest: Digest::of(b"r"),
            expires: 2 * NOW,
            labels: None,
            tombstones: vec![],
            footprint: Default::default(),
        }
    }

    fn facts() -> Facts {
        Facts {
            state_id: "s".into(),
            sequence: 1,
            received: NOW * 1000,
            poll_seconds: 60,
            holds: Some(Holds { epoch: 1, roster: 7, group: 9 }),
            worst: Some(ServiceState::Applied),
            services: 1,
            applied: 1,
            message: String::new(),
        }
    }

    #[test]
    fn every_state_has_its_evidence() {
        let (roster, good) = (roster(), facts());
        let failed = Facts { worst: Some(ServiceState::Failed), ..facts() };
        let waiting = Facts { worst: Some(ServiceState::Waiting), ..facts() };
        let behind = Facts { holds: Some(Holds { epoch: 1, roster: 7, group: 8 }), ..facts() };
        let moved = Facts { holds: Some(Holds { epoch: 1, roster: 6, group: 9 }), ..facts() };
        let state = |facts: Option<&Facts>, heard| {
            let evidence =
                Evidence { roster: Some(&roster), published: Some(9), facts, heard, listening_since: None };
            judge(&evidence, NOW).0
        };
        assert_eq!(state(None, None), ClusterState::NeverSeen);
        assert_eq!(state(None, Some(NOW)), ClusterState::Converging);
        assert_eq!(state(Some(&good), Some(NOW)), ClusterState::Converged);
        assert_eq!(state(Some(&good), Some(NOW - 240)), ClusterState::Converged);
        assert_eq!(state(Some(&good), Some(NOW - 241)), ClusterState::Unreachable);
        assert_eq!(state(Some(&failed), Some(NOW - 241)), ClusterState::Unreachable, "its own state");
        assert_eq!(state(Some(&failed), Some(NOW)), ClusterState::Failed);
        assert_eq!(state(Some(&waiting), Some(NOW)), ClusterState::Converging);
        assert_eq!(state(Some(&behind), Some(NOW)), ClusterState::Converging);
        assert_eq!(state(Some(&moved), Some(NOW)), ClusterState::Converging);
    }

    #[test]
    fn an_age_is_short() {
        let ages = [0, 119, 120, 7199, 7200, 172_800].map(age);
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h", "2d"]);
    }

    #[test]
    fn an_emptied_index_makes_nobody_unreachable() {
        let (roster, facts) = (roster(), facts());
        let state = |since, now| {
            let index = SeenShard { since, ..SeenShard::default() };
            let evidence = Evidence {
                roster: Some(&roster),
                published: Some(9),
                facts: Some(&facts),
                heard: heard(Some(&facts), [None, None]),
                listening_since: listening_since(Some(&index), now),
            };
            judge(&evidence, now).0
        };
        assert_eq!(state(None, NOW + 10_000), ClusterState::Converged, "it listens to nobody yet");
        assert_eq!(state(Some(NOW + 9_900), NOW + 10_000), ClusterState::Converged);
        assert_eq!(state(Some(NOW), NOW + 10_000), ClusterState::Unreachable);
    }
}
