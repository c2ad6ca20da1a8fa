//! What the fleet shall be, from what its repository says: the guards of invariant 2. Pure.
//!
//! Absence never removes: while any file cannot be read, every declaration that is missing keeps its
//! last good form and no selector or label changes who runs what. A commit that does not descend from
//! the last published one, or that removes more than the budget, is held whole until it is approved.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::PruneBudget;

use crate::declare::{self, Fleet, Mistake, OfCluster, Reading};
use crate::record::{
    FLEET, HeldChange, HoldCause, Intent, IntentCluster, IntentDefaults, IntentService, IntentSource,
    SourceState,
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
        /// The paths of all its files that may declare something.
        files: &'a BTreeSet<String>,
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

/// All registered clusters, as far as it counts for who runs what: those of whom no declaration speaks by name are
/// only counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Population {
    /// Labels, as far as any selector looks, and how many clusters have them.
    pub classes: Vec<(Labels, u64)>,
    /// The clusters to which the fleet repository gives labels or gave some, with those of their registrations.
    pub named: BTreeMap<Name, Labels>,
}

impl Population {
    /// Everybody by name.
    #[must_use]
    pub fn by_name(members: &BTreeMap<Name, Labels>) -> Self {
        Self { classes: vec![], named: members.clone() }
    }
}

/// Decides.
#[must_use]
pub fn intend(
    previous: &Intent,
    seen: &FleetSeen<'_>,
    members: &Population,
    is_approved: &dyn Fn(&HeldChange) -> bool,
) -> Intended {
    let keep = |state, messages, held| Intended { intent: previous.clone(), state, messages, held };
    let (commit, descent, reading, files) = match seen {
        FleetSeen::Unconfigured => {
            let message = "no fleet repository: start the hub with --fleet URL".to_owned();
            return keep(SourceState::Failed, vec![message], None);
        }
        FleetSeen::Failed(message) => return keep(SourceState::Failed, vec![message.clone()], None),
        FleetSeen::Read { commit, descent, reading, files } => (*commit, *descent, *reading, *files),
    };
    let silent = fallen_silent(previous, &reading.fleet, files);
    let mistakes = reading.mistakes.iter().chain(&silent);
    let mut messages: Vec<String> = mistakes.map(ToString::to_string).collect();
    let is_complete = reading.is_complete() && silent.is_empty();
    let read = from_fleet(previous, commit, &reading.fleet);
    let next = if is_complete { read } else { with_kept(previous, read, members) };
    if let Some(held) = hold(previous, &next, descent, members)
        && !is_approved(&held)
    {
        messages.insert(0, held.explain());
        return keep(SourceState::Held, messages, Some(held));
    }
    let state = if is_complete { SourceState::Ready } else { SourceState::Degraded };
    messages.extend(reading.warnings.iter().map(ToString::to_string));
    let named = members.named.iter().map(|(name, labels)| labels_of(&next, name, labels));
    let labels: Vec<Labels> = members.classes.iter().map(|(labels, _)| labels.clone()).chain(named).collect();
    // While nobody is enrolled at all, that is not the selectors' fault.
    let lonely = match labels.is_empty() {
        true => BTreeSet::new(),
        false => declare::services_matching_nobody(&reading.fleet, &labels),
    };
    messages.extend(
        lonely.iter().map(|name| format!("service {name}: its selector matches no enrolled cluster")),
    );
    Intended { intent: next, state, messages, held: None }
}

/// Files that declared something, are still there, and declare nothing any more: a file that was cut or
/// emptied looks like this, so it counts as one that cannot be read. A file whose declarations all
/// stand elsewhere now has lost nothing.
fn fallen_silent(previous: &Intent, fleet: &Fleet, files: &BTreeSet<String>) -> Vec<Mistake> {
    let speaking: BTreeSet<&str> = (fleet.sources.values().map(|declared| &declared.origin))
        .chain(fleet.services.values().map(|declared| &declared.origin))
        .chain(fleet.clusters.values().map(|declared| &declared.origin))
        .chain(fleet.defaults.iter().map(|declared| &declared.origin))
        .map(|origin| origin.file.as_str())
        .collect();
    let lost = (previous.sources.iter().filter(|(name, _)| !fleet.sources.contains_key(*name)))
        .map(|(_, source)| &source.origin)
        .chain(
            (previous.services.iter().filter(|(name, _)| !fleet.services.contains_key(*name)))
                .map(|(_, service)| &service.origin),
        )
        .chain(
            (previous.clusters.iter().filter(|(name, _)| !fleet.clusters.contains_key(*name)))
                .map(|(_, cluster)| &cluster.origin),
        )
        .chain(
            previous.defaults.iter().filter(|_| fleet.defaults.is_none()).map(|defaults| &defaults.origin),
        );
    let silent: BTreeSet<&str> = lost.map(|origin| origin.file.as_str()).collect();
    let silent = silent.into_iter().filter(|file| files.contains(*file) && !speaking.contains(file));
    silent
        .map(|file| Mistake {
            file: file.to_owned(),
            line: None,
            column: None,
            field: String::new(),
            message: "the file declares nothing any more".to_owned(),
            expected: "expected: the file removed, if its declarations shall go".to_owned(),
        })
        .collect()
}

/// The intent of a commit that cannot be read whole: what is missing keeps its last good form, and
/// selectors and labels change only if no cluster loses a service by it.
fn with_kept(previous: &Intent, read: Intent, members: &Population) -> Intent {
    let mut next = read;
    for (name, source) in &previous.sources {
        next.sources.entry(name.clone()).or_insert_with(|| source.clone());
    }
    for (name, service) in &previous.services {
        next.services.entry(name.clone()).or_insert_with(|| service.clone());
    }
    for (name, cluster) in &previous.clusters {
        next.clusters.entry(name.clone()).or_insert_with(|| cluster.clone());
    }
    if next.defaults.is_none() {
        next.defaults.clone_from(&previous.defaults);
    }
    if removed_pairs(previous, &next, members).0 == 0 {
        return next;
    }
    for (name, service) in &previous.services {
        if let Some(kept) = next.services.get_mut(name) {
            kept.spec.clusters = service.spec.clusters.clone();
        }
    }
    // A new override may move a cluster away from what it has, just as a changed one may.
    next.clusters.clone_from(&previous.clusters);
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
        let OfCluster { labels, footprint } = declared.spec.clone();
        (name.clone(), IntentCluster { labels, footprint, origin: declared.origin.clone() })
    });
    let defaults = fleet
        .defaults
        .as_ref()
        .map(|declared| IntentDefaults { footprint: declared.spec, origin: declared.origin.clone() });
    Intent {
        fleet: Some(commit.to_owned()),
        sources: sources.collect(),
        services: services.collect(),
        clusters: clusters.collect(),
        defaults,
    }
}

fn hold(previous: &Intent, next: &Intent, descent: Descent, members: &Population) -> Option<HeldChange> {
    let from = previous.fleet.as_deref();
    let (removes, of) = removed_pairs(previous, next, members);
    let descends = from.is_none() || matches!(descent, Descent::Same | Descent::Forward);
    let why = match descends {
        false => HoldCause::NotDescending,
        true if leaves_nothing(previous, next, removes, of) => HoldCause::NothingLeft,
        true if exceeds_budget(removes, of) => HoldCause::MassRemoval,
        true => return None,
    };
    let to = next.fleet.as_deref().unwrap_or_default();
    Some(HeldChange::new(FLEET, from, to, why, removes, of))
}

/// A budget of ten would let a small fleet go at once.
fn leaves_nothing(previous: &Intent, next: &Intent, removes: u64, of: u64) -> bool {
    let is_undeclared = next.services.is_empty() && !previous.services.is_empty();
    is_undeclared || (of > 0 && removes == of)
}

fn exceeds_budget(removes: u64, of: u64) -> bool {
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    PruneBudget::default().exceeded(count(removes), count(of))
}

/// How many cluster-service pairs `next` does not have any more, and how many `previous` had.
#[must_use]
pub fn removed_pairs(previous: &Intent, next: &Intent, members: &Population) -> (u64, u64) {
    let (mut removes, mut of) = (0, 0);
    let mut count = |before: &Labels, after: &Labels, clusters: u64| {
        let (before, after) = (services_of(previous, before), services_of(next, after));
        of += before.len() as u64 * clusters;
        removes += before.difference(&after).count() as u64 * clusters;
    };
    for (labels, clusters) in &members.classes {
        count(labels, labels, *clusters);
    }
    for (cluster, labels) in &members.named {
        count(&labels_of(previous, cluster, labels), &labels_of(next, cluster, labels), 1);
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

#[cfg(test)]
mod tests;
