//! The members in the record: learned from the directory, compared with the documents themselves, told to others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Signers};
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{Document, Registration, Roster, SMALL_LIMIT};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tracing::{debug, info, warn};

use super::directory::{Directory, Followed, Pen, note};
use super::members::Members;
use super::partition::Stamp;
use super::state::Published;
use super::{PublishError, Publisher, Step};
use crate::directory::Reader;
use crate::index::News;
use crate::objects::{Key, Objects, ObjectsError, Version};
use crate::record::{self, Entry};

/// How many objects are read at once.
const IN_FLIGHT: usize = 32;
/// How many keys are listed at once.
const PAGE: usize = 1000;
/// How many rosters are compared with the record at once, in each interval of sources: all of a small fleet, and a rate that
/// object storage does not notice for a large one.
const COMPARED: usize = 500;
/// How often it is told how far a listing is.
const TOLD: usize = 10_000;
/// How often appending is tried after the directory had to be loaded anew.
const ATTEMPTS: usize = 4;

/// A document of the record, with what is to be known of its object.
#[derive(Debug, Clone)]
pub(super) struct Found<T> {
    pub(super) document: T,
    pub(super) version: Version,
    pub(super) digest: Digest,
}

impl Publisher {
    /// Learns who is enrolled and how each of them stands, as the directory says.
    pub(super) async fn meet_members(
        &mut self,
        previous: &Published,
        step: Step,
    ) -> Result<(), PublishError> {
        let said = previous.head.as_ref().map(|(head, _)| head.says());
        let is_foreign = self.left != said;
        if is_foreign {
            self.reported.clear();
            self.left = said;
        }
        self.learn(is_foreign).await?;
        // Who was moved by what is not published any more may hold what came in between.
        for (name, group) in std::mem::take(&mut self.moved) {
            if is_foreign {
                self.members.owe(name, group);
            }
        }
        self.members.place(&previous.intent);
        let is_due = self.compared_at.is_none_or(|at| at.elapsed() >= self.options.interval);
        if step == Step::Sync && is_due {
            self.compare(previous).await?;
            self.compared_at = Some(Instant::now());
        }
        Ok(())
    }

    async fn learn(&mut self, is_foreign: bool) -> Result<(), PublishError> {
        let director = self.trust.director();
        let reader = Reader::new(&*self.objects, &director);
        if let Some(directory) = &mut self.directory {
            let members = &mut self.members;
            let is_there = !is_foreign || directory.is_whole(&reader).await?;
            let mut sink = |entry| members.take(entry);
            if is_there && directory.follow(&reader, &mut sink).await? == Followed::UpToDate {
                return Ok(());
            }
            info!("the directory is loaded anew");
        }
        self.load_directory().await
    }

    async fn load_directory(&mut self) -> Result<(), PublishError> {
        self.directory = None;
        let mut members = Members::new(self.options.policy);
        members.load();
        let loaded = {
            let director = self.trust.director();
            let reader = Reader::new(&*self.objects, &director);
            Directory::load(&reader, &mut |entry| members.take(entry)).await?
        };
        let directory = match loaded {
            Some(directory) => directory,
            None => self.adopt(&mut members).await?,
        };
        // What could not be told yet is known here nevertheless.
        self.untold.values().cloned().for_each(|entry| members.take(entry));
        members.loaded();
        info!(clusters = members.len(), position = directory.position(), "the directory is loaded");
        (self.members, self.directory) = (members, Some(directory));
        Ok(())
    }

    /// A record without a directory: it is made once, from a listing.
    async fn adopt(&self, members: &mut Members) -> Result<Directory, PublishError> {
        let mut newest = BTreeMap::new();
        let mut after: Option<Key> = None;
        loop {
            let page = self.objects.list(record::REGISTRATIONS, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            let names = page.iter().filter_map(|listed| listed.key.as_str().rsplit('/').next()?.parse().ok());
            let entries = self.entries_of(names.collect::<Vec<Name>>()).await?;
            for entry in entries {
                members.take(entry.clone());
                note(&mut newest, entry);
                if newest.len().is_multiple_of(TOLD) {
                    info!(clusters = newest.len(), "making the directory from a listing");
                }
            }
        }
        let mut directory = Directory::default();
        if !newest.is_empty() {
            info!(clusters = newest.len(), "the record had no directory: writing one");
            let (director, stamp) = (self.trust.director(), self.stamp(&Published::default(), 0));
            directory.write_snapshot(&self.pen(&director, stamp), newest).await?;
        }
        Ok(directory)
    }

    async fn entries_of(&self, names: Vec<Name>) -> Result<Vec<Entry>, ObjectsError> {
        let reads = stream::iter(names).map(|name| async move { self.entry_of(&name).await });
        let found: Vec<Option<Entry>> = reads.buffer_unordered(IN_FLIGHT).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// How a cluster is, by its own documents; none if it is not registered.
    pub(super) async fn entry_of(&self, name: &Name) -> Result<Option<Entry>, ObjectsError> {
        let director = self.trust.director();
        let key = record::registration(name);
        let registration = found::<Registration>(&self.objects, &director, key).await?;
        let Some(registration) = registration.filter(|found| found.document.cluster == *name) else {
            return Ok(None);
        };
        let roster = self.roster_of(name).await?;
        Ok(Some(entry(&registration.document, roster.as_ref().map(|r| (&r.document, r.digest)))))
    }

    /// A cluster's roster, as it is in the record.
    pub(super) async fn roster_of(&self, name: &Name) -> Result<Option<Found<Roster>>, ObjectsError> {
        let roster = found::<Roster>(&self.objects, &self.trust.director(), record::roster(name)).await?;
        Ok(roster.filter(|found| found.document.cluster == *name))
    }

    /// Compares some of what is known with the record, others each time. A publisher that was stopped
    /// while it wrote rosters may write the last one after everybody else has looked, and then be gone
    /// before it could tell: nothing else would ever tell of that one.
    async fn compare(&mut self, previous: &Published) -> Result<(), PublishError> {
        let some = self.members.after(self.compared.as_ref(), COMPARED);
        self.compared = some.get(COMPARED - 1).cloned();
        let this = &*self;
        let reads = some.into_iter().map(|name| async move {
            let found = this.roster_of(&name).await?;
            Ok::<_, ObjectsError>((name, found.map(|f| (f.document.epoch, f.document.sequence))))
        });
        let found: Vec<_> =
            stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(IN_FLIGHT).try_collect().await?;
        if self.directory.as_ref().is_some_and(Directory::is_doubtful) {
            let none = found.iter().filter(|(_, order)| order.is_none()).map(|(name, _)| name.clone());
            self.doubt(none.collect(), previous).await?;
        }
        let differs = found.into_iter().filter(|(name, order)| {
            let known = self.members.get(name).and_then(|known| known.roster.as_ref());
            known.map(|roster| roster.order) < *order
        });
        let differing: Vec<Name> = differs.map(|(name, _)| name).collect();
        for entry in self.entries_of(differing).await? {
            self.members.take(entry.clone());
            note(&mut self.untold, entry);
        }
        Ok(())
    }

    /// Tells again of those that were removed in a part of the log that is damaged: of these clusters, which have no
    /// roster, whoever has no registration either.
    async fn doubt(&mut self, clusters: Vec<Name>, previous: &Published) -> Result<(), PublishError> {
        let Stamp { epoch, sequence, .. } = self.stamp(previous, 0);
        for cluster in clusters {
            if self.objects.get(&record::registration(&cluster), 2 * SMALL_LIMIT as u64).await?.is_some() {
                continue;
            }
            warn!(%cluster, "the record has nothing of a cluster, and the directory's log is damaged: it was removed");
            let entry = Entry::removed(cluster, epoch, sequence);
            self.members.take(entry.clone());
            note(&mut self.untold, entry);
        }
        Ok(())
    }

    /// Appends to the log what has not been told yet, and tells of it.
    pub(super) async fn tell_directory(&mut self, stamp: Stamp) -> Result<(), PublishError> {
        for _ in 0..ATTEMPTS {
            if self.untold.is_empty() {
                return Ok(());
            }
            let Some(mut directory) = self.directory.take() else {
                self.load_directory().await?;
                continue;
            };
            let entries: Vec<Entry> = self.untold.values().cloned().collect();
            let mut met = Vec::new();
            let followed = {
                let director = self.trust.director();
                let pen = self.pen(&director, stamp);
                directory.append(&pen, &entries, &mut |entry| met.push(entry)).await
            };
            met.into_iter().for_each(|entry| self.members.take(entry));
            match followed {
                Ok(Followed::UpToDate) => {
                    self.untold.clear();
                    let position = directory.position();
                    self.directory = Some(directory);
                    self.tell(&News::Directory { position }).await;
                    return Ok(());
                }
                Ok(Followed::Behind) => {
                    warn!("the directory went on while this publisher did not: it is loaded anew");
                }
                Err(error) => {
                    self.directory = Some(directory);
                    return Err(error.into());
                }
            }
        }
        Err(PublishError::Lost)
    }

    /// Makes a new snapshot where the log has grown long.
    pub(super) async fn compact_directory(&mut self, stamp: Stamp) -> Result<(), PublishError> {
        let is_long = self.directory.as_ref().is_some_and(|directory| directory.is_long(self.members.len()));
        // What is owed by somebody's move is told by the log alone.
        if !is_long || self.members.is_anything_owed() {
            return Ok(());
        }
        let Some(mut directory) = self.directory.take() else { return Ok(()) };
        let compacted = {
            let director = self.trust.director();
            directory.compact(&self.pen(&director, stamp)).await
        };
        // Else it is loaded anew: what was removed in a part that nobody can read any more is told again.
        if !matches!(compacted, Ok(Followed::Behind)) {
            self.directory = Some(directory);
        }
        compacted.map(|_| ()).map_err(PublishError::from)
    }

    pub(super) fn pen<'a>(&'a self, signers: &'a Signers<'a>, stamp: Stamp) -> Pen<'a> {
        let (objects, director) = (&*self.objects, &self.keys.director);
        Pen { objects, director, signers, epoch: stamp.epoch, now: stamp.now }
    }

    pub(super) async fn tell(&self, news: &News) {
        if let Err(error) = self.index.tell(news).await {
            debug!(?news, error = %chain(&error), "news could not be told");
        }
    }
}

/// What the directory says of a registration and its roster.
pub(super) fn entry(registration: &Registration, roster: Option<(&Roster, Digest)>) -> Entry {
    Entry {
        cluster: registration.cluster.clone(),
        epoch: registration.epoch,
        sequence: registration.sequence,
        key: Some(registration.key.clone()),
        labels: registration.labels.clone(),
        roster: roster.map(|(roster, digest)| record::RosterRef::of(roster, digest, &registration.labels)),
    }
}

/// A document of the record, or none if it is absent or not signed by these: storage is not believed.
///
/// # Errors
/// [`ObjectsError`].
pub(super) async fn found<T: Document>(
    objects: &Arc<dyn Objects>,
    signers: &Signers<'_>,
    key: Key,
) -> Result<Option<Found<T>>, ObjectsError> {
    let Some(stored) = objects.get(&key, 2 * SMALL_LIMIT as u64).await? else { return Ok(None) };
    let read = |bytes: &Bytes| serde_json::from_slice::<Envelope>(bytes);
    let envelope = match read(&stored.bytes) {
        Ok(envelope) => envelope,
        Err(error) => {
            warn!(%key, %error, "object in the record is not an envelope");
            return Ok(None);
        }
    };
    match envelope.open(signers, SMALL_LIMIT) {
        Ok(document) => {
            let digest = Digest::of(&stored.bytes);
            Ok(Some(Found { document, version: stored.version, digest }))
        }
        Err(error) => {
            warn!(%key, %error, "object in the record is refused");
            Ok(None)
        }
    }
}

/// A document of the record, with the version of its object: see [`found`].
///
/// # Errors
/// [`ObjectsError`].
pub(super) async fn signed<T: Document>(
    objects: &Arc<dyn Objects>,
    signers: &Signers<'_>,
    key: Key,
) -> Result<Option<(T, Version)>, ObjectsError> {
    Ok(found(objects, signers, key).await?.map(|found| (found.document, found.version)))
}
