//! Writing a snapshot of the directory: its shards, then the manifest, then the head that names it.

use std::collections::BTreeMap;

use bytes::Bytes;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::SigningKey;
use farshore_shared::wire::UnixSeconds;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{encode_manifest, encode_shard};
use crate::objects::{Condition, Objects, ObjectsError, PutOutcome};
use crate::record::{self, DirectoryHead, Entry, Manifest, ShardPart, ShardRef};

/// How many shards are written at once.
const AT_ONCE: usize = 16;

/// Where in the log a snapshot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Given by root.
    pub epoch: u64,
    /// The last part of the log that is in the snapshot; 0 is none.
    pub position: u64,
    /// When the head is signed.
    pub issued: UnixSeconds,
}

/// Writes a snapshot of these entries and moves the head to it, under `condition`. Nobody sees it
/// before the head names it; what is written twice is the same bytes under the same name.
///
/// There is at most one entry per cluster. A removed cluster needs none.
///
/// # Errors
/// [`ObjectsError`]; the head then names the snapshot before, or already this one.
pub async fn write_snapshot(
    objects: &dyn Objects,
    director: &SigningKey,
    standing: Standing,
    condition: Condition,
    entries: impl IntoIterator<Item = Entry>,
) -> Result<PutOutcome, ObjectsError> {
    let manifest = write_shards(objects, entries).await?;
    let (bytes, digest) = encode_manifest(&manifest);
    // A conflict is the same bytes, written by somebody else.
    let _ = objects.put(&record::directory_manifest(digest), bytes, Condition::Absent).await?;
    let Standing { epoch, position, issued } = standing;
    let head = DirectoryHead { epoch, position, manifest: digest, issued };
    let bytes = Bytes::from(Envelope::seal(&head, &[director]).to_bytes());
    objects.put(&record::directory_head(), bytes, condition).await
}

/// Writes entries by shard, each shard once, and says where they are.
///
/// # Errors
/// [`ObjectsError`].
pub async fn write_shards(
    objects: &dyn Objects,
    entries: impl IntoIterator<Item = Entry>,
) -> Result<Manifest, ObjectsError> {
    let mut shards: BTreeMap<u16, Vec<Entry>> = BTreeMap::new();
    for entry in entries {
        shards.entry(record::directory_shard_of(&entry.cluster)).or_default().push(entry);
    }
    let written = stream::iter(shards)
        .map(|(shard, entries)| write_shard(objects, shard, entries))
        .buffer_unordered(AT_ONCE);
    Ok(Manifest { shards: written.try_collect().await? })
}

async fn write_shard(
    objects: &dyn Objects,
    shard: u16,
    mut entries: Vec<Entry>,
) -> Result<(u16, ShardRef), ObjectsError> {
    entries.sort_unstable_by(|a, b| a.cluster.cmp(&b.cluster));
    let (bytes, reference) = encode_shard(&ShardPart(entries));
    // A conflict is the same bytes, written by somebody else.
    let _ = objects.put(&record::directory_shard(shard, reference.digest), bytes, Condition::Absent).await?;
    Ok((shard, reference))
}

#[cfg(test)]
mod tests {
    use farshore_shared::dsse::Signers;
    use farshore_shared::names::{Labels, Name};

    use super::*;
    use crate::directory::Reader;
    use crate::objects::disk::Disk;

    #[tokio::test]
    async fn a_snapshot_reads_back_with_every_entry_in_its_shard() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let objects = Disk::open(folder.path()).expect("an empty folder");
        let director = SigningKey::generate();
        let entries: Vec<_> = (0..300).map(|n| entry(&format!("site-{n}"))).collect();
        let standing = Standing { epoch: 1, position: 7, issued: 1_800_000_000 };
        let put = write_snapshot(&objects, &director, standing, Condition::Absent, entries.clone()).await;
        assert!(matches!(put, Ok(PutOutcome::Stored(_))));
        let signers = Signers::one(director.public());
        let reader = Reader::new(&objects, &signers);
        let (head, _) = reader.head().await.expect("a disk").expect("just written");
        assert_eq!((head.epoch, head.position), (1, 7));
        let manifest = reader.manifest(head.manifest).await.expect("just written");
        let mut read = Vec::new();
        for (shard, reference) in &manifest.shards {
            let part = reader.shard(*shard, reference).await.expect("just written");
            assert!(part.0.iter().all(|entry| record::directory_shard_of(&entry.cluster) == *shard));
            assert!(part.0.is_sorted_by(|a, b| a.cluster < b.cluster));
            read.extend(part.0);
        }
        assert_eq!(by_name(read), by_name(entries));
    }

    fn by_name(entries: Vec<Entry>) -> BTreeMap<Name, Entry> {
        entries.into_iter().map(|entry| (entry.cluster.clone(), entry)).collect()
    }

    fn entry(name: &str) -> Entry {
        Entry {
            cluster: name.parse().expect("a name"),
            epoch: 1,
            sequence: 2,
            key: Some(SigningKey::generate().public().clone()),
            labels: Labels::default(),
            roster: None,
        }
    }
}
