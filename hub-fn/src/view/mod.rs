//! What a replica remembers: replica memory over index over objects, bounded in size and staleness.
//!
//! Nothing here is ever the only copy. Everything signed is verified against the trust root before it
//! is remembered, wherever it came from, so that a damaged or foreign index costs a read, no more.
//!
//! - This file: how fresh the memory is. A look reads `fleet/head` and the directory's log from objects; one
//!   runs twice in [`STALENESS`] and at once when news come. A process that was frozen looks before it answers.
//! - `publication`: head and table of groups. `clusters`: who is known, and what a poll is compared with.
//!   `documents`: the signed documents themselves, which only an answer with something new needs.
//!
//! While the record does not answer, a site that holds what is known here is told so for [`GRACE`]: "nothing
//! newer is known" takes nothing away. Everybody else is told to come back.

mod clusters;
mod documents;
mod error;
mod publication;
mod room;
mod tag;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use farshore_shared::wire::{Group, GroupId, Roster, UnixSeconds};
use futures::StreamExt as _;
use moka::future::Cache;
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::directory::{Counts, Directory, Known, Moved, Progress, Reach, Reader, Shelves};
use crate::index::{Index, News};
use crate::objects::Objects;
use crate::publish::state::{BODY_LIMIT, HEAD_LIMIT};
use crate::record::{self, Head, Table};
use crate::trust::Trust;

use clusters::Rate;
pub(crate) use clusters::{Offer, Steady};
pub use documents::Signed;
pub use error::ViewError;
use error::shared;
pub use publication::Publication;
use publication::Seal;
use room::Shelved;
pub use room::{DOCUMENTS_LIMIT, MEMORY_LIMIT, Room};

/// How old what a replica answers from may be: a publication is seen at every replica after at most
/// this, and so are a new roster and a removal.
pub const STALENESS: Duration = Duration::from_secs(1);
/// How long a site that holds what is known here is told so, while the record does not answer.
pub const GRACE: Duration = Duration::from_secs(600);
/// How long a replica believes which root is the newest.
const TRUST_STALENESS: Duration = Duration::from_secs(10);
/// How long a cluster that is nowhere is not looked for again.
const NOWHERE: Duration = Duration::from_secs(3);
/// How long a look may take.
const LOOK_TIME: Duration = Duration::from_secs(3);
/// How long nobody who asks looks again after a look failed.
const REST: Duration = Duration::from_secs(1);

/// How fresh an answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// At most [`STALENESS`] old.
    Recent,
    /// Read from objects now: somebody has seen something newer than we have.
    Now,
}

/// What a replica remembers.
#[derive(Debug, Clone)]
pub struct View {
    memory: Arc<Memory>,
}

#[derive(Debug)]
struct Memory {
    objects: Arc<dyn Objects>,
    index: Arc<dyn Index>,
    directory: Directory,
    /// Read by every poll on every core: a lock would be handed from one to the other.
    published: ArcSwapOption<Publication>,
    /// When the last look that succeeded began, in milliseconds since `started`; 0 is never.
    looked: AtomicU64,
    started: Instant,
    looking: tokio::sync::Mutex<Progress>,
    failed: Mutex<Option<(Instant, Arc<ViewError>)>>,
    changed: watch::Sender<u64>,
    /// For whoever has roused those who wait.
    moved: Mutex<Moved>,
    lookups: Rate,
    trust: Cache<(), Arc<Trust>>,
    unlisted: Cache<Name, Option<Arc<Known>>>,
    rosters: Cache<Name, Arc<Signed<Roster>>>,
    groups: Cache<(GroupId, u64), Arc<Signed<Group>>>,
    tables: Cache<Digest, Arc<Shelved>>,
    packed: Cache<(GroupId, u64), Bytes>,
}

impl View {
    /// An empty memory over an index and objects, of the default [`Room`].
    #[must_use]
    pub fn new(objects: Arc<dyn Objects>, index: Arc<dyn Index>) -> Self {
        Self::with_room(objects, index, Room::default())
    }

    /// An empty memory of so much room.
    #[must_use]
    pub fn with_room(objects: Arc<dyn Objects>, index: Arc<dyn Index>, room: Room) -> Self {
        let Room { clusters, documents } = room;
        let memory = Memory {
            objects,
            index,
            directory: Directory::new(clusters),
            published: ArcSwapOption::empty(),
            looked: AtomicU64::new(0),
            // In the past: a look at the very beginning is not "never".
            started: Instant::now().checked_sub(Duration::from_secs(1)).unwrap_or_else(Instant::now),
            looking: tokio::sync::Mutex::default(),
            failed: Mutex::default(),
            changed: watch::Sender::new(0),
            moved: Mutex::default(),
            lookups: Rate::default(),
            trust: Cache::builder().max_capacity(1).time_to_live(TRUST_STALENESS).build(),
            unlisted: Cache::builder().max_capacity(100_000).time_to_live(NOWHERE).build(),
            rosters: room::rosters(documents),
            groups: room::groups(documents),
            tables: room::tables(documents),
            packed: room::packed(documents),
        };
        Self { memory: Arc::new(memory) }
    }

    /// The object storage underneath.
    #[must_use]
    pub fn objects(&self) -> &Arc<dyn Objects> {
        &self.memory.objects
    }

    /// The trust root.
    ///
    /// # Errors
    /// [`ViewError`].
    pub async fn trust(&self) -> Result<Arc<Trust>, Arc<ViewError>> {
        self.memory.trust.try_get_with((), self.load_trust()).await
    }

    async fn load_trust(&self) -> Result<Arc<Trust>, ViewError> {
        Ok(Arc::new(Trust::load(&*self.memory.objects).await?.ok_or(ViewError::NoTrust)?))
    }

    /// What is published, if anything is.
    ///
    /// # Errors
    /// [`ViewError`].
    pub async fn publication(
        &self,
        freshness: Freshness,
    ) -> Result<Option<Arc<Publication>>, Arc<ViewError>> {
        match freshness {
            Freshness::Recent => self.fresh().await?,
            Freshness::Now => self.look_since(Instant::now()).await?,
        }
        Ok(self.published())
    }

    /// What was published at the last look, without another one.
    #[must_use]
    pub fn published(&self) -> Option<Arc<Publication>> {
        self.memory.published.load_full()
    }

    /// Changes, to the sequence of what is published, when `fleet/head` or the directory moved.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.memory.changed.subscribe()
    }

    /// What is in memory.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.memory.directory.counts()
    }

    /// How old what is in memory may be; none before the first look.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        let looked = self.memory.looked.load(Ordering::Acquire);
        (looked > 0).then(|| self.memory.started.elapsed().saturating_sub(Duration::from_millis(looked)))
    }

    /// The clusters of some shards that were heard since this was last asked, and when.
    #[must_use]
    pub fn drain_seen(&self, shards: Range<u16>) -> Vec<(Name, UnixSeconds)> {
        self.memory.directory.drain_seen(shards)
    }

    /// Looks before [`STALENESS`] is over, and at once when there are news, until it is told to stop.
    pub async fn follow(self, mut stop: watch::Receiver<bool>) {
        let mut news = self.memory.index.hear();
        loop {
            // Both are cancel-safe: news that were not taken stay, and the time starts anew.
            tokio::select! {
                () = tokio::time::sleep(STALENESS / 2) => {}
                heard = news.next() => match heard {
                    Some(News::Head { .. } | News::Directory { .. } | News::Missed) => {}
                    Some(News::Pushed { .. } | News::Requests) => continue,
                    None => news = futures::stream::pending().boxed(),
                },
                _ = stop.changed() => return,
            }
            tokio::select! {
                looked = self.look_since(Instant::now()) => if let Err(failure) = looked {
                    debug!(error = %chain(&failure), "the view is not refreshed");
                },
                _ = stop.changed() => return,
            }
        }
    }

    /// Looks, unless the last look is recent enough.
    async fn fresh(&self) -> Result<(), Arc<ViewError>> {
        if self.age().is_some_and(|age| age <= STALENESS) {
            return Ok(());
        }
        if let Some(failure) = self.failed_just_now() {
            return Err(failure);
        }
        self.look_since(Instant::now().checked_sub(STALENESS).unwrap_or(self.memory.started)).await
    }

    /// Looks, unless a look has begun since then. Of many who want one at once, one looks.
    async fn look_since(&self, since: Instant) -> Result<(), Arc<ViewError>> {
        let mut progress = self.memory.looking.lock().await;
        let began = Instant::now();
        if self.age().is_some_and(|age| began.checked_sub(age).is_some_and(|looked| looked > since)) {
            return Ok(());
        }
        // Those who waited for a look that failed do not look one after the other.
        let failed = self.memory.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, failure)) = failed
            && at > since
        {
            return Err(failure);
        }
        let looked = tokio::time::timeout(LOOK_TIME, self.look(&mut progress)).await;
        let looked = looked.unwrap_or(Err(ViewError::Slow { limit: LOOK_TIME }));
        let mut failed = self.memory.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match looked {
            Ok(()) => {
                *failed = None;
                let began = began.duration_since(self.memory.started).as_millis();
                self.memory.looked.store(u64::try_from(began).unwrap_or(u64::MAX), Ordering::Release);
                Ok(())
            }
            Err(failure) => {
                if failed.is_none() {
                    warn!(error = %chain(&failure), "the record does not answer: nothing new is served");
                }
                let failure = Arc::new(failure);
                *failed = Some((Instant::now(), Arc::clone(&failure)));
                Err(failure)
            }
        }
    }

    /// Why the last look failed, if nobody shall look again yet.
    fn failed_just_now(&self) -> Option<Arc<ViewError>> {
        let failed = self.memory.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, failure) = failed.as_ref()?;
        // While somebody looks again, nobody waits for that.
        let is_resting = at.elapsed() < REST || self.memory.looking.try_lock().is_err();
        is_resting.then(|| Arc::clone(failure))
    }

    async fn look(&self, progress: &mut Progress) -> Result<(), ViewError> {
        self.memory.directory.tick();
        let trust = self.trust().await.map_err(shared)?;
        let director = trust.director();
        let reader = Reader::new(&*self.memory.objects, &director);
        let reach = match self.age() {
            Some(age) if age <= STALENESS => Reach::Log,
            Some(_) | None => Reach::Head,
        };
        let directory = self.memory.directory.look(&reader, progress, reach);
        let (looked, published) = futures::future::join(directory, self.load_published(&trust)).await;
        looked?;
        let published = published?;
        let sequence = published.as_ref().map_or(0, |published| published.head.sequence);
        self.memory.published.store(published);
        // What a look took that failed elsewhere is told by the next one that does not.
        let moved = progress.take_moved();
        let has_moved = moved.is_any();
        self.moved().add(moved);
        self.memory
            .changed
            .send_if_modified(|known| std::mem::replace(known, sequence) != sequence || has_moved);
        Ok(())
    }

    /// The shards in which something moved since this was last asked, up to the last [`View::changed`].
    #[must_use]
    pub fn take_moved(&self) -> Moved {
        std::mem::take(&mut *self.moved())
    }

    fn moved(&self) -> MutexGuard<'_, Moved> {
        self.memory.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn load_published(&self, trust: &Trust) -> Result<Option<Arc<Publication>>, ViewError> {
        let key = record::head();
        let stored = self.memory.objects.get(&key, 2 * HEAD_LIMIT as u64).await?;
        let Some(stored) = stored else { return Ok(None) };
        let seal = Seal { bytes: Digest::of(&stored.bytes), root: trust.root.version };
        if let Some(before) = self.published().filter(|before| before.seal() == seal) {
            return Ok(Some(before));
        }
        let envelope = publication::envelope(&stored.bytes).ok_or_else(|| ViewError::Damaged(key.clone()))?;
        let head: Head = envelope
            .open(&trust.director(), HEAD_LIMIT)
            .map_err(|source| ViewError::Refused { key, source })?;
        let tables = head.tables.iter().map(|&digest| self.table(digest));
        let mut table = Table::default();
        for shard in futures::future::try_join_all(tables).await? {
            table.0.extend(shard.table.0.iter().map(|(id, group)| (*id, group.clone())));
        }
        let number = |id: &GroupId| self.memory.directory.group_number(id);
        Ok(Some(Arc::new(Publication::new(head, table, seal, number))))
    }

    async fn table(&self, digest: Digest) -> Result<Arc<Shelved>, ViewError> {
        let load = async {
            let key = record::table(digest);
            let stored = self.memory.objects.get(&key, BODY_LIMIT).await?;
            let stored = stored.filter(|stored| Digest::of(&stored.bytes) == digest);
            let table = stored.and_then(|stored| {
                let table = serde_json::from_slice(&stored.bytes).ok()?;
                Some(Arc::new(Shelved { table, size: stored.bytes.len() }))
            });
            table.ok_or(ViewError::Damaged(key))
        };
        self.memory.tables.try_get_with(digest, load).await.map_err(shared)
    }

    /// Loads a shard of the directory, if it is not loaded.
    async fn load_shard(&self, shard: u16) -> Result<(), ViewError> {
        if self.memory.directory.with_slots(shard, |_| ()).is_some() {
            return Ok(());
        }
        let trust = self.trust().await.map_err(shared)?;
        let director = trust.director();
        let reader = Reader::new(&*self.memory.objects, &director);
        let from = Shelves { reader, index: &*self.memory.index };
        match self.memory.directory.load(shard, &from).await {
            Err(crate::directory::DirectoryError::Missing(key)) => {
                // It was collected after a newer snapshot had been written.
                debug!(%key, "a shard is gone: the head is read again");
                let mut progress = self.memory.looking.lock().await;
                self.memory.directory.look(&reader, &mut progress, Reach::Head).await?;
                drop(progress);
                Ok(self.memory.directory.load(shard, &from).await?)
            }
            loaded => Ok(loaded?),
        }
    }
}
