//! Writing a publication: immutable bodies first, then the head once, then rosters and source heads.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::wire::{DESIRED_LIMIT, GroupId, SMALL_LIMIT};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tracing::{debug, info, warn};

use super::look::Look;
use super::partition::{self, Body, Placement, Plan, Scope, Stamp, plan};
use super::settle::{SourceReport, settle};
use super::state::{BODY_LIMIT, Published, put_addressed};
use super::{PublishError, Publisher, StepReport};
use crate::index::{Entry, News};
use crate::objects::{Condition, Key, ObjectsError, PutOutcome, update};
use crate::record::{self, FLEET, Head, HeldChange, Intent, SourceHead, TABLE_SHARDS, Table};

/// How many bodies are written at once.
const IN_FLIGHT: usize = 16;

/// How many rosters that are too large are told of.
const ROSTERS_SHOWN: usize = 20;

/// The most bytes of a body in its envelope: with its roster it has to fit one answer.
const GROUP_LIMIT: usize = DESIRED_LIMIT - 2 * SMALL_LIMIT;

/// How one body was written.
enum Sealed {
    Stored(GroupId, Digest, usize),
    TooLarge(GroupId, usize),
    /// Another publisher has used the same sequence.
    Taken,
}

impl Publisher {
    /// Decides and writes; none if another publisher was faster.
    pub(super) async fn publish(
        &mut self,
        previous: &Arc<Published>,
        look: Option<&mut Look>,
        stamp: Stamp,
    ) -> Result<Option<StepReport>, PublishError> {
        let (intent, reports) = match look {
            None => (Cow::Borrowed(&previous.intent), None),
            Some(look) => {
                let mut intent = look.intent.clone();
                let mut reports = settle(&mut intent, &look.seen, stamp.sequence);
                look.complete(&mut reports);
                (Cow::Owned(intent), Some(reports))
            }
        };
        if !self.may_name_all(&previous.intent, &intent).await? {
            // What was seen is packed and stored once more.
            self.fetches.forget();
            return Ok(None);
        }
        self.members.place(&intent);
        let mut report = StepReport::default();
        let Some(current) = self.publish_groups(previous, &intent, stamp, &mut report).await? else {
            return Ok(None);
        };
        self.write_rosters(&current.table, stamp, &mut report).await?;
        if let Some(mut reports) = reports {
            self.merge_refused(&mut reports);
            (report.held, report.failed) = self.write_source_heads(&intent, reports, stamp).await?;
        }
        Ok(Some(report))
    }

    /// Whether every artifact that is named anew is there to stay.
    async fn may_name_all(&self, previous: &Intent, intent: &Intent) -> Result<bool, ObjectsError> {
        let artifacts = |of: &Intent| -> BTreeSet<Digest> {
            of.services.values().filter_map(|s| Some(s.published.as_ref()?.artifact.digest)).collect()
        };
        for digest in artifacts(intent).difference(&artifacts(previous)) {
            if !self.guard.may_name(&record::artifact(*digest)).await? {
                info!(%digest, "artifact was collected since it was made: making it again");
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Publishes what the intent says of groups, where that is anything new; none if the head was moved by
    /// somebody else.
    async fn publish_groups(
        &mut self,
        previous: &Arc<Published>,
        intent: &Intent,
        stamp: Stamp,
        report: &mut StepReport,
    ) -> Result<Option<Arc<Published>>, PublishError> {
        let version = previous.head.as_ref().map(|(_, version)| version.clone());
        let is_new = *intent != previous.intent;
        let is_planned = self.planned.is_some() && self.planned == version;
        let scope = match is_planned && (self.refused.is_empty() || !is_new) {
            true => Scope::Since(&previous.intent),
            false => Scope::Everything,
        };
        if matches!(scope, Scope::Everything) {
            self.refused.clear();
        }
        let placement = Placement { heard: self.census.heard(), ..self.members.placement() };
        let mut plan = plan(&previous.table, (intent, scope), &placement, stamp, &self.options.policy);
        if !self.write_groups(intent, &mut plan, stamp, report).await? {
            return Ok(None);
        }
        if !is_new && plan.is_empty() && previous.head.is_some() {
            self.planned = version;
            return Ok(Some(Arc::clone(previous)));
        }
        let current = self.move_head(previous, intent, &plan, stamp).await?;
        if current.is_some() {
            report.published = Some(stamp.sequence);
            info!(sequence = stamp.sequence, groups = report.groups, "published");
        }
        Ok(current)
    }

    /// Moves the one pointer; none if it was moved by somebody else.
    async fn move_head(
        &mut self,
        previous: &Published,
        intent: &Intent,
        plan: &Plan,
        stamp: Stamp,
    ) -> Result<Option<Arc<Published>>, PublishError> {
        let table = plan.applied(&previous.table);
        let before = previous.head.as_ref().map(|(head, _)| head);
        let digest = match before {
            Some(head) if *intent == previous.intent => head.intent,
            _ => {
                let bytes = serde_json::to_vec(intent).expect("an intent has string keys only");
                put_addressed(&self.objects, bytes, record::intent).await?
            }
        };
        let tables = self.write_table(&table, plan, before).await?;
        let (epoch, sequence, issued) = (stamp.epoch, stamp.sequence, stamp.now);
        let head = Head { epoch, sequence, issued, intent: digest, tables };
        let condition = match &previous.head {
            Some((_, version)) => Condition::Matches(version.clone()),
            None => Condition::Absent,
        };
        let bytes = Bytes::from(Envelope::seal(&head, &[&self.keys.director]).to_bytes());
        match self.objects.put(&record::head(), bytes.clone(), condition).await? {
            PutOutcome::Stored(version) => {
                (self.left, self.planned) = (Some(head.says()), Some(version.clone()));
                let current = Published { head: Some((head, version)), intent: intent.clone(), table };
                let current = Arc::new(current);
                self.published = Some(Arc::clone(&current));
                self.tell_index(&record::head(), sequence, bytes).await;
                self.tell(&News::Head { sequence }).await;
                Ok(Some(current))
            }
            PutOutcome::Conflict => Ok(None),
        }
    }

    /// Writes the shards of the table that changed.
    async fn write_table(
        &self,
        table: &Table,
        plan: &Plan,
        before: Option<&Head>,
    ) -> Result<Vec<Digest>, PublishError> {
        let changed = plan.dropped.iter().chain(plan.retold.keys()).chain(plan.bodies.iter().map(|b| &b.id));
        let changed: BTreeSet<usize> = changed.map(Table::shard_of).collect();
        let known = before.map(|head| &head.tables).filter(|tables| tables.len() == TABLE_SHARDS);
        let shards = (0..TABLE_SHARDS).map(|n| {
            let known = known.filter(|_| !changed.contains(&n)).map(|tables| tables[n]);
            async move {
                match known {
                    Some(digest) => Ok(digest),
                    None => {
                        let shard =
                            serde_json::to_vec(&table.shard(n)).expect("a table has string keys only");
                        put_addressed(&self.objects, shard, record::table).await
                    }
                }
            }
        });
        stream::iter(shards.collect::<Vec<_>>()).buffered(IN_FLIGHT).try_collect().await
    }

    /// Signs and writes the new bodies; false if another publisher has used the same sequence. A body that no site
    /// would accept is not signed: its group stays as it is.
    async fn write_groups(
        &mut self,
        intent: &Intent,
        plan: &mut Plan,
        stamp: Stamp,
        report: &mut StepReport,
    ) -> Result<bool, PublishError> {
        let this = &*self;
        let writes = plan.bodies.iter().map(|body| this.write_group(intent, body, stamp));
        let sealed: Vec<Sealed> =
            stream::iter(writes.collect::<Vec<_>>()).buffered(IN_FLIGHT).try_collect().await?;
        let mut digests = BTreeMap::new();
        for sealed in sealed {
            match sealed {
                Sealed::Taken => return Ok(false),
                Sealed::TooLarge(id, size) => drop(self.refused.insert(id, size)),
                Sealed::Stored(id, digest, size) => {
                    self.refused.remove(&id);
                    report.groups += 1;
                    report.bytes += size as u64;
                    digests.insert(id, digest);
                }
            }
        }
        plan.bodies.retain(|body| digests.contains_key(&body.id));
        for body in &mut plan.bodies {
            body.reference.digest = digests[&body.id];
        }
        Ok(true)
    }

    async fn write_group(&self, intent: &Intent, body: &Body, stamp: Stamp) -> Result<Sealed, ObjectsError> {
        let group = partition::body(intent, body, stamp, &self.options.policy);
        let bytes = Bytes::from(Envelope::seal(&group, &[&self.keys.director]).to_bytes());
        let (id, digest, size) = (body.id, Digest::of(&bytes), bytes.len());
        if size > GROUP_LIMIT {
            warn!(group = %id, size, limit = GROUP_LIMIT, "body of a group is too large and is not signed");
            return Ok(Sealed::TooLarge(id, size));
        }
        let key = record::group(id, body.reference.sequence);
        Ok(match self.objects.put(&key, bytes, Condition::Absent).await? {
            PutOutcome::Stored(_) => Sealed::Stored(id, digest, size),
            PutOutcome::Conflict => Sealed::Taken,
        })
    }

    /// What is not published for its size is said where the fleet repository is shown.
    fn merge_refused(&self, reports: &mut BTreeMap<String, SourceReport>) {
        let Some(fleet) = reports.get_mut(FLEET) else { return };
        let groups = self.refused.iter().map(|(group, size)| {
            format!(
                "group {group}: its document is too large ({size} bytes, limit {GROUP_LIMIT}): its clusters keep what was published before"
            )
        });
        let clusters = self.unwritten.iter().take(ROSTERS_SHOWN).map(|(cluster, size)| {
            format!(
                "cluster {cluster}: its roster is too large ({size} bytes, limit {SMALL_LIMIT}): it stays in the group that it is in"
            )
        });
        let told = fleet.messages.len();
        fleet.messages.extend(groups.chain(clusters));
        if fleet.messages.len() > told && fleet.state == record::SourceState::Ready {
            fleet.state = record::SourceState::Degraded;
        }
    }

    pub(super) async fn tell_index(&self, key: &Key, version: u64, bytes: Bytes) {
        if let Err(error) = self.index.put(key.as_str(), &Entry { version, bytes }).await {
            debug!(%key, %error, "index does not take an entry");
        }
    }

    /// Signs and writes the source heads that changed.
    async fn write_source_heads(
        &mut self,
        intent: &Intent,
        reports: BTreeMap<String, SourceReport>,
        stamp: Stamp,
    ) -> Result<(Vec<HeldChange>, Vec<String>), PublishError> {
        for (source, report) in reports {
            let head = self.source_head(intent, &source, report);
            if self.reported.get(&source) == Some(&head) {
                continue;
            }
            for message in &head.messages {
                warn!(source, state = ?head.state, "{message}");
            }
            let numbered = SourceHead {
                epoch: stamp.epoch,
                sequence: stamp.sequence,
                issued: stamp.now,
                ..head.clone()
            };
            self.write_source_head(&numbered).await?;
            self.reported.insert(source, head);
        }
        self.drop_source_heads(intent).await?;
        // Of every source, looked at just now or before.
        let held = self.reported.values().filter_map(|head| head.held.clone()).collect();
        let failed = self.reported.values().filter(|head| head.state == record::SourceState::Failed);
        Ok((held, failed.map(|head| head.source.clone()).collect()))
    }

    /// Writes a source head, unless another publisher has written a newer one.
    async fn write_source_head(&self, head: &SourceHead) -> Result<(), ObjectsError> {
        let bytes = Bytes::from(Envelope::seal(head, &[&self.keys.director]).to_bytes());
        let (key, director) = (record::source_head(&head.source), self.trust.director());
        update(&*self.objects, &key, BODY_LIMIT, |stored| {
            let stored: Option<Envelope> = stored.and_then(|s| serde_json::from_slice(&s.bytes).ok());
            let limit = usize::try_from(BODY_LIMIT).unwrap_or(usize::MAX);
            let before: Option<SourceHead> = stored.and_then(|s| s.open(&director, limit).ok());
            let is_newer = |b: SourceHead| (b.epoch, b.sequence) > (head.epoch, head.sequence);
            (!before.is_some_and(is_newer)).then(|| bytes.clone())
        })
        .await?;
        Ok(())
    }

    fn source_head(&self, intent: &Intent, source: &str, report: SourceReport) -> SourceHead {
        let declared =
            source.parse().ok().and_then(|name: farshore_shared::names::Name| intent.sources.get(&name));
        let (url, commit) = match declared {
            Some(declared) => (declared.spec.git.url.to_string(), declared.commit.clone()),
            None => (
                self.options.fleet.as_ref().map_or_else(String::new, |f| f.url.to_string()),
                intent.fleet.clone(),
            ),
        };
        let SourceReport { state, messages, held, services } = report;
        let (epoch, sequence, issued) = (0, 0, 0);
        SourceHead {
            source: source.to_owned(),
            url,
            commit,
            state,
            messages,
            held,
            services,
            epoch,
            sequence,
            issued,
        }
    }

    /// A source that is not declared any more is not shown any more.
    async fn drop_source_heads(&mut self, intent: &Intent) -> Result<(), ObjectsError> {
        for listed in self.objects.list(record::SOURCES, None, 1000).await? {
            let mut parts = listed.key.as_str().split('/').skip(1);
            let Some(name) = parts.next() else { continue };
            let is_declared = name.parse().is_ok_and(|name| intent.sources.contains_key(&name));
            if parts.next() == Some("head") && name != FLEET && !is_declared {
                self.reported.remove(name);
                self.objects.delete(&listed.key).await?;
            }
        }
        Ok(())
    }
}
