//! What was published last, read back and believed only as far as our own signature reaches.

use std::sync::Arc;

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Refused, Signers};
use futures::future::try_join_all;
use serde::de::DeserializeOwned;

use super::PublishError;
use crate::objects::{Condition, Key, Objects, ObjectsError, PutOutcome, Stored, Version};
use crate::record::{self, Head, Intent, Table};

/// The most bytes of the head.
pub const HEAD_LIMIT: usize = 64 << 10;
/// The most bytes of an intent, or of one shard of the table.
pub const BODY_LIMIT: u64 = 64 << 20;

/// What was published last.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// The pointer, and the version of its object; none before the first publication.
    pub head: Option<(Head, Version)>,
    /// What was decided.
    pub intent: Intent,
    /// Where every group's body is.
    pub table: Table,
}

/// Why what was published cannot be read back, or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The object storage.
    #[error("accessing the record")]
    Objects(#[from] ObjectsError),
    /// An object that the record names is not there.
    #[error("object that the record names is missing ({0}): restore it, or approve a new publication")]
    Missing(Key),
    /// An object is not what its name or signature promises.
    #[error("object in the record does not have the digest that names it ({0})")]
    Digest(Key),
    /// The head is not signed by us.
    #[error("fleet/head is refused")]
    Head(#[source] Refused),
    /// An object cannot be parsed.
    #[error("reading an object of the record ({key})")]
    Json {
        /// Which.
        key: Key,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

impl Published {
    /// Reads what is published, unless it is what is known already.
    ///
    /// # Errors
    /// [`StateError`].
    pub async fn load_unless(
        known: Option<Arc<Self>>,
        objects: &Arc<dyn Objects>,
        director: &Signers<'_>,
    ) -> Result<Arc<Self>, StateError> {
        let stored = objects.get(&record::head(), HEAD_LIMIT as u64).await?;
        let version = |of: &Arc<Self>| of.head.as_ref().map(|(_, version)| version.clone());
        match known.filter(|known| version(known) == stored.as_ref().map(|stored| stored.version.clone())) {
            Some(known) => Ok(known),
            None => Ok(Arc::new(Self::of(stored, objects, director).await?)),
        }
    }

    /// Reads head, intent and table.
    ///
    /// # Errors
    /// [`StateError`]. Nothing of an unsigned or damaged record is taken over.
    pub async fn load(objects: &Arc<dyn Objects>, director: &Signers<'_>) -> Result<Self, StateError> {
        let stored = objects.get(&record::head(), HEAD_LIMIT as u64).await?;
        Self::of(stored, objects, director).await
    }

    async fn of(
        head: Option<Stored>,
        objects: &Arc<dyn Objects>,
        director: &Signers<'_>,
    ) -> Result<Self, StateError> {
        let Some(stored) = head else { return Ok(Self::default()) };
        let envelope: Envelope = parse(&record::head(), &stored.bytes)?;
        let head: Head = envelope.open(director, HEAD_LIMIT).map_err(StateError::Head)?;
        let intent = addressed(objects, record::intent(head.intent), head.intent).await?;
        let shards =
            head.tables.iter().map(|&digest| addressed::<Table>(objects, record::table(digest), digest));
        let mut table = Table::default();
        for shard in try_join_all(shards).await? {
            table.0.extend(shard.0);
        }
        Ok(Self { head: Some((head, stored.version)), intent, table })
    }

    /// The sequence of the next publication: it always grows, and it is never behind the clock.
    #[must_use]
    pub fn next_sequence(&self, now_millis: u64) -> u64 {
        self.head.as_ref().map_or(0, |(head, _)| head.sequence + 1).max(now_millis)
    }
}

fn parse<T: DeserializeOwned>(key: &Key, bytes: &[u8]) -> Result<T, StateError> {
    serde_json::from_slice(bytes).map_err(|source| StateError::Json { key: key.clone(), source })
}

async fn addressed<T: DeserializeOwned>(
    objects: &Arc<dyn Objects>,
    key: Key,
    digest: Digest,
) -> Result<T, StateError> {
    let Some(stored) = objects.get(&key, BODY_LIMIT).await? else { return Err(StateError::Missing(key)) };
    if Digest::of(&stored.bytes) != digest {
        return Err(StateError::Digest(key));
    }
    parse(&key, &stored.bytes)
}

/// Writes an object under the digest of its bytes. That it is there already is as good.
///
/// # Errors
/// [`PublishError::TooLarge`] for what nobody could read again: what names it must not become visible.
pub async fn put_addressed(
    objects: &Arc<dyn Objects>,
    bytes: Vec<u8>,
    key_of: impl Fn(Digest) -> Key,
) -> Result<Digest, PublishError> {
    let digest = Digest::of(&bytes);
    if bytes.len() as u64 > BODY_LIMIT {
        return Err(PublishError::TooLarge { key: key_of(digest), size: bytes.len() });
    }
    match objects.put(&key_of(digest), Bytes::from(bytes), Condition::Absent).await? {
        PutOutcome::Stored(_) | PutOutcome::Conflict => Ok(digest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::memory::Memory;

    #[tokio::test]
    async fn what_nobody_could_read_again_is_not_written() {
        let objects: Arc<dyn Objects> = Arc::new(Memory::new());
        let most = usize::try_from(BODY_LIMIT).expect("it fits");
        let digest =
            put_addressed(&objects, vec![b' '; most], record::table).await.expect("as much as may be");
        assert!(objects.get(&record::table(digest), BODY_LIMIT).await.expect("memory").is_some());
        let error = put_addressed(&objects, vec![b' '; most + 1], record::table).await.expect_err("a limit");
        assert!(error.to_string().contains("67108865 bytes, limit 67108864"), "{error}");
        assert_eq!(objects.list("fleet/tables/", None, 9).await.expect("memory").len(), 1);
    }
}
