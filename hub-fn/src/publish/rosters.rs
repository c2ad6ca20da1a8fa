//! Writing rosters: of those who came or changed at once, of those whom new selector keys move, and of those whose
//! roster grows old, so many in each step and no more.
//!
//! A roster is read before it is written, and written by its own compare-and-swap. Where it is not the one
//! that the directory told of, another publisher was here: it is taken over, and decided again in the next step.

use std::time::{Duration, Instant};

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::names::{LabelKey, Name};
use farshore_shared::wire::{GroupId, Registration, Roster, SMALL_LIMIT};
use futures::{StreamExt as _, stream};
use tracing::{info, warn};

use super::directory::note;
use super::members::{Due, Moment};
use super::partition::{Member, Stamp, roster};
use super::roll::{entry, found};
use super::{PublishError, Publisher, StepReport};
use crate::objects::{Condition, ObjectsError, PutOutcome};
use crate::record::{self, Entry, Table};

/// How many rosters are written in one step: a few seconds of work, so that enrolments and commits need not wait.
const ROSTERS: usize = 2_000;
/// How many of them one part of the log tells of, and how many a killed publisher may have left untold.
const TOLD: usize = 500;
/// How many rosters are written at once.
const IN_FLIGHT: usize = 32;
/// How often everybody is looked at, whether a roster grows old.
const SWEEP: Duration = Duration::from_secs(60);

/// By what rosters are decided.
#[derive(Clone, Copy)]
struct Basis<'a> {
    table: &'a Table,
    keys: &'a std::collections::BTreeSet<LabelKey>,
    stamp: Stamp,
}

/// What became of one cluster.
enum Renewed {
    /// It has a new roster.
    Written { entry: Entry, roster: Box<Roster>, bytes: Bytes, left: Option<GroupId> },
    /// It is not as it was known.
    Found(Entry),
    /// Its roster would be larger than any site accepts.
    TooLarge(Name, usize),
    /// Its roster is right, or has to wait for the next look at everybody.
    Kept(Name),
}

impl Publisher {
    /// Whether there is a roster to write, as far as is known without a look at anything.
    pub(super) fn is_roster_due(&self) -> bool {
        self.members.is_anybody_due() || self.swept.is_none_or(|swept| swept.elapsed() >= SWEEP)
    }

    /// Writes the rosters that are due, and tells the directory.
    pub(super) async fn write_rosters(
        &mut self,
        table: &Table,
        stamp: Stamp,
        report: &mut StepReport,
    ) -> Result<(), PublishError> {
        if self.swept.is_none_or(|swept| swept.elapsed() >= SWEEP) {
            self.members.sweep();
            // Whoever still has one is found again.
            self.unwritten.clear();
            self.swept = Some(Instant::now());
        }
        let start = Instant::now();
        let moment = Moment { table, epoch: stamp.epoch, now: stamp.now };
        let due = self.members.due(moment, ROSTERS);
        for some in due.chunks(TOLD) {
            let failed = self.renew_some(some, table, stamp, report).await;
            self.tell_directory(stamp).await?;
            failed?;
        }
        self.tell_directory(stamp).await?;
        report.moving = self.members.moving();
        report.is_unfinished = self.members.is_anybody_due();
        if report.moving > 0 && report.rosters > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a rate is rounded")]
            let rate = report.rosters as f64 / start.elapsed().as_secs_f64();
            let (rosters, bytes, remaining) = (report.rosters, report.bytes, report.moving);
            info!(rosters, bytes, remaining, rate = %format!("{rate:.0}/s"), "clusters move to their groups");
        }
        Ok(())
    }

    async fn renew_some(
        &mut self,
        due: &[Due],
        table: &Table,
        stamp: Stamp,
        report: &mut StepReport,
    ) -> Result<(), PublishError> {
        let keys = self.members.placement_keys().clone();
        let this = &*self;
        let basis = Basis { table, keys: &keys, stamp };
        let work = due.iter().map(|due| this.renew(due, basis)).collect::<Vec<_>>();
        let done: Vec<_> = stream::iter(work).buffer_unordered(IN_FLIGHT).collect().await;
        let mut failed = Ok(());
        for renewed in done {
            match renewed {
                Ok(renewed) => self.note_renewed(renewed, report).await,
                // What the others came to is not lost by it.
                Err(error) => failed = Err(error.into()),
            }
        }
        failed
    }

    async fn note_renewed(&mut self, renewed: Renewed, report: &mut StepReport) {
        match renewed {
            Renewed::Written { entry, roster, bytes, left } => {
                report.rosters += 1;
                report.bytes += bytes.len() as u64;
                if let Some(left) = left {
                    self.moved.push((roster.cluster.clone(), left));
                }
                self.unwritten.remove(&roster.cluster);
                if let Some(reference) = entry.roster.clone() {
                    self.members.wrote(&roster, reference);
                }
                note(&mut self.untold, entry);
                self.tell_index(&record::roster(&roster.cluster), roster.sequence, bytes).await;
            }
            Renewed::Found(entry) => {
                // It is as it was known where the record was restored in parts: the look at everybody comes back.
                self.members.is_current(&entry.cluster);
                self.members.take(entry.clone());
                note(&mut self.untold, entry);
            }
            Renewed::Kept(name) => self.members.is_current(&name),
            Renewed::TooLarge(cluster, size) => {
                warn!(%cluster, size, limit = SMALL_LIMIT, "roster is too large and is not signed");
                self.members.is_current(&cluster);
                self.unwritten.insert(cluster, size);
            }
        }
    }

    async fn renew(&self, due: &Due, basis: Basis<'_>) -> Result<Renewed, ObjectsError> {
        let stored = self.roster_of(&due.name).await?;
        let order = stored.as_ref().map(|found| (found.document.epoch, found.document.sequence));
        if order > due.known.roster.as_ref().map(|roster| roster.order) {
            return self.found_other(due).await;
        }
        let member = Member {
            labels: due.known.labels.as_ref().clone(),
            key: due.known.key.id(),
            roster: stored.as_ref().map(|found| found.document.clone()),
            owed: due.owed.clone(),
            footprint: due.known.footprint(),
        };
        let of = (&due.name, &member);
        let policy = &self.options.policy;
        let Some(new) = roster(of, (due.group, basis.keys), basis.table, basis.stamp, policy) else {
            return Ok(Renewed::Kept(due.name.clone()));
        };
        let size = serde_json::to_vec(&new).expect("a roster has string keys only").len();
        if size > SMALL_LIMIT {
            return Ok(Renewed::TooLarge(due.name.clone(), size));
        }
        let condition = match stored {
            Some(found) => Condition::Matches(found.version),
            None => Condition::Absent,
        };
        let bytes = Bytes::from(Envelope::seal(&new, &[&self.keys.director]).to_bytes());
        match self.objects.put(&record::roster(&due.name), bytes.clone(), condition).await? {
            PutOutcome::Stored(_) => {
                let entry = self.told(due, &new, Digest::of(&bytes));
                let left = due.named.filter(|named| *named != new.group);
                Ok(Renewed::Written { entry, roster: Box::new(new), bytes, left })
            }
            PutOutcome::Conflict => self.found_other(due).await,
        }
    }

    fn told(&self, due: &Due, roster: &Roster, digest: Digest) -> Entry {
        let known = &due.known;
        let registered = self.members.registered(&due.name).cloned().unwrap_or_default();
        let roster = record::RosterRef::of(roster, digest, &registered);
        Entry {
            cluster: due.name.clone(),
            epoch: known.life.0,
            sequence: known.life.1,
            key: Some(known.key.clone()),
            labels: registered,
            roster: Some(roster),
        }
    }

    /// A cluster that is not as the directory said.
    async fn found_other(&self, due: &Due) -> Result<Renewed, ObjectsError> {
        let key = record::registration(&due.name);
        let registration = found::<Registration>(&self.objects, &self.trust.director(), key).await?;
        let Some(registration) = registration.filter(|found| found.document.cluster == due.name) else {
            warn!(cluster = %due.name, "the registration of an enrolled cluster is not in the record");
            return Ok(Renewed::Kept(due.name.clone()));
        };
        let roster = self.roster_of(&due.name).await?;
        let roster = roster.as_ref().map(|found| (&found.document, found.digest));
        Ok(Renewed::Found(entry(&registration.document, roster)))
    }
}
