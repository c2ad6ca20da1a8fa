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
pub mod enrol;
mod fetches;
pub mod intend;
mod lead;
mod look;
pub mod members;
mod mirrors;
pub mod partition;
pub mod settle;
mod stand;
pub mod state;
pub mod sync;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use farshore_shared::clock::since_epoch;

use tracing::info;

use crate::index::Index;
use crate::keyring::PublisherKeys;
use crate::objects::{Objects, ObjectsError, Version};
use crate::record::{self, HeldChange, SourceHead};
use crate::source::{Branch, FileSources, GitUrl, Limits};
use crate::trust::Trust;
use agenda::Agenda;
use fetches::Fetches;
use lead::Leases;
use look::Look;
use members::Members;
use mirrors::{Keeper, Mirrors};
use partition::{Policy, Stamp};
use state::{Published, StateError};

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
            limits: Limits::default(),
            mirror_cache: 10 << 30,
            sharing: Sharing::Alone,
        }
    }
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
    /// Other publishers were faster every time.
    #[error("publishing ({ATTEMPTS} attempts lost against another publisher)")]
    Lost,
}

/// The publisher.
#[derive(Debug)]
pub struct Publisher {
    objects: Arc<dyn Objects>,
    index: Arc<dyn Index>,
    trust: Trust,
    keys: PublisherKeys,
    options: Options,
    members: Members,
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
    /// The head's object as this publisher saw or left it last: another one tells of another publisher.
    left: Option<Version>,
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
        let SyncOptions { fetches, mirror_cache, sharing, .. } = options.sync;
        let keeper = Keeper::start(Arc::clone(&objects), options.mirrors.clone(), mirror_cache);
        Self {
            leases: Leases::new(Arc::clone(&index), sharing),
            fetches: Fetches::new(fetches),
            keeper,
            objects,
            index,
            trust,
            keys,
            options,
            members: Members::default(),
            reported: BTreeMap::new(),
            agenda: Agenda::default(),
            declared: BTreeSet::new(),
            left: None,
        }
    }

    /// One bounded step of due work.
    ///
    /// # Errors
    /// [`PublishError`]. A source that fails is no error: it is in the report.
    pub async fn step(&mut self, step: Step) -> Result<StepReport, PublishError> {
        if step == Step::Enrolments && self.objects.list(record::PENDING, None, 1).await?.is_empty() {
            return Ok(StepReport::default());
        }
        let mut lowest = 0;
        for _ in 0..ATTEMPTS {
            // First what was published, then Git: what is fetched is never older than what it is
            // compared with.
            let previous = Published::load(&self.objects, &self.trust.director()).await?;
            self.meet_members(&previous, step).await?;
            let stamp = self.stamp(&previous, lowest);
            enrol::handle_pending(&self.objects, &self.keys, &mut self.members, stamp).await?;
            let mut look = match step {
                Step::Sync => Some(self.look(&previous.intent).await?),
                Step::Enrolments => None,
            };
            if let Some(report) = self.publish(&previous, look.as_mut(), stamp).await? {
                if let Some(outcome) = look.as_mut().map(Look::outcome) {
                    self.note(outcome).await;
                }
                return Ok(report);
            }
            info!(sequence = stamp.sequence, "another publisher was faster: deciding again");
            // A publisher that was killed may have left bodies under this sequence, for ever: where the
            // clock is behind the head, the next attempt would meet them again.
            lowest = stamp.sequence + 1;
        }
        Err(PublishError::Lost)
    }

    /// How many clusters are registered, as far as this publisher knows.
    #[must_use]
    pub fn clusters(&self) -> usize {
        self.members.len()
    }

    fn mirrors(&self) -> Mirrors {
        self.keeper.mirrors()
    }

    /// Learns who is enrolled, and what of it is not to be believed any more.
    async fn meet_members(&mut self, previous: &Published, step: Step) -> Result<(), ObjectsError> {
        let version = previous.head.as_ref().map(|(_, version)| version.clone());
        if self.left != version {
            self.members.forget();
            self.reported.clear();
            self.left = version;
        } else if step == Step::Sync {
            self.members.compare(&self.objects, &self.trust.director()).await?;
        }
        self.members.refresh(&self.objects, &self.trust.director()).await
    }

    fn stamp(&self, previous: &Published, lowest: u64) -> Stamp {
        let since = since_epoch();
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let known = self.members.highest_sequence().saturating_add(1).max(lowest);
        let sequence = previous.next_sequence(millis).max(known);
        Stamp { epoch: self.trust.root.epoch, sequence, now: since.as_secs() }
    }
}
