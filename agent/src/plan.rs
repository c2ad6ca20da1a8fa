//! What to do with one service's objects. Pure: it reads no clock, no random number, no network.
//!
//! An object leaves only when two complete renders differ and the signed revision changed, within
//! the prune budget; or by a signed tombstone (invariant 2 of `ARCHITECTURE.md`).

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::digest::Digest;
use farshore_shared::wire::{ProtectedKind, ProtectedKinds, PruneBudget};
use serde::{Deserialize, Serialize};

use crate::claims::Claimed;
use crate::object::{Manifest, ObjectKey};
use crate::target::{Live, ObjectError};
use crate::terms::{FieldMarks, Guard, Owned};

/// What this agent has put in place for one service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// The objects, by key.
    pub items: Vec<Item>,
    /// The signed revision of the last complete render after which nothing was left to remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Digest>,
    /// Which life of the service these objects belong to: a tombstone names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u64>,
    /// The protected kinds that may go, once a tombstone has begun to remove the service: it ends what it
    /// began, also when nobody speaks of it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doomed: Option<ProtectedKinds>,
}

/// One object of an [`Inventory`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// What it is.
    pub key: ObjectKey,
    /// The version of its API under which it was applied.
    pub version: String,
    /// Which life of the name is ours; none while the first apply is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The digest of the manifest that was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Digest>,
    /// What the target showed after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    /// The signed revision that rendered it last, whether it could be applied or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Digest>,
    /// Whether it was part of a revision that was healthy: going back removes only what never was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proven: bool,
    /// The fields that were ours after that.
    #[serde(default, skip_serializing_if = "FieldMarks::is_empty")]
    pub fields: FieldMarks,
    /// Why it would stay if it left the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
    /// Whether who applied it before us was succeeded in everything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
}

impl Item {
    /// An item for a manifest of which nothing is known yet.
    #[must_use]
    pub fn new(manifest: &Manifest) -> Self {
        Self {
            key: manifest.key.clone(),
            version: manifest.version.clone(),
            uid: None,
            applied: None,
            fingerprint: None,
            revision: None,
            proven: false,
            fields: FieldMarks::default(),
            guard: None,
            adopted: false,
        }
    }

    /// What of it has been ours, for somebody who applies this manifest next.
    fn owned(&self, manifest: &Manifest) -> Owned {
        match self.applied {
            None => Owned::Unknown,
            Some(applied) if applied == manifest.digest() => Owned::Everything,
            Some(_) if self.fields.is_empty() => Owned::Unknown,
            Some(_) if self.fields.are_too_many() => Owned::TooMany,
            Some(_) => Owned::Fields(self.fields.clone()),
        }
    }

    /// Why it stays though it left, if it does.
    fn stays(&self, named: ProtectedKinds) -> Option<Stays> {
        let kind = match self.guard {
            Some(Guard::Kept) => return Some(Stays::Annotated),
            Some(Guard::Agent) => Some(ProtectedKind::Agent),
            None => ProtectedKind::of(&self.key.group, &self.key.kind),
        };
        kind.filter(|kind| !named.contains(*kind)).map(Stays::Protected)
    }
}

/// Whether everything that should have been rendered was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    /// Every document became a manifest and found its place.
    Complete,
    /// Something could not be read: what is missing here says nothing.
    Partial,
}

/// What may be removed, and on whose word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// What a complete render of this signed revision does not have any more.
    Revision {
        /// The revision.
        revision: Digest,
        /// How much of it at once.
        budget: PruneBudget,
    },
    /// What only a revision has brought that was given up for the one before it.
    Unproven {
        /// How much of it at once.
        budget: PruneBudget,
    },
    /// Everything: a tombstone says so.
    Tombstone {
        /// Protected kinds that may go as well.
        kinds: ProtectedKinds,
    },
    /// Nothing.
    Nothing,
}

/// Why an object is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It is not in the inventory, or its manifest changed.
    Changed,
    /// Somebody changed or deleted it.
    Drift,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Bring an object to its desired state.
    Apply(Box<Manifest>, Cause),
    /// Remove an object that left.
    Delete(Box<Item>),
    /// Leave an object that left where it is, and know nothing of it any more.
    Release(Box<Item>),
}

/// An object that left its service and is not removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Which object.
    pub key: ObjectKey,
    /// Why.
    pub why: Stays,
}

/// Why an object that left stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    /// Its kind is protected.
    #[error("a protected kind: name {0} in spec.prune.kinds of the service to let it go")]
    Protected(ProtectedKind),
    /// An annotation of it says so, or a label.
    #[error("an annotation or a label of it says that it stays; it is no part of the service any more")]
    Annotated,
    /// Another service of this site may declare it.
    #[error("until service {0} can be rendered, which may declare it")]
    Undeclared(String),
    /// Another service of this site declares it.
    #[error("until the service that declares it now has applied it")]
    Moving,
}

/// Why objects that left stay for the moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Held {
    /// Not everything could be rendered.
    #[error("{count} objects are kept: not everything could be rendered")]
    Partial {
        /// Objects that would have gone.
        count: usize,
    },
    /// The same signed revision rendered fewer objects than before.
    #[error("{count} objects are kept: the render shrank though the signed revision is the same")]
    SameRevision {
        /// Objects that would have gone.
        count: usize,
    },
    /// Too many at once.
    #[error(
        "{count} of {total} objects are kept: their removal exceeds the prune budget ({budget_count} objects and {budget_percent} per cent); raise spec.prune of the service to let it through"
    )]
    Budget {
        /// Objects that would have gone.
        count: usize,
        /// Objects of the service.
        total: usize,
        /// The budget's count.
        budget_count: u32,
        /// The budget's share.
        budget_percent: u32,
    },
    /// What is held at the site is older than what it has seen.
    #[error("{count} objects are kept: what this site holds is older than what it has seen before")]
    Forbidden {
        /// Objects that would have gone.
        count: usize,
    },
}

/// What to do with one service's objects.
#[derive(Debug, Default)]
pub struct Plan {
    /// In no particular order.
    pub operations: Vec<Operation>,
    /// Objects that are as they should be.
    pub unchanged: usize,
    /// Why everything that left stays.
    pub held: Option<Held>,
    /// What else of it stays.
    pub kept: Vec<Kept>,
    /// Objects that cannot be planned: two manifests for one object, or a target that does not tell.
    pub failures: Vec<ObjectError>,
}

/// Decides.
///
/// `live` has an answer for every item of the inventory, in its order. Desired objects that the
/// inventory does not list are applied without a look. `claimed` is what other services say of what leaves.
#[must_use]
pub fn plan(
    desired: Vec<Manifest>,
    inventory: &Inventory,
    live: Vec<Result<Live, ObjectError>>,
    completeness: Completeness,
    removal: Removal,
    claimed: &Claimed,
) -> Plan {
    let mut plan = Plan::default();
    let mut observed: BTreeMap<&ObjectKey, (&Item, Result<Live, ObjectError>)> =
        inventory.items.iter().zip(live).map(|(item, live)| (&item.key, (item, live))).collect();
    let wanted: BTreeSet<ObjectKey> = desired.iter().map(|manifest| manifest.key.clone()).collect();
    for mut manifest in desired {
        // Who was succeeded once is not succeeded again.
        let succeeded = observed.get(&manifest.key).is_some_and(|(item, _)| item.adopted);
        manifest.terms.adopt &= !succeeded;
        match observed.remove(&manifest.key) {
            None => plan.operations.push(Operation::Apply(Box::new(manifest), Cause::Changed)),
            Some((_, Err(error))) => plan.failures.push(error),
            Some((item, Ok(live))) => match cause(&manifest, item, &live) {
                Some(cause) => {
                    manifest.terms.owned = item.owned(&manifest);
                    manifest.terms.listed.clone_from(&item.uid);
                    plan.operations.push(Operation::Apply(Box::new(manifest), cause));
                }
                None => plan.unchanged += 1,
            },
        }
    }
    let may_leave = |item: &&Item| !matches!(removal, Removal::Unproven { .. }) || !item.proven;
    let leaving = inventory.items.iter().filter(|item| !wanted.contains(&item.key)).filter(may_leave);
    let mut leaving: Vec<&Item> = leaving.collect();
    hand_over(&mut plan, &mut leaving, claimed);
    match hold(&leaving, inventory, completeness, removal) {
        Some(held) => plan.held = Some(held),
        None => leaving.into_iter().for_each(|item| leave(&mut plan, item, removal, claimed)),
    }
    plan
}

impl Removal {
    /// The protected kinds that go with the whole service, if it goes.
    #[must_use]
    pub fn dooms(self) -> Option<ProtectedKinds> {
        match self {
            Self::Tombstone { kinds } => Some(kinds),
            Self::Revision { .. } | Self::Unproven { .. } | Self::Nothing => None,
        }
    }

    /// The protected kinds that may go.
    fn kinds(self) -> ProtectedKinds {
        match self {
            Self::Revision { budget, .. } | Self::Unproven { budget } => budget.kinds,
            Self::Tombstone { kinds } => kinds,
            Self::Nothing => ProtectedKinds::default(),
        }
    }
}

/// What another service declares is its own: it neither counts as removed nor is it.
fn hand_over(plan: &mut Plan, leaving: &mut Vec<&Item>, claimed: &Claimed) {
    leaving.retain(|item| {
        if claimed.taken.contains(&item.key) {
            plan.operations.push(Operation::Release(Box::new((*item).clone())));
            return false;
        }
        let moves = claimed.declared.contains(&item.key);
        if moves {
            plan.kept.push(Kept { key: item.key.clone(), why: Stays::Moving });
        }
        !moves
    });
}

/// What becomes of an object that may go.
fn leave(plan: &mut Plan, item: &Item, removal: Removal, claimed: &Claimed) {
    let undeclared = || claimed.unknown.clone().map(Stays::Undeclared);
    let Some(why) = item.stays(removal.kinds()).or_else(undeclared) else {
        plan.operations.push(Operation::Delete(Box::new(item.clone())));
        return;
    };
    // Nobody can name a kind for a service that is gone.
    let is_last = matches!((removal, &why), (Removal::Tombstone { .. }, Stays::Protected(_)));
    if is_last || why == Stays::Annotated {
        plan.operations.push(Operation::Release(Box::new(item.clone())));
    }
    plan.kept.push(Kept { key: item.key.clone(), why });
}

fn cause(manifest: &Manifest, item: &Item, live: &Live) -> Option<Cause> {
    if item.applied != Some(manifest.digest()) || item.version != manifest.version {
        return Some(Cause::Changed);
    }
    if manifest.terms.adopt {
        return Some(Cause::Changed);
    }
    match live {
        Live::Absent => Some(Cause::Drift),
        Live::Present { uid, fingerprint } => {
            let same = item.uid.as_ref() == Some(uid) && item.fingerprint == Some(*fingerprint);
            (!same).then_some(Cause::Drift)
        }
    }
}

fn hold(
    leaving: &[&Item],
    inventory: &Inventory,
    completeness: Completeness,
    removal: Removal,
) -> Option<Held> {
    let (count, total) = (leaving.len(), inventory.items.len());
    if count == 0 {
        return None;
    }
    // A revision that never settled, because one object fails, has rendered the others all the same.
    let was_rendered = |revision: Digest| {
        inventory.settled == Some(revision) || leaving.iter().any(|item| item.revision == Some(revision))
    };
    let staying = || leaving.iter().filter(|item| item.stays(removal.kinds()).is_some()).count();
    match (removal, completeness) {
        (Removal::Tombstone { .. }, _) => None,
        (Removal::Nothing, _) => Some(Held::Forbidden { count }),
        (Removal::Revision { .. } | Removal::Unproven { .. }, Completeness::Partial) => {
            Some(Held::Partial { count })
        }
        (Removal::Revision { revision, .. }, Completeness::Complete) if was_rendered(revision) => {
            Some(Held::SameRevision { count })
        }
        (Removal::Revision { budget, .. } | Removal::Unproven { budget }, Completeness::Complete)
            if budget.exceeded(count - staying(), total) =>
        {
            let count = count - staying();
            let PruneBudget { count: budget_count, percent: budget_percent, .. } = budget;
            Some(Held::Budget { count, total, budget_count, budget_percent })
        }
        (Removal::Revision { .. } | Removal::Unproven { .. }, Completeness::Complete) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest(name: &str, value: &str) -> Manifest {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": value}});
        Manifest::read(body, "test".into()).expect("a whole manifest")
    }

    fn in_place(manifest: &Manifest) -> (Item, Result<Live, ObjectError>) {
        let fingerprint = Digest::of(b"as applied");
        let mut item = Item::new(manifest);
        item.uid = Some("uid-1".into());
        item.applied = Some(manifest.digest());
        item.fingerprint = Some(fingerprint);
        (item, Ok(Live::Present { uid: "uid-1".into(), fingerprint }))
    }

    fn state(manifests: &[Manifest], settled: Option<Digest>) -> (Inventory, Vec<Result<Live, ObjectError>>) {
        let (items, live) = manifests.iter().map(in_place).unzip();
        (Inventory { items, settled, incarnation: Some(1), doomed: None }, live)
    }

    fn revision(text: &str) -> Removal {
        Removal::Revision { revision: Digest::of(text.as_bytes()), budget: PruneBudget::default() }
    }

    impl Operation {
        fn name(&self) -> &str {
            match self {
                Self::Apply(manifest, _) => &manifest.key.name,
                Self::Delete(item) | Self::Release(item) => &item.key.name,
            }
        }
    }

    fn deletions(plan: &Plan) -> usize {
        plan.operations.iter().filter(|op| matches!(op, Operation::Delete(_))).count()
    }

    #[test]
    fn what_is_in_place_is_left_alone() {
        let objects = [manifest("a", "1"), manifest("b", "1")];
        let (inventory, live) = state(&objects, None);
        let plan = plan(
            objects.to_vec(),
            &inventory,
            live,
            Completeness::Complete,
            revision("1"),
            &Claimed::default(),
        );
        assert_eq!((plan.unchanged, plan.operations.len()), (2, 0));
    }

    #[test]
    fn a_foreign_change_and_a_deletion_are_drift() {
        let objects = [manifest("a", "1"), manifest("b", "1"), manifest("c", "1")];
        let (inventory, mut live) = state(&objects, None);
        live[0] = Ok(Live::Absent);
        live[1] = Ok(Live::Present { uid: "uid-1".into(), fingerprint: Digest::of(b"else") });
        live[2] = Ok(Live::Present { uid: "uid-2".into(), fingerprint: Digest::of(b"as applied") });
        let plan = plan(
            objects.to_vec(),
            &inventory,
            live,
            Completeness::Complete,
            revision("1"),
            &Claimed::default(),
        );
        assert!(plan.operations.iter().all(|op| matches!(op, Operation::Apply(_, Cause::Drift))));
        assert_eq!(plan.operations.len(), 3);
    }

    #[test]
    fn an_object_that_left_with_a_new_revision_is_deleted() {
        let objects = [manifest("a", "1"), manifest("b", "1")];
        let (inventory, live) = state(&objects, Some(Digest::of(b"1")));
        let plan = plan(
            objects[..1].to_vec(),
            &inventory,
            live,
            Completeness::Complete,
            revision("2"),
            &Claimed::default(),
        );
        assert_eq!((deletions(&plan), plan.held), (1, None));
    }

    #[test]
    fn a_render_that_shrinks_under_the_same_revision_deletes_nothing() {
        let objects = [manifest("a", "1"), manifest("b", "1")];
        let (inventory, live) = state(&objects, Some(Digest::of(b"1")));
        let plan = plan(vec![], &inventory, live, Completeness::Complete, revision("1"), &Claimed::default());
        assert_eq!((deletions(&plan), plan.held), (0, Some(Held::SameRevision { count: 2 })));
    }

    #[test]
    fn a_render_that_shrinks_before_its_revision_settled_deletes_nothing() {
        let objects = [manifest("a", "1"), manifest("b", "1")];
        let (mut inventory, live) = state(&objects, Some(Digest::of(b"1")));
        inventory.items[1].revision = Some(Digest::of(b"2"));
        let plan = plan(
            objects[..1].to_vec(),
            &inventory,
            live,
            Completeness::Complete,
            revision("2"),
            &Claimed::default(),
        );
        assert_eq!((deletions(&plan), plan.held), (0, Some(Held::SameRevision { count: 1 })));
    }

    #[test]
    fn a_partial_render_deletes_nothing_and_still_applies() {
        let objects = [manifest("a", "1"), manifest("b", "1")];
        let (inventory, live) = state(&objects, Some(Digest::of(b"1")));
        let plan = plan(
            vec![manifest("a", "2")],
            &inventory,
            live,
            Completeness::Partial,
            revision("2"),
            &Claimed::default(),
        );
        assert_eq!(
            (plan.operations.len(), deletions(&plan), plan.held),
            (1, 0, Some(Held::Partial { count: 1 }))
        );
    }

    #[test]
    fn a_mass_removal_is_held_until_the_budget_is_raised() {
        let objects: Vec<_> = (0..20).map(|n| manifest(&format!("o{n}"), "1")).collect();
        let (inventory, live) = state(&objects, Some(Digest::of(b"1")));
        let held = plan(
            objects[..2].to_vec(),
            &inventory,
            live.clone(),
            Completeness::Complete,
            revision("2"),
            &Claimed::default(),
        );
        assert!(matches!(held.held, Some(Held::Budget { count: 18, total: 20, .. })));
        assert_eq!(deletions(&held), 0);
        let budget = PruneBudget { count: 18, ..PruneBudget::default() };
        let raised = Removal::Revision { revision: Digest::of(b"3"), budget };
        let plan = plan(
            objects[..2].to_vec(),
            &inventory,
            live,
            Completeness::Complete,
            raised,
            &Claimed::default(),
        );
        assert_eq!((deletions(&plan), plan.held), (18, None));
    }

    #[test]
    fn going_back_removes_what_was_never_healthy_and_nothing_else() {
        let objects = [manifest("a", "1"), manifest("b", "1"), manifest("c", "1")];
        let (mut inventory, live) = state(&objects, Some(Digest::of(b"1")));
        inventory.items[0].proven = true;
        inventory.items[1].proven = true;
        let back = Removal::Unproven { budget: PruneBudget::default() };
        let plan =
            plan(objects[..1].to_vec(), &inventory, live, Completeness::Complete, back, &Claimed::default());
        let gone: Vec<&str> = plan.operations.iter().map(Operation::name).collect();
        assert_eq!((gone, plan.held), (vec!["c"], None), "b was healthy once: its render has shrunk");
    }

    #[test]
    fn a_tombstone_removes_everything_whatever_the_budget() {
        let objects: Vec<_> = (0..20).map(|n| manifest(&format!("o{n}"), "1")).collect();
        let (inventory, live) = state(&objects, None);
        let kinds = ProtectedKinds::default();
        let plan = plan(
            vec![],
            &inventory,
            live,
            Completeness::Complete,
            Removal::Tombstone { kinds },
            &Claimed::default(),
        );
        assert_eq!(deletions(&plan), 20);
    }

    #[test]
    fn a_site_that_holds_old_documents_prunes_nothing() {
        let objects = [manifest("a", "1")];
        let (inventory, live) = state(&objects, None);
        let plan =
            plan(vec![], &inventory, live, Completeness::Complete, Removal::Nothing, &Claimed::default());
        assert_eq!((deletions(&plan), plan.held), (0, Some(Held::Forbidden { count: 1 })));
    }

    fn going(plan: &Plan) -> Vec<&str> {
        let name = |op: &'_ Operation| match op {
            Operation::Delete(item) => Some(item.key.name.clone()),
            Operation::Apply(..) | Operation::Release(_) => None,
        };
        let names: Vec<String> = plan.operations.iter().filter_map(name).collect();
        ["a", "b", "c"].into_iter().filter(|known| names.iter().any(|name| name == known)).collect()
    }

    fn leave_all(inventory: &Inventory, live: Vec<Result<Live, ObjectError>>, claimed: &Claimed) -> Plan {
        plan(vec![], inventory, live, Completeness::Complete, revision("2"), claimed)
    }

    #[test]
    fn what_was_ours_is_known_to_who_applies_it_next() {
        let (old, new) = (manifest("a", "1"), manifest("a", "2"));
        let (mut inventory, _) = state(std::slice::from_ref(&old), None);
        let marks = FieldMarks::of([".data.a"]);
        let owned = |inventory: &Inventory, manifest: &Manifest| {
            let live = vec![Ok(Live::Absent)];
            let desired = vec![manifest.clone()];
            let plan =
                plan(desired, inventory, live, Completeness::Complete, revision("2"), &Claimed::default());
            let Some(Operation::Apply(manifest, _)) = plan.operations.into_iter().next() else {
                panic!("it is applied")
            };
            manifest.terms.owned
        };
        assert_eq!(owned(&inventory, &old), Owned::Everything);
        assert_eq!(owned(&inventory, &new), Owned::Unknown, "an inventory of before fields were listed");
        inventory.items[0].fields = marks.clone();
        assert_eq!(owned(&inventory, &new), Owned::Fields(marks));
        let many: Vec<String> = (0..2_000).map(|n| format!(".data.k{n}")).collect();
        inventory.items[0].fields = FieldMarks::of(many.iter().map(String::as_str));
        assert_eq!(owned(&inventory, &new), Owned::TooMany);
        inventory.items[0].applied = None;
        assert_eq!(owned(&inventory, &old), Owned::Unknown, "its first apply was never confirmed");
    }

    #[test]
    fn which_life_is_listed_is_known_to_who_applies_it_next() {
        let (inventory, live) = state(&[manifest("a", "1")], None);
        let desired = vec![manifest("a", "2")];
        let plan =
            plan(desired, &inventory, live, Completeness::Complete, revision("2"), &Claimed::default());
        let [Operation::Apply(manifest, _)] = &plan.operations[..] else { panic!("it is applied") };
        assert_eq!(manifest.terms.listed.as_deref(), Some("uid-1"));
    }

    #[test]
    fn who_was_succeeded_is_succeeded_once() {
        let mut wanted = manifest("a", "1");
        let (mut inventory, live) = state(std::slice::from_ref(&wanted), None);
        wanted.terms.adopt = true;
        let operations = |inventory: &Inventory| {
            let desired = vec![wanted.clone()];
            let live = live.clone();
            plan(desired, inventory, live, Completeness::Complete, revision("1"), &Claimed::default())
                .operations
                .len()
        };
        assert_eq!(operations(&inventory), 1);
        inventory.items[0].adopted = true;
        assert_eq!(operations(&inventory), 0);
    }

    #[test]
    fn what_others_declare_is_neither_deleted_nor_counted() {
        let objects: Vec<_> = ["a", "b", "c"].map(|name| manifest(name, "1")).into();
        let (inventory, live) = state(&objects, None);
        let key = |n: usize| objects[n].key.clone();
        let claimed = Claimed { declared: [key(0)].into(), taken: [key(1)].into(), unknown: None };
        let plan = leave_all(&inventory, live, &claimed);
        assert_eq!(going(&plan), ["c"]);
        assert_eq!(plan.kept, [Kept { key: key(0), why: Stays::Moving }]);
        assert!(
            plan.operations.iter().any(|op| matches!(op, Operation::Release(item) if item.key == key(1)))
        );
    }

    #[test]
    fn while_somebody_may_declare_it_nothing_is_deleted() {
        let (inventory, live) = state(&[manifest("a", "1")], None);
        let claimed = Claimed { unknown: Some("shop".into()), ..Claimed::default() };
        let plan = leave_all(&inventory, live, &claimed);
        assert_eq!((plan.operations.len(), plan.held), (0, None));
        assert_eq!(plan.kept[0].why, Stays::Undeclared("shop".into()));
    }

    #[test]
    fn what_stays_for_good_does_not_use_up_the_budget() {
        let objects: Vec<_> = (0..20).map(|n| manifest(&format!("o{n}"), "1")).collect();
        let (mut inventory, live) = state(&objects, None);
        for item in &mut inventory.items[..15] {
            item.guard = Some(Guard::Agent);
        }
        let plan = leave_all(&inventory, live, &Claimed::default());
        assert_eq!((plan.held, plan.kept.len(), plan.operations.len()), (None, 15, 5));
    }

    #[test]
    fn a_partial_render_forgets_nothing_that_is_kept() {
        let (mut inventory, live) = state(&[manifest("a", "1")], None);
        inventory.items[0].guard = Some(Guard::Kept);
        let partial =
            plan(vec![], &inventory, live, Completeness::Partial, revision("2"), &Claimed::default());
        assert_eq!((partial.operations.len(), partial.held), (0, Some(Held::Partial { count: 1 })));
    }
}
