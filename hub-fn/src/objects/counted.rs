//! Any store, with what is done to it counted: what an operation costs in objects and bytes.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{ByteRange, Condition, Content, Key, Listed, Objects, ObjectsError, PutOutcome, Stored};

/// What was done to a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// [`Objects::get`].
    pub gets: u64,
    /// [`Objects::read`].
    pub reads: u64,
    /// [`Objects::put`] that stored something.
    pub puts: u64,
    /// [`Objects::put`] whose condition did not hold.
    pub conflicts: u64,
    /// [`Objects::list`].
    pub lists: u64,
    /// [`Objects::delete`].
    pub deletes: u64,
    /// Bytes of objects that were got.
    pub bytes_got: u64,
    /// Bytes of objects that were stored.
    pub bytes_put: u64,
    /// Bytes that were sent for nothing: the condition did not hold.
    pub bytes_refused: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        let Self { gets, reads, puts, conflicts, lists, deletes, bytes_got, bytes_put, bytes_refused } =
            other;
        self.gets += gets;
        self.reads += reads;
        self.puts += puts;
        self.conflicts += conflicts;
        self.lists += lists;
        self.deletes += deletes;
        self.bytes_got += bytes_got;
        self.bytes_put += bytes_put;
        self.bytes_refused += bytes_refused;
    }
}

/// A store that counts.
#[derive(Debug)]
pub struct Counted {
    inner: Arc<dyn Objects>,
    tallies: Mutex<BTreeMap<String, Tally>>,
}

impl Counted {
    /// Counts what is done to `inner` through it.
    #[must_use]
    pub fn new(inner: Arc<dyn Objects>) -> Self {
        Self { inner, tallies: Mutex::default() }
    }

    /// What was done since the last time that this was asked.
    #[must_use]
    pub fn take(&self) -> Tally {
        let mut all = Tally::default();
        self.take_by_kind().into_values().for_each(|tally| all += tally);
        all
    }

    /// The same, by the first part of the keys.
    #[must_use]
    pub fn take_by_kind(&self) -> BTreeMap<String, Tally> {
        std::mem::take(&mut self.tallies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn count(&self, key: &str, what: impl FnOnce(&mut Tally)) {
        let kind = key.split('/').next().unwrap_or_default().to_owned();
        what(self.tallies.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default());
    }
}

#[async_trait]
impl Objects for Counted {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Stored>, ObjectsError> {
        let stored = self.inner.get(key, limit).await?;
        let bytes = stored.as_ref().map_or(0, |stored| stored.bytes.len() as u64);
        self.count(key.as_str(), |tally| {
            tally.gets += 1;
            tally.bytes_got += bytes;
        });
        Ok(stored)
    }

    async fn read(&self, key: &Key, range: Option<ByteRange>) -> Result<Option<Content>, ObjectsError> {
        self.count(key.as_str(), |tally| tally.reads += 1);
        self.inner.read(key, range).await
    }

    async fn put(&self, key: &Key, bytes: Bytes, condition: Condition) -> Result<PutOutcome, ObjectsError> {
        let size = bytes.len() as u64;
        let outcome = self.inner.put(key, bytes, condition).await?;
        self.count(key.as_str(), |tally| match &outcome {
            PutOutcome::Stored(_) => {
                tally.puts += 1;
                tally.bytes_put += size;
            }
            PutOutcome::Conflict => {
                tally.conflicts += 1;
                tally.bytes_refused += size;
            }
        });
        Ok(outcome)
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, ObjectsError> {
        self.count(prefix, |tally| tally.lists += 1);
        self.inner.list(prefix, after, limit).await
    }

    async fn delete(&self, key: &Key) -> Result<(), ObjectsError> {
        self.count(key.as_str(), |tally| tally.deletes += 1);
        self.inner.delete(key).await
    }

    async fn presign(&self, key: &Key, ttl: Duration) -> Result<Option<String>, ObjectsError> {
        self.inner.presign(key, ttl).await
    }
}
