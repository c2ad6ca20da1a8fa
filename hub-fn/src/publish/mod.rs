//! The publisher: from what Git says to signed documents in the record.
//!
//! ```text
//! sync (Git) -> intend -> settle -> partition -> write (bodies, then the head once, then rosters) -> index
//! ```
//!
//! [`intend`], [`settle`] and [`partition`] decide and touch nothing; [`Publisher`] does what they say.
//! Two publishers at once are correct: a publication becomes visible by one compare-and-swap of
//! `fleet/head`, and the one that loses decides again from what the other has written.

mod agenda;
mod approvals;
mod census;
pub mod directory;
pub mod enrol;
mod fetches;
pub mod groups;
pub mod intend;
mod lead;
mod look;
pub mod members;
mod mirrors;
pub mod partition;
mod removals;
mod roll;
mod rosters;
pub mod settle;
mod stand;
pub mod state;
pub mod sync;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farshore_shared::clock::since_epoch;
use farshore_shared::digest::Digest;
use farshore_shared::keys::KeyId;
use farshore_shared::names::Name;
use farshore_shared::wire::GroupId;
use tracing::info;

use crate::directory::DirectoryError;
use crate::index::Index;
use crate::keyring::PublisherKeys;
use crate::objects::{Key, Objects, ObjectsError, Version};
use crate::record::{self, Entry, HeldChange, SourceHead};
use crate::retention::Guarded;
use crate::source::{Branch, FileSources, GitUrl, Limits};
use crate::trust::Trust;
use agenda::Agenda;
use census::Census;
use directory::Directory;
use fetches::Fetches;
use lead::Leases;
use look::Look;
use members::Members;
use mirrors::{Keeper, Mirrors};
use partition::{Policy, Stamp};
use state::{BODY_LIMIT, Published, StateError};

pub use lead::Sharing;
pub use stand::SourceStates;

/// How often a publication is decided again after it lost a race.
const ATTEMPTS: usize = 16;

/// The fleet repository.
#[derive(Debug, Clone)]
pub struct FleetRepository {
    /// Where.
    pub url: GitUrl,
    /// Which branch.
    pub branch: Branch,
}

/// What a publisher is told at its start.
#[derive(Debug, Clone)]
pub struct Options {
    /// The fleet repository, if any.
    pub fleet: Option<FleetRepository>,
    /// Whether sources may be folders of this machine.
    pub files: FileSources,
    /// The folder of mirrors: a cache.
    pub mirrors: PathBuf,
    /// Lives of documents and the poll interval.
    pub policy: Policy,
    /// How often sources are fetched that do not say it themselves.
    pub interval: Duration,
    /// How they are fetched.
    pub sync: SyncOptions,
}

/// How sources are fetched.
#[derive(Debug, Clone, Copy)]
pub struct SyncOptions {
    /// How many at once.
    pub fetches: usize,
    /// How long a publication waits for those that it has begun to fetch: what is slower comes with a
    /// later one.
    pub grace: Duration,
    /// How long it waits for the services of the fleet repository itself, which are on this disk once it is fetched.
    pub packing: Packing,
    /// What one fetch may take.
    pub limits: Limits,
    /// How many bytes all mirrors on this disk may have.
    pub mirror_cache: u64,
    /// Whether other publishers may share the work.
    pub sharing: Sharing,
}

impl Default for SyncOptions {
    /// Eight fetches, one second of grace, mirrors of 10 GiB, and nobody to share with.
    fn default() -> Self {
        Self {
            fetches: 8,
            grace: Duration::from_secs(1),
            packing: Packing::WaitedFor,
            limits: Limits::default(),
            mirror_cache: 10 << 30,
            sharing: Sharing::Alone,
        }
    }
}

/// How long services of the fleet repository are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// As long as it takes.
    WaitedFor,
    /// As long as anything else: a later publication brings them.
    WithinGrace,
}

/// How thorough a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Git is asked.
    Sync,
    /// Only enrolments, and what follows from them.
    Enrolments,
}

/// What a step did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepReport {
    /// The sequence of the publication, if there was one.
    pub published: Option<u64>,
    /// Group bodies written.
    pub groups: usize,
    /// Rosters written.
    pub rosters: usize,
    /// Bytes of bodies and rosters written.
    pub bytes: u64,
    /// Clusters that have no roster yet, or one of a group to which they do not belong any more.
    pub moving: u64,
    /// Whether there is more to write at once: the step was as long as a step may be.
    pub is_unfinished: bool,
    /// Changes that wait for an approval.
    pub held: Vec<HeldChange>,
    /// Sources that could not be read.
    pub failed: Vec<String>,
}

/// Why a step could not be done.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The object storage.
    #[error("accessing the record")]
    Objects(#[from] ObjectsError),
    /// What was published last cannot be read back.
    #[error("reading what was published last")]
    State(#[from] StateError),
    /// The directory of clusters.
    #[error("keeping the directory of clusters")]
    Directory(#[from] DirectoryError),
    /// What nobody could read again is not written, and nothing becomes visible.
    #[error("object of the publication is too large ({key}: {size} bytes, limit {BODY_LIMIT})")]
    TooLarge {
        /// Which.
        key: Key,
        /// Its bytes.
        size: usize,
    },
    /// Other publishers were faster every time.
    #[error("publishing ({ATTEMPTS} attempts lost against another publisher)")]
    Lost,
}

/// The publisher.
#[derive(Debug)]
pub struct Publisher {
    objects: Arc<dyn Objects>,
    /// The same, asked what may be named.
    guard: Guarded,
    index: Arc<dyn Index>,
    trust: Trust,
    keys: PublisherKeys,
    options: Options,
    members: Members,
    /// How far the directory was read; none before it was loaded.
    directory: Option<Directory>,
    /// What the directory does not tell yet.
    untold: BTreeMap<Name, Entry>,
    /// Who was moved by what is published now, and from which group.
    moved: Vec<(Name, GroupId)>,
    /// Up to whom rosters were compared with the record last.
    compared: Option<Name>,
    /// When that was.
    compared_at: Option<Instant>,
    /// When everybody was looked at last.
    swept: Option<Instant>,
    /// Who has heard of tombstones.
    census: Census,
    /// Tokens of which every use is taken, and by whom.
    used_up: BTreeMap<Digest, BTreeSet<KeyId>>,
    /// What was published last, as it was read or written.
    published: Option<Arc<Published>>,
    /// The head whose table follows from its intent, as this publisher has seen for itself.
    planned: Option<Version>,
    /// Groups whose bodies are too large to be signed, with their sizes.
    refused: BTreeMap<GroupId, usize>,
    /// Clusters whose rosters are too large to be signed, with their sizes.
    unwritten: BTreeMap<Name, usize>,
    /// Source heads as they were last written, without their numbers.
    reported: BTreeMap<String, SourceHead>,
    /// When which source is looked at next.
    agenda: Agenda,
    /// Which sources are this publisher's.
    leases: Leases,
    /// Looks that are under way, and what they brought.
    fetches: Fetches,
    /// The mirrors on this disk.
    keeper: Keeper,
    /// Everything that was declared at the last look.
    declared: BTreeSet<String>,
    /// The approvals that were read, each with the change that it lets through.
    approvals: BTreeMap<Key, String>,
    /// What the head said as this publisher saw or left it last: anything else tells of another publisher.
    left: Option<Digest>,
}

impl Publisher {
    /// A publisher over a record whose trust root is that of the keys. It starts the keeper of its
    /// mirrors, and so must be made on a runtime.
    #[must_use]
    pub fn new(
        objects: Arc<dyn Objects>,
        index: Arc<dyn Index>,
        (trust, keys): (Trust, PublisherKeys),
        options: Options,
    ) -> Self {
        // What is being collected is not written, and not named.
        let guard = Guarded::new(objects);
        let objects: Arc<dyn Objects> = Arc::new(guard.clone());
        let SyncOptions { fetches, mirror_cache, sharing, .. } = options.sync;
        let keeper = Keeper::start(Arc::clone(&objects), options.mirrors.clone(), mirror_cache);
        Self {
            leases: Leases::new(Arc::clone(&index), sharing),
            fetches: Fetches::new(fetches),
            keeper,
            guard,
            objects,
            index,
            trust,
            keys,
            members: Members::new(options.policy),
            options,
            directory: None,
            untold: BTreeMap::new(),
            moved: Vec::new(),
            compared: None,
            compared_at: None,
            swept: None,
            census: Census::default(),
            used_up: BTreeMap::new(),
            published: None,
            planned: None,
            refused: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            reported: BTreeMap::new(),
            agenda: Agenda::default(),
            declared: BTreeSet::new(),
            approvals: BTreeMap::new(),
            left: None,
        }
    }

    /// One bounded step of due work.
    ///
    /// # Errors
    /// [`PublishError`]. A source that fails is no error: it is in the report.
    pub async fn step(&mut self, step: Step) -> Result<StepReport, PublishError> {
        if step == Step::Enrolments && !self.is_anything_due().await? {
            return Ok(StepReport::default());
        }
        let mut lowest = 0;
        for _ in 0..ATTEMPTS {
            // First what was published, then Git: what is fetched is never older than what it is
            // compared with.
            let known = self.published.take();
            let previous = Published::load_unless(known, &self.objects, &self.trust.director()).await?;
            self.published = Some(Arc::clone(&previous));
            self.meet_members(&previous, step).await?;
            let stamp = self.stamp(&previous, lowest);
            self.remove_asked(stamp).await?;
            let decided = self.handle_pending(stamp).await?;
            let mut look = match step {
                Step::Sync => Some(self.look(&previous.intent).await?),
                Step::Enrolments => None,
            };
            if let Some(report) = self.publish(&previous, look.as_mut(), stamp).await? {
                if let Some(outcome) = look.as_mut().map(Look::outcome) {
                    self.note(outcome).await;
                }
                for key in decided {
                    self.objects.delete(&key).await?;
                }
                self.compact_directory(stamp).await?;
                return Ok(report);
            }
            info!(sequence = stamp.sequence, "another publisher was faster: deciding again");
            // A publisher that was killed may have left bodies under this sequence, for ever: where the
            // clock is behind the head, the next attempt would meet them again.
            lowest = stamp.sequence + 1;
        }
        Err(PublishError::Lost)
    }

    /// Whether there is work beside Git.
    async fn is_anything_due(&self) -> Result<bool, ObjectsError> {
        if self.is_roster_due() || !self.untold.is_empty() {
            return Ok(true);
        }
        for waiting in [record::PENDING, record::REMOVALS] {
            if !self.objects.list(waiting, None, 1).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How many clusters are registered, as far as this publisher knows.
    #[must_use]
    pub fn clusters(&self) -> usize {
        self.members.len()
    }

    /// How many of them have no roster yet, or one of a group to which they do not belong any more.
    #[must_use]
    pub fn moving(&self) -> u64 {
        self.members.moving()
    }

    fn mirrors(&self) -> Mirrors {
        self.keeper.mirrors()
    }

    fn stamp(&self, previous: &Published, lowest: u64) -> Stamp {
        let since = since_epoch();
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let known = self.members.highest_sequence().saturating_add(1).max(lowest);
        let sequence = previous.next_sequence(millis).max(known);
        Stamp { epoch: self.trust.root.epoch, sequence, now: since.as_secs() }
    }
}
