//! Folds the log of reports into shards, and counts the fleet.
//!
//! Each object of statuses moves by compare-and-swap, and folding a report again changes nothing, so that two
//! compactors at once, and one that is killed anywhere, are correct: a part of the log is deleted only
//! after each of its reports is in its shard, or something newer is. The lease only saves work.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use farshore_shared::compress;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::names::Name;
use farshore_shared::wire::{STATUS_LIMIT, Status, UnixSeconds};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use tracing::{debug, warn};

use super::read::Statuses;
use super::roll::RollError;
use super::shard::{Content, Reports, decode, encode};
use super::summary::count;
use crate::index::Index;
use crate::objects::{Condition, Key, Objects, ObjectsError, PutOutcome, Stored};
use crate::record::{
    self, OLD_STATUSES, Place, Report, SHARDS, SPLIT_AT, STATUS_LOG, STATUS_LOG_LIMIT, STATUS_SHARD_LIMIT,
    SeenTable, StatusLog, Summary,
};
use crate::seen::merge;
use crate::view::{Freshness, View};

/// How many parts of the log are listed at once.
const PAGE: usize = 1000;
/// The most reports that are folded at once: what is held of them is some hundred megabytes.
const MOST_REPORTS: usize = 100_000;
/// How many objects are in flight.
const IN_FLIGHT: usize = 8;
/// How often one object is tried.
const ATTEMPTS: u32 = 32;
/// How long a lease lasts without being taken again.
const LEASE: Duration = Duration::from_secs(60);
/// How long counts that have not changed are not written again, in seconds.
const UNCHANGED: u64 = 60;
/// How often last-seen times go into the record, in seconds: well within the grace that every site has.
const SEEN_EVERY: u64 = 30;
/// What the lease is called.
const LEASE_NAME: &str = "status";

/// Why folding did not end.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// The record.
    #[error("folding reports")]
    Objects(#[from] ObjectsError),
    /// Who is enrolled.
    #[error("counting the fleet")]
    Roll(#[from] RollError),
}

/// What a step did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Parts of the log that are folded and deleted.
    pub parts: usize,
    /// Reports in them.
    pub reports: usize,
    /// The counts, if they were made.
    pub summary: Option<Summary>,
}

/// Folds and counts.
#[derive(Debug, Clone)]
pub struct Compactor {
    objects: Arc<dyn Objects>,
    index: Arc<dyn Index>,
    view: View,
    statuses: Statuses,
    id: String,
    /// What was told last.
    last: Arc<Mutex<Option<Summary>>>,
    /// When last-seen times went into the record last.
    seen: Arc<Mutex<UnixSeconds>>,
}

impl Compactor {
    /// Works on the record under a view.
    #[must_use]
    pub fn new(view: View, index: Arc<dyn Index>) -> Self {
        let statuses = Statuses::new(&view, Arc::clone(&index));
        let id = ulid::Ulid::generate().to_string();
        Self {
            objects: Arc::clone(view.objects()),
            index,
            view,
            statuses,
            id,
            last: Arc::default(),
            seen: Arc::default(),
        }
    }

    /// Folds all that is in the log, and counts, unless somebody else does.
    ///
    /// # Errors
    /// [`CompactError`]; what is left is done the next time, by anybody.
    pub async fn step(&self, now: UnixSeconds) -> Result<Compacted, CompactError> {
        if let Ok(false) = self.index.lease(LEASE_NAME, &self.id, LEASE).await {
            return Ok(Compacted::default());
        }
        let mut done = self.fold().await?;
        done.summary = Some(self.count(now).await?);
        Ok(done)
    }

    /// Folds all that is in the log, whoever else does.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub async fn fold(&self) -> Result<Compacted, ObjectsError> {
        fold_all(&self.objects).await
    }

    /// Folds what hubs kept before there was a log: one object per cluster.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub async fn fold_old(&self) -> Result<usize, ObjectsError> {
        let mut folded = 0;
        for prefix in OLD_STATUSES {
            loop {
                let page = self.objects.list(prefix, None, PAGE).await?;
                let keys: Vec<Key> = page.into_iter().map(|listed| listed.key).collect();
                if keys.is_empty() {
                    break;
                }
                let read =
                    stream::iter(keys.clone()).map(|key| async move { read_old(&*self.objects, &key).await });
                let reports: Vec<Option<Report>> = read.buffer_unordered(IN_FLIGHT).try_collect().await?;
                folded += keys.len();
                fold(&self.objects, reports.into_iter().flatten().collect()).await?;
                delete(&self.objects, keys).await?;
            }
        }
        Ok(folded)
    }

    async fn count(&self, now: UnixSeconds) -> Result<Summary, CompactError> {
        let publication = self.view.publication(Freshness::Recent).await.map_err(RollError::View)?;
        let published = |group: &_| Some(publication.as_ref()?.group(group)?.sequence);
        let mut summary = Summary { at: now, ..Summary::default() };
        let mut heard = self.is_seen_due(now).then(BTreeMap::<u16, SeenTable>::new);
        let mut shards =
            stream::iter(0..SHARDS).map(|shard| self.statuses.shard_and_gone(shard, now)).buffered(IN_FLIGHT);
        while let Some((clusters, gone)) = shards.try_next().await? {
            self.forget(gone).await;
            count(&mut summary, &clusters, published, now);
            if let Some(heard) = &mut heard {
                for found in clusters {
                    let cluster = found.entry.cluster;
                    let table = heard.entry(record::seen_shard(&cluster)).or_default();
                    table.extend(found.heard.map(|at| (cluster, at)));
                }
            }
        }
        for (shard, times) in heard.into_iter().flatten() {
            merge(&*self.objects, shard, &times).await?;
        }
        self.tell(summary).await
    }

    /// Forgets when these were heard, which were removed: nothing else would, as long as others of their shard are
    /// heard.
    async fn forget(&self, gone: Vec<Name>) {
        if !gone.is_empty()
            && let Err(error) = self.index.forget_seen(&gone).await
        {
            debug!(%error, "index keeps when clusters were heard that are gone");
        }
    }

    /// Whether it is time to bring last-seen times into the record, where an index may lose them, and where
    /// commands beside a bucket look.
    fn is_seen_due(&self, now: UnixSeconds) -> bool {
        let mut last = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = now >= last.saturating_add(SEEN_EVERY);
        if is_due {
            *last = now;
        }
        is_due
    }

    async fn tell(&self, summary: Summary) -> Result<Summary, CompactError> {
        let bytes = Bytes::from(serde_json::to_vec(&summary).expect("counts make JSON"));
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let is_told = last.as_ref().is_some_and(|last| {
                last.fleet == summary.fleet
                    && last.groups == summary.groups
                    && summary.at < last.at + UNCHANGED
            });
            if is_told {
                return Ok(summary);
            }
            *last = Some(summary.clone());
        }
        // The last one who counted: both have counted the same record.
        let _ = self.objects.put(&record::status_summary(), bytes, Condition::Always).await?;
        Ok(summary)
    }
}

/// Folds the whole log.
async fn fold_all(objects: &Arc<dyn Objects>) -> Result<Compacted, ObjectsError> {
    let mut done = Compacted::default();
    let mut after: Option<Key> = None;
    loop {
        let page = objects.list(STATUS_LOG, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(done) };
        after = Some(last.key.clone());
        let mut keys = page.into_iter().map(|listed| listed.key);
        let (mut parts, mut reports) = (Vec::new(), Vec::new());
        loop {
            let key = keys.next();
            let is_last = key.is_none();
            if let Some(key) = key
                && let Some(log) = read_part(&**objects, &key).await?
            {
                parts.push(key);
                reports.extend(log.0);
            }
            if is_last || reports.len() >= MOST_REPORTS {
                done.parts += parts.len();
                done.reports += reports.len();
                fold(objects, std::mem::take(&mut reports)).await?;
                delete(objects, std::mem::take(&mut parts)).await?;
            }
            if is_last {
                break;
            }
        }
    }
}

/// A part of the log; none if somebody else was faster. One that cannot be read blocks only itself: it is
/// left for a person to look at.
pub(super) async fn read_part(objects: &dyn Objects, key: &Key) -> Result<Option<StatusLog>, ObjectsError> {
    let stored = match objects.get(key, STATUS_LOG_LIMIT as u64).await {
        Ok(None) => return Ok(None),
        Ok(Some(stored)) => stored,
        Err(error @ (ObjectsError::TooLarge { .. } | ObjectsError::Corrupt { .. })) => {
            warn!(%key, %error, "part of the log of reports is left out");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let json = compress::unpack(&stored.bytes, STATUS_LOG_LIMIT).map_err(|error| error.to_string());
    match json.and_then(|json| serde_json::from_slice(&json).map_err(|error| error.to_string())) {
        Ok(log) => Ok(Some(log)),
        Err(error) => {
            warn!(%key, error, "part of the log of reports is left out");
            Ok(None)
        }
    }
}

/// Puts reports into the objects that they belong to.
async fn fold(objects: &Arc<dyn Objects>, reports: Vec<Report>) -> Result<(), ObjectsError> {
    let leaves = by_place(reports, Place::leaf_of);
    stream::iter(leaves)
        .map(|(place, reports)| fold_into(objects, place, reports))
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await
}

fn by_place(
    reports: impl IntoIterator<Item = Report>,
    place: impl Fn(u16) -> Place,
) -> BTreeMap<Place, Vec<Report>> {
    let mut places: BTreeMap<Place, Vec<Report>> = BTreeMap::new();
    for report in reports {
        places.entry(place(record::shard_of(&report.cluster))).or_default().push(report);
    }
    places
}

/// Puts reports into one object, or, where it was split, into those of its shards.
fn fold_into(
    objects: &Arc<dyn Objects>,
    place: Place,
    reports: Vec<Report>,
) -> BoxFuture<'_, Result<(), ObjectsError>> {
    async move {
        let key = record::status_place(place);
        for _ in 0..ATTEMPTS {
            let stored = objects.get(&key, STATUS_SHARD_LIMIT as u64).await?;
            let mut held = match content(&**objects, &key, stored.as_ref()).await? {
                Content::Split => return fold_below(objects, reports).await,
                Content::Leaf(held) => held,
            };
            // Each is looked at, whether or not one before it was taken.
            let taken = reports.iter().filter(|report| held.take(Report::clone(report))).count();
            if taken == 0 {
                return Ok(());
            }
            let is_full = held.len() > SPLIT_AT && matches!(place, Place::Leaf(_));
            let new = if is_full {
                // First what is below, which nobody looks at yet, then the word that it is there.
                fold_below(objects, held.into_reports().collect()).await?;
                Content::Split
            } else {
                Content::Leaf(held)
            };
            let condition = stored.map_or(Condition::Absent, |stored| Condition::Matches(stored.version));
            match objects.put(&key, Bytes::from(encode(&new)), condition).await? {
                PutOutcome::Stored(_) => return Ok(()),
                PutOutcome::Conflict => debug!(%key, "another process folds as well: again"),
            }
        }
        Err(ObjectsError::Contended { key: key.to_string(), attempts: ATTEMPTS })
    }
    .boxed()
}

async fn fold_below(objects: &Arc<dyn Objects>, reports: Vec<Report>) -> Result<(), ObjectsError> {
    for (place, reports) in by_place(reports, Place::Shard) {
        fold_into(objects, place, reports).await?;
    }
    Ok(())
}

/// What an object of statuses says. A damaged one is laid aside, and begun anew.
async fn content(objects: &dyn Objects, key: &Key, stored: Option<&Stored>) -> Result<Content, ObjectsError> {
    let Some(stored) = stored else { return Ok(Content::Leaf(Reports::default())) };
    match decode(&stored.bytes) {
        Ok(content) => Ok(content),
        Err(damaged) => {
            let aside = record::status_damaged(Digest::of(&stored.bytes));
            warn!(%key, %damaged, %aside, "object of statuses is laid aside and begun anew");
            // It is there already when we were stopped before.
            let _ = objects.put(&aside, stored.bytes.clone(), Condition::Absent).await?;
            Ok(Content::Leaf(Reports::default()))
        }
    }
}

/// A status of the layout before the log.
pub(super) async fn read_old(objects: &dyn Objects, key: &Key) -> Result<Option<Report>, ObjectsError> {
    let Some(stored) = objects.get(key, 2 * STATUS_LIMIT as u64).await? else { return Ok(None) };
    let cluster: Option<Name> = key.as_str().rsplit('/').next().and_then(|name| name.parse().ok());
    let envelope: Option<Envelope> = serde_json::from_slice(&stored.bytes).ok();
    let report = cluster.zip(envelope).and_then(|(cluster, envelope)| {
        let status: Status = serde_json::from_slice(&envelope.peek(STATUS_LIMIT)?).ok()?;
        Some(Report { cluster, received: status.at.saturating_mul(1000), envelope })
    });
    if report.is_none() {
        warn!(%key, "status is not readable, and is dropped");
    }
    Ok(report)
}

async fn delete(objects: &Arc<dyn Objects>, keys: Vec<Key>) -> Result<(), ObjectsError> {
    stream::iter(keys)
        .map(|key| async move { objects.delete(&key).await })
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await
}
