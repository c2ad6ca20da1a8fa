//! What it takes to write parts of the log, shards and snapshots.

use std::collections::BTreeMap;

use bytes::Bytes;
use farshore_shared::dsse::Signers;
use farshore_shared::keys::SigningKey;
use farshore_shared::wire::UnixSeconds;

use super::note;
use crate::directory::{DirectoryError, Reader, encode_shard};
use crate::objects::{Condition, Objects, PutOutcome};
use crate::record::{self, Entry, ShardPart, ShardRef};

/// The most bytes of the entries of one part: well below the limit of a reader.
const PART_BYTES: usize = 2 << 20;

/// What it takes to write the directory.
#[derive(Debug, Clone, Copy)]
pub struct Pen<'a> {
    /// Where.
    pub objects: &'a dyn Objects,
    /// Who signs.
    pub director: &'a SigningKey,
    /// Whose signatures are believed.
    pub signers: &'a Signers<'a>,
    /// Given by root.
    pub epoch: u64,
    /// The time.
    pub now: UnixSeconds,
}

impl Pen<'_> {
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader::new(self.objects, self.signers)
    }

    pub(super) async fn rewrite(
        &self,
        shard: u16,
        before: Option<ShardRef>,
        entries: Vec<Entry>,
    ) -> Result<ShardRef, DirectoryError> {
        let mut newest = BTreeMap::new();
        if let Some(at) = before {
            let ShardPart(old) = self.reader().shard(shard, &at).await?;
            newest = old.into_iter().map(|entry| (entry.cluster.clone(), entry)).collect();
        }
        entries.into_iter().for_each(|entry| note(&mut newest, entry));
        let (bytes, reference) = encode_shard(&ShardPart(newest.into_values().collect()));
        self.create(&record::directory_shard(shard, reference.digest), bytes).await?;
        Ok(reference)
    }

    /// Writes an object that its digest names: that it is there already is as good.
    pub(super) async fn create(&self, key: &crate::objects::Key, bytes: Bytes) -> Result<(), DirectoryError> {
        match self.objects.put(key, bytes, Condition::Absent).await? {
            PutOutcome::Stored(_) | PutOutcome::Conflict => Ok(()),
        }
    }
}

/// Cuts entries into parts whose size a reader accepts.
pub(super) fn parted(entries: &[Entry]) -> Vec<&[Entry]> {
    let size = |entry: &Entry| serde_json::to_vec(entry).expect("entries have string keys only").len() + 1;
    let (mut parts, mut start, mut bytes) = (vec![], 0, 0);
    for (n, entry) in entries.iter().enumerate() {
        let size = size(entry);
        if bytes + size > PART_BYTES && n > start {
            parts.push(&entries[start..n]);
            (start, bytes) = (n, 0);
        }
        bytes += size;
    }
    if start < entries.len() {
        parts.push(&entries[start..]);
    }
    parts
}
