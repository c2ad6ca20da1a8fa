//! Any store, with its calls counted and timed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;

use super::{ByteRange, Condition, Content, Key, Listed, Objects, ObjectsError, PutOutcome, Stored};
use crate::metrics;

/// A store whose calls are counted.
#[derive(Debug)]
pub struct Measured(Arc<dyn Objects>);

impl Measured {
    /// Counts the calls to this store.
    #[must_use]
    pub fn new(inner: Arc<dyn Objects>) -> Self {
        Self(inner)
    }
}

/// In the order of the labels.
#[derive(Clone, Copy)]
enum Call {
    Get,
    Read,
    Put,
    List,
    Delete,
}

async fn timed<T>(
    call: Call,
    work: impl Future<Output = Result<T, ObjectsError>> + Send,
) -> Result<T, ObjectsError> {
    let began = Instant::now();
    let outcome = work.await;
    metrics::objects().count(call as usize, began.elapsed(), &outcome);
    outcome
}

#[async_trait]
impl Objects for Measured {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Stored>, ObjectsError> {
        timed(Call::Get, self.0.get(key, limit)).await
    }

    async fn read(&self, key: &Key, range: Option<ByteRange>) -> Result<Option<Content>, ObjectsError> {
        timed(Call::Read, self.0.read(key, range)).await
    }

    async fn put(&self, key: &Key, bytes: Bytes, condition: Condition) -> Result<PutOutcome, ObjectsError> {
        timed(Call::Put, self.0.put(key, bytes, condition)).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, ObjectsError> {
        timed(Call::List, self.0.list(prefix, after, limit)).await
    }

    async fn presign(&self, key: &Key, ttl: Duration) -> Result<Option<String>, ObjectsError> {
        // Nothing is asked of the store for it.
        self.0.presign(key, ttl).await
    }

    async fn delete(&self, key: &Key) -> Result<(), ObjectsError> {
        timed(Call::Delete, self.0.delete(key)).await
    }
}
