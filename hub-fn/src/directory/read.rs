//! Reading and verifying the objects of the directory.

use bytes::Bytes;
use farshore_shared::compress;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Refused, Signers};
use farshore_shared::wire::Document;

use crate::objects::{Key, Objects, ObjectsError, Version};
use crate::record::{
    self, DirectoryHead, LOG_LIMIT, LogPart, MANIFEST_LIMIT, Manifest, SHARD_LIMIT, ShardPart, ShardRef,
};

/// The most bytes of the head.
const HEAD_LIMIT: usize = 64 << 10;

/// Why a part of the directory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The object storage.
    #[error("reading the directory")]
    Objects(#[from] ObjectsError),
    /// What a signed object names is not there.
    #[error("object that the directory names is missing ({0})")]
    Missing(Key),
    /// An object is not what its name promises.
    #[error("object of the directory is damaged ({key}: {why})")]
    Damaged {
        /// Which.
        key: Key,
        /// How.
        why: String,
    },
    /// An object is not signed by the director.
    #[error("object of the directory is refused ({key})")]
    Refused {
        /// Which.
        key: Key,
        /// Why.
        #[source]
        source: Refused,
    },
}

/// What is at one number of the log.
#[derive(Debug)]
pub enum Part {
    /// Nothing: nobody has written it yet, or it was collected.
    Absent,
    /// Something that is not what was written there.
    Damaged(DirectoryError),
    /// A part.
    Read(LogPart),
}

/// Reads the directory of one fleet.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    objects: &'a dyn Objects,
    director: &'a Signers<'a>,
}

impl<'a> Reader<'a> {
    /// Reads from these objects what this director has signed.
    #[must_use]
    pub fn new(objects: &'a dyn Objects, director: &'a Signers<'a>) -> Self {
        Self { objects, director }
    }

    /// The head, with the version of its object; none before the first snapshot.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub async fn head(&self) -> Result<Option<(DirectoryHead, Version)>, DirectoryError> {
        self.signed(record::directory_head(), HEAD_LIMIT).await
    }

    /// A part of the log; none if nobody has written it yet, or it was collected.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub async fn log(&self, position: u64) -> Result<Option<LogPart>, DirectoryError> {
        let key = record::directory_log(position);
        let Some((part, _)) = self.signed::<LogPart>(key.clone(), LOG_LIMIT).await? else { return Ok(None) };
        if part.position != position {
            let why = format!("it is part {}", part.position);
            return Err(DirectoryError::Damaged { key, why });
        }
        Ok(Some(part))
    }

    /// What is at one number of the log.
    ///
    /// # Errors
    /// [`DirectoryError::Objects`].
    pub async fn part(&self, position: u64) -> Result<Part, DirectoryError> {
        match self.log(position).await {
            Ok(Some(part)) => Ok(Part::Read(part)),
            Ok(None) => Ok(Part::Absent),
            Err(error @ DirectoryError::Objects(_)) => Err(error),
            Err(failure) => Ok(Part::Damaged(failure)),
        }
    }

    /// The shards of a snapshot.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub async fn manifest(&self, digest: Digest) -> Result<Manifest, DirectoryError> {
        let key = record::directory_manifest(digest);
        let bytes = self.addressed(&key, digest, MANIFEST_LIMIT as u64).await?;
        let read = serde_json::from_slice(&bytes);
        read.map_err(|error| DirectoryError::Damaged { key, why: error.to_string() })
    }

    /// One shard.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub async fn shard(&self, shard: u16, at: &ShardRef) -> Result<ShardPart, DirectoryError> {
        let bytes = self.shard_bytes(shard, at).await?;
        let key = record::directory_shard(shard, at.digest);
        decode_shard(&bytes).map_err(|why| DirectoryError::Damaged { key, why })
    }

    /// One shard as it is stored, of the digest that names it.
    pub(super) async fn shard_bytes(&self, shard: u16, at: &ShardRef) -> Result<Bytes, DirectoryError> {
        self.addressed(&record::directory_shard(shard, at.digest), at.digest, SHARD_LIMIT as u64).await
    }

    async fn addressed(&self, key: &Key, digest: Digest, limit: u64) -> Result<Bytes, DirectoryError> {
        let stored = self.objects.get(key, limit).await?;
        let stored = stored.ok_or_else(|| DirectoryError::Missing(key.clone()))?;
        if Digest::of(&stored.bytes) != digest {
            let why = "its digest is not the one that names it".to_owned();
            return Err(DirectoryError::Damaged { key: key.clone(), why });
        }
        Ok(stored.bytes)
    }

    async fn signed<T: Document>(
        &self,
        key: Key,
        limit: usize,
    ) -> Result<Option<(T, Version)>, DirectoryError> {
        // An envelope holds its payload in base64.
        let Some(stored) = self.objects.get(&key, 2 * limit as u64).await? else { return Ok(None) };
        let envelope: Envelope = match serde_json::from_slice(&stored.bytes) {
            Ok(envelope) => envelope,
            Err(error) => return Err(DirectoryError::Damaged { key, why: error.to_string() }),
        };
        match envelope.open(self.director, limit) {
            Ok(document) => Ok(Some((document, stored.version))),
            Err(source) => Err(DirectoryError::Refused { key, source }),
        }
    }
}

/// A shard as it is stored, and what names it. Its entries are sorted by cluster.
///
/// # Panics
/// Never: entries have string keys only.
#[must_use]
pub fn encode_shard(shard: &ShardPart) -> (Bytes, ShardRef) {
    let json = serde_json::to_vec(shard).expect("entries have string keys only");
    let bytes = Bytes::from(compress::pack(&json));
    let clusters = u32::try_from(shard.0.len()).unwrap_or(u32::MAX);
    let reference = ShardRef { digest: Digest::of(&bytes), size: bytes.len() as u64, clusters };
    (bytes, reference)
}

/// A manifest as it is stored, and its digest.
///
/// # Panics
/// Never: numbers make JSON keys.
#[must_use]
pub fn encode_manifest(manifest: &Manifest) -> (Bytes, Digest) {
    let bytes = Bytes::from(serde_json::to_vec(manifest).expect("numbers make JSON keys"));
    let digest = Digest::of(&bytes);
    (bytes, digest)
}

/// A shard as it was stored; else what is wrong with it.
pub(super) fn decode_shard(bytes: &[u8]) -> Result<ShardPart, String> {
    let json = compress::unpack(bytes, SHARD_LIMIT).map_err(|error| error.to_string())?;
    serde_json::from_slice(&json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use farshore_shared::names::Labels;

    use super::*;
    use crate::record::Entry;

    #[test]
    fn a_shard_reads_back_and_is_named_by_its_bytes() {
        let entry = |name: &str| Entry {
            cluster: name.parse().expect("a name"),
            epoch: 1,
            sequence: 2,
            key: None,
            labels: Labels::default(),
            roster: None,
        };
        let shard = ShardPart(vec![entry("a"), entry("b")]);
        let (bytes, reference) = encode_shard(&shard);
        assert_eq!((reference.digest, reference.clusters), (Digest::of(&bytes), 2));
        assert_eq!(decode_shard(&bytes), Ok(shard));
        assert!(decode_shard(&bytes[..bytes.len() / 2]).is_err(), "cut");
    }
}
