//! One service's objects from what they are to what they shall be: does what [`crate::plan`] says.
//!
//! The inventory is written before anything is applied (the union of old and new) and shrinks only
//! after a deletion has happened: a power cut in between leaves objects that are listed, never
//! objects that nobody knows of.

mod hooks;
mod looks;
pub mod stages;

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::digest::Digest;
use futures::{StreamExt as _, stream};

use crate::claims::Claimed;
use crate::object::{Manifest, ObjectKey, Owner};
use crate::plan::{Cause, Completeness, Held, Inventory, Item, Kept, Operation, Plan, Removal, Stays, plan};
use crate::store::StoreError;
use crate::target::{Applied, Deleted, Live, ObjectError, Target};
use crate::terms::Guard;
use crate::waves::kinds::rank;
use stages::{Course, Hands, Reached};

/// Requests in flight at once.
const IN_FLIGHT: usize = 16;

/// What one service shall be.
#[derive(Debug)]
pub struct Desired {
    /// Its objects, in their places and with our marks.
    pub manifests: Vec<Manifest>,
    /// Whether that is all of them.
    pub completeness: Completeness,
    /// What may leave.
    pub removal: Removal,
    /// The signed revision and the life of the service; none when a tombstone removes it.
    pub revision: Option<(Digest, u64)>,
    /// Objects of the service that are not planned: hooks, and what is left to others. They have not left.
    pub aside: BTreeSet<ObjectKey>,
    /// Those among the manifests that are made where they are missing, and then left to others.
    pub once: BTreeSet<ObjectKey>,
    /// What other services of the site say of what leaves.
    pub claimed: Claimed,
}

/// How it went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Objects that are as they shall be.
    pub objects: usize,
    /// Objects that were written because their manifest changed.
    pub changed: usize,
    /// Objects that were written because somebody had changed them.
    pub repaired: usize,
    /// Objects that were removed.
    pub removed: usize,
    /// Objects that are not as they shall be.
    pub failures: Vec<ObjectError>,
    /// Why everything that left stays.
    pub held: Option<Held>,
    /// What else of it stays.
    pub kept: Vec<Kept>,
    /// Objects whose deletion has been asked for and has not ended.
    pub going: usize,
    /// Objects that left and are listed still.
    pub left_over: usize,
    /// Whether all of it is applied and healthy, or was so in this revision before.
    pub healthy: bool,
}

/// Where a service's inventory is kept.
pub trait Ledger: Sync {
    /// Writes it so that it survives a power cut.
    ///
    /// # Errors
    /// [`StoreError`].
    fn save(&self, inventory: &Inventory) -> Result<(), StoreError>;
}

/// Enforces one service: all of it at once, or as far as its course allows.
///
/// # Errors
/// [`StoreError`] when the inventory cannot be written: then nothing was applied that it does not list.
pub async fn enforce<T: Target>(
    target: &T,
    owner: &Owner,
    desired: Desired,
    inventory: &mut Inventory,
    ledger: &dyn Ledger,
    course: Option<&mut Course<'_>>,
) -> Result<Outcome, StoreError> {
    let Desired { manifests, completeness, removal, revision, mut aside, once, claimed } = desired;
    let (manifests, unknown) = leave_made(target, owner, manifests, &once, &mut aside).await;
    let before = inventory.clone();
    let unplanned = set_aside(inventory, &aside);
    let live = target.observe(owner, &inventory.items).await;
    let rendered: BTreeSet<ObjectKey> = manifests.iter().map(|manifest| manifest.key.clone()).collect();
    let Plan { operations, unchanged, held, kept, failures } =
        plan(manifests, inventory, live, completeness, removal, &claimed);
    let mut outcome = Outcome { objects: unchanged, held, kept, failures, ..Outcome::default() };
    outcome.failures.extend(unknown);
    let Sorted { applies, deletions, released } = sorted(operations);
    inventory.items.extend(unplanned);
    list(inventory, applies.iter().map(|(manifest, _)| manifest));
    list(inventory, course.iter().flat_map(|course| &course.hooks).map(|hook| &hook.manifest));
    let is_rendered = |key: &ObjectKey| rendered.contains(key) || aside.contains(key);
    inventory.doomed = removal.dooms();
    if let Some((revision, incarnation)) = revision {
        inventory.incarnation = Some(incarnation);
        let now = inventory.items.iter_mut().filter(|item| is_rendered(&item.key));
        now.for_each(|item| item.revision = Some(revision));
    }
    if *inventory != before {
        ledger.save(inventory)?;
    }
    let listed = inventory.clone();
    inventory.items.retain(|item| !released.contains(&item.key));
    let mut hands = Hands { target, owner, inventory, outcome: &mut outcome, removed: false };
    let reached = stages::run(&mut hands, applies, deletions, course).await;
    let is_removed = hands.removed && completeness == Completeness::Complete;
    outcome.left_over = inventory.items.iter().filter(|item| !is_rendered(&item.key)).count();
    outcome.healthy = reached == Reached::Healthy && outcome.failures.is_empty();
    let revision = revision.map(|(revision, _)| revision);
    if is_removed && outcome.left_over == 0 && outcome.failures.is_empty() {
        inventory.settled = revision;
    }
    prove(inventory, &outcome, is_rendered, revision);
    if *inventory != listed {
        ledger.save(inventory)?;
    }
    Ok(outcome)
}

/// Takes out of an inventory what is not planned: that has not left either.
fn set_aside(inventory: &mut Inventory, aside: &BTreeSet<ObjectKey>) -> Vec<Item> {
    let (mut unplanned, planned): (Vec<Item>, Vec<Item>) =
        std::mem::take(&mut inventory.items).into_iter().partition(|item| aside.contains(&item.key));
    // Nothing is demanded of it: whoever compares it with what was applied finds no drift.
    unplanned.iter_mut().for_each(|item| (item.applied, item.fingerprint) = (None, None));
    inventory.items = planned;
    unplanned
}

/// Writes down what was part of a healthy revision. Of a service that is gone nothing is left.
fn prove(
    inventory: &mut Inventory,
    outcome: &Outcome,
    is_rendered: impl Fn(&ObjectKey) -> bool,
    revision: Option<Digest>,
) {
    if outcome.healthy {
        let proven = inventory.items.iter_mut().filter(|item| is_rendered(&item.key));
        proven.for_each(|item| item.proven = true);
    }
    if inventory.items.is_empty() && revision.is_none() {
        *inventory = Inventory::default();
    }
}

/// What is to be done, by what it is.
#[derive(Default)]
struct Sorted {
    applies: Vec<(Manifest, Cause)>,
    deletions: Vec<Item>,
    /// What is not ours to know of any more.
    released: BTreeSet<ObjectKey>,
}

fn sorted(operations: Vec<Operation>) -> Sorted {
    let mut sorted = Sorted::default();
    for operation in operations {
        match operation {
            Operation::Apply(manifest, cause) => sorted.applies.push((*manifest, cause)),
            Operation::Delete(item) => sorted.deletions.push(*item),
            Operation::Release(item) => drop(sorted.released.insert(item.key)),
        }
    }
    sorted
}

/// The manifests that are to be applied: of those that are only made where they are missing, what is there
/// goes aside, whoever made it.
pub(crate) async fn leave_made<T: Target>(
    target: &T,
    owner: &Owner,
    manifests: Vec<Manifest>,
    once: &BTreeSet<ObjectKey>,
    aside: &mut BTreeSet<ObjectKey>,
) -> (Vec<Manifest>, Vec<ObjectError>) {
    if once.is_empty() {
        return (manifests, vec![]);
    }
    let (candidates, mut applied): (Vec<_>, Vec<_>) =
        manifests.into_iter().partition(|manifest| once.contains(&manifest.key));
    let items: Vec<Item> = candidates.iter().map(Item::new).collect();
    let live = target.observe(owner, &items).await;
    let mut failures = vec![];
    for (manifest, live) in candidates.into_iter().zip(live) {
        match live {
            Ok(Live::Absent) => applied.push(manifest),
            Ok(Live::Present { .. }) => drop(aside.insert(manifest.key)),
            Err(error) => {
                aside.insert(manifest.key);
                failures.push(error);
            }
        }
    }
    (applied, failures)
}

/// The union: what is there, and what is about to be.
fn list<'a>(inventory: &mut Inventory, manifests: impl Iterator<Item = &'a Manifest>) {
    let mut known: BTreeSet<ObjectKey> = inventory.items.iter().map(|item| item.key.clone()).collect();
    for manifest in manifests {
        if known.insert(manifest.key.clone()) {
            inventory.items.push(Item::new(manifest));
        }
    }
}

async fn apply_all<T: Target>(
    target: &T,
    owner: &Owner,
    applies: Vec<(Manifest, Cause)>,
    inventory: &mut Inventory,
    outcome: &mut Outcome,
) {
    let mut places: BTreeMap<ObjectKey, usize> = BTreeMap::new();
    for (place, item) in inventory.items.iter().enumerate() {
        places.insert(item.key.clone(), place);
    }
    let mut ranks: BTreeMap<u8, Vec<(Manifest, Cause)>> = BTreeMap::new();
    for apply in applies {
        ranks.entry(rank(&apply.0.key)).or_default().push(apply);
    }
    for (_, applies) in ranks {
        let usable = namespaces(target, owner, &applies).await;
        let results: Vec<_> = stream::iter(applies)
            .map(|(manifest, cause)| {
                let usable = &usable;
                async move {
                    let result = apply_one(target, owner, &manifest, usable).await;
                    (manifest, cause, result)
                }
            })
            .buffer_unordered(IN_FLIGHT)
            .collect()
            .await;
        for (manifest, cause, result) in results {
            let item = places.get(&manifest.key).and_then(|place| inventory.items.get_mut(*place));
            note(item, &manifest, cause, result, outcome);
        }
    }
}

async fn apply_one<T: Target>(
    target: &T,
    owner: &Owner,
    manifest: &Manifest,
    usable: &BTreeMap<String, Result<(), ObjectError>>,
) -> Result<Applied, ObjectError> {
    let namespace = manifest.key.namespace.as_ref().and_then(|namespace| usable.get(namespace));
    match namespace {
        Some(Err(error)) => Err(ObjectError {
            key: manifest.key.clone(),
            message: format!("its namespace cannot be used: {}", error.message),
            retry: error.retry,
        }),
        Some(Ok(())) | None => target.apply(owner, manifest).await,
    }
}

/// Makes sure of every namespace that these objects live in.
async fn namespaces<T: Target>(
    target: &T,
    owner: &Owner,
    applies: &[(Manifest, Cause)],
) -> BTreeMap<String, Result<(), ObjectError>> {
    let names: BTreeSet<String> =
        applies.iter().filter_map(|(manifest, _)| manifest.key.namespace.clone()).collect();
    stream::iter(names)
        .map(|name| async move {
            let usable = target.ensure_namespace(owner, &name).await;
            (name, usable)
        })
        .buffer_unordered(IN_FLIGHT)
        .collect()
        .await
}

fn note(
    item: Option<&mut Item>,
    manifest: &Manifest,
    cause: Cause,
    result: Result<Applied, ObjectError>,
    outcome: &mut Outcome,
) {
    match result {
        Err(error) => outcome.failures.push(error),
        Ok(Applied { uid, fingerprint, fields, .. }) => {
            outcome.objects += 1;
            match cause {
                Cause::Changed => outcome.changed += 1,
                Cause::Drift => outcome.repaired += 1,
            }
            if let Some(item) = item {
                item.version.clone_from(&manifest.version);
                item.uid = Some(uid);
                item.applied = Some(manifest.digest());
                item.fingerprint = Some(fingerprint);
                item.fields = fields;
                item.guard = Guard::of(manifest);
                item.adopted |= manifest.terms.adopt;
            }
        }
    }
}

/// Removes what left, in reverse order. While something could not be applied nothing is removed: what
/// left may be what the new objects replace.
async fn delete_all<T: Target>(
    target: &T,
    owner: &Owner,
    mut deletions: Vec<Item>,
    inventory: &mut Inventory,
    outcome: &mut Outcome,
) {
    if !outcome.failures.is_empty() {
        return;
    }
    deletions.sort_by_key(|item| std::cmp::Reverse(rank(&item.key)));
    let mut gone = BTreeSet::new();
    for batch in deletions.chunk_by(|a, b| rank(&a.key) == rank(&b.key)) {
        let results: Vec<_> = stream::iter(batch.to_vec())
            .map(|item| async move {
                let deleted = target.delete(owner, &item).await;
                (item, deleted)
            })
            .buffer_unordered(IN_FLIGHT)
            .collect()
            .await;
        for (item, result) in results {
            match result {
                Ok(Deleted::Gone) => {
                    outcome.removed += 1;
                    gone.insert(item.key);
                }
                Ok(Deleted::NotOurs) => {
                    gone.insert(item.key);
                }
                Ok(Deleted::Kept) => {
                    outcome.kept.push(Kept { key: item.key.clone(), why: Stays::Annotated });
                    gone.insert(item.key);
                }
                Ok(Deleted::Going) => outcome.going += 1,
                Err(error) => outcome.failures.push(error),
            }
        }
    }
    inventory.items.retain(|item| !gone.contains(&item.key));
}

#[cfg(test)]
mod tests;
