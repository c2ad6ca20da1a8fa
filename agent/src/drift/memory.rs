//! What is remembered of every object that is in place, and what a change of it means. Pure.
//!
//! Per object: which life of the name it is, its resourceVersion, its generation and a digest of our
//! entry in its managedFields; 80 bytes, whatever the object's size.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;

use crate::object::ObjectKey;
use crate::plan::Inventory;
use crate::target::{Change, Sighting, Stamp};

/// Entries of managedFields are dated in whole seconds: for so long after our own write, a write under
/// our name may look like ours.
const SAME_SECOND: Duration = Duration::from_secs(2);

/// An object's key, hashed.
type Id = u128;

/// Every object that is in place.
#[derive(Debug, Default)]
pub struct Memory {
    services: Vec<Name>,
    records: HashMap<Id, Record>,
    /// Objects that differ from what was applied, and were looked at and let be.
    let_be: HashMap<Id, LetBe>,
    /// Objects that a service is about to make, which are nobody's yet.
    promised: HashMap<Id, u16>,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    fingerprint: u128,
    uid: u64,
    stamp: Stamp,
    /// When we wrote it last, in whole seconds since any fixed moment; none if this process has not.
    written: Option<u32>,
    /// A place in [`Memory::services`].
    service: u16,
}

/// An object as it was looked at and let be.
#[derive(Debug, Clone, Copy)]
struct LetBe {
    fingerprint: u128,
    stamp: Stamp,
    until: Until,
}

/// How long an object is let be that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until a field of ours changes hands.
    OwnersChange,
    /// Until anything is written to what is desired of it. Who puts a field back by hand keeps it, so
    /// that no owner changes.
    AnythingChanges,
}

/// What a change asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing: it is not ours, or it is our own write, or it concerns what others own.
    Nothing,
    /// A look at the object.
    Look,
}

impl Memory {
    /// What a change asks for, and of which service. `now` is since the same moment as everywhere here.
    pub fn hear(&mut self, change: &Change, now: Duration) -> Option<(Name, Action)> {
        let (key, sighting) = match change {
            Change::Seen { key, sighting } => (key, Some(sighting)),
            Change::Lost { key, .. } => (key, None),
            Change::Missed { .. } => return None,
        };
        let id = id(key);
        let record = self.records.get_mut(&id)?;
        let let_be = self.let_be.get(&id).copied();
        let action = match sighting {
            Some(sighting) => record.sees(sighting, let_be, now),
            None => record.loses(change),
        };
        if action == Action::Nothing
            && let Some(sighting) = sighting
            && sighting.stamp.version >= record.stamp.version
        {
            record.stamp = sighting.stamp;
        }
        Some((self.services[usize::from(record.service)].clone(), action))
    }

    /// We wrote an object.
    pub fn wrote(&mut self, service: &Name, key: &ObjectKey, sighting: &Sighting, now: Duration) {
        let Some(service) = self.number(service) else { return };
        let record = Record {
            fingerprint: short(&sighting.fingerprint),
            uid: uid_of(&sighting.uid),
            stamp: sighting.stamp,
            written: u32::try_from(now.as_secs()).ok(),
            service,
        };
        let id = id(key);
        self.records.insert(id, record);
        self.let_be.remove(&id);
        self.promised.remove(&id);
    }

    /// A service is about to write these objects: from now on they are its own, whoever had them, and what
    /// the target tells of them is no change of anybody else's.
    pub fn claim<'a>(&mut self, service: &Name, keys: impl Iterator<Item = &'a ObjectKey>) {
        let Some(number) = self.number(service) else { return };
        for id in keys.map(id) {
            match self.records.get_mut(&id) {
                Some(record) => record.service = number,
                None => drop(self.promised.insert(id, number)),
            }
        }
    }

    /// An object was looked at and is let be as it is.
    pub fn let_be(&mut self, key: &ObjectKey, sighting: &Sighting, until: Until) {
        let id = id(key);
        let Some(record) = self.records.get_mut(&id) else { return };
        if sighting.stamp.version > record.stamp.version {
            record.stamp = sighting.stamp;
        }
        let (fingerprint, stamp) = (short(&sighting.fingerprint), sighting.stamp);
        self.let_be.insert(id, LetBe { fingerprint, stamp, until });
    }

    /// Whether an object was looked at as it is, and let be.
    #[must_use]
    pub fn is_let_be(&self, key: &ObjectKey, fingerprint: &Digest) -> bool {
        self.let_be.get(&id(key)).is_some_and(|let_be| let_be.fingerprint == short(fingerprint))
    }

    /// Everything is to be looked at anew: what is let be depends on what the service says.
    pub fn forget_let_be(&mut self, service: &Name) {
        let Some(service) = self.services.iter().position(|known| known == service) else { return };
        let records = &self.records;
        self.let_be
            .retain(|id, _| records.get(id).is_none_or(|record| usize::from(record.service) != service));
    }

    /// Learns what an inventory lists, as far as it is not known.
    pub fn learn(&mut self, service: &Name, inventory: &Inventory) {
        let Some(number) = self.number(service) else { return };
        for item in &inventory.items {
            let Some(record) = Record::listed(item, number) else { continue };
            self.records.entry(id(&item.key)).or_insert(record);
        }
    }

    /// Replaces what is known of a service by what its inventory lists. What another service has first
    /// stays with it.
    pub fn replace(&mut self, service: &Name, inventory: &Inventory) {
        let Some(number) = self.number(service) else { return };
        self.promised.retain(|_, service| *service != number);
        let listed: BTreeSet<Id> = inventory.items.iter().map(|item| id(&item.key)).collect();
        self.records.retain(|id, record| record.service != number || listed.contains(id));
        let records = &self.records;
        self.let_be.retain(|id, _| records.contains_key(id));
        for item in &inventory.items {
            let Some(listed) = Record::listed(item, number) else { continue };
            let known = self.records.entry(id(&item.key)).or_insert(listed);
            if known.service == number && (known.fingerprint, known.uid) != (listed.fingerprint, listed.uid) {
                *known = listed;
            }
        }
    }

    /// Which service has an object, or is about to make it.
    #[must_use]
    pub fn owner(&self, key: &ObjectKey) -> Option<&Name> {
        let id = id(key);
        let record = self.records.get(&id).map(|record| record.service);
        let service = record.or_else(|| self.promised.get(&id).copied())?;
        self.services.get(usize::from(service))
    }

    /// Versions may have begun anew: what is seen from now on is newer than what was.
    pub fn forget_versions(&mut self) {
        self.records.values_mut().for_each(|record| record.stamp = Stamp::default());
    }

    /// How many objects are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The number of a service. None beyond 65,536 services, which no site has.
    fn number(&mut self, service: &Name) -> Option<u16> {
        let known = self.services.iter().position(|known| known == service);
        let number = known.unwrap_or_else(|| {
            self.services.push(service.clone());
            self.services.len() - 1
        });
        u16::try_from(number).ok()
    }
}

impl Record {
    /// What an inventory knows of an item that was applied.
    fn listed(item: &crate::plan::Item, service: u16) -> Option<Self> {
        let (uid, fingerprint) = (item.uid.as_ref()?, item.fingerprint.as_ref()?);
        let stamp = Stamp::default();
        Some(Self { fingerprint: short(fingerprint), uid: uid_of(uid), stamp, written: None, service })
    }

    fn sees(&self, sighting: &Sighting, let_be: Option<LetBe>, now: Duration) -> Action {
        let Stamp { version, generation } = sighting.stamp;
        let is_known = |version: u64| version != 0 && self.stamp.version != 0;
        // Older than what we have seen or written, or just that.
        if is_known(version) && version <= self.stamp.version {
            return Action::Nothing;
        }
        let fingerprint = short(&sighting.fingerprint);
        let is_known_so = fingerprint == self.fingerprint || let_be.is_some_and(|it| it.holds(sighting));
        if uid_of(&sighting.uid) != self.uid || !is_known_so {
            return Action::Look;
        }
        // A generation moves with every change of what is desired; kinds without one have none to tell.
        let silent = generation == 0 || generation != self.stamp.generation;
        let fresh = self.written.is_some_and(|at| now < Duration::from_secs(at.into()) + SAME_SECOND);
        if fresh && silent && is_known(version) { Action::Look } else { Action::Nothing }
    }

    fn loses(&self, change: &Change) -> Action {
        match change {
            Change::Lost { version, .. } if *version != 0 && *version < self.stamp.version => Action::Nothing,
            _ => Action::Look,
        }
    }
}

impl LetBe {
    /// Whether an object that is seen so is let be still.
    fn holds(&self, sighting: &Sighting) -> bool {
        let Stamp { version, generation } = sighting.stamp;
        let is_same = version == self.stamp.version;
        let is_silent = generation != 0 && generation == self.stamp.generation;
        short(&sighting.fingerprint) == self.fingerprint
            && (self.until == Until::OwnersChange || is_same || is_silent)
    }
}

/// The parts are hashed with their lengths, so that no two keys are alike.
fn id(key: &ObjectKey) -> Id {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let parts = [key.group.as_str(), key.kind.as_str(), namespace, key.name.as_str()];
    short(&Digest::of_parts(parts.map(str::as_bytes)))
}

fn short(digest: &Digest) -> u128 {
    let head: [u8; 16] = digest.as_bytes()[..16].try_into().expect("a digest has 32 bytes");
    u128::from_be_bytes(head)
}

fn uid_of(uid: &str) -> u64 {
    let digest = Digest::of(uid.as_bytes());
    u64::from_be_bytes(digest.as_bytes()[..8].try_into().expect("a digest has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Item;
    use crate::terms::FieldMarks;

    const LATER: Duration = Duration::from_secs(60);

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            group: String::new(),
            kind: "ConfigMap".into(),
            namespace: Some("shop".into()),
            name: name.into(),
        }
    }

    fn sighting(fields: &str, version: u64) -> Sighting {
        let stamp = Stamp { version, generation: 0 };
        Sighting { uid: "1".into(), fingerprint: Digest::of(fields.as_bytes()), stamp }
    }

    fn seen(fields: &str, version: u64) -> Change {
        Change::Seen { key: key("a"), sighting: sighting(fields, version) }
    }

    fn item(name: &str, fields: &str) -> Item {
        Item {
            key: key(name),
            version: "v1".into(),
            uid: Some("1".into()),
            applied: Some(Digest::of(b"manifest")),
            fingerprint: Some(Digest::of(fields.as_bytes())),
            revision: None,
            proven: false,
            fields: FieldMarks::default(),
            guard: None,
            adopted: false,
        }
    }

    fn listing(items: &[Item]) -> Inventory {
        Inventory { items: items.to_vec(), ..Inventory::default() }
    }

    /// A memory in which we wrote `a` at version 10.
    fn written() -> Memory {
        let mut memory = Memory::default();
        memory.wrote(&name("web"), &key("a"), &sighting("ours", 10), Duration::ZERO);
        memory
    }

    fn action(memory: &mut Memory, change: &Change) -> Option<Action> {
        memory.hear(change, LATER).map(|(_, action)| action)
    }

    #[test]
    fn our_own_write_and_what_was_before_it_cost_nothing() {
        let mut memory = written();
        assert_eq!(action(&mut memory, &seen("ours", 10)), Some(Action::Nothing));
        assert_eq!(action(&mut memory, &seen("theirs", 9)), Some(Action::Nothing));
        let lost = |version| Change::Lost { key: key("a"), version };
        assert_eq!(action(&mut memory, &lost(9)), Some(Action::Nothing));
        assert_eq!(action(&mut memory, &lost(11)), Some(Action::Look));
        assert_eq!(action(&mut memory, &lost(0)), Some(Action::Look));
    }

    #[test]
    fn what_others_own_costs_nothing_and_what_is_ours_costs_a_look() {
        let mut memory = written();
        assert_eq!(action(&mut memory, &seen("ours", 11)), Some(Action::Nothing), "a field of somebody else");
        assert_eq!(action(&mut memory, &seen("theirs", 12)), Some(Action::Look));
        let mut replaced = seen("ours", 13);
        if let Change::Seen { sighting, .. } = &mut replaced {
            sighting.uid = "2".into();
        }
        assert_eq!(action(&mut memory, &replaced), Some(Action::Look), "another life of the name");
    }

    #[test]
    fn an_object_that_nobody_applied_is_nobody_s() {
        let change = Change::Seen { key: key("copy"), sighting: sighting("ours", 11) };
        assert_eq!(action(&mut written(), &change), None);
    }

    #[test]
    fn within_the_second_of_our_own_write_its_date_cannot_tell() {
        let mut memory = written();
        let at = Duration::from_secs(1);
        assert_eq!(memory.hear(&seen("ours", 11), at).map(|(_, action)| action), Some(Action::Look));
        let mut stamped = sighting("ours", 10);
        stamped.stamp.generation = 3;
        memory.wrote(&name("web"), &key("a"), &stamped, Duration::ZERO);
        stamped.stamp.version = 11;
        let status = Change::Seen { key: key("a"), sighting: stamped };
        let heard = memory.hear(&status, at).map(|(_, action)| action);
        assert_eq!(heard, Some(Action::Nothing), "the generation tells that only its status moved");
    }

    #[test]
    fn what_was_looked_at_and_let_be_costs_no_second_look() {
        let mut memory = written();
        memory.let_be(&key("a"), &sighting("theirs", 11), Until::OwnersChange);
        assert!(memory.is_let_be(&key("a"), &Digest::of(b"theirs")));
        assert_eq!(action(&mut memory, &seen("theirs", 11)), Some(Action::Nothing));
        assert_eq!(action(&mut memory, &seen("theirs", 12)), Some(Action::Nothing));
        assert_eq!(action(&mut memory, &seen("others", 13)), Some(Action::Look));
        memory.forget_let_be(&name("web"));
        assert_eq!(action(&mut memory, &seen("theirs", 14)), Some(Action::Look));
    }

    #[test]
    fn what_is_told_of_is_looked_at_with_every_change_that_may_put_it_back() {
        let mut memory = written();
        memory.let_be(&key("a"), &sighting("theirs", 11), Until::AnythingChanges);
        assert_eq!(action(&mut memory, &seen("theirs", 11)), Some(Action::Nothing), "that very look");
        assert_eq!(action(&mut memory, &seen("theirs", 12)), Some(Action::Look), "it counts no generations");
        let counted = |version, generation| {
            let mut sighting = sighting("theirs", version);
            sighting.stamp.generation = generation;
            sighting
        };
        memory.let_be(&key("a"), &counted(13, 2), Until::AnythingChanges);
        let seen =
            |version, generation| Change::Seen { key: key("a"), sighting: counted(version, generation) };
        assert_eq!(action(&mut memory, &seen(14, 2)), Some(Action::Nothing), "only its status moved");
        assert_eq!(action(&mut memory, &seen(15, 3)), Some(Action::Look));
    }

    #[test]
    fn what_a_service_is_about_to_write_is_its_own_at_once() {
        let mut memory = written();
        memory.claim(&name("heir"), [key("a"), key("new")].iter());
        assert_eq!(memory.owner(&key("a")), Some(&name("heir")));
        assert_eq!(memory.owner(&key("new")), Some(&name("heir")));
        let heard = memory.hear(&seen("theirs", 11), LATER);
        assert_eq!(heard, Some((name("heir"), Action::Look)), "nobody puts it back for the other");
        memory.replace(&name("heir"), &listing(&[item("a", "theirs")]));
        assert_eq!(memory.owner(&key("new")), None, "it was not made");
        assert_eq!(memory.owner(&key("a")), Some(&name("heir")));
    }

    #[test]
    fn a_store_that_was_restored_counts_from_an_older_version_again() {
        let mut memory = written();
        memory.forget_versions();
        assert_eq!(action(&mut memory, &seen("theirs", 3)), Some(Action::Look));
    }

    #[test]
    fn an_inventory_is_learnt_and_what_it_lists_no_more_is_forgotten() {
        let mut memory = Memory::default();
        memory.learn(&name("web"), &listing(&[item("a", "ours"), item("b", "ours")]));
        memory.learn(&name("db"), &listing(&[item("a", "ours")]));
        assert_eq!(memory.owner(&key("a")), Some(&name("web")), "whoever has it first");
        assert_eq!(action(&mut memory, &seen("theirs", 5)), Some(Action::Look));
        memory.learn(&name("web"), &listing(&[item("a", "theirs")]));
        assert_eq!(action(&mut memory, &seen("theirs", 6)), Some(Action::Look), "what is known stays");
        memory.replace(&name("web"), &listing(&[item("b", "new")]));
        assert_eq!((memory.owner(&key("a")), memory.len()), (None, 1));
        memory.replace(&name("db"), &listing(&[item("a", "ours"), item("b", "ours")]));
        assert_eq!(memory.owner(&key("a")), Some(&name("db")));
        assert_eq!(memory.owner(&key("b")), Some(&name("web")));
    }

    #[test]
    fn a_record_is_small() {
        assert!(size_of::<(Id, Record)>() <= 80, "{}", size_of::<(Id, Record)>());
    }
}
