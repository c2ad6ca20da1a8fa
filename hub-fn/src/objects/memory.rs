//! A store in the memory of one process: gone with it. For measuring and for tests, where no disk shall be in the way.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;

use super::{ByteRange, Condition, Content, Key, Listed, Objects, ObjectsError, PutOutcome, Stored, Version};

/// The largest piece that a read hands out.
const PIECE: usize = 256 * 1024;

/// Objects in memory.
#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Key, (Bytes, u64)>,
    /// Writes so far: each gives the version of what it wrote.
    writes: u64,
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Objects for Memory {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Stored>, ObjectsError> {
        let Some((bytes, version)) = self.state().objects.get(key).cloned() else { return Ok(None) };
        let size = bytes.len() as u64;
        if size > limit {
            return Err(ObjectsError::TooLarge { key: key.to_string(), limit, size });
        }
        Ok(Some(Stored { bytes, version: Version::new(version.to_string()) }))
    }

    async fn read(&self, key: &Key, range: Option<ByteRange>) -> Result<Option<Content>, ObjectsError> {
        let Some((bytes, _)) = self.state().objects.get(key).cloned() else { return Ok(None) };
        let total = bytes.len() as u64;
        let range = match range {
            None => 0..total,
            Some(range) => range
                .within(total)
                .ok_or_else(|| ObjectsError::Unsatisfiable { key: key.to_string(), total })?,
        };
        let at = |n: u64| usize::try_from(n).expect("it is within bytes that are in memory");
        let wanted = bytes.slice(at(range.start)..at(range.end));
        let starts = (0..wanted.len()).step_by(PIECE);
        let pieces: Vec<Result<Bytes, ObjectsError>> =
            starts.map(|start| Ok(wanted.slice(start..wanted.len().min(start + PIECE)))).collect();
        Ok(Some(Content { total, range, stream: Box::pin(stream::iter(pieces)) }))
    }

    async fn put(&self, key: &Key, bytes: Bytes, condition: Condition) -> Result<PutOutcome, ObjectsError> {
        let mut state = self.state();
        let held = state.objects.get(key).map(|(_, version)| Version::new(version.to_string()));
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => held.is_none(),
            Condition::Matches(version) => held == Some(version),
        };
        if !holds {
            return Ok(PutOutcome::Conflict);
        }
        state.writes += 1;
        let version = state.writes;
        state.objects.insert(key.clone(), (bytes, version));
        Ok(PutOutcome::Stored(Version::new(version.to_string())))
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, ObjectsError> {
        let state = self.state();
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = state.objects.range::<Key, _>((first, Bound::Unbounded));
        // Keys of one prefix stand together.
        let found = found.skip_while(|(key, _)| key.as_str() < prefix);
        let found = found.take_while(|(key, _)| key.as_str().starts_with(prefix));
        Ok(found
            .take(limit)
            .map(|(key, (bytes, _))| Listed { key: key.clone(), size: bytes.len() as u64 })
            .collect())
    }

    async fn delete(&self, key: &Key) -> Result<(), ObjectsError> {
        self.state().objects.remove(key);
        Ok(())
    }

    async fn presign(&self, _key: &Key, _ttl: Duration) -> Result<Option<String>, ObjectsError> {
        Ok(None)
    }
}
