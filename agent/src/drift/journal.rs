//! What is told of drift, per service and bounded. Pure.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::names::Name;
use farshore_shared::wire::{DriftAction, ObjectDrift, UnixSeconds};

/// The most objects of one service that are told of.
const TOLD: usize = 20;
/// The most fields of one object.
pub const FIELDS_TOLD: usize = 8;
/// How long a correction is told of, in seconds.
const LATELY: u64 = 3600;

/// What happened lately, by service.
#[derive(Debug, Default)]
pub struct Journal {
    services: BTreeMap<Name, Page>,
}

#[derive(Debug, Default)]
struct Page {
    repairs: u64,
    /// The newest first, each object once.
    drift: Vec<ObjectDrift>,
}

impl Journal {
    /// Something was found. An object that was told of before is told of once.
    pub fn found(&mut self, service: &Name, mut drift: ObjectDrift) {
        drift.fields.truncate(FIELDS_TOLD);
        let page = self.services.entry(service.clone()).or_default();
        let known = page.drift.iter().position(|known| known.object == drift.object);
        let told = known.map(|place| page.drift.remove(place));
        // What stays as it is found is told of with the time at which it began.
        if let Some(told) = told
            && told.action == drift.action
            && drift.action != DriftAction::Corrected
        {
            drift.at = told.at;
        }
        page.drift.insert(0, drift);
        page.drift.truncate(TOLD);
    }

    /// So many objects were put back.
    pub fn repaired(&mut self, service: &Name, count: u64) {
        self.services.entry(service.clone()).or_default().repairs += count;
    }

    /// An object is as it shall be again: what was told of it as standing is not so any more.
    pub fn is_well(&mut self, service: &Name, object: &str) {
        if let Some(page) = self.services.get_mut(service) {
            page.drift.retain(|known| known.object != object || known.action == DriftAction::Corrected);
        }
    }

    /// Whether anything of a service is told of that stays as it was found.
    #[must_use]
    pub fn is_standing(&self, service: &Name) -> bool {
        let stands = |known: &ObjectDrift| known.action != DriftAction::Corrected;
        self.services.get(service).is_some_and(|page| page.drift.iter().any(stands))
    }

    /// Whether this object is told of as standing.
    #[must_use]
    pub fn is_told(&self, service: &Name, object: &str) -> bool {
        let stands = |known: &ObjectDrift| known.object == object && known.action != DriftAction::Corrected;
        self.services.get(service).is_some_and(|page| page.drift.iter().any(stands))
    }

    /// These objects are all that a service has: what is told of others as standing is not so any more.
    pub fn only(&mut self, service: &Name, objects: &BTreeSet<String>) {
        if let Some(page) = self.services.get_mut(service) {
            let is_there = |known: &ObjectDrift| objects.contains(&known.object);
            page.drift.retain(|known| is_there(known) || known.action == DriftAction::Corrected);
        }
    }

    /// Everything of a service is as it shall be.
    pub fn all_well(&mut self, service: &Name) {
        if let Some(page) = self.services.get_mut(service) {
            page.drift.retain(|known| known.action == DriftAction::Corrected);
        }
    }

    /// What is told of a service: how many repairs there were, and the objects that changed lately.
    pub fn told(&mut self, service: &Name, now: UnixSeconds) -> (u64, Vec<ObjectDrift>) {
        let Some(page) = self.services.get_mut(service) else { return (0, vec![]) };
        page.drift.retain(|known| known.action != DriftAction::Corrected || now.abs_diff(known.at) < LATELY);
        (page.repairs, page.drift.clone())
    }

    /// A service is gone.
    pub fn forget(&mut self, service: &Name) {
        self.services.remove(service);
    }
}

/// What a person should look at, of what is told of a service.
#[must_use]
pub fn alarms(service: &Name, drift: &[ObjectDrift]) -> Vec<String> {
    let of = |action: DriftAction| drift.iter().filter(move |found| found.action == action);
    let who = |found: &ObjectDrift| match found.manager.as_str() {
        "" => "somebody".to_owned(),
        manager => manager.to_owned(),
    };
    let mut alarms = vec![];
    if let Some(first) = of(DriftAction::Damped).next() {
        let count = of(DriftAction::Damped).count();
        alarms.push(format!(
            "{service}: {} changes {} again and again ({count} objects): it is put back ever more rarely",
            who(first),
            first.object
        ));
    }
    if let Some(first) = of(DriftAction::Reported).next() {
        let count = of(DriftAction::Reported).count();
        alarms.push(format!(
            "{service}: {count} objects differ from what was applied and are left so; {} was changed by {}",
            first.object,
            who(first)
        ));
    }
    alarms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> Name {
        "web".parse().expect("a name")
    }

    fn drift(object: &str, at: u64, action: DriftAction) -> ObjectDrift {
        let fields = (0..20).map(|n| format!("/data/{n}")).collect();
        ObjectDrift { object: object.into(), manager: "editor".into(), at, fields, action }
    }

    #[test]
    fn an_object_is_told_of_once_and_what_stands_with_the_time_it_began() {
        let mut journal = Journal::default();
        journal.found(&web(), drift("a", 10, DriftAction::Reported));
        journal.found(&web(), drift("b", 20, DriftAction::Corrected));
        journal.found(&web(), drift("a", 30, DriftAction::Reported));
        journal.found(&web(), drift("b", 40, DriftAction::Corrected));
        let (_, told) = journal.told(&web(), 50);
        let told: Vec<_> =
            told.iter().map(|found| (found.object.as_str(), found.at, found.fields.len())).collect();
        assert_eq!(told, [("b", 40, FIELDS_TOLD), ("a", 10, FIELDS_TOLD)]);
    }

    #[test]
    fn what_is_told_is_bounded_in_number_and_time() {
        let mut journal = Journal::default();
        for n in 0..100 {
            journal.found(&web(), drift(&n.to_string(), n, DriftAction::Corrected));
        }
        journal.repaired(&web(), 100);
        assert_eq!(journal.told(&web(), 100).1.len(), TOLD);
        let (repairs, told) = journal.told(&web(), 99 + LATELY);
        assert_eq!((repairs, told.len()), (100, 0));
        journal.found(&web(), drift("a", 2_147_483_647, DriftAction::Corrected));
        assert_eq!(journal.told(&web(), 100).1.len(), 0, "nor for years where the clock was set back");
        journal.forget(&web());
        assert_eq!(journal.told(&web(), 0), (0, vec![]));
    }

    #[test]
    fn what_is_well_again_stands_no_more() {
        let mut journal = Journal::default();
        for (object, action) in
            [("a", DriftAction::Reported), ("b", DriftAction::Damped), ("c", DriftAction::Corrected)]
        {
            journal.found(&web(), drift(object, 1, action));
        }
        assert_eq!(alarms(&web(), &journal.told(&web(), 1).1).len(), 2);
        journal.is_well(&web(), "a");
        journal.is_well(&web(), "c");
        let told = journal.told(&web(), 1).1;
        assert_eq!(told.iter().map(|found| found.object.as_str()).collect::<Vec<_>>(), ["c", "b"]);
        assert!(alarms(&web(), &told)[0].contains("editor changes b again and again"));
        journal.all_well(&web());
        assert!(alarms(&web(), &journal.told(&web(), 1).1).is_empty());
    }
}
