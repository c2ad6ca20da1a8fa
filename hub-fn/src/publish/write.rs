//! Writing a publication: immutable bodies first, then the head once, then rosters and source heads.

use std::collections::BTreeMap;

use bytes::Bytes;
use farshore_shared::dsse::Envelope;
use farshore_shared::exit::chain;
use farshore_shared::wire::Group;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tracing::{debug, info, warn};

use super::look::{self, Look};
use super::partition::{Publication, Stamp, partition};
use super::settle::{SourceReport, settle};
use super::state::{BODY_LIMIT, Published, put_addressed};
use super::{PublishError, Publisher, StepReport, sync};
use crate::index::Entry;
use crate::objects::{Condition, Key, ObjectsError, PutOutcome, update};
use crate::record::{self, FLEET, Head, HeldChange, Intent, SourceHead, Table};

/// How many bodies are written at once.
const IN_FLIGHT: usize = 16;

impl Publisher {
    /// Decides and writes; none if another publisher was faster.
    pub(super) async fn publish(
        &mut self,
        previous: &Published,
        look: Option<Look>,
        stamp: Stamp,
    ) -> Result<Option<StepReport>, PublishError> {
        let (intent, reports) = match look {
            None => (previous.intent.clone(), None),
            Some(look) => {
                let mut intent = look.intended.intent.clone();
                let mut reports = settle(&mut intent, &look.seen, stamp.sequence);
                merge_fleet_report(&mut reports, &look);
                (intent, Some(reports))
            }
        };
        let members = self.members.members(&intent);
        let mut publication = partition(&previous.table, &intent, &members, stamp, &self.options.policy);
        let mut report = StepReport { groups: publication.groups.len(), ..StepReport::default() };
        if intent != previous.intent || publication.table != previous.table || previous.head.is_none() {
            if !self.move_head(previous, &intent, &mut publication, stamp).await? {
                return Ok(None);
            }
            report.published = Some(stamp.sequence);
            info!(sequence = stamp.sequence, groups = report.groups, "published");
        }
        report.rosters = self.write_rosters(publication).await?;
        if let Some(reports) = reports {
            (report.held, report.failed) = self.write_source_heads(&intent, reports, stamp).await?;
            self.keep_commits(&intent).await;
        }
        Ok(Some(report))
    }

    /// Writes every body, then moves the one pointer; false if it was moved by somebody else.
    async fn move_head(
        &mut self,
        previous: &Published,
        intent: &Intent,
        publication: &mut Publication,
        stamp: Stamp,
    ) -> Result<bool, PublishError> {
        if !self.write_groups(publication).await? {
            return Ok(false);
        }
        let bytes = serde_json::to_vec(intent).expect("an intent has string keys only");
        let intent = put_addressed(&self.objects, bytes, record::intent).await?;
        let shards = publication.table.shards().into_iter().map(|shard: Table| {
            let bytes = serde_json::to_vec(&shard).expect("a table has string keys only");
            put_addressed(&self.objects, bytes, record::table)
        });
        let tables = stream::iter(shards.collect::<Vec<_>>()).buffered(IN_FLIGHT).try_collect().await?;
        let head = Head { epoch: stamp.epoch, sequence: stamp.sequence, issued: stamp.now, intent, tables };
        let condition = match &previous.head {
            Some((_, version)) => Condition::Matches(version.clone()),
            None => Condition::Absent,
        };
        let bytes = Bytes::from(Envelope::seal(&head, &[&self.keys.director]).to_bytes());
        match self.objects.put(&record::head(), bytes.clone(), condition).await? {
            PutOutcome::Stored(_) => {
                self.left = Some(head.says());
                self.tell_index(&record::head(), head.sequence, bytes).await;
                Ok(true)
            }
            PutOutcome::Conflict => Ok(false),
        }
    }

    /// Signs and writes the new bodies; false if another publisher has used the same sequence.
    async fn write_groups(&self, publication: &mut Publication) -> Result<bool, PublishError> {
        let sign =
            |group: &Group| (group.group, group.sequence, Envelope::seal(group, &[&self.keys.director]));
        let signed: Vec<_> = publication.groups.iter().map(sign).collect();
        for (id, _, envelope) in &signed {
            if let Some(reference) = publication.table.0.get_mut(id) {
                reference.digest = envelope.digest();
            }
        }
        let writes = signed.into_iter().map(|(id, sequence, envelope)| async move {
            let bytes = Bytes::from(envelope.to_bytes());
            self.objects.put(&record::group(id, sequence), bytes, Condition::Absent).await
        });
        let outcomes: Vec<PutOutcome> =
            stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(IN_FLIGHT).try_collect().await?;
        Ok(outcomes.iter().all(|outcome| matches!(outcome, PutOutcome::Stored(_))))
    }

    async fn write_rosters(&mut self, publication: Publication) -> Result<usize, PublishError> {
        let mut written = 0;
        for roster in publication.rosters {
            let (key, sequence) = (record::roster(&roster.cluster), roster.sequence);
            let signed = self.members.write_roster(&self.objects, &self.keys.director, roster).await?;
            if let Some(envelope) = signed {
                self.tell_index(&key, sequence, Bytes::from(envelope.to_bytes())).await;
                written += 1;
            }
        }
        Ok(written)
    }

    async fn tell_index(&self, key: &Key, version: u64, bytes: Bytes) {
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

    /// Published commits stay in the mirrors, so that descent can be told after a force-push.
    async fn keep_commits(&self, intent: &Intent) {
        let mut kept: Vec<(sync::Place, String)> = look::jobs(self, intent)
            .into_iter()
            .filter_map(|job| Some((job.place.clone(), job.accepted.or(job.published)?)))
            .collect();
        kept.extend(self.fleet_place().zip(intent.fleet.clone()));
        let done = look::blocking(move || {
            for (place, commit) in kept {
                if let Err(error) = place.keep(&commit) {
                    debug!(source = place.name, error = %chain(&error), "commit is not kept in the mirror");
                }
            }
        });
        if let Err(error) = done.await {
            warn!(%error, "keeping published commits");
        }
    }
}

/// The fleet repository has one report for its declarations and the services that live in it.
fn merge_fleet_report(reports: &mut BTreeMap<String, SourceReport>, look: &Look) {
    let intended = &look.intended;
    let services = reports.remove(FLEET);
    let mut report = SourceReport {
        state: intended.state,
        messages: intended.messages.clone(),
        held: intended.held.clone(),
        services: BTreeMap::new(),
    };
    if let Some(services) = services {
        if report.state == record::SourceState::Ready {
            report.state = services.state;
        }
        report.messages.extend(services.messages);
        report.services = services.services;
    }
    reports.insert(FLEET.to_owned(), report);
}
