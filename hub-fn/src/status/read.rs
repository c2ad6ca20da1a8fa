//! Reading what sites have said: a shard at a time, joined with who is enrolled and when each was heard.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;
use futures::TryStreamExt as _;
use moka::future::Cache;
use tracing::{debug, warn};

use super::compact::{read_old, read_part};
use super::judge::{heard, listening_since};
use super::roll::{Roll, RollError};
use super::shard::{Content, Damaged, HEAD, Reports, decode, decode_facts, facts_length};
use crate::index::{Index, SeenShard};
use crate::objects::{ByteRange, Key, Objects, ObjectsError};
use crate::record::{
    self, Entry, Facts, LEAVES, OLD_STATUSES, Place, Report, SEEN_SHARDS, STATUS_LOG, STATUS_SHARD_LIMIT,
    SUMMARY_LIMIT, SeenTable, Summary,
};
use crate::seen::SEEN_LIMIT;
use crate::view::View;

/// How many bytes are read first: the facts of three thousand clusters are within.
const FIRST: u64 = 256 << 10;
/// How old facts, last-seen times and the summary may be.
const STALENESS: Duration = Duration::from_secs(2);
/// How many keys are listed at once.
const PAGE: usize = 1000;
/// How many clusters' facts, and last-seen times, are remembered.
const KEPT: u64 = 100_000;

/// For how long nobody may have heard a cluster that the directory does not have before its time is forgotten, in
/// seconds: one that has just enrolled may be heard before the directory is read again.
const GONE_FOR: UnixSeconds = 3600;

/// A cluster, and what is known of it.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its entry in the directory.
    pub entry: Entry,
    /// Its last report.
    pub facts: Option<Facts>,
    /// When it was last heard.
    pub heard: Option<UnixSeconds>,
    /// Since when somebody listens who would know better.
    pub listening_since: Option<UnixSeconds>,
}

/// What an object of statuses says of its clusters.
#[derive(Debug, Clone)]
enum Known {
    Leaf(Arc<BTreeMap<Name, Facts>>),
    Split,
}

/// Reads statuses.
#[derive(Debug, Clone)]
pub struct Statuses {
    objects: Arc<dyn Objects>,
    index: Arc<dyn Index>,
    roll: Roll,
    known: Cache<Place, Known>,
    seen: Cache<u16, Arc<SeenTable>>,
    summary: Cache<(), Arc<Summary>>,
}

impl Statuses {
    /// Reads from the record under a view, and from an index.
    #[must_use]
    pub fn new(view: &View, index: Arc<dyn Index>) -> Self {
        let weight = |n: usize| u32::try_from(n + 1).unwrap_or(u32::MAX);
        let known =
            Cache::builder().max_capacity(KEPT).weigher(move |_: &Place, known: &Known| match known {
                Known::Leaf(facts) => weight(facts.len()),
                Known::Split => weight(0),
            });
        let seen = Cache::builder()
            .max_capacity(KEPT)
            .weigher(move |_: &u16, table: &Arc<SeenTable>| weight(table.len()));
        Self {
            objects: Arc::clone(view.objects()),
            index,
            roll: Roll::new(view.clone()),
            known: known.time_to_live(STALENESS).build(),
            seen: seen.time_to_live(STALENESS).build(),
            summary: Cache::builder().max_capacity(1).time_to_live(STALENESS).build(),
        }
    }

    /// The index beside the record.
    #[must_use]
    pub fn index(&self) -> &dyn Index {
        &*self.index
    }

    /// The enrolled clusters of a shard, by name.
    ///
    /// # Errors
    /// [`RollError`]. What is damaged beside the directory counts as not there.
    pub async fn shard(&self, shard: u16, now: UnixSeconds) -> Result<Vec<Found>, RollError> {
        self.shard_and_gone(shard, now).await.map(|(found, _)| found)
    }

    /// The same, and those that the index heard some time ago and that are not enrolled.
    pub(super) async fn shard_and_gone(
        &self,
        shard: u16,
        now: UnixSeconds,
    ) -> Result<(Vec<Found>, Vec<Name>), RollError> {
        let entries = self.roll.shard(shard).await?;
        if entries.is_empty() {
            return Ok((vec![], vec![]));
        }
        let facts = self.facts(shard).await?;
        let table = self.table(shard).await?;
        let index = self.index.seen(shard).await.unwrap_or_else(|error| {
            debug!(%error, "index does not tell when clusters were heard");
            // It kept the times until it went away: it has to listen for a while before anybody is silent.
            Some(SeenShard::default())
        });
        let gone = index.as_ref().map(|index| gone(&entries, index, now)).unwrap_or_default();
        let listening_since = listening_since(index.as_ref(), now);
        let join = |entry: Entry| {
            let facts = facts.get(&entry.cluster).cloned();
            let noted = index.as_ref().and_then(|index| index.times.get(&entry.cluster).copied());
            let heard = heard(facts.as_ref(), [noted, table.get(&entry.cluster).copied()]);
            Found { entry, facts, heard, listening_since: listening_since.filter(|_| noted.is_none()) }
        };
        Ok((entries.into_iter().map(join).collect(), gone))
    }

    /// The last report of a cluster, as it signed it; its signature is not looked at here.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub async fn report(&self, cluster: &Name) -> Result<Option<Report>, ObjectsError> {
        let shard = record::shard_of(cluster);
        let mut reports = None;
        for place in [Place::leaf_of(shard), Place::Shard(shard)] {
            let key = record::status_place(place);
            let Some(stored) = self.objects.get(&key, STATUS_SHARD_LIMIT as u64).await? else { break };
            match decode(&stored.bytes).map_err(|damaged| corrupt(&key, &damaged))? {
                Content::Leaf(found) => {
                    reports = Some(found);
                    break;
                }
                Content::Split => {}
            }
        }
        Ok(reports.and_then(|reports| reports.get(cluster).cloned()))
    }

    /// The counts, as they were made last.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub async fn summary(&self) -> Result<Arc<Summary>, Arc<ObjectsError>> {
        let load = async {
            let stored = self.objects.get(&record::status_summary(), SUMMARY_LIMIT).await?;
            // A damaged one is made anew.
            let read = stored.and_then(|stored| serde_json::from_slice(&stored.bytes).ok());
            Ok(Arc::new(read.unwrap_or_default()))
        };
        self.summary.try_get_with((), load).await
    }

    async fn facts(&self, shard: u16) -> Result<Arc<BTreeMap<Name, Facts>>, RollError> {
        for place in [Place::leaf_of(shard), Place::Shard(shard)] {
            let known = self.known.try_get_with(place, load(&*self.objects, place)).await;
            let known = known.map_err(RollError::Objects)?;
            if let Known::Leaf(facts) = known {
                return Ok(facts);
            }
        }
        Ok(Arc::default())
    }

    async fn table(&self, shard: u16) -> Result<Arc<SeenTable>, RollError> {
        let table = shard % SEEN_SHARDS;
        let load = async {
            let stored = self.objects.get(&record::seen(table), SEEN_LIMIT).await?;
            let read = stored.and_then(|stored| serde_json::from_slice(&stored.bytes).ok());
            Ok(Arc::new(read.unwrap_or_default()))
        };
        self.seen.try_get_with(table, load).await.map_err(RollError::Objects)
    }
}

/// The last report of every cluster that has ever reported: the log, the shards, and what is left of the layout
/// before. It lists the bucket, and is for commands that stand beside one. What cannot be read is told in
/// the log, and left out.
///
/// # Errors
/// [`ObjectsError`].
pub async fn all_reports(objects: &dyn Objects) -> Result<Reports, ObjectsError> {
    // The log first: what is folded and deleted meanwhile is then found in its shard.
    let mut all = Reports::default();
    for prefix in [STATUS_LOG].into_iter().chain(OLD_STATUSES) {
        let mut after: Option<Key> = None;
        loop {
            let page = objects.list(prefix, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for listed in page {
                let reports = match prefix {
                    STATUS_LOG => read_part(objects, &listed.key).await?.unwrap_or_default().0,
                    _ => read_old(objects, &listed.key).await?.into_iter().collect(),
                };
                for report in reports {
                    all.take(report);
                }
            }
        }
    }
    for leaf in (0..LEAVES).map(Place::Leaf) {
        if let Some(Content::Split) = take_all(objects, leaf, &mut all).await? {
            for shard in leaf.shards().map(Place::Shard) {
                take_all(objects, shard, &mut all).await?;
            }
        }
    }
    Ok(all)
}

/// Whom the index heard some time ago and these, by name, are not.
fn gone(entries: &[Entry], index: &SeenShard, now: UnixSeconds) -> Vec<Name> {
    let is_enrolled = |cluster: &Name| entries.binary_search_by(|entry| entry.cluster.cmp(cluster)).is_ok();
    let old = index.times.iter().filter(|(_, at)| at.saturating_add(GONE_FOR) < now);
    old.map(|(cluster, _)| cluster).filter(|cluster| !is_enrolled(cluster)).cloned().collect()
}

async fn take_all(
    objects: &dyn Objects,
    place: Place,
    all: &mut Reports,
) -> Result<Option<Content>, ObjectsError> {
    let key = record::status_place(place);
    let Some(stored) = objects.get(&key, STATUS_SHARD_LIMIT as u64).await? else { return Ok(None) };
    match decode(&stored.bytes) {
        Ok(Content::Split) => Ok(Some(Content::Split)),
        Ok(Content::Leaf(reports)) => {
            for report in reports.into_reports() {
                all.take(report);
            }
            Ok(None)
        }
        Err(damaged) => {
            warn!(%key, %damaged, "object of statuses is left out");
            Ok(None)
        }
    }
}

async fn load(objects: &dyn Objects, place: Place) -> Result<Known, ObjectsError> {
    let key = record::status_place(place);
    let Some(first) = begin(objects, &key).await? else { return Ok(Known::Leaf(Arc::default())) };
    let read = facts_length(&first).and_then(|length| match length {
        None => Ok(Some(Known::Split)),
        Some(length) => match first.get(HEAD..HEAD + length) {
            Some(packed) => decode_facts(packed).map(|facts| Some(Known::Leaf(Arc::new(facts)))),
            None => Ok(None),
        },
    });
    match read.map_err(|damaged| corrupt(&key, &damaged))? {
        Some(known) => Ok(known),
        None => whole(objects, &key).await,
    }
}

/// The first bytes of an object.
async fn begin(objects: &dyn Objects, key: &Key) -> Result<Option<Vec<u8>>, ObjectsError> {
    let Some(content) = objects.read(key, Some(ByteRange::Within(0, FIRST - 1))).await? else {
        return Ok(None);
    };
    let bytes = content.stream.try_fold(Vec::new(), async |mut all, piece| {
        all.extend_from_slice(&piece);
        Ok(all)
    });
    bytes.await.map(Some)
}

/// The facts of an object that has more of them than are read first.
async fn whole(objects: &dyn Objects, key: &Key) -> Result<Known, ObjectsError> {
    let Some(stored) = objects.get(key, STATUS_SHARD_LIMIT as u64).await? else {
        return Ok(Known::Leaf(Arc::default()));
    };
    match decode(&stored.bytes).map_err(|damaged| corrupt(key, &damaged))? {
        Content::Leaf(reports) => Ok(Known::Leaf(Arc::new(reports.facts()))),
        Content::Split => Ok(Known::Split),
    }
}

fn corrupt(key: &Key, damaged: &Damaged) -> ObjectsError {
    ObjectsError::Corrupt { key: key.to_string(), reason: damaged.to_string() }
}
