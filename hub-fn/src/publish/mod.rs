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
pub mod intend;
mod look;
pub mod members;
pub mod partition;
pub mod settle;
pub mod state;
pub mod sync;
mod write;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farshore_shared::clock::since_epoch;
use farshore_shared::digest::Digest;

use tracing::info;

use crate::index::Index;
use crate::keyring::PublisherKeys;
use crate::objects::{Objects, ObjectsError};
use crate::record::{self, HeldChange, SourceHead};
use crate::retention::Guarded;
use crate::source::{Branch, FileSources, GitUrl};
use crate::trust::Trust;
use agenda::Agenda;
use look::{Look, Outcome};
use members::Members;
use partition::{Policy, Stamp};
use state::{Published, StateError};

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
    /// What the head said as this publisher saw or left it last: anything else tells of another publisher.
    left: Option<Digest>,
}

impl Publisher {
    /// A publisher over a record whose trust root is that of the keys.
    #[must_use]
    pub fn new(
        objects: Arc<dyn Objects>,
        index: Arc<dyn Index>,
        (trust, keys): (Trust, PublisherKeys),
        options: Options,
    ) -> Self {
        // What is being collected is not written, and not named.
        let objects: Arc<dyn Objects> = Arc::new(Guarded::new(objects));
        let (members, reported, agenda) = (Members::default(), BTreeMap::new(), Agenda::default());
        Self { objects, index, trust, keys, options, members, reported, agenda, left: None }
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
            let look = match step {
                Step::Sync => Some(self.look(&previous.intent).await?),
                Step::Enrolments => None,
            };
            let outcome = look.as_ref().map(Look::outcome);
            if let Some(report) = self.publish(&previous, look, stamp).await? {
                if let Some(outcome) = outcome {
                    self.note(&outcome);
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

    /// When the next source is due by its own interval, where any is.
    #[must_use]
    pub fn next_look(&self) -> Option<Instant> {
        self.agenda.next()
    }

    /// How many clusters are registered, as far as this publisher knows.
    #[must_use]
    pub fn clusters(&self) -> usize {
        self.members.len()
    }

    fn note(&mut self, outcome: &Outcome) {
        let now = Instant::now();
        for (source, interval) in &outcome.looked {
            match interval {
                Some(interval) => self.agenda.looked(source, *interval, now),
                None => self.agenda.failed(source),
            }
        }
        self.agenda.keep(&outcome.declared);
    }

    /// Learns who is enrolled, and what of it is not to be believed any more.
    async fn meet_members(&mut self, previous: &Published, step: Step) -> Result<(), ObjectsError> {
        let said = previous.head.as_ref().map(|(head, _)| head.says());
        if self.left != said {
            self.members.forget();
            self.reported.clear();
            self.agenda.forget();
            self.left = said;
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
