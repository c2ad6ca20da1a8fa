//! How many clusters are in which group, counted as they come, move and go. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use farshore_shared::names::{LabelKey, Labels};
use farshore_shared::wire::{GroupId, Tombstone};

use super::members::Known;
use super::partition::{Placement, Standing, group_id, values_of};
use crate::record::Table;

/// A group, in as many bytes as a cluster can afford.
pub type Slot = u32;

#[derive(Debug, Default)]
struct Group {
    id: Option<GroupId>,
    standing: Standing,
}

/// All groups that any cluster was ever in.
#[derive(Debug, Default)]
pub struct Groups {
    keys: BTreeSet<LabelKey>,
    groups: Vec<Group>,
    slots: HashMap<GroupId, Slot>,
    /// How many clusters of a group have a roster with these tombstones.
    carried: BTreeMap<(Slot, Arc<Vec<Tombstone>>), u64>,
    /// Clusters without a roster.
    without: u64,
}

impl Groups {
    /// The label keys that place clusters.
    #[must_use]
    pub fn keys(&self) -> &BTreeSet<LabelKey> {
        &self.keys
    }

    /// Begins to count anew, with these keys.
    pub fn begin(&mut self, keys: BTreeSet<LabelKey>) {
        self.keys = keys;
        for group in &mut self.groups {
            group.standing = Standing::default();
        }
        self.carried.clear();
        self.without = 0;
    }

    /// The group of clusters with these labels.
    pub fn place(&mut self, labels: &Labels) -> Slot {
        let values = values_of(labels, &self.keys);
        let slot = self.slot(group_id(&values));
        let standing = &mut self.groups[slot as usize].standing;
        if standing.values != values {
            standing.values = values;
        }
        slot
    }

    /// The slot of a group.
    pub fn slot(&mut self, id: GroupId) -> Slot {
        let next = self.groups.len();
        let slot = *self.slots.entry(id).or_insert_with(|| Slot::try_from(next).expect("groups are few"));
        if slot as usize == next {
            self.groups.push(Group { id: Some(id), ..Group::default() });
        }
        slot
    }

    /// The group of a slot.
    ///
    /// # Panics
    /// Never: slots are given by [`Groups::slot`] only.
    #[must_use]
    pub fn id(&self, slot: Slot) -> GroupId {
        self.groups[slot as usize].id.expect("a slot is given with its group")
    }

    /// Counts a cluster.
    pub fn add(&mut self, known: &Known) {
        self.count(known, |count| *count += 1);
    }

    /// Counts a cluster no more.
    pub fn sub(&mut self, known: &Known) {
        self.count(known, |count| *count -= 1);
    }

    fn count(&mut self, known: &Known, by: impl Fn(&mut u64)) {
        by(&mut self.groups[known.placed as usize].standing.placed);
        let Some(roster) = &known.roster else { return by(&mut self.without) };
        let named = &mut self.groups[roster.group as usize].standing;
        by(&mut named.named);
        if roster.group != known.placed {
            by(&mut named.strangers);
        }
        if let Some(tombstones) = &roster.tombstones {
            let carried = self.carried.entry((known.placed, Arc::clone(tombstones))).or_default();
            by(carried);
            if *carried == 0 {
                self.carried.remove(&(known.placed, Arc::clone(tombstones)));
            }
        }
    }

    /// Clusters that have no roster yet, or one of a group to which they do not belong any more.
    #[must_use]
    pub fn moving(&self) -> u64 {
        self.without + self.groups.iter().map(|group| group.standing.strangers).sum::<u64>()
    }

    /// How all clusters are told apart, and how many are in which group.
    #[must_use]
    pub fn placement(&self) -> Placement {
        let groups = self.groups.iter().filter(|group| group.standing.placed + group.standing.named > 0);
        let groups = groups.filter_map(|group| Some((group.id?, group.standing.clone())));
        Placement { keys: self.keys.clone(), groups: groups.collect(), heard: BTreeMap::new() }
    }

    /// The label values of every group that has clusters, and how many.
    pub fn classes(&self) -> impl Iterator<Item = (Slot, &BTreeMap<LabelKey, String>, u64)> {
        let numbered = (0..).zip(&self.groups);
        numbered
            .filter(|(_, group)| group.standing.placed > 0)
            .map(|(slot, group)| (slot, &group.standing.values, group.standing.placed))
    }

    /// Whether a roster with these tombstones in this group contradicts its body: a service is there in the life
    /// that was ended.
    #[must_use]
    pub fn clashes(&self, table: &Table) -> BTreeSet<(Slot, Arc<Vec<Tombstone>>)> {
        let clash = |(slot, tombstones): &&(Slot, Arc<Vec<Tombstone>>)| {
            let group = table.0.get(&self.id(*slot));
            group.is_some_and(|group| {
                tombstones.iter().any(|t| group.services.get(&t.service) == Some(&t.incarnation))
            })
        };
        self.carried.keys().filter(clash).cloned().collect()
    }
}
