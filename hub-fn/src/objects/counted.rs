//! Any store, with what is done to it counted: what an operation costs in objects and bytes.

use std::sync::{Arc, Mutex, PoisonError};

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
}

/// A store that counts.
#[derive(Debug)]
pub struct Counted {
    inner: Arc<dyn Objects>,
    tally: Mutex<Tally>,
}

impl Counted {
    /// Counts what is done to `inner` through it.
    #[must_use]
    pub fn new(inner: Arc<dyn Objects>) -> Self {
        Self { inner, tally: Mutex::default() }
    }

    /// What was done since the last time that this was asked.
    #[must_use]
    pub fn take(&self) -> Tally {
        std::mem::take(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn count(&self, what: impl FnOnce(&mut Tally)) {
        what(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[async_trait]
impl Objects for Counted {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Stored>, ObjectsError> {
        let stored = self.inner.get(key, limit).await?;
        let bytes = stored.as_ref().map_or(0, |stored| stored.bytes.len() as u64);
        self.count(|tally| {
            tally.gets += 1;
            tally.bytes_got += bytes;
        });
        Ok(stored)
    }

    async fn read(&self, key: &Key, range: Option<ByteRange>) -> Result<Option<Content>, ObjectsError> {
        self.count(|tally| tally.reads += 1);
        self.inner.read(key, range).await
    }

    async fn put(&self, key: &Key, bytes: Bytes, condition: Condition) -> Result<PutOutcome, ObjectsError> {
        let size = bytes.len() as u64;
        let outcome = self.inner.put(key, bytes, condition).await?;
        self.count(|tally| match &outcome {
            PutOutcome::Stored(_) => {
                tally.puts += 1;
                tally.bytes_put += size;
            }
            PutOutcome::Conflict => tally.conflicts += 1,
        });
        Ok(outcome)
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, ObjectsError> {
        self.count(|tally| tally.lists += 1);
        self.inner.list(prefix, after, limit).await
    }

    async fn delete(&self, key: &Key) -> Result<(), ObjectsError> {
        self.count(|tally| tally.deletes += 1);
        self.inner.delete(key).await
    }
}
