//! A target in memory, with somebody else in it: for tests of what is done with any target.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use farshore_shared::digest::Digest;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::{
    Applied, Change, Coverage, Deleted, Kind, Live, ObjectError, Preview, Retry, Sighting, Stamp, Target,
    Unreachable, Whole,
};
use crate::object::{Manifest, ObjectKey, Owner, is_marked};
use crate::plan::Item;
use crate::terms::FieldMarks;

/// Objects in memory. Clones show the same objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    inner: Arc<Mutex<Inner>>,
    told: Arc<Notify>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// The objects, with the number of their life.
    pub(crate) objects: BTreeMap<ObjectKey, (u64, Value)>,
    /// Names of objects whose apply is not answered as long as they are here.
    pub(crate) stuck: BTreeSet<String>,
    /// Names of objects that can neither be applied nor deleted.
    pub(crate) refused: BTreeSet<String>,
    /// What controllers say of objects, by name.
    pub(crate) statuses: BTreeMap<String, Value>,
    /// What Jobs have printed, by name.
    pub(crate) logs: BTreeMap<String, String>,
    /// Why the target does not answer, while it does not.
    pub(crate) silent: Option<String>,
    /// What was done, in order.
    pub(crate) log: Vec<String>,
    /// How much it tells of by itself.
    pub(crate) coverage: Coverage,
    /// What it has to tell of.
    pub(crate) changes: Vec<Change>,
    /// The kinds of which it is asked to tell.
    pub(crate) followed: Vec<String>,
    lives: u64,
}

impl Memory {
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no test panics while it holds it")
    }

    /// The names of all objects.
    pub(crate) fn names(&self) -> Vec<String> {
        self.inner().objects.keys().map(|key| key.name.clone()).collect()
    }

    /// Changes every object of a name, as somebody who is not Farshore.
    pub(crate) fn meddle(&self, name: &str, value: &str) {
        for (key, (_, body)) in &mut self.inner().objects {
            if key.name == name {
                body["data"]["value"] = value.into();
            }
        }
    }

    /// Tells of every object as it is, and of one that is gone.
    pub(crate) fn tell(&self, gone: Option<ObjectKey>) {
        let mut inner = self.inner();
        let lost = gone.map(|key| Change::Lost { key, version: 0 });
        let seen = |(key, (life, body)): (&ObjectKey, &(u64, Value))| Change::Seen {
            key: key.clone(),
            sighting: sighting(*life, body),
        };
        let changes: Vec<Change> = inner.objects.iter().map(seen).chain(lost).collect();
        inner.changes.extend(changes);
        drop(inner);
        self.told.notify_one();
    }

    /// The value in the object of a name.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let inner = self.inner();
        let (_, (_, body)) = inner.objects.iter().find(|(key, _)| key.name == name)?;
        body["data"]["value"].as_str().map(ToOwned::to_owned)
    }
}

impl Inner {
    fn admit(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        if self.refused.contains(&key.name) {
            return Err(ObjectError {
                key: key.clone(),
                message: "it is refused".to_owned(),
                retry: Retry::Worthwhile,
            });
        }
        Ok(())
    }
}

fn sighting(life: u64, body: &Value) -> Sighting {
    Sighting { uid: life.to_string(), fingerprint: fingerprint(body), stamp: Stamp::default() }
}

fn fingerprint(body: &Value) -> Digest {
    Digest::of(body.to_string().as_bytes())
}

impl Target for Memory {
    async fn ready(&self) -> Result<(), Unreachable> {
        yield_now().await;
        let silent = self.inner().silent.clone();
        silent.map_or(Ok(()), |message| Err(Unreachable { target: "memory".to_owned(), message }))
    }

    async fn locate(
        &self,
        manifests: Vec<Manifest>,
        default_namespace: Option<&str>,
    ) -> Vec<Result<Manifest, ObjectError>> {
        yield_now().await;
        let place = |mut manifest: Manifest| {
            if manifest.key.namespace.is_none() {
                manifest.set_namespace(Some(default_namespace.unwrap_or("default")));
            }
            Ok(manifest)
        };
        manifests.into_iter().map(place).collect()
    }

    async fn observe(&self, _owner: &Owner, items: &[Item]) -> Vec<Result<Live, ObjectError>> {
        yield_now().await;
        let inner = self.inner();
        let look = |item: &Item| match inner.objects.get(&item.key) {
            None => Ok(Live::Absent),
            Some((life, body)) => Ok(Live::Present { uid: life.to_string(), fingerprint: fingerprint(body) }),
        };
        items.iter().map(look).collect()
    }

    async fn ensure_namespace(&self, _owner: &Owner, _name: &str) -> Result<(), ObjectError> {
        yield_now().await;
        Ok(())
    }

    fn coverage(&self) -> Coverage {
        self.inner().coverage.clone()
    }

    async fn apply(&self, _owner: &Owner, manifest: &Manifest) -> Result<Applied, ObjectError> {
        yield_now().await;
        while self.inner().stuck.contains(&manifest.key.name) {
            yield_now().await;
        }
        let applied = {
            let mut inner = self.inner();
            inner.admit(&manifest.key)?;
            inner.log.push(format!("apply {}", manifest.key.name));
            inner.lives += 1;
            let life = inner.objects.get(&manifest.key).map_or(inner.lives, |(life, _)| *life);
            inner.objects.insert(manifest.key.clone(), (life, manifest.body.clone()));
            let (fingerprint, fields) = (fingerprint(&manifest.body), FieldMarks::default());
            Applied { uid: life.to_string(), fingerprint, stamp: Stamp::default(), fields }
        };
        // The power may go when it is done and nobody has heard of it.
        yield_now().await;
        Ok(applied)
    }

    fn shows_health(&self) -> bool {
        true
    }

    async fn inspect(
        &self,
        _owner: &Owner,
        key: &ObjectKey,
        _version: &str,
    ) -> Result<Option<Value>, ObjectError> {
        yield_now().await;
        let mut inner = self.inner();
        inner.log.push(format!("inspect {}", key.name));
        Ok(inner.objects.get(key).map(|(_, body)| {
            let mut body = body.clone();
            body["status"] = inner.statuses.get(&key.name).cloned().unwrap_or_default();
            body
        }))
    }

    async fn log_tail(&self, _owner: &Owner, key: &ObjectKey, _limit: usize) -> Result<String, ObjectError> {
        yield_now().await;
        Ok(self.inner().logs.get(&key.name).cloned().unwrap_or_default())
    }

    async fn delete(&self, owner: &Owner, item: &Item) -> Result<Deleted, ObjectError> {
        yield_now().await;
        let deleted = {
            let mut inner = self.inner();
            inner.admit(&item.key)?;
            let Some((life, body)) = inner.objects.get(&item.key) else { return Ok(Deleted::Gone) };
            let listed = item.uid.as_ref().is_none_or(|uid| *uid == life.to_string());
            if !listed || !is_marked(body, owner) {
                return Ok(Deleted::NotOurs);
            }
            inner.log.push(format!("delete {}", item.key.name));
            inner.objects.remove(&item.key);
            Deleted::Gone
        };
        yield_now().await;
        Ok(deleted)
    }

    async fn preview(&self, _owner: &Owner, manifest: &Manifest) -> Result<Preview, ObjectError> {
        yield_now().await;
        let inner = self.inner();
        let live = inner.objects.get(&manifest.key).map(|(_, body)| body);
        Ok(Preview::of(live, &manifest.body, &manifest.key))
    }

    async fn read(&self, _owner: &Owner, item: &Item) -> Result<Option<Whole>, ObjectError> {
        yield_now().await;
        let mut inner = self.inner();
        inner.log.push(format!("read {}", item.key.name));
        let found = inner.objects.get(&item.key);
        Ok(found.map(|(life, body)| Whole { sighting: sighting(*life, body), body: body.clone() }))
    }

    fn follow(&self, kinds: &BTreeSet<Kind>) {
        self.inner().followed = kinds.iter().map(ToString::to_string).collect();
    }

    async fn changes(&self) -> Vec<Change> {
        loop {
            let changes = std::mem::take(&mut self.inner().changes);
            if !changes.is_empty() {
                return changes;
            }
            self.told.notified().await;
        }
    }
}
