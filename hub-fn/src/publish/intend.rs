//! What the fleet shall be, from what its repository says: the guards of invariant 2. Pure.
//!
//! Absence never removes: while any file cannot be read, every declaration that is missing keeps its
//! last good form and no selector or label changes who runs what. A commit that does not descend from
//! the last published one, or that removes more than the budget, is held whole until it is approved.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::PruneBudget;

use crate::declare::{self, Fleet, Reading};
use crate::record::{
    FLEET, HeldChange, HoldCause, Intent, IntentCluster, IntentService, IntentSource, SourceState,
};
use crate::source::Descent;

/// What was seen of the fleet repository.
#[derive(Debug)]
pub enum FleetSeen<'a> {
    /// The hub was started without one.
    Unconfigured,
    /// It could not be fetched, or its tree could not be read.
    Failed(String),
    /// It was read.
    Read {
        /// Its newest commit.
        commit: &'a str,
        /// How that commit stands to the last published one.
        descent: Descent,
        /// What it says.
        reading: &'a Reading,
    },
}

/// The outcome.
#[derive(Debug)]
pub struct Intended {
    /// What the fleet shall be.
    pub intent: Intent,
    /// How the fleet repository is.
    pub state: SourceState,
    /// What a person should know of it.
    pub messages: Vec<String>,
    /// What waits for an approval.
    pub held: Option<HeldChange>,
}

/// Decides. `members` are all registered clusters with the labels of their registrations.
#[must_use]
pub fn intend(
    previous: &Intent,
    seen: &FleetSeen<'_>,
    members: &BTreeMap<Name, Labels>,
    is_approved: &dyn Fn(&HeldChange) -> bool,
) -> Intended {
    let keep = |state, messages, held| Intended { intent: previous.clone(), state, messages, held };
    let (commit, descent, reading) = match seen {
        FleetSeen::Unconfigured => {
            let message = "no fleet repository: start the hub with --fleet URL".to_owned();
            return keep(SourceState::Failed, vec![message], None);
        }
        FleetSeen::Failed(message) => return keep(SourceState::Failed, vec![message.clone()], None),
        FleetSeen::Read { commit, descent, reading } => (*commit, *descent, *reading),
    };
    let mut messages: Vec<String> = reading.mistakes.iter().map(ToString::to_string).collect();
    let next = candidate(previous, commit, reading);
    if let Some(held) = hold(previous, &next, descent, members)
        && !is_approved(&held)
    {
        messages.insert(0, held.explain());
        return keep(SourceState::Held, messages, Some(held));
    }
    let state = if reading.is_complete() { SourceState::Ready } else { SourceState::Degraded };
    messages.extend(reading.warnings.iter().map(ToString::to_string));
    let labels: Vec<Labels> = members.iter().map(|(name, labels)| labels_of(&next, name, labels)).collect();
    let lonely = declare::services_matching_nobody(&reading.fleet, &labels);
    messages.extend(
        lonely.iter().map(|name| format!("service {name}: its selector matches no enrolled cluster")),
    );
    Intended { intent: next, state, messages, held: None }
}

/// The intent as the commit would have it, unreadable declarations kept.
fn candidate(previous: &Intent, commit: &str, reading: &Reading) -> Intent {
    let mut next = from_fleet(previous, commit, &reading.fleet);
    if reading.is_complete() {
        return next;
    }
    for (name, source) in &previous.sources {
        next.sources.entry(name.clone()).or_insert_with(|| source.clone());
    }
    for (name, service) in &previous.services {
        let kept = next.services.entry(name.clone()).or_insert_with(|| service.clone());
        kept.spec.clusters = service.spec.clusters.clone();
    }
    for (name, cluster) in &previous.clusters {
        next.clusters.insert(name.clone(), cluster.clone());
    }
    next
}

fn from_fleet(previous: &Intent, commit: &str, fleet: &Fleet) -> Intent {
    let sources = fleet.sources.iter().map(|(name, declared)| {
        let before = previous.sources.get(name).filter(|before| before.spec.git == declared.spec.git);
        let commit = before.and_then(|before| before.commit.clone());
        let (spec, origin) = (declared.spec.clone(), declared.origin.clone());
        (name.clone(), IntentSource { spec, origin, commit })
    });
    let services = fleet.services.iter().map(|(name, declared)| {
        let published = previous.services.get(name).and_then(|before| before.published.clone());
        let (spec, origin) = (declared.spec.clone(), declared.origin.clone());
        (name.clone(), IntentService { spec, origin, published })
    });
    let clusters = fleet.clusters.iter().map(|(name, declared)| {
        let (labels, origin) = (declared.spec.clone(), declared.origin.clone());
        (name.clone(), IntentCluster { labels, origin })
    });
    Intent {
        fleet: Some(commit.to_owned()),
        sources: sources.collect(),
        services: services.collect(),
        clusters: clusters.collect(),
    }
}

fn hold(
    previous: &Intent,
    next: &Intent,
    descent: Descent,
    members: &BTreeMap<Name, Labels>,
) -> Option<HeldChange> {
    let from = previous.fleet.as_deref();
    let (removes, of) = removed_pairs(previous, next, members);
    let descends = from.is_none() || matches!(descent, Descent::Same | Descent::Forward);
    let why = match descends {
        false => HoldCause::NotDescending,
        true if exceeds_budget(removes, of) => HoldCause::MassRemoval,
        true => return None,
    };
    let to = next.fleet.as_deref().unwrap_or_default();
    Some(HeldChange::new(FLEET, from, to, why, removes, of))
}

fn exceeds_budget(removes: u64, of: u64) -> bool {
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    PruneBudget::default().exceeded(count(removes), count(of))
}

/// How many cluster-service pairs `next` does not have any more, and how many `previous` had.
#[must_use]
pub fn removed_pairs(previous: &Intent, next: &Intent, members: &BTreeMap<Name, Labels>) -> (u64, u64) {
    let (mut removes, mut of) = (0, 0);
    for (cluster, labels) in members {
        let before = services_of(previous, &labels_of(previous, cluster, labels));
        let after = services_of(next, &labels_of(next, cluster, labels));
        of += before.len() as u64;
        removes += before.difference(&after).count() as u64;
    }
    (removes, of)
}

/// The services that clusters with these labels have had published to them.
fn services_of<'a>(intent: &'a Intent, labels: &Labels) -> BTreeSet<&'a Name> {
    let published = intent.services.iter().filter(|(_, service)| service.published.is_some());
    published.filter(|(_, service)| service.spec.clusters.matches(labels)).map(|(name, _)| name).collect()
}

/// A cluster's labels: those of its registration, overridden by those of the fleet repository.
#[must_use]
pub fn labels_of(intent: &Intent, cluster: &Name, registered: &Labels) -> Labels {
    let mut labels = registered.clone();
    if let Some(declared) = intent.clusters.get(cluster) {
        labels.extend(declared.labels.clone());
    }
    labels
}
