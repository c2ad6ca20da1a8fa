//! Who is enrolled, by shard: the directory's snapshot with its log over it.
//!
//! Nothing here lists the bucket, except over a record that has no directory at all: one that was written
//! before there were directories, until the first step of a publisher.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Signers};
use farshore_shared::names::Name;
use farshore_shared::wire::{Document, Registration, Roster, SMALL_LIMIT};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use moka::future::Cache;
use tokio::sync::Mutex;

use crate::directory::{DirectoryError, Part, Reader};
use crate::objects::{Key, ObjectsError};
use crate::record::{self, DirectoryHead, Entry, Manifest, RosterRef, ShardRef};
use crate::view::{View, ViewError};

/// How old what is answered may be.
const STALENESS: Duration = Duration::from_secs(2);
/// How many clusters of shards that were read are kept.
const KEPT: u64 = 100_000;
/// How many objects are read at once, without a directory.
const IN_FLIGHT: usize = 32;
const PAGE: usize = 1000;

/// Why it is not known who is enrolled.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RollError {
    /// The trust root.
    #[error(transparent)]
    View(#[from] Arc<ViewError>),
    /// The directory.
    #[error(transparent)]
    Directory(Arc<DirectoryError>),
    /// The record.
    #[error("reading who is enrolled")]
    Objects(#[source] Arc<ObjectsError>),
}

impl From<DirectoryError> for RollError {
    fn from(error: DirectoryError) -> Self {
        Self::Directory(Arc::new(error))
    }
}

impl From<ObjectsError> for RollError {
    fn from(error: ObjectsError) -> Self {
        Self::Objects(Arc::new(error))
    }
}

/// Entries of one shard, by cluster.
type Shard = BTreeMap<Name, Entry>;

/// Who is enrolled.
#[derive(Debug, Clone)]
pub struct Roll {
    view: View,
    now: Cache<(), Arc<Snapshot>>,
    last: Arc<Mutex<Option<Arc<Snapshot>>>>,
    parts: Cache<Digest, Arc<Shard>>,
}

/// The directory at one moment.
#[derive(Debug, Clone, Default)]
struct Snapshot {
    head: Option<DirectoryHead>,
    manifest: Manifest,
    /// The last part of the log that is in `newer`.
    position: u64,
    /// What the log says of clusters, by shard.
    newer: BTreeMap<u16, Shard>,
}

impl Roll {
    /// Reads through a view's objects what its director has signed.
    #[must_use]
    pub fn new(view: View) -> Self {
        let parts = Cache::builder()
            .max_capacity(KEPT)
            .weigher(|_: &Digest, shard: &Arc<Shard>| u32::try_from(shard.len()).unwrap_or(u32::MAX));
        Self {
            view,
            now: Cache::builder().max_capacity(1).time_to_live(STALENESS).build(),
            last: Arc::default(),
            parts: parts.build(),
        }
    }

    /// The enrolled clusters of a shard, by name.
    ///
    /// # Errors
    /// [`RollError`].
    pub async fn shard(&self, shard: u16) -> Result<Vec<Entry>, RollError> {
        let now = self.snapshot().await?;
        let mut entries = match now.manifest.shards.get(&shard) {
            None => Shard::new(),
            Some(at) => Shard::clone(&*self.part(shard, *at).await?),
        };
        for (cluster, entry) in now.newer.get(&shard).into_iter().flatten() {
            if entries.get(cluster).is_none_or(|held| entry.is_newer_than(held)) {
                entries.insert(cluster.clone(), entry.clone());
            }
        }
        Ok(entries.into_values().filter(Entry::is_enrolled).collect())
    }

    async fn snapshot(&self) -> Result<Arc<Snapshot>, RollError> {
        let loaded = self.now.try_get_with((), self.load()).await;
        loaded.map_err(|error: Arc<RollError>| RollError::clone(&error))
    }

    async fn load(&self) -> Result<Arc<Snapshot>, RollError> {
        let trust = self.view.trust().await?;
        let director = trust.director();
        let reader = Reader::new(&**self.view.objects(), &director);
        let head = reader.head().await?.map(|(head, _)| head);
        let mut last = self.last.lock().await;
        let mut now = match &*last {
            // What the log says is added to; a new snapshot holds what the log before it said.
            Some(last) if last.head == head => Snapshot::clone(last),
            Some(_) | None => {
                let manifest = match &head {
                    Some(head) => reader.manifest(head.manifest).await?,
                    None => Manifest::default(),
                };
                let position = head.as_ref().map_or(0, |head| head.position);
                Snapshot { head, manifest, position, newer: BTreeMap::new() }
            }
        };
        loop {
            match reader.part(now.position + 1).await? {
                Part::Absent => break,
                // Publisher and replicas say so.
                Part::Damaged(_) => {}
                Part::Read(part) => part.entries.into_iter().for_each(|entry| now.note(entry)),
            }
            now.position += 1;
        }
        if now.head.is_none() && now.position == 0 {
            // A record from before there was a directory.
            now.newer.clear();
            for entry in self.listed(&director).await? {
                now.note(entry);
            }
        }
        let now = Arc::new(now);
        *last = Some(Arc::clone(&now));
        Ok(now)
    }

    async fn part(&self, shard: u16, at: ShardRef) -> Result<Arc<Shard>, RollError> {
        let load = async {
            let trust = self.view.trust().await?;
            let director = trust.director();
            let part = Reader::new(&**self.view.objects(), &director).shard(shard, &at).await?;
            Ok(Arc::new(part.0.into_iter().map(|entry| (entry.cluster.clone(), entry)).collect()))
        };
        let loaded = self.parts.try_get_with(at.digest, load).await;
        loaded.map_err(|error: Arc<RollError>| RollError::clone(&error))
    }

    /// Every registered cluster, from the objects themselves.
    async fn listed(&self, director: &Signers<'_>) -> Result<Vec<Entry>, RollError> {
        let objects = self.view.objects();
        let mut names: Vec<Name> = Vec::new();
        let mut after: Option<Key> = None;
        loop {
            let page = objects.list(record::REGISTRATIONS, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            names.extend(
                page.iter().filter_map(|listed| listed.key.as_str().rsplit('/').next()?.parse().ok()),
            );
            after = Some(last.key.clone());
        }
        let read = stream::iter(names).map(|name| self.entry(name, director)).buffer_unordered(IN_FLIGHT);
        let entries: Vec<Option<Entry>> = read.try_collect().await?;
        Ok(entries.into_iter().flatten().collect())
    }

    async fn entry(&self, cluster: Name, director: &Signers<'_>) -> Result<Option<Entry>, RollError> {
        let registration = self.document::<Registration>(record::registration(&cluster), director).await?;
        let Some((registration, _)) = registration.filter(|(found, _)| found.cluster == cluster) else {
            return Ok(None);
        };
        let roster = self.document::<Roster>(record::roster(&cluster), director).await?;
        let roster = roster.filter(|(found, _)| found.cluster == cluster);
        let roster = roster.map(|(roster, digest)| RosterRef::of(&roster, digest, &registration.labels));
        let Registration { epoch, sequence, key, labels, .. } = registration;
        Ok(Some(Entry { cluster, epoch, sequence, key: Some(key), labels, roster }))
    }

    /// A document and the digest of its envelope; one that is damaged or not signed counts as none.
    async fn document<T: Document>(
        &self,
        key: Key,
        director: &Signers<'_>,
    ) -> Result<Option<(T, Digest)>, RollError> {
        let stored = self.view.objects().get(&key, 2 * SMALL_LIMIT as u64).await?;
        let Some(stored) = stored else { return Ok(None) };
        let envelope: Option<Envelope> = serde_json::from_slice(&stored.bytes).ok();
        let opened = envelope.and_then(|envelope| envelope.open(director, SMALL_LIMIT).ok());
        Ok(opened.map(|document| (document, Digest::of(&stored.bytes))))
    }
}

impl Snapshot {
    fn note(&mut self, entry: Entry) {
        let shard = self.newer.entry(record::directory_shard_of(&entry.cluster)).or_default();
        if shard.get(&entry.cluster).is_none_or(|held| entry.is_newer_than(held)) {
            shard.insert(entry.cluster.clone(), entry);
        }
    }
}
