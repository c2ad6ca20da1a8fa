//! Whose roster is to be written. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use farshore_shared::names::Name;
use farshore_shared::wire::{GroupId, Tombstone, UnixSeconds};

use super::{Known, Members};
use crate::publish::partition::{is_open, left_behind};
use crate::record::Table;

/// A cluster whose roster is to be written.
#[derive(Debug, Clone)]
pub struct Due {
    /// Which.
    pub name: Name,
    /// As it is known.
    pub known: Known,
    /// Its group.
    pub group: GroupId,
    /// The group that its roster names.
    pub named: Option<GroupId>,
    /// Groups that it left and whose services it may hold still.
    pub owed: BTreeSet<GroupId>,
}

/// By what it is told whether a roster has to be written.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// What is published.
    pub table: &'a Table,
    /// Given by root.
    pub epoch: u64,
    /// The time.
    pub now: UnixSeconds,
}

/// Why somebody is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Changed,
    Swept,
}

impl Members {
    /// At most so many clusters whose rosters are to be written; changes first, then those whom the look at
    /// everybody finds.
    pub fn due(&mut self, moment: Moment<'_>, count: usize) -> Vec<Due> {
        let clashes = self.groups.clashes(moment.table);
        if !clashes.is_empty() {
            let concerned = self.known.iter().filter(|(_, known)| {
                let tombstones = known.roster.as_ref().and_then(|roster| roster.tombstones.as_ref());
                tombstones.is_some_and(|t| clashes.contains(&(known.placed, Arc::clone(t))))
            });
            let concerned: Vec<Name> = concerned.map(|(name, _)| name.clone()).collect();
            self.changed.extend(concerned);
        }
        let asked: Vec<Name> = self.changed.iter().chain(self.owed.keys()).cloned().collect();
        let mut due = BTreeMap::new();
        for name in asked {
            if due.len() >= count {
                return due.into_values().collect();
            }
            match self.due_now(&name, moment, Ask::Changed) {
                Some(found) => drop(due.insert(name, found)),
                None => self.is_current(&name),
            }
        }
        self.swept(moment, count, &mut due);
        due.into_values().collect()
    }

    fn swept(&mut self, moment: Moment<'_>, count: usize, due: &mut BTreeMap<Name, Due>) {
        let Some(from) = self.sweep.take() else { return };
        let mut stopped = None;
        for (name, known) in self.known.range((from, Bound::Unbounded)) {
            if due.len() >= count {
                stopped = Some(Bound::Included(name.clone()));
                break;
            }
            if self.needs(known, moment)
                && let Some(found) = self.due_now(name, moment, Ask::Swept)
            {
                due.insert(name.clone(), found);
            }
        }
        self.sweep = stopped;
    }

    fn due_now(&self, name: &Name, moment: Moment<'_>, ask: Ask) -> Option<Due> {
        let known = self.known.get(name)?;
        let id = self.groups.id(known.placed);
        let owed = self.owed.get(name).into_iter().flatten().map(|slot| self.groups.id(*slot)).collect();
        let needs = match ask {
            Ask::Swept => true,
            Ask::Changed => {
                self.needs(known, moment) || self.clashes(known, moment) || self.owes(known, &owed, moment)
            }
        };
        let named = known.roster.as_ref().map(|roster| self.groups.id(roster.group));
        needs.then(|| Due { name: name.clone(), known: known.clone(), group: id, named, owed })
    }

    /// Whether a cluster's roster has to be written, as far as its own entry tells.
    fn needs(&self, known: &Known, moment: Moment<'_>) -> bool {
        let id = self.groups.id(known.placed);
        let Some(roster) = &known.roster else { return moment.table.0.contains_key(&id) };
        if roster.group != known.placed {
            let is_in = moment.table.0.contains_key(&id);
            return is_in
                && (roster.labels != known.labels || is_open(moment.table, &id, self.groups.keys()));
        }
        roster.labels != known.labels
            || roster.footprint != known.footprint
            || roster.order.0 != moment.epoch
            || roster.order < known.life
            || roster.due <= moment.now
    }

    fn clashes(&self, known: &Known, moment: Moment<'_>) -> bool {
        let tombstones = known.roster.as_ref().and_then(|roster| roster.tombstones.as_ref());
        let group = moment.table.0.get(&self.groups.id(known.placed));
        tombstones.zip(group).is_some_and(|(tombstones, group)| {
            tombstones.iter().any(|t| group.services.get(&t.service) == Some(&t.incarnation))
        })
    }

    fn owes(&self, known: &Known, owed: &BTreeSet<GroupId>, moment: Moment<'_>) -> bool {
        let Some(roster) = &known.roster else { return false };
        let Some(group) = moment.table.0.get(&self.groups.id(roster.group)) else { return false };
        let has: &[Tombstone] = roster.tombstones.as_ref().map_or(&[], |t| t.as_slice());
        let all = left_behind(moment.table, has, owed, group);
        all.iter().any(|tombstone| !has.contains(tombstone))
    }
}
