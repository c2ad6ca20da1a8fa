//! What sites have accepted, as they signed it: when every cluster of a group has heard of a tombstone.
//!
//! A round looks at all reports once, one object of statuses at a time, so that it costs a publisher little of any
//! moment, and begins at most once a day. Nothing of storage is believed: a report counts for the cluster whose key
//! signed it, once, and a group is heard only if each of its clusters was. Who is silent for ever keeps the
//! tombstones of its group, until somebody removes it from the fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use farshore_shared::dsse::{Envelope, Signers};
use farshore_shared::exit::chain;
use farshore_shared::keys::PublicKey;
use farshore_shared::names::Name;
use farshore_shared::wire::{GroupId, STATUS_LIMIT, Status};
use tracing::{info, warn};

use super::Publisher;
use super::partition::{Heard, Placement};
use crate::objects::ObjectsError;
use crate::record::{self, Place, Report, SHARDS, STATUS_SHARD_LIMIT, Table};
use crate::status::shard::{Content, decode};

/// How long no round begins after the last one.
const REST: Duration = Duration::from_secs(24 * 3600);
/// A status tells of fewer services, or it may not tell of all (wire version 1).
const SERVICES: usize = 500;

/// What was heard, and the round that is under way.
#[derive(Debug, Default)]
pub(super) struct Census {
    heard: BTreeMap<GroupId, Heard>,
    round: Option<Round>,
    ended: Option<Instant>,
}

/// One look at all reports.
#[derive(Debug, Default)]
struct Round {
    /// The shard that is looked at next.
    next: u16,
    groups: BTreeMap<GroupId, Tally>,
}

/// What the clusters of a group have said so far.
#[derive(Debug)]
struct Tally {
    clusters: u64,
    accepted: u64,
    /// The services that it has tombstones for.
    buried: BTreeSet<Name>,
    in_place: BTreeSet<Name>,
}

/// A report, and by what it is judged.
#[derive(Debug)]
struct Asked {
    cluster: Name,
    key: PublicKey,
    /// Epoch and sequence of the cluster's roster.
    roster: (u64, u64),
    group: GroupId,
    envelope: Envelope,
}

/// What a cluster has said.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    group: GroupId,
    accepted: u64,
    services: BTreeSet<Name>,
}

impl Census {
    /// What all clusters of a group have said, where all have.
    pub(super) fn heard(&self) -> BTreeMap<GroupId, Heard> {
        self.heard.clone()
    }

    /// Begins a round if one is due and there is a tombstone anywhere.
    fn begin(&mut self, table: &Table) {
        if self.round.is_some() || self.ended.is_some_and(|ended| ended.elapsed() < REST) {
            return;
        }
        let with_tombstones = table.0.iter().filter(|(_, group)| !group.tombstones.is_empty());
        let groups: BTreeMap<GroupId, Tally> = with_tombstones
            .map(|(id, group)| {
                let buried = group.tombstones.iter().map(|buried| buried.service.clone()).collect();
                (*id, Tally { clusters: 0, accepted: u64::MAX, buried, in_place: BTreeSet::new() })
            })
            .collect();
        if !groups.is_empty() {
            self.round = Some(Round { groups, ..Round::default() });
        }
    }

    fn end(&mut self, placement: &Placement) {
        let Some(round) = self.round.take() else { return };
        let groups = round.groups.len();
        let named = |id: &GroupId| placement.groups.get(id).map_or(0, |group| group.named);
        let all = round.groups.into_iter();
        let all = all.filter(|(id, tally)| tally.clusters > 0 && tally.clusters == named(id));
        self.heard = all
            .map(|(id, tally)| (id, Heard { accepted: tally.accepted, in_place: tally.in_place }))
            .collect();
        self.ended = Some(Instant::now());
        info!(groups, heard = self.heard.len(), "looked who has heard of tombstones");
    }
}

impl Round {
    fn take(&mut self, said: Said) {
        let Some(tally) = self.groups.get_mut(&said.group) else { return };
        tally.clusters += 1;
        tally.accepted = tally.accepted.min(said.accepted);
        tally.in_place.extend(said.services.into_iter().filter(|service| tally.buried.contains(service)));
    }
}

impl Publisher {
    /// Looks at one object of reports, if a round is under way or due; whether there are more to look at.
    ///
    /// # Errors
    /// [`ObjectsError`]; the same object is looked at the next time.
    pub async fn hear_sites(&mut self) -> Result<bool, ObjectsError> {
        if let Some(published) = &self.published {
            self.census.begin(&published.table);
        }
        let Some(shard) = self.census.round.as_ref().map(|round| round.next) else { return Ok(false) };
        let (place, reports) = self.reports_of(shard).await?;
        // What storage shows of shards that were looked at before counts no second time.
        let shards = shard..place.shards().end;
        let asked = reports.into_iter().filter(|report| shards.contains(&record::shard_of(&report.cluster)));
        let asked: Vec<Asked> = asked.filter_map(|report| self.asked(report)).collect();
        // A thousand signatures take a tenth of a second, in which nobody else would be answered.
        let said =
            tokio::task::spawn_blocking(move || asked.iter().filter_map(said).collect::<Vec<_>>()).await;
        let next = shards.end;
        if let Some(round) = &mut self.census.round {
            // A look that panicked has heard nobody.
            said.unwrap_or_default().into_iter().for_each(|said| round.take(said));
            round.next = next;
        }
        if next >= SHARDS {
            self.census.end(&self.members.placement());
            return Ok(false);
        }
        Ok(true)
    }

    /// The reports of the leaf that begins with this shard, or of the shard alone where its leaf was split.
    async fn reports_of(&self, shard: u16) -> Result<(Place, Vec<Report>), ObjectsError> {
        for place in [Place::leaf_of(shard), Place::Shard(shard)] {
            let key = record::status_place(place);
            let stored = self.objects.get(&key, STATUS_SHARD_LIMIT as u64).await?;
            let Some(stored) = stored else { return Ok((place, vec![])) };
            let decoded = tokio::task::spawn_blocking(move || decode(&stored.bytes)).await;
            match decoded {
                Ok(Ok(Content::Leaf(reports))) => return Ok((place, reports.into_reports().collect())),
                Ok(Ok(Content::Split)) => {}
                // Its clusters are not heard; whoever folds reports lays it aside.
                Ok(Err(damaged)) => warn!(%key, error = %chain(&damaged), "object of statuses is left out"),
                Err(failure) => warn!(%key, %failure, "object of statuses is left out"),
            }
        }
        Ok((Place::Shard(shard), vec![]))
    }

    /// A report of a cluster whose group has tombstones.
    fn asked(&self, report: Report) -> Option<Asked> {
        let Report { cluster, envelope, .. } = report;
        let known = self.members.get(&cluster)?;
        let roster = known.roster.as_ref()?;
        let group = self.members.group(roster.group);
        let is_looked_for = self.census.round.as_ref().is_some_and(|round| round.groups.contains_key(&group));
        is_looked_for.then(|| Asked {
            key: known.key.clone(),
            roster: roster.order,
            cluster,
            group,
            envelope,
        })
    }
}

/// What a cluster has said, if it has signed it and accepted a body of the group that it is in now.
fn said(asked: &Asked) -> Option<Said> {
    let status: Status = asked.envelope.open(&Signers::one(&asked.key), STATUS_LIMIT).ok()?;
    let holds = status.holds?;
    // Any other roster may be of another group, whose bodies have other tombstones.
    let is_of_group = holds.epoch == asked.roster.0 && holds.roster == asked.roster.1;
    let tells_all = status.services.len() < SERVICES;
    (status.cluster == asked.cluster && is_of_group && tells_all).then(|| Said {
        group: asked.group,
        accepted: holds.group,
        services: status.services.into_iter().map(|service| service.name).collect(),
    })
}

#[cfg(test)]
mod tests {
    use farshore_shared::digest::Digest;
    use farshore_shared::keys::SigningKey;

    use super::*;

    fn asked(key: &SigningKey, signed_by: &SigningKey, status: serde_json::Value) -> Asked {
        let status: Status = serde_json::from_value(status).expect("a status");
        Asked {
            cluster: "harbour".parse().expect("a name"),
            key: key.public().clone(),
            roster: (1, 7),
            group: Digest::of(b"group"),
            envelope: Envelope::seal(&status, &[signed_by]),
        }
    }

    fn status(cluster: &str, epoch: u64, roster: u64, services: usize) -> serde_json::Value {
        let service = |n| serde_json::json!({ "name": format!("s{n}"), "commit": "c", "state": "applied", "objects": 1 });
        serde_json::json!({
            "cluster": cluster, "stateId": "one", "sequence": 1, "at": 1, "agent": "test", "pollSeconds": 60,
            "holds": { "epoch": epoch, "roster": roster, "group": 9 },
            "services": (0..services).map(service).collect::<Vec<_>>(),
        })
    }

    #[test]
    fn a_report_counts_only_if_its_cluster_signed_it_and_it_is_of_the_group_that_it_is_in_and_tells_all() {
        let (key, stranger) = (SigningKey::generate(), SigningKey::generate());
        let heard = said(&asked(&key, &key, status("harbour", 1, 7, 2))).expect("it counts");
        let services = ["s0", "s1"].map(|name| name.parse().expect("a name")).into();
        assert_eq!(heard, Said { group: Digest::of(b"group"), accepted: 9, services });
        for (why, asked) in [
            ("a stranger's", asked(&key, &stranger, status("harbour", 1, 7, 2))),
            ("of another cluster", asked(&key, &key, status("beach", 1, 7, 2))),
            ("of another epoch", asked(&key, &key, status("harbour", 2, 7, 2))),
            ("of the group before", asked(&key, &key, status("harbour", 1, 6, 2))),
            ("of a group that is not known yet", asked(&key, &key, status("harbour", 1, 8, 2))),
            ("not of all services", asked(&key, &key, status("harbour", 1, 7, SERVICES))),
        ] {
            assert_eq!(said(&asked), None, "{why}");
        }
        let mut silent = status("harbour", 1, 7, 2);
        silent.as_object_mut().expect("an object").remove("holds");
        assert_eq!(said(&asked(&key, &key, silent)), None, "it holds nothing");
    }
}
