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
pub mod members;
pub mod partition;
pub mod settle;
pub mod state;
pub mod sync;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use futures::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::index::Index;
use crate::keyring::PublisherKeys;
use crate::objects::{Condition, Objects, ObjectsError, PutOutcome, Version};
use crate::record::{self, Approval, FLEET, HeldChange, Intent, SourceHead};
use crate::source::{Branch, FileSources, GitUrl};
use crate::trust::Trust;
use agenda::Agenda;
use intend::{FleetSeen, Intended};
use members::Members;
use partition::{Policy, Stamp};
use settle::SourceSeen;
use state::{Published, StateError};
use sync::{FleetFetched, Order, Place, Wanted};

/// How many sources are fetched at once.
const SOURCES_AT_ONCE: usize = 4;
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
    /// The head's object as this publisher saw or left it last: another one tells of another publisher.
    left: Option<Version>,
}

/// What one look at all sources found, before anything is decided for good.
struct Look {
    intended: Intended,
    seen: BTreeMap<String, SourceSeen>,
    /// The interval of everything that is declared, due or not.
    intervals: BTreeMap<String, Duration>,
}

impl Look {
    /// What it says of when to look again.
    fn outcome(&self) -> Outcome {
        let is_good = |seen: &SourceSeen| match seen {
            SourceSeen::Failed(_) | SourceSeen::Held(_) => false,
            SourceSeen::Ready { services, .. } => services.values().all(Result::is_ok),
        };
        let interval = |(name, seen): (&String, &SourceSeen)| {
            let interval = self.intervals.get(name).filter(|_| is_good(seen)).copied();
            (name.clone(), interval)
        };
        Outcome {
            looked: self.seen.iter().map(interval).collect(),
            declared: self.intervals.keys().cloned().collect(),
        }
    }
}

/// What a look says of when to look again.
struct Outcome {
    /// What was looked at, with its interval if all of it was as it should be.
    looked: Vec<(String, Option<Duration>)>,
    /// Everything that is declared.
    declared: BTreeSet<String>,
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
        let version = previous.head.as_ref().map(|(_, version)| version.clone());
        if self.left != version {
            self.members.forget();
            self.reported.clear();
            self.agenda.forget();
            self.left = version;
        } else if step == Step::Sync {
            self.members.compare(&self.objects, &self.trust.director()).await?;
        }
        self.members.refresh(&self.objects, &self.trust.director()).await
    }

    fn stamp(&self, previous: &Published, lowest: u64) -> Stamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let known = self.members.highest_sequence().saturating_add(1).max(lowest);
        let sequence = previous.next_sequence(millis).max(known);
        Stamp { epoch: self.trust.root.epoch, sequence, now: since.as_secs() }
    }

    /// Fetches the fleet repository: none if there is none, or what went wrong.
    async fn fetch_fleet(&self, previous: &Intent) -> Option<Result<FleetFetched, String>> {
        let place = self.fleet_place()?;
        let published = previous.fleet.clone();
        Some(blocking(move || sync::fleet(&place, published.as_deref())).await.unwrap_or_else(Err))
    }

    fn fleet_place(&self) -> Option<Place> {
        let FleetRepository { url, branch } = self.options.fleet.clone()?;
        // The operator named it on the command line: that is permission enough for this one.
        Some(Place {
            name: FLEET.into(),
            url,
            branch,
            files: FileSources::Allowed,
            mirrors: self.options.mirrors.clone(),
        })
    }

    /// Decides what the fleet shall be, then fetches and packs what that needs.
    async fn look(&self, previous: &Intent) -> Result<Look, PublishError> {
        let fleet = self.fetch_fleet(previous).await;
        let seen = match &fleet {
            None => FleetSeen::Unconfigured,
            Some(Err(message)) => FleetSeen::Failed(message.clone()),
            Some(Ok(FleetFetched { commit, descent, reading, files })) => {
                FleetSeen::Read { commit, descent: *descent, reading, files }
            }
        };
        let approved = self.approved().await?;
        let members = self.members.labels();
        let intended = intend::intend(previous, &seen, &members, &|held| approved.contains(&held.change));
        let now = Instant::now();
        let due = |job: &Job| job.is_changed || self.agenda.is_due(&job.place.name, now);
        let declared = jobs(self, &intended.intent);
        let intervals = declared.iter().map(|job| (job.place.name.clone(), job.interval)).collect();
        let jobs: Vec<Job> = declared.into_iter().filter(due).collect();
        let seen = self.see_sources(jobs, approved).await;
        Ok(Look { intended, seen, intervals })
    }

    /// Whether an operator has approved any of these changes.
    ///
    /// # Errors
    /// [`PublishError`].
    pub async fn is_any_approved(&self, held: &[HeldChange]) -> Result<bool, PublishError> {
        let approved = if held.is_empty() { BTreeSet::new() } else { self.approved().await? };
        Ok(held.iter().any(|held| approved.contains(&held.change)))
    }

    /// The changes that operators have approved, by id. An id is the digest of the whole change.
    async fn approved(&self) -> Result<BTreeSet<String>, PublishError> {
        let (mut approved, mut after) = (BTreeSet::new(), None);
        loop {
            let page = self.objects.list(record::APPROVALS, after.as_ref(), 1000).await?;
            let Some(last) = page.last() else { return Ok(approved) };
            after = Some(last.key.clone());
            for listed in page {
                let found =
                    members::signed::<Approval>(&self.objects, &self.trust.operator(), listed.key).await?;
                let Some((Approval { held, .. }, _)) = found else { continue };
                if held.is_named_rightly() {
                    approved.insert(held.change);
                }
            }
        }
    }

    async fn see_sources(&self, jobs: Vec<Job>, approved: BTreeSet<String>) -> BTreeMap<String, SourceSeen> {
        let (packed, arrived) = mpsc::channel(1);
        let approved = Arc::new(approved);
        let looks = jobs.into_iter().map(|job| {
            let (packed, approved) = (packed.clone(), Arc::clone(&approved));
            async move {
                let name = job.place.name.clone();
                let seen = blocking(move || job.run(&approved, &packed)).await;
                (name, seen.unwrap_or_else(SourceSeen::Failed))
            }
        });
        let looks = stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(SOURCES_AT_ONCE).collect();
        drop(packed);
        let (mut seen, stored): (BTreeMap<String, SourceSeen>, _) =
            futures::join!(looks, self.store_artifacts(arrived));
        if let Err(error) = stored {
            let message = format!("storing an artifact: {}", chain(&error));
            warn!(%message);
            for seen in seen.values_mut() {
                *seen = SourceSeen::Failed(message.clone());
            }
        }
        seen
    }

    async fn store_artifacts(
        &self,
        mut arrived: mpsc::Receiver<crate::artifact::Packed>,
    ) -> Result<(), ObjectsError> {
        while let Some(packed) = arrived.recv().await {
            let (digest, bytes) = sync::blob(packed);
            match self.objects.put(&record::artifact(digest), bytes, Condition::Absent).await? {
                PutOutcome::Stored(_) => info!(%digest, "artifact is stored"),
                PutOutcome::Conflict => {}
            }
        }
        Ok(())
    }
}

/// One source to look at.
struct Job {
    place: Place,
    accepted: Option<String>,
    published: Option<String>,
    pairs: u64,
    orders: Vec<Order>,
    interval: Duration,
    /// Whether a service of it is declared otherwise than it was made, or not made at all.
    is_changed: bool,
}

impl Job {
    fn run(&self, approved: &BTreeSet<String>, packed: &mpsc::Sender<crate::artifact::Packed>) -> SourceSeen {
        let is_approved = |held: &HeldChange| approved.contains(&held.change);
        let wanted = match &self.accepted {
            Some(commit) => Wanted::Accepted(commit),
            None => Wanted::Newest {
                published: self.published.as_deref(),
                pairs: self.pairs,
                is_approved: &is_approved,
            },
        };
        sync::source(&self.place, &wanted, &self.orders, packed)
    }
}

/// What there is to look at: every declared source, and the fleet repository where a service lives in it.
fn jobs(publisher: &Publisher, intent: &Intent) -> Vec<Job> {
    let orders_of = |source: &str| -> Vec<Order> {
        let of_source = intent.services.iter().filter(|(_, service)| service.spec.source.as_str() == source);
        let order = |(name, service): (&Name, &record::IntentService)| Order {
            name: name.clone(),
            spec: service.spec.clone(),
            published: service.published.clone(),
        };
        of_source.map(order).collect()
    };
    let labels = publisher.members.labels();
    let declared = intent.sources.iter().filter_map(|(name, source)| {
        let url = source.spec.git.url.to_string().parse().ok()?;
        let branch =
            source.spec.git.branch.as_ref().map_or(Ok(Branch::Default), |b| b.as_str().parse()).ok()?;
        let Options { files, mirrors, .. } = publisher.options.clone();
        let orders = orders_of(name.as_str());
        let pairs = labels.len() as u64 * orders.len() as u64;
        let place = Place { name: name.to_string(), url, branch, files, mirrors };
        let interval = source.spec.interval.map_or(publisher.options.interval, |i| i.duration());
        let is_changed = source.commit.is_none() || orders.iter().any(|order| !order.is_made());
        let published = source.commit.clone();
        Some(Job { place, accepted: None, published, pairs, orders, interval, is_changed })
    });
    let mut jobs: Vec<Job> = declared.collect();
    if let (Some(place), Some(commit)) = (publisher.fleet_place(), &intent.fleet) {
        let orders = orders_of(FLEET);
        if !orders.is_empty() {
            let (accepted, interval) = (Some(commit.clone()), Duration::ZERO);
            jobs.push(Job { place, accepted, published: None, pairs: 0, orders, interval, is_changed: true });
        }
    }
    jobs
}

/// Runs what blocks where that is allowed. A panic in it is that source's failure alone.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| format!("internal failure: {error}"))
}
