//! The record as a publisher uses it: it writes nothing that is being deleted.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::claim::Claim;
use super::needed::Pointer;
use crate::objects::{ByteRange, Condition, Content, Key, Listed, Objects, ObjectsError, PutOutcome, Stored};

/// Where a publisher says that it has met an object that was there already.
pub(super) const REUSED: &str = "gc/reused/";

/// A store that learns what is being deleted whenever a pointer (`fleet/head`, `index/head`, the head of a mirror) is
/// read through it, and refuses to write that. The [module](super) says why this order is what makes it safe.
#[derive(Debug, Clone)]
pub struct Guarded {
    inner: Arc<dyn Objects>,
    claim: Arc<RwLock<Claim>>,
    /// Whoever reads the claim: of two at once, none puts an older one in the place of a newer one.
    reading: Arc<tokio::sync::Mutex<()>>,
}

impl Guarded {
    /// Guards the writes to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Objects>) -> Self {
        Self { inner, claim: Arc::default(), reading: Arc::default() }
    }

    /// Whether an object that was met or written before the pointer was last read may be named by what is
    /// published now: it is there, and is not being deleted. What was seen of a source may be older than the
    /// collection that has passed since.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub async fn may_name(&self, key: &Key) -> Result<bool, ObjectsError> {
        if self.is_claimed(key) {
            return Ok(false);
        }
        let found = self.inner.list(key.as_str(), None, 1).await?;
        Ok(found.first().is_some_and(|found| found.key == *key))
    }

    fn is_claimed(&self, key: &Key) -> bool {
        self.claim.read().unwrap_or_else(PoisonError::into_inner).holds(key)
    }

    /// Says that an artifact that was there already may be named from now on: whatever marks it has, its
    /// time begins anew.
    async fn note_reuse(&self, key: &Key) -> Result<(), ObjectsError> {
        let Some(digest) = key.as_str().strip_prefix("artifacts/sha256/") else { return Ok(()) };
        let note = Key::new(format!("{REUSED}{digest}")).expect("a part of a key makes a key");
        self.inner.put(&note, Bytes::new(), Condition::Always).await.map(drop)
    }
}

#[async_trait]
impl Objects for Guarded {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Stored>, ObjectsError> {
        let found = self.inner.get(key, limit).await?;
        if Pointer::is_at(key) {
            // After the pointer, never before it.
            let _alone = self.reading.lock().await;
            let (claim, _) = Claim::load(&*self.inner).await?;
            *self.claim.write().unwrap_or_else(PoisonError::into_inner) = claim;
        }
        Ok(found)
    }

    async fn read(&self, key: &Key, range: Option<ByteRange>) -> Result<Option<Content>, ObjectsError> {
        self.inner.read(key, range).await
    }

    async fn put(&self, key: &Key, bytes: Bytes, condition: Condition) -> Result<PutOutcome, ObjectsError> {
        if self.is_claimed(key) {
            return Err(ObjectsError::Claimed { key: key.to_string() });
        }
        let only_new = condition == Condition::Absent;
        let outcome = self.inner.put(key, bytes, condition).await?;
        if only_new && outcome == PutOutcome::Conflict {
            self.note_reuse(key).await?;
        }
        Ok(outcome)
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, ObjectsError> {
        self.inner.list(prefix, after, limit).await
    }

    async fn delete(&self, key: &Key) -> Result<(), ObjectsError> {
        self.inner.delete(key).await
    }

    async fn presign(&self, key: &Key, ttl: Duration) -> Result<Option<String>, ObjectsError> {
        self.inner.presign(key, ttl).await
    }
}
