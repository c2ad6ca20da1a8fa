//! One look at everything that is due: the fleet repository, then the sources that it declares.
//!
//! What was seen is handed to [`super::intend`] and [`super::settle`]; nothing is decided for good here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use futures::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::intend::{self, FleetSeen, Intended};
use super::settle::SourceSeen;
use super::sync::{self, FleetFetched, Order, Place, Wanted};
use super::{FleetRepository, Options, PublishError, Publisher, members};
use crate::objects::{Condition, ObjectsError, PutOutcome};
use crate::record::{self, Approval, FLEET, HeldChange, Intent};
use crate::source::{Branch, FileSources};
use crate::trace;

/// How many sources are fetched at once.
const SOURCES_AT_ONCE: usize = 4;

/// What one look at all sources found, before anything is decided for good.
pub(super) struct Look {
    pub(super) intended: Intended,
    pub(super) seen: BTreeMap<String, SourceSeen>,
    /// The interval of everything that is declared, due or not.
    intervals: BTreeMap<String, Duration>,
}

impl Look {
    /// What it says of when to look again.
    pub(super) fn outcome(&self) -> Outcome {
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
pub(super) struct Outcome {
    /// What was looked at, with its interval if all of it was as it should be.
    pub(super) looked: Vec<(String, Option<Duration>)>,
    /// Everything that is declared.
    pub(super) declared: BTreeSet<String>,
}

impl Publisher {
    /// Fetches the fleet repository: none if there is none, or what went wrong.
    async fn fetch_fleet(&self, previous: &Intent) -> Option<Result<FleetFetched, String>> {
        let place = self.fleet_place()?;
        let published = previous.fleet.clone();
        Some(blocking(move || sync::fleet(&place, published.as_deref())).await.unwrap_or_else(Err))
    }

    pub(super) fn fleet_place(&self) -> Option<Place> {
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
    pub(super) async fn look(&self, previous: &Intent) -> Result<Look, PublishError> {
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
                let (name, began) = (job.place.name.clone(), SystemTime::now());
                let seen = blocking(move || job.run(&approved, &packed)).await;
                trace::looked(&name, began);
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
pub(super) struct Job {
    pub(super) place: Place,
    pub(super) accepted: Option<String>,
    pub(super) published: Option<String>,
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
pub(super) fn jobs(publisher: &Publisher, intent: &Intent) -> Vec<Job> {
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
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| format!("internal failure: {error}"))
}
