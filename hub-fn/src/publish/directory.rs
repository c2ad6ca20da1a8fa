//! The directory as a publisher keeps it: loaded once, followed, appended to, and made into a new snapshot
//! when its log has grown long.
//!
//! An entry is handed to a `sink` as it is read; what becomes of it there is no matter of this module. A part of the
//! log that is damaged is passed over, and the directory is *doubtful*: of who was enrolled or moved in it, rosters and
//! registrations tell, and of who was removed that there are none. A publisher that finds a part damaged which it had
//! read before loads the directory anew, so that it doubts as everybody does who begins now. No snapshot is made of what comes behind such a
//! part: it may be mended yet, and what a snapshot has passed is said by nobody any more.
//!
//! # Numbers that were used before
//! A part that a snapshot holds is collected in time, and then its number is free: a publisher that stood still
//! for long may create it again, with other entries, and nobody begins to read there. So a part counts as the one
//! that was written first only if the head, read after it, has not passed it: only what a snapshot holds is ever
//! collected. Who appends looks at the head afterwards and, where that has passed what was appended, takes it back
//! and decides again; who reads and finds that the head has passed what was not *confirmed* before loads anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use farshore_shared::dsse::Envelope;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tracing::{error, info};

use crate::directory::{DirectoryError, Part, Reader, encode_manifest};
use crate::objects::{Condition, PutOutcome, Version};
use crate::record::{self, DirectoryHead, Entry, LogPart, Manifest, ShardPart, ShardRef};

mod pen;

pub use pen::Pen;
use pen::parted;

/// How many objects are read or written at once.
const IN_FLIGHT: usize = 16;
/// How many parts of the log are asked for at once, once there is one.
const WINDOW: u64 = 16;
/// With so many parts since the snapshot, a new one is made.
const PARTS: u64 = 256;
/// With so many entries since the snapshot, or an eighth of the fleet, a new one is made.
const ENTRIES: usize = 20_000;
/// How long no snapshot is tried after a part that is damaged or lost was in the way.
const REST: Duration = Duration::from_secs(600);

/// What entries go into.
pub type Sink<'a> = &'a mut (dyn FnMut(Entry) + Send);

/// How following went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Followed {
    /// Everything that there is was handed over.
    UpToDate,
    /// What came next is gone, or what was read before has been damaged since: the directory has to be loaded anew.
    Behind,
}

/// How far this publisher has read, and which snapshot it knows.
#[derive(Debug, Default)]
pub struct Directory {
    /// The last part of the log that was read.
    position: u64,
    /// The last part of which it is known that it is the one that was written first.
    confirmed: u64,
    /// The newest snapshot.
    snapshot: Option<(DirectoryHead, Version)>,
    /// Entries in the parts since the snapshot.
    entries: usize,
    /// The parts that were passed over because they were damaged.
    doubtful: BTreeSet<u64>,
    /// When such a part was in the way of a snapshot.
    refused: Option<Instant>,
}

impl Directory {
    /// Loads the snapshot and the log; none where there is neither.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub async fn load(reader: &Reader<'_>, sink: Sink<'_>) -> Result<Option<Self>, DirectoryError> {
        let mut directory = Self::default();
        if let Some((head, version)) = reader.head().await? {
            let manifest = reader.manifest(head.manifest).await?;
            let shards = manifest.shards.into_iter();
            let mut shards = stream::iter(shards)
                .map(|(shard, at)| async move { reader.shard(shard, &at).await })
                .buffer_unordered(IN_FLIGHT);
            while let Some(ShardPart(entries)) = shards.try_next().await? {
                entries.into_iter().for_each(&mut *sink);
            }
            (directory.position, directory.confirmed) = (head.position, head.position);
            directory.snapshot = Some((head, version));
        }
        directory.read_log(reader, sink).await?;
        let is_there = directory.snapshot.is_some() || directory.position > 0;
        Ok(is_there.then_some(directory))
    }

    /// The last part of the log that was read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads what others have appended since, and notices a snapshot that others have made.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub async fn follow(&mut self, reader: &Reader<'_>, sink: Sink<'_>) -> Result<Followed, DirectoryError> {
        self.read_log(reader, sink).await?;
        let head = reader.head().await?;
        let (old, new) = (snapshot_position(&self.snapshot), snapshot_position(&head));
        // A head that went back is that of a restored record.
        if new < old || new > self.confirmed {
            return Ok(Followed::Behind);
        }
        self.confirmed = self.position;
        let version = |of: &Option<(DirectoryHead, Version)>| of.as_ref().map(|(_, version)| version.clone());
        if version(&head) != version(&self.snapshot) {
            (self.snapshot, self.entries) = (head, 0);
        }
        Ok(Followed::UpToDate)
    }

    /// Whether the last part that was read is still there, or a snapshot holds it: not so in a record that
    /// was restored under a publisher that goes on.
    ///
    /// # Errors
    /// [`DirectoryError`], if the object storage fails.
    pub async fn is_whole(&self, reader: &Reader<'_>) -> Result<bool, DirectoryError> {
        if self.position == snapshot_position(&self.snapshot) {
            return Ok(true);
        }
        Ok(!matches!(part(reader, self.position).await?, Part::Absent))
    }

    async fn read_log(&mut self, reader: &Reader<'_>, sink: Sink<'_>) -> Result<(), DirectoryError> {
        // One at first: most often there is nothing new.
        let mut window = 1;
        loop {
            let next = self.position + 1;
            let parts = stream::iter(next..next + window).map(|position| part(reader, position));
            let parts = parts.buffered(IN_FLIGHT).collect::<Vec<_>>().await;
            for part in parts {
                match part? {
                    Part::Absent => return Ok(()),
                    Part::Damaged(_) => drop(self.doubtful.insert(self.position + 1)),
                    Part::Read(part) => {
                        self.entries += part.entries.len();
                        part.entries.into_iter().for_each(&mut *sink);
                    }
                }
                self.position += 1;
            }
            window = WINDOW;
        }
    }

    /// Appends how some clusters are now, in as many parts as they need. What others have appended
    /// meanwhile goes into the sink.
    ///
    /// # Errors
    /// [`DirectoryError`]; some of the parts may be there.
    pub async fn append(
        &mut self,
        pen: &Pen<'_>,
        entries: &[Entry],
        sink: Sink<'_>,
    ) -> Result<Followed, DirectoryError> {
        let mut created = Vec::new();
        for entries in parted(entries) {
            match self.append_part(pen, entries, sink).await? {
                Followed::UpToDate => created.push(self.position),
                Followed::Behind => return Ok(Followed::Behind),
            }
        }
        let passed = pen.reader().head().await?.map_or(0, |(head, _)| head.position);
        if passed <= self.confirmed {
            self.confirmed = self.position;
            return Ok(Followed::UpToDate);
        }
        // Nobody reads them any more, unless he is as late as we are: then he must not take them for the first ones.
        for position in created.into_iter().filter(|position| *position <= passed) {
            pen.objects.delete(&record::directory_log(position)).await?;
        }
        Ok(Followed::Behind)
    }

    async fn append_part(
        &mut self,
        pen: &Pen<'_>,
        entries: &[Entry],
        sink: Sink<'_>,
    ) -> Result<Followed, DirectoryError> {
        loop {
            let position = self.position + 1;
            let part = LogPart { epoch: pen.epoch, position, entries: entries.to_vec() };
            let bytes = Bytes::from(Envelope::seal(&part, &[pen.director]).to_bytes());
            match pen.objects.put(&record::directory_log(position), bytes, Condition::Absent).await? {
                PutOutcome::Stored(_) => {
                    self.position = position;
                    self.entries += entries.len();
                    return Ok(Followed::UpToDate);
                }
                // Somebody else's: it is read, and the next number is tried.
                PutOutcome::Conflict => {
                    self.read_log(&pen.reader(), sink).await?;
                    if self.position < position {
                        return Ok(Followed::Behind);
                    }
                }
            }
        }
    }

    /// Whether the log has grown so long that a new snapshot is worth its price.
    #[must_use]
    pub fn is_long(&self, clusters: usize) -> bool {
        if self.refused.is_some_and(|at| at.elapsed() < REST) {
            return false;
        }
        let parts = self.position - snapshot_position(&self.snapshot);
        parts >= PARTS || self.entries >= ENTRIES.max(clusters / 8)
    }

    /// Whether a part was passed over that no snapshot holds: somebody may have been removed in it.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.doubtful.last().is_some_and(|position| *position > snapshot_position(&self.snapshot))
    }

    /// Makes a new snapshot of the old one and the log since, up to the first part that is damaged: only the shards
    /// that changed are written. Where another publisher is faster, its snapshot is as good. A part that was damaged
    /// after this publisher had read it is in doubt from now on: what only it has heard is told by nobody else.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub async fn compact(&mut self, pen: &Pen<'_>) -> Result<Followed, DirectoryError> {
        let reader = pen.reader();
        let after = snapshot_position(&self.snapshot);
        let (mut newest, mut upto, mut followed) = (BTreeMap::new(), after, Followed::UpToDate);
        self.refused = None;
        for position in after + 1..=self.position {
            match part(&reader, position).await? {
                Part::Read(part) => part.entries.into_iter().for_each(|entry| note(&mut newest, entry)),
                Part::Damaged(_) => {
                    let key = record::directory_log(position);
                    error!(%key, "the directory's log is not folded beyond a part that is damaged: restore it, or delete everything under index/ while no publisher runs");
                    self.refused = Some(Instant::now());
                    if self.doubtful.insert(position) {
                        followed = Followed::Behind;
                    }
                    break;
                }
                Part::Absent => {
                    // Unless another publisher has made a snapshot, and this part was collected.
                    let stands = reader.head().await?.map_or(0, |(head, _)| head.position);
                    if stands >= position {
                        return Ok(Followed::UpToDate);
                    }
                    let key = record::directory_log(position);
                    error!(%key, "the directory's log has lost a part: restore it, or delete everything under index/ while no publisher runs");
                    self.refused = Some(Instant::now());
                    break;
                }
            }
            upto = position;
        }
        if upto > after {
            self.write(pen, newest, upto).await?;
        }
        Ok(followed)
    }

    /// Writes what is newer than the snapshot into a new one.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub async fn write_snapshot(
        &mut self,
        pen: &Pen<'_>,
        newest: BTreeMap<Name, Entry>,
    ) -> Result<(), DirectoryError> {
        self.write(pen, newest, self.position).await
    }

    /// The same, of the log up to this part.
    async fn write(
        &mut self,
        pen: &Pen<'_>,
        newest: BTreeMap<Name, Entry>,
        position: u64,
    ) -> Result<(), DirectoryError> {
        let mut manifest = match &self.snapshot {
            Some((head, _)) => pen.reader().manifest(head.manifest).await?,
            None => Manifest::default(),
        };
        let mut by_shard: BTreeMap<u16, Vec<Entry>> = BTreeMap::new();
        for entry in newest.into_values() {
            by_shard.entry(record::directory_shard_of(&entry.cluster)).or_default().push(entry);
        }
        let changed = by_shard.len();
        let writes = by_shard.into_iter().map(|(shard, entries)| {
            let before = manifest.shards.get(&shard).copied();
            async move { Ok::<_, DirectoryError>((shard, pen.rewrite(shard, before, entries).await?)) }
        });
        let written: Vec<(u16, ShardRef)> =
            stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(IN_FLIGHT).try_collect().await?;
        manifest.shards.extend(written);
        let (bytes, digest) = encode_manifest(&manifest);
        pen.create(&record::directory_manifest(digest), bytes).await?;
        let head = DirectoryHead { epoch: pen.epoch, position, manifest: digest, issued: pen.now };
        let condition = match &self.snapshot {
            Some((_, version)) => Condition::Matches(version.clone()),
            None => Condition::Absent,
        };
        let bytes = Bytes::from(Envelope::seal(&head, &[pen.director]).to_bytes());
        if let PutOutcome::Stored(version) =
            pen.objects.put(&record::directory_head(), bytes, condition).await?
        {
            info!(position, shards = changed, "the directory has a new snapshot");
            // It was moved from the head that we know: none had passed what we have read.
            self.confirmed = self.position;
            (self.snapshot, self.entries) = (Some((head, version)), 0);
        }
        Ok(())
    }
}

fn snapshot_position(snapshot: &Option<(DirectoryHead, Version)>) -> u64 {
    snapshot.as_ref().map_or(0, |(head, _)| head.position)
}

/// Keeps the newer of two entries.
pub fn note(newest: &mut BTreeMap<Name, Entry>, entry: Entry) {
    if newest.get(&entry.cluster).is_none_or(|known| entry.is_newer_than(known)) {
        newest.insert(entry.cluster.clone(), entry);
    }
}

/// What is at one number of the log. One damaged part must not stop everything.
async fn part(reader: &Reader<'_>, position: u64) -> Result<Part, DirectoryError> {
    reader.part(position).await.inspect(|part| {
        if let Part::Damaged(failure) = part {
            error!(error = %chain(failure), "a part of the directory's log is passed over");
        }
    })
}
