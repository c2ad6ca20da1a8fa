//! One service's objects from what they are to what they shall be: does what [`crate::plan`] says.
//!
//! The inventory is written before anything is applied (the union of old and new) and shrinks only
//! after a deletion has happened: a power cut in between leaves objects that are listed, never
//! objects that nobody knows of.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::digest::Digest;
use futures::{StreamExt as _, stream};

use crate::object::{Manifest, ObjectKey, Owner};
use crate::plan::{Cause, Completeness, Held, Inventory, Item, Operation, Plan, Removal, plan};
use crate::store::StoreError;
use crate::target::{Applied, Deleted, ObjectError, Target};

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
    /// Why something that left stays.
    pub held: Option<Held>,
}

/// Where a service's inventory is kept.
pub trait Ledger: Sync {
    /// Writes it so that it survives a power cut.
    ///
    /// # Errors
    /// [`StoreError`].
    fn save(&self, inventory: &Inventory) -> Result<(), StoreError>;
}

/// Enforces one service.
///
/// # Errors
/// [`StoreError`] when the inventory cannot be written: then nothing was applied that it does not list.
pub async fn enforce<T: Target>(
    target: &T,
    owner: &Owner,
    desired: Desired,
    inventory: &mut Inventory,
    ledger: &dyn Ledger,
) -> Result<Outcome, StoreError> {
    let Desired { manifests, completeness, removal, revision } = desired;
    let live = target.observe(owner, &inventory.items).await;
    let rendered: BTreeSet<ObjectKey> = manifests.iter().map(|manifest| manifest.key.clone()).collect();
    let Plan { operations, unchanged, held, failures } =
        plan(manifests, inventory, live, completeness, removal);
    let mut outcome = Outcome { objects: unchanged, held, failures, ..Outcome::default() };
    let (mut applies, mut deletions) = (vec![], vec![]);
    for operation in operations {
        match operation {
            Operation::Apply(manifest, cause) => applies.push((*manifest, cause)),
            Operation::Delete(item) => deletions.push(*item),
        }
    }
    let before = inventory.clone();
    list(inventory, &applies);
    if let Some((revision, incarnation)) = revision {
        inventory.incarnation = Some(incarnation);
        let now = inventory.items.iter_mut().filter(|item| rendered.contains(&item.key));
        now.for_each(|item| item.revision = Some(revision));
    }
    if *inventory != before {
        ledger.save(inventory)?;
    }
    let listed = inventory.clone();
    apply_all(target, owner, applies, inventory, &mut outcome).await;
    delete_all(target, owner, deletions, inventory, &mut outcome).await;
    if outcome.failures.is_empty() && outcome.held.is_none() && completeness == Completeness::Complete {
        inventory.settled = revision.map(|(revision, _)| revision);
    }
    if inventory.items.is_empty() && revision.is_none() {
        *inventory = Inventory::default();
    }
    if *inventory != listed {
        ledger.save(inventory)?;
    }
    Ok(outcome)
}

/// The union: what is there, and what is about to be.
fn list(inventory: &mut Inventory, applies: &[(Manifest, Cause)]) {
    let known: BTreeSet<ObjectKey> = inventory.items.iter().map(|item| item.key.clone()).collect();
    let new = applies.iter().filter(|(manifest, _)| !known.contains(&manifest.key));
    inventory.items.extend(new.map(|(manifest, _)| Item::new(manifest)));
}

/// Kinds in the order in which they are needed: what others live in, what others are made of, what
/// others use, then the rest, and last what can refuse others.
fn rank(key: &ObjectKey) -> u8 {
    match (key.group.as_str(), key.kind.as_str()) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 1,
        ("", "ServiceAccount" | "Secret" | "ConfigMap" | "PersistentVolume" | "PersistentVolumeClaim")
        | ("rbac.authorization.k8s.io" | "storage.k8s.io" | "scheduling.k8s.io", _) => 2,
        ("admissionregistration.k8s.io" | "apiregistration.k8s.io", _) => 4,
        _ => 3,
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
        let usable = namespaces(target, &applies).await;
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
    applies: &[(Manifest, Cause)],
) -> BTreeMap<String, Result<(), ObjectError>> {
    let names: BTreeSet<String> =
        applies.iter().filter_map(|(manifest, _)| manifest.key.namespace.clone()).collect();
    stream::iter(names)
        .map(|name| async move {
            let usable = target.ensure_namespace(&name).await;
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
        Ok(Applied { uid, fingerprint, .. }) => {
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
                Err(error) => outcome.failures.push(error),
            }
        }
    }
    inventory.items.retain(|item| !gone.contains(&item.key));
}

#[cfg(test)]
mod tests;
