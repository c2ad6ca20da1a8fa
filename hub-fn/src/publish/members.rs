//! Every registered cluster, as the directory tells of it: what the publisher must know to see whose roster is to
//! be written, and no more. Pure: nothing here reads or writes the record.

mod due;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use farshore_shared::keys::PublicKey;
use farshore_shared::names::{LabelKey, Labels, Name};
use farshore_shared::wire::{Footprint, GroupId, Roster, Tombstone, UnixSeconds};

use super::groups::{Groups, Slot};
use super::intend::Population;
use super::partition::{Placement, Policy, keys_of, margin};
use crate::declare::Fleet;
use crate::record::{Entry, Intent, IntentCluster, RosterRef};
pub use due::{Due, Moment};

/// A registered cluster.
#[derive(Debug, Clone)]
pub struct Known {
    /// What it signs with.
    pub key: PublicKey,
    /// Epoch and sequence of its registration.
    pub life: (u64, u64),
    /// The labels of its registration.
    registered: Arc<Labels>,
    /// Its labels.
    pub labels: Arc<Labels>,
    /// How much its agent may ask, where anything is said of that.
    footprint: Option<Arc<Footprint>>,
    /// The group to which it belongs.
    pub placed: Slot,
    /// Its roster, once it has one.
    pub roster: Option<Held>,
}

/// What is known of a roster.
#[derive(Debug, Clone)]
pub struct Held {
    /// The group that it names.
    pub group: Slot,
    /// Epoch and sequence.
    pub order: (u64, u64),
    /// When it is signed again.
    due: UnixSeconds,
    labels: Arc<Labels>,
    footprint: Option<Arc<Footprint>>,
    /// Its tombstones, if any.
    pub tombstones: Option<Arc<Vec<Tombstone>>>,
}

/// What the fleet repository says of one cluster.
#[derive(Debug)]
struct Override {
    labels: Labels,
    footprint: Footprint,
}

impl Override {
    fn of(cluster: &IntentCluster) -> Self {
        Self { labels: cluster.labels.clone(), footprint: cluster.footprint }
    }

    fn says(&self, cluster: &IntentCluster) -> bool {
        self.labels == cluster.labels && self.footprint == cluster.footprint
    }
}

/// All registered clusters, as this publisher knows them.
#[derive(Debug, Default)]
pub struct Members {
    known: BTreeMap<Name, Known>,
    /// Removed ones, with the order of their removal: an older entry does not bring them back.
    removed: BTreeMap<Name, (u64, u64)>,
    groups: Groups,
    /// What the fleet repository says of single clusters, as it is in force here.
    overrides: BTreeMap<Name, Override>,
    labels: Shared<Labels>,
    footprints: Shared<Footprint>,
    tombstones: Shared<Vec<Tombstone>>,
    policy: Policy,
    highest: u64,
    /// Those of whom something changed.
    changed: BTreeSet<Name>,
    /// Groups that clusters left, as others said, so that somebody has to look what they hold of them.
    owed: BTreeMap<Name, BTreeSet<Slot>>,
    /// Where the look at everybody goes on, while there is one.
    sweep: Option<Bound<Name>>,
    /// While everything is read, nobody is noted as changed: everybody is looked at afterwards.
    is_loading: bool,
}

impl Members {
    /// Nobody yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// From here until [`Members::loaded`], entries come in their thousands.
    pub fn load(&mut self) {
        self.is_loading = true;
    }

    /// Everything was read: everybody is looked at.
    pub fn loaded(&mut self) {
        self.is_loading = false;
        self.sweep();
    }

    /// How many clusters are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// A cluster.
    #[must_use]
    pub fn get(&self, name: &Name) -> Option<&Known> {
        self.known.get(name)
    }

    /// The group of a slot.
    #[must_use]
    pub fn group(&self, slot: Slot) -> GroupId {
        self.groups.id(slot)
    }

    /// The highest sequence that any entry speaks of. They are signed by us, so that they tell of
    /// publications that a head from a backup does not know.
    #[must_use]
    pub fn highest_sequence(&self) -> u64 {
        self.highest
    }

    /// How all clusters are told apart.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.groups.placement()
    }

    /// Clusters that have no roster yet, or one of a group to which they do not belong any more.
    #[must_use]
    pub fn moving(&self) -> u64 {
        self.groups.moving()
    }

    /// Up to `count` clusters after this one, or from the first on.
    pub fn after(&self, name: Option<&Name>, count: usize) -> Vec<Name> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.known
            .range::<Name, _>((from, Bound::Unbounded))
            .take(count)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Takes an entry, if it is newer than what is known.
    pub fn take(&mut self, entry: Entry) {
        let Entry { cluster, epoch, sequence, key, labels, roster } = entry;
        let life = (epoch, sequence);
        let of_roster = roster.as_ref().map_or(0, |roster| roster.sequence.max(roster.floor));
        self.highest = self.highest.max(sequence).max(of_roster);
        if self.removed.get(&cluster).is_some_and(|gone| *gone >= life) {
            return;
        }
        let Some(key) = key else { return self.remove(cluster, life) };
        let order = roster.as_ref().map_or((0, 0), |roster| (roster.epoch, roster.sequence));
        let before = self.known.get(&cluster);
        if before.is_some_and(|before| before.order() >= (life, order)) {
            return;
        }
        let left = before.and_then(|before| before.roster.as_ref()).map(|roster| roster.group);
        let registered = self.labels.get(labels);
        let held = roster.map(|roster| self.held(&cluster, roster, &registered));
        if let (Some(left), Some(held)) = (left, &held)
            && left != held.group
        {
            self.owed.entry(cluster.clone()).or_default().insert(left);
        }
        let (labels, footprint) = self.effective(&cluster, &registered);
        let placed = self.groups.place(&labels);
        let known = Known { key, life, registered, labels, footprint, placed, roster: held };
        self.removed.remove(&cluster);
        self.replace(cluster, known);
    }

    fn held(&mut self, cluster: &Name, roster: RosterRef, registered: &Arc<Labels>) -> Held {
        let tombstones = (!roster.tombstones.is_empty()).then(|| self.tombstones.get(roster.tombstones));
        Held {
            group: self.groups.slot(roster.group),
            order: (roster.epoch, roster.sequence),
            due: roster.expires.saturating_sub(margin(cluster, &self.policy)),
            labels: roster.labels.map_or_else(|| Arc::clone(registered), |labels| self.labels.get(labels)),
            footprint: self.footprints.of(roster.footprint),
            tombstones,
        }
    }

    fn replace(&mut self, name: Name, known: Known) {
        self.groups.add(&known);
        if !self.is_loading {
            self.changed.insert(name.clone());
        }
        if let Some(before) = self.known.insert(name, known) {
            self.groups.sub(&before);
        }
    }

    fn remove(&mut self, name: Name, life: (u64, u64)) {
        if self.known.get(&name).is_some_and(|known| known.life > life) {
            return;
        }
        if let Some(before) = self.known.remove(&name) {
            self.groups.sub(&before);
        }
        self.changed.remove(&name);
        self.owed.remove(&name);
        self.removed.insert(name, life);
    }

    /// Notes a roster that was written by us: whoever it is for has moved by what is published.
    pub fn wrote(&mut self, roster: &Roster, reference: RosterRef) {
        let Some(known) = self.known.get(&roster.cluster).cloned() else { return };
        let registered = Arc::clone(&known.registered);
        self.highest = self.highest.max(roster.sequence);
        let held = Some(self.held(&roster.cluster, reference, &registered));
        self.replace(roster.cluster.clone(), Known { roster: held, ..known });
        self.is_current(&roster.cluster);
    }

    /// Notes that nothing is to be done for a cluster.
    pub fn is_current(&mut self, name: &Name) {
        self.changed.remove(name);
        self.owed.remove(name);
    }

    /// Whether this life of a cluster was ended by a removal.
    #[must_use]
    pub fn is_removed(&self, name: &Name, life: (u64, u64)) -> bool {
        self.removed.get(name).is_some_and(|gone| *gone >= life)
    }

    /// The label keys that place clusters.
    #[must_use]
    pub fn placement_keys(&self) -> &BTreeSet<LabelKey> {
        self.groups.keys()
    }

    /// Notes a group that a cluster left, so that it is looked what it holds of it.
    pub fn owe(&mut self, name: Name, group: GroupId) {
        let slot = self.groups.slot(group);
        self.owed.entry(name).or_default().insert(slot);
    }

    fn effective(&mut self, name: &Name, registered: &Arc<Labels>) -> (Arc<Labels>, Option<Arc<Footprint>>) {
        let Some(given) = self.overrides.get(name) else { return (Arc::clone(registered), None) };
        let footprint = self.footprints.of(given.footprint);
        if given.labels.is_empty() {
            return (Arc::clone(registered), footprint);
        }
        let mut labels = Labels::clone(registered);
        labels.extend(given.labels.clone());
        (self.labels.get(labels), footprint)
    }

    /// Places everybody by an intent. Only those are touched whom it concerns, unless selectors use other keys.
    pub fn place(&mut self, intent: &Intent) {
        self.give(intent);
        let keys = keys_of(intent);
        if keys == *self.groups.keys() {
            return;
        }
        self.groups.begin(keys);
        // Most clusters share their labels with many others.
        let mut seen: HashMap<*const Labels, Slot> = HashMap::new();
        for known in self.known.values_mut() {
            let groups = &mut self.groups;
            known.placed =
                *seen.entry(Arc::as_ptr(&known.labels)).or_insert_with(|| groups.place(&known.labels));
            groups.add(known);
        }
        self.sweep();
    }

    fn give(&mut self, intent: &Intent) {
        let given = intent
            .clusters
            .iter()
            .filter(|(name, cluster)| self.overrides.get(*name).is_none_or(|before| !before.says(cluster)));
        let mut concerned: Vec<Name> = given.map(|(name, _)| name.clone()).collect();
        concerned.extend(self.overrides.keys().filter(|name| !intent.clusters.contains_key(*name)).cloned());
        for name in concerned {
            match intent.clusters.get(&name) {
                Some(cluster) => drop(self.overrides.insert(name.clone(), Override::of(cluster))),
                None => drop(self.overrides.remove(&name)),
            }
            let Some(known) = self.known.get(&name).cloned() else { continue };
            let (labels, footprint) = self.effective(&name, &known.registered);
            let placed = self.groups.place(&labels);
            self.replace(name, Known { labels, footprint, placed, ..known });
        }
    }

    /// Begins a look at everybody.
    pub fn sweep(&mut self) {
        self.sweep = Some(Bound::Unbounded);
    }

    /// Whether somebody waits for a look.
    #[must_use]
    pub fn is_anybody_due(&self) -> bool {
        self.sweep.is_some() || !self.changed.is_empty() || !self.owed.is_empty()
    }

    /// Whether it is open what clusters hold that others have moved.
    #[must_use]
    pub fn is_anything_owed(&self) -> bool {
        !self.owed.is_empty()
    }

    /// The clusters, as far as it counts for what a change of the intent removes.
    #[must_use]
    pub fn population(&self, previous: &Intent, fleet: Option<&Fleet>) -> Population {
        let mut keys = keys_of(previous);
        let names = fleet.into_iter().flat_map(|fleet| fleet.clusters.keys()).chain(previous.clusters.keys());
        let services = fleet.into_iter().flat_map(|fleet| fleet.services.values());
        keys.extend(services.flat_map(|service| service.spec.clusters.keys()));
        let named: BTreeMap<Name, Labels> = names
            .filter_map(|name| Some((name.clone(), Labels::clone(&self.known.get(name)?.registered))))
            .collect();
        let classes = match keys.is_subset(self.groups.keys()) {
            true => self.counted_classes(&named),
            false => {
                let mut classes: HashMap<*const Labels, (&Labels, u64)> = HashMap::new();
                for (_, known) in self.known.iter().filter(|(name, _)| !named.contains_key(*name)) {
                    classes.entry(Arc::as_ptr(&known.labels)).or_insert((&known.labels, 0)).1 += 1;
                }
                let mut merged: BTreeMap<Labels, u64> = BTreeMap::new();
                for (labels, count) in classes.into_values() {
                    let used = labels.iter().filter(|(key, _)| keys.contains(*key));
                    *merged.entry(used.map(|(k, v)| (k.clone(), v.clone())).collect()).or_default() += count;
                }
                merged.into_iter().collect()
            }
        };
        Population { classes, named }
    }

    fn counted_classes(&self, named: &BTreeMap<Name, Labels>) -> Vec<(Labels, u64)> {
        let mut by_itself: HashMap<Slot, u64> = HashMap::new();
        for known in named.keys().filter_map(|name| self.known.get(name)) {
            *by_itself.entry(known.placed).or_default() += 1;
        }
        let label = |(key, value): (&LabelKey, &String)| {
            (key.clone(), value.parse().expect("it was a label value before"))
        };
        let classes = self.groups.classes().map(|(slot, values, count)| {
            (values.iter().map(label).collect(), count - by_itself.get(&slot).copied().unwrap_or(0))
        });
        classes.filter(|(_, count)| *count > 0).collect()
    }

    /// The labels of a registration.
    #[must_use]
    pub fn registered(&self, name: &Name) -> Option<&Labels> {
        self.known.get(name).map(|known| &*known.registered)
    }
}

impl Known {
    /// How much its agent may ask, as far as anything is said of that.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        self.footprint.as_deref().copied().unwrap_or_default()
    }

    /// Whether an entry says nothing newer.
    #[must_use]
    pub fn is_told_by(&self, entry: &Entry) -> bool {
        let order = entry.roster.as_ref().map_or((0, 0), |roster| (roster.epoch, roster.sequence));
        self.order() >= ((entry.epoch, entry.sequence), order)
    }

    fn order(&self) -> ((u64, u64), (u64, u64)) {
        (self.life, self.roster.as_ref().map_or((0, 0), |roster| roster.order))
    }
}

/// Values of which many are the same, each held once.
#[derive(Debug)]
struct Shared<T> {
    values: BTreeSet<Arc<T>>,
    /// With so many, those that nobody has any more are let go.
    full: usize,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { values: BTreeSet::new(), full: 1024 }
    }
}

impl Shared<Footprint> {
    /// None where it says nothing, as most do.
    fn of(&mut self, footprint: Footprint) -> Option<Arc<Footprint>> {
        (!footprint.is_empty()).then(|| self.get(footprint))
    }
}

impl<T: Ord> Shared<T> {
    fn get(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.values.get(&value) {
            return Arc::clone(known);
        }
        if self.values.len() >= self.full {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.full = 2 * self.values.len().max(512);
        }
        let value = Arc::new(value);
        self.values.insert(Arc::clone(&value));
        value
    }
}
