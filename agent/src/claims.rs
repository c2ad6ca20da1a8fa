//! What every service of this site declares, so that an object which moves from one service to another is
//! taken over and not deleted. Pure.
//!
//! An object that leaves service A is removed only when every other service of the documents has been
//! rendered and does not declare it. If service B does, it stays in A's inventory until B has applied it:
//! then it is B's, with the UID that it had. While a service cannot be rendered, nobody knows what it
//! declares, and what left the others waits; nothing but the removal does.
//!
//! A claim is a hash of eight bytes per object.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;

use crate::object::{Manifest, ObjectKey};
use crate::plan::{Completeness, Inventory};

/// What is known of the services of one site.
#[derive(Debug, Default)]
pub struct Claims {
    services: BTreeMap<Name, Service>,
    /// The newest revision of each service of the documents; none where its entry cannot be read.
    newest: BTreeMap<String, Option<Digest>>,
}

/// One service: what it declares in the newest revision and in that which is enforced, if that is another.
#[derive(Debug, Default)]
struct Service {
    said: Vec<Said>,
    /// What it has in place; sorted.
    applied: Box<[u64]>,
}

#[derive(Debug)]
struct Said {
    revision: Digest,
    completeness: Completeness,
    /// Sorted.
    declared: Box<[u64]>,
}

/// What the other services say of the objects that leave one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Another service declares them, and has not applied them yet.
    pub declared: BTreeSet<ObjectKey>,
    /// Another service has taken them over.
    pub taken: BTreeSet<ObjectKey>,
    /// A service of which nobody knows yet what it declares.
    pub unknown: Option<String>,
}

impl Claims {
    /// Begins a pass. `newest` has every service of the documents with its revision, or none where its
    /// entry cannot be read; `kept` are the services that are in place beside them.
    pub fn begin(&mut self, newest: BTreeMap<String, Option<Digest>>, kept: &BTreeSet<Name>) {
        self.services.retain(|name, _| newest.contains_key(name.as_str()) || kept.contains(name));
        self.newest = newest;
    }

    /// What a service rendered to in a revision.
    pub fn declare(
        &mut self,
        name: &Name,
        revision: Digest,
        completeness: Completeness,
        manifests: &[Manifest],
    ) {
        self.learn(name, revision, completeness, manifests.iter().map(|manifest| &manifest.key));
    }

    fn learn<'a>(
        &mut self,
        name: &Name,
        revision: Digest,
        completeness: Completeness,
        keys: impl Iterator<Item = &'a ObjectKey>,
    ) {
        let newest = self.newest.get(name.as_str()).copied().flatten();
        let service = self.services.entry(name.clone()).or_default();
        let is_known = |said: &Said| said.revision == revision && said.completeness == Completeness::Complete;
        if service.said.iter().any(is_known) {
            return;
        }
        service.said.retain(|said| Some(said.revision) == newest && said.revision != revision);
        let declared = sorted(keys);
        service.said.push(Said { revision, completeness, declared });
    }

    /// Whether it is known what a service declares in its newest revision.
    #[must_use]
    pub fn is_known(&self, name: &Name) -> bool {
        self.newest.get(name.as_str()).is_some_and(|revision| self.knows(name.as_str(), *revision))
    }

    /// Takes what a service declares from its inventory, where that is all of its newest revision.
    pub fn recall(&mut self, name: &Name, inventory: &Inventory) {
        let newest = self.newest.get(name.as_str()).copied().flatten();
        if let Some(revision) = inventory.settled.filter(|settled| Some(*settled) == newest) {
            let keys = inventory.items.iter().map(|item| &item.key);
            self.learn(name, revision, Completeness::Complete, keys);
        }
        self.applied(name, inventory);
    }

    /// What a service has in place.
    pub fn applied(&mut self, name: &Name, inventory: &Inventory) {
        let items = inventory.items.iter().filter(|item| item.applied.is_some());
        self.services.entry(name.clone()).or_default().applied = sorted(items.map(|item| &item.key));
    }

    /// What the others say of what leaves a service.
    #[must_use]
    pub fn of_others(&self, name: &Name, leaving: &[&ObjectKey]) -> Claimed {
        let mut claimed = Claimed::default();
        if leaving.is_empty() {
            return claimed;
        }
        for key in leaving {
            let hash = hash(key);
            let others = self.services.iter().filter(|(other, _)| *other != name);
            let claims: Vec<_> = others.filter(|(_, service)| service.declares(hash)).collect();
            if claims.iter().any(|(_, service)| service.applied.binary_search(&hash).is_ok()) {
                claimed.taken.insert((*key).clone());
            } else if !claims.is_empty() {
                claimed.declared.insert((*key).clone());
            }
        }
        let others = self.newest.iter().filter(|(other, _)| *other != name.as_str());
        let mut unknown = others.filter(|(other, revision)| !self.knows(other, **revision));
        claimed.unknown = unknown.next().map(|(other, _)| other.clone());
        claimed
    }

    fn knows(&self, name: &str, revision: Option<Digest>) -> bool {
        let service = self.services.iter().find(|(other, _)| other.as_str() == name);
        let is_it =
            |said: &Said| Some(said.revision) == revision && said.completeness == Completeness::Complete;
        service.is_some_and(|(_, service)| service.said.iter().any(is_it))
    }
}

impl Service {
    fn declares(&self, hash: u64) -> bool {
        self.said.iter().any(|said| said.declared.binary_search(&hash).is_ok())
    }
}

fn sorted<'a>(keys: impl Iterator<Item = &'a ObjectKey>) -> Box<[u64]> {
    let mut hashes: Vec<u64> = keys.map(hash).collect();
    hashes.sort_unstable();
    hashes.into()
}

fn hash(key: &ObjectKey) -> u64 {
    let parts = [&key.group, &key.kind, key.namespace.as_deref().unwrap_or(""), &key.name];
    let [a, b, c, d, e, f, g, h, ..] = *Digest::of_parts(parts.map(str::as_bytes)).as_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Item;
    use serde_json::json;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn manifest(object: &str) -> Manifest {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": object}});
        Manifest::read(body, "test".into()).expect("a manifest")
    }

    fn revision(text: &str) -> Option<Digest> {
        Some(Digest::of(text.as_bytes()))
    }

    fn claims(services: &[(&str, Option<Digest>)]) -> Claims {
        let mut claims = Claims::default();
        let newest = services.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
        claims.begin(newest, &BTreeSet::new());
        claims
    }

    fn leaving(claims: &Claims, object: &str) -> Claimed {
        claims.of_others(&name("a"), &[&manifest(object).key])
    }

    #[test]
    fn what_another_service_declares_is_its_own_once_it_has_applied_it() {
        let mut claims = claims(&[("a", revision("1")), ("b", revision("1"))]);
        let moved = manifest("moved");
        let at = Digest::of(b"1");
        claims.declare(&name("b"), at, Completeness::Complete, std::slice::from_ref(&moved));
        assert!(leaving(&claims, "moved").declared.contains(&moved.key));
        assert_eq!(leaving(&claims, "gone"), Claimed::default());
        let item = Item { applied: Some(at), ..Item::new(&moved) };
        claims.applied(&name("b"), &Inventory { items: vec![item], ..Inventory::default() });
        assert!(leaving(&claims, "moved").taken.contains(&moved.key));
    }

    #[test]
    fn what_cannot_be_rendered_may_declare_anything() {
        let at = Digest::of(b"1");
        for (services, unknown) in [
            (vec![("a", Some(at)), ("b", None)], Some("b")),
            (vec![("a", Some(at)), ("b", revision("2"))], Some("b")),
            (vec![("a", Some(at)), ("b", Some(at))], None),
            (vec![("a", None)], None),
        ] {
            let mut claims = claims(&services);
            claims.declare(&name("b"), at, Completeness::Complete, &[]);
            assert_eq!(leaving(&claims, "x").unknown.as_deref(), unknown, "{services:?}");
        }
        let mut claims = claims(&[("b", Some(at))]);
        claims.declare(&name("b"), at, Completeness::Partial, &[]);
        assert_eq!(leaving(&claims, "x").unknown.as_deref(), Some("b"));
    }

    #[test]
    fn a_service_that_stays_behind_its_newest_revision_claims_both() {
        let (old, new) = (Digest::of(b"1"), Digest::of(b"2"));
        let mut claims = claims(&[("b", Some(new))]);
        claims.declare(&name("b"), new, Completeness::Complete, &[manifest("new")]);
        claims.declare(&name("b"), old, Completeness::Complete, &[manifest("old")]);
        for object in ["new", "old"] {
            let claimed = leaving(&claims, object);
            assert_eq!((claimed.declared.len(), claimed.unknown), (1, None), "{object}");
        }
    }

    #[test]
    fn a_service_that_is_in_place_whole_need_not_be_rendered_to_be_known() {
        let at = Digest::of(b"1");
        let item = Item { applied: Some(at), ..Item::new(&manifest("moved")) };
        let mut inventory = Inventory { items: vec![item], settled: Some(at), ..Inventory::default() };
        let mut newest = claims(&[("b", Some(at))]);
        newest.recall(&name("b"), &inventory);
        assert!(newest.is_known(&name("b")) && leaving(&newest, "moved").taken.len() == 1);
        inventory.settled = None;
        let mut unsettled = claims(&[("b", Some(at))]);
        unsettled.recall(&name("b"), &inventory);
        assert!(!unsettled.is_known(&name("b")));
    }

    #[test]
    fn a_service_that_is_gone_claims_nothing_and_one_that_is_kept_does() {
        let at = Digest::of(b"1");
        let mut claims = claims(&[("b", Some(at))]);
        claims.declare(&name("b"), at, Completeness::Complete, &[manifest("moved")]);
        claims.begin(BTreeMap::new(), &BTreeSet::from([name("b")]));
        assert_eq!(leaving(&claims, "moved").declared.len(), 1);
        claims.begin(BTreeMap::new(), &BTreeSet::new());
        assert_eq!(leaving(&claims, "moved"), Claimed::default());
    }
}
