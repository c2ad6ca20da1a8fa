//! The directory in the memory of a replica: shards that are loaded when they are first needed, kept as
//! long as there is room, and kept fresh by the log.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use farshore_shared::digest::Digest;
use farshore_shared::keys::PublicKey;
use farshore_shared::names::Name;
use farshore_shared::wire::{GroupId, UnixSeconds};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::read::{DirectoryError, Reader, decode_shard};
use super::slots::{Known, Place, Remembered, RosterMark, Slot, Slots, epoch};
use crate::index::{Index, MOST_BYTES};
use crate::record::{self, Entry, Manifest, SHARDS, ShardRef};

/// How many shards are read at once.
const LOADS: usize = 8;
/// What an entry of the log takes that no snapshot holds yet.
const LATE_BYTES: usize = 256;
/// How many times of clusters that were heard survive their shard.
const SPILLED: usize = 200_000;

/// What is in memory, for people and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clusters of the snapshot, loaded or not.
    pub clusters: u64,
    /// Shards that are loaded.
    pub shards: u64,
    /// Clusters in them.
    pub loaded: u64,
    /// Bytes that all of it takes.
    pub bytes: u64,
    /// Shards that were loaded since the start.
    pub loads: u64,
    /// Shards that were dropped because of the limit since the start.
    pub evictions: u64,
}

/// The directory, as far as it is needed.
#[derive(Debug)]
pub(crate) struct Directory {
    cells: Vec<Cell>,
    groups: RwLock<Groups>,
    manifest: RwLock<Arc<Manifest>>,
    /// The most bytes of all shards together.
    limit: usize,
    bytes: AtomicUsize,
    loads: AtomicU64,
    evictions: AtomicU64,
    in_flight: Semaphore,
    spilled: Mutex<Vec<(Name, UnixSeconds)>>,
    started: Instant,
    /// In seconds since the start, as of the last [`Directory::tick`].
    now: AtomicU32,
}

/// One shard, loaded or not.
#[derive(Debug, Default)]
struct Cell {
    held: RwLock<Held>,
    /// Whoever loads it.
    loading: tokio::sync::Mutex<()>,
    /// The tick at which it was last asked.
    used: AtomicU32,
    bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Held {
    slots: Option<Slots>,
    /// What the log says beyond the snapshot, with the position: for when the shard is loaded again.
    late: BTreeMap<Name, (u64, Known)>,
}

/// Numbers for group ids: a slot has four bytes for its group.
#[derive(Debug, Default)]
struct Groups {
    numbers: HashMap<GroupId, u32>,
    ids: Vec<GroupId>,
}

/// Where shards are read from.
pub(crate) struct Shelves<'a> {
    pub(crate) reader: Reader<'a>,
    pub(crate) index: &'a dyn Index,
}

impl Directory {
    /// An empty one that keeps at most so many bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            cells: (0..SHARDS).map(|_| Cell::default()).collect(),
            groups: RwLock::default(),
            manifest: RwLock::default(),
            limit,
            bytes: AtomicUsize::new(0),
            loads: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            in_flight: Semaphore::new(LOADS),
            spilled: Mutex::default(),
            started: Instant::now(),
            now: AtomicU32::new(0),
        }
    }

    /// The number of a group in this process.
    pub(crate) fn group_number(&self, id: &GroupId) -> u32 {
        if let Some(number) = read(&self.groups).numbers.get(id) {
            return *number;
        }
        let mut groups = write(&self.groups);
        if let Some(number) = groups.numbers.get(id) {
            return *number;
        }
        let number = u32::try_from(groups.ids.len()).expect("there are far below 2^32 groups");
        groups.ids.push(*id);
        groups.numbers.insert(*id, number);
        number
    }

    /// The group of a number.
    pub(crate) fn group_id(&self, number: u32) -> Option<GroupId> {
        read(&self.groups).ids.get(number as usize).copied()
    }

    /// What an entry says.
    pub(crate) fn known(&self, entry: Entry) -> Known {
        let roster = entry.roster.map(|roster| {
            let [a, b, c, d, ..] = *roster.digest.as_bytes();
            RosterMark {
                epoch: epoch(roster.epoch),
                sequence: roster.sequence,
                short: [a, b, c, d],
                floor: roster.floor,
                group: self.group_number(&roster.group),
            }
        });
        Known { name: entry.cluster, life: (epoch(entry.epoch), entry.sequence), key: entry.key, roster }
    }

    /// Something of a shard that is loaded; none when it is not.
    pub(crate) fn with_slots<R>(&self, shard: u16, look: impl FnOnce(&Slots) -> R) -> Option<R> {
        let cell = &self.cells[usize::from(shard)];
        let held = read(&cell.held);
        let slots = held.slots.as_ref()?;
        let now = self.seconds();
        if cell.used.load(Ordering::Relaxed) != now {
            cell.used.store(now, Ordering::Relaxed);
        }
        Some(look(slots))
    }

    /// Takes what was learnt otherwise; it is gone with the shard.
    pub(crate) fn learn(&self, known: &Known) {
        let shard = Place::of(known.name.as_str()).shard;
        self.change(shard, |held| {
            if let Some(slots) = &mut held.slots {
                slots.take(known);
            }
        });
    }

    /// Remembers a pass that was verified with this key.
    pub(crate) fn remember(&self, cluster: &Name, key: &PublicKey, pass: Remembered) {
        let place = Place::of(cluster.as_str());
        let mut held = write(&self.cells[usize::from(place.shard)].held);
        if let Some(slots) = &mut held.slots {
            slots.remember(place, cluster.as_str(), key, pass);
        }
    }

    /// Takes an entry of the log.
    pub(super) fn take(&self, position: u64, entry: Entry) {
        let shard = record::directory_shard_of(&entry.cluster);
        let known = self.known(entry);
        self.change(shard, |held| {
            if let Some(slots) = &mut held.slots {
                slots.take(&known);
            }
            match held.late.get(&known.name) {
                Some((_, before)) if !known.is_newer_than(before) => {}
                _ => drop(held.late.insert(known.name.clone(), (position, known))),
            }
        });
    }

    /// Takes the shards of a snapshot that stands at `position`. What is loaded stays, unless parts of
    /// the log are missing here: then a shard stays if it is the same in both snapshots.
    pub(super) fn stand_on(&self, manifest: Manifest, position: u64, log: Log) {
        let (before, manifest) = {
            let mut held = write(&self.manifest);
            let manifest = Arc::new(manifest);
            (std::mem::replace(&mut *held, Arc::clone(&manifest)), manifest)
        };
        for shard in 0..SHARDS {
            let is_same = before.shards.get(&shard) == manifest.shards.get(&shard);
            self.change(shard, |held| {
                held.late.retain(|_, (at, _)| *at > position);
                if log == Log::Missing && !is_same {
                    self.spill(held.slots.take());
                }
            });
        }
    }

    /// Forgets everything: the record went back.
    pub(super) fn forget(&self) {
        *write(&self.manifest) = Arc::default();
        for shard in 0..SHARDS {
            self.change(shard, |held| {
                self.spill(held.slots.take());
                held.late.clear();
            });
        }
    }

    /// Loads a shard, unless it is loaded. Of many who need it at once, one reads.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub(crate) async fn load(&self, shard: u16, from: &Shelves<'_>) -> Result<(), DirectoryError> {
        let cell = &self.cells[usize::from(shard)];
        let _alone = cell.loading.lock().await;
        let _place = self.in_flight.acquire().await.expect("the semaphore is never closed");
        while read(&cell.held).slots.is_none() {
            let reference = read(&self.manifest).shards.get(&shard).copied();
            let slots = match &reference {
                Some(reference) => self.fetch(shard, reference, from).await?,
                None => Slots::default(),
            };
            self.install(shard, reference.as_ref(), slots);
        }
        self.make_room(shard);
        Ok(())
    }

    async fn fetch(&self, shard: u16, at: &ShardRef, from: &Shelves<'_>) -> Result<Slots, DirectoryError> {
        let key = record::directory_shard(shard, at.digest);
        let indexed = from.index.get(key.as_str()).await.unwrap_or_else(|error| {
            debug!(%key, %error, "index does not answer");
            None
        });
        let good = indexed.filter(|entry| {
            let is_good = Digest::of(&entry.bytes) == at.digest;
            if !is_good {
                warn!(%key, "index holds something else than a shard of the directory");
            }
            is_good
        });
        let bytes = match good {
            Some(entry) => entry.bytes,
            None => {
                let bytes = from.reader.shard_bytes(shard, at).await?;
                if bytes.len() <= MOST_BYTES {
                    let entry = crate::index::Entry { version: 1, bytes: bytes.clone() };
                    if let Err(error) = from.index.put(key.as_str(), &entry).await {
                        debug!(%key, %error, "index does not take a shard");
                    }
                }
                bytes
            }
        };
        // Some milliseconds of work, while polls wait.
        let decoded = tokio::task::spawn_blocking(move || decode_shard(&bytes)).await;
        let part = decoded.unwrap_or_else(|failure| Err(failure.to_string()));
        let part = part.map_err(|why| DirectoryError::Damaged { key, why })?;
        let mut slots = Slots::with_capacity(part.0.len());
        for entry in part.0 {
            slots.take(&self.known(entry));
        }
        Ok(slots)
    }

    /// Installs a shard, unless there is another snapshot by now.
    fn install(&self, shard: u16, reference: Option<&ShardRef>, mut slots: Slots) {
        self.change(shard, |held| {
            // The manifest is replaced before the log's entries that it holds are dropped here.
            if read(&self.manifest).shards.get(&shard) != reference {
                return;
            }
            for (_, known) in held.late.values() {
                slots.take(known);
            }
            held.slots = Some(slots);
            self.loads.fetch_add(1, Ordering::Relaxed);
        });
        self.cells[usize::from(shard)].used.store(self.seconds(), Ordering::Relaxed);
    }

    /// Drops the shards that nobody has asked for longest, until there is room; never the newest.
    fn make_room(&self, newest: u16) {
        while self.bytes.load(Ordering::Relaxed) > self.limit {
            let loaded =
                self.cells.iter().enumerate().filter(|(shard, cell)| {
                    *shard != usize::from(newest) && read(&cell.held).slots.is_some()
                });
            let oldest = loaded.min_by_key(|(_, cell)| cell.used.load(Ordering::Relaxed));
            let Some(shard) = oldest.and_then(|(shard, _)| u16::try_from(shard).ok()) else { return };
            self.change(shard, |held| self.spill(held.slots.take()));
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keeps the times of a shard that is dropped.
    fn spill(&self, slots: Option<Slots>) {
        let Some(slots) = slots else { return };
        let mut spilled = self.spilled.lock().unwrap_or_else(PoisonError::into_inner);
        let room = SPILLED.saturating_sub(spilled.len());
        spilled.extend(heard(&slots).take(room));
    }

    /// The clusters that were heard since this was last asked, and when.
    pub(crate) fn drain_seen(&self, shards: Range<u16>) -> Vec<(Name, UnixSeconds)> {
        let mut all = std::mem::take(&mut *self.spilled.lock().unwrap_or_else(PoisonError::into_inner));
        for cell in &self.cells[usize::from(shards.start)..usize::from(shards.end)] {
            if let Some(slots) = &read(&cell.held).slots {
                all.extend(heard(slots));
            }
        }
        all
    }

    /// What is in memory.
    pub(crate) fn counts(&self) -> Counts {
        let clusters = read(&self.manifest).shards.values().map(|shard| u64::from(shard.clusters)).sum();
        let mut counts = Counts {
            clusters,
            bytes: self.bytes.load(Ordering::Relaxed) as u64,
            loads: self.loads.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            ..Counts::default()
        };
        for cell in &self.cells {
            if let Some(slots) = &read(&cell.held).slots {
                counts.shards += 1;
                counts.loaded += slots.len() as u64;
            }
        }
        counts
    }

    /// Whether there is a snapshot.
    pub(crate) fn is_empty(&self) -> bool {
        read(&self.manifest).shards.is_empty()
    }

    fn change<R>(&self, shard: u16, change: impl FnOnce(&mut Held) -> R) -> R {
        let cell = &self.cells[usize::from(shard)];
        let mut held = write(&cell.held);
        let result = change(&mut held);
        let after = held.slots.as_ref().map_or(0, Slots::bytes) + held.late.len() * LATE_BYTES;
        let before = cell.bytes.swap(after, Ordering::Relaxed);
        self.bytes.fetch_add(after, Ordering::Relaxed);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
        result
    }

    /// Lets time pass: what is asked for from here on was used later. A poll reads no clock for that.
    pub(crate) fn tick(&self) {
        let seconds = u32::try_from(self.started.elapsed().as_secs()).unwrap_or(u32::MAX);
        self.now.store(seconds, Ordering::Relaxed);
    }

    fn seconds(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }
}

/// Whether the log was read without a gap up to a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Log {
    /// Every part of it.
    Complete,
    /// Parts were collected before they were read.
    Missing,
}

fn heard(slots: &Slots) -> impl Iterator<Item = (Name, UnixSeconds)> {
    let times = slots.iter().filter_map(|(name, slot): (&str, &Slot)| Some((name, slot.take_seen()?)));
    times.filter_map(|(name, at)| Some((name.parse().ok()?, at)))
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
