//! Any store, with a test at every step: it may stop an operation, fail it, lose its answer, or answer otherwise.
//!
//! The decision is the test's own, behind [`Steps`]: a counter fails the n-th operation, a channel
//! holds one back until another publisher has gone on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    ByteRange, Condition, Content, Key, Listed, Objects, ObjectsError, Operation, PutOutcome, Stored,
};

/// What becomes of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is done.
    Proceed,
    /// It is not done, and ends in [`ObjectsError::Unreachable`].
    Fail,
    /// It is done, and ends in [`ObjectsError::Unreachable`] nevertheless.
    LoseAnswer,
    /// A [`Objects::get`] is answered with this, as by a bucket that shows an older object or has a damaged one.
    /// Anything else is done.
    Answer(Option<Stored>),
    /// A [`Objects::put`] is not done and ends as one whose condition did not hold, as a bucket answers a write that
    /// meets another one. Anything else is done.
    Refuse,
}

/// Who decides, before every operation; while this waits, the operation waits.
#[async_trait]
pub trait Steps: Send + Sync + std::fmt::Debug {
    /// `key` is the object's key, or the prefix of a list.
    async fn before(&self, operation: Operation, key: &str) -> Decision;
}

/// A store whose every operation is announced to a [`Steps`] first.
#[derive(Debug, Clone)]
pub struct Faulty {
    inner: Arc<dyn Objects>,
    steps: Arc<dyn Steps>,
}

impl Faulty {
    /// Puts `steps` before every operation of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Objects>, steps: Arc<dyn Steps>) -> Self {
        Self { inner, steps }
    }

    async fn step<T>(
        &self,
        operation: Operation,
        key: &str,
        work: impl Future<Output = Result<T, ObjectsError>> + Send,
    ) -> Result<T, ObjectsError> {
        let decision = self.steps.before(operation, key).await;
        end(decision, operation, key, work).await
    }
}

async fn end<T>(
    decision: Decision,
    operation: Operation,
    key: &str,
    work: impl Future<Output = Result<T, ObjectsError>> + Send,
) -> Result<T, ObjectsError> {
    let failed = |why: &'static str| ObjectsError::Unreachable {
        operation,
        key: key.to_owned(),
        source: io::Error::other(why).into(),
    };
    match decision {
        Decision::Proceed | Decision::Answer(_) | Decision::Refuse => work.await,
        Decision::Fail => Err(failed("the test failed it")),
        Decision::LoseAnswer => work.await.and_then(|_done| Err(failed("the test lost its answer"))),
    }
}

#[async_trait]
impl Objects for Faulty {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Stored>, ObjectsError> {
        match self.steps.before(Operation::Get, key.as_str()).await {
            Decision::Answer(stored) => Ok(stored),
            decision => end(decision, Operation::Get, key.as_str(), self.inner.get(key, limit)).await,
        }
    }

    async fn read(&self, key: &Key, range: Option<ByteRange>) -> Result<Option<Content>, ObjectsError> {
        self.step(Operation::Read, key.as_str(), self.inner.read(key, range)).await
    }

    async fn put(&self, key: &Key, bytes: Bytes, condition: Condition) -> Result<PutOutcome, ObjectsError> {
        match self.steps.before(Operation::Put, key.as_str()).await {
            Decision::Refuse => Ok(PutOutcome::Conflict),
            decision => {
                end(decision, Operation::Put, key.as_str(), self.inner.put(key, bytes, condition)).await
            }
        }
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, ObjectsError> {
        self.step(Operation::List, prefix, self.inner.list(prefix, after, limit)).await
    }

    async fn delete(&self, key: &Key) -> Result<(), ObjectsError> {
        self.step(Operation::Delete, key.as_str(), self.inner.delete(key)).await
    }

    async fn presign(&self, key: &Key, ttl: Duration) -> Result<Option<String>, ObjectsError> {
        self.inner.presign(key, ttl).await
    }
}
