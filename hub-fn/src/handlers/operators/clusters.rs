//! `GET /v1/clusters` and `GET /v1/clusters/{name}`.
//!
//! A list is in the order of shards, and by name within one: so each page reads only the shards that it is
//! of, however large the fleet is.

use farshore_shared::clock::now;
use farshore_shared::dsse::{Envelope, Signers};
use farshore_shared::names::{LabelKey, LabelValue, Name, label_pair};
use farshore_shared::wire::{GroupId, STATUS_LIMIT, Status, UnixSeconds};
use futures::{StreamExt as _, stream};
use http::{Request, StatusCode};
use std::sync::Arc;

use super::answers::{ClusterAnswer, ClusterItem, ClusterPage};
use super::query::{bad, limit, pairs, unknown};
use super::{Hub, admit};
use crate::answer::{Answer, Refusal, RequestBody, json};
use crate::record::{self, ClusterState, SHARDS};
use crate::status::Found;
use crate::view::{Freshness, Publication};

/// How many clusters a page has unless it says otherwise.
const PAGE: usize = 200;
/// The most clusters of a page.
const PAGE_LIMIT: usize = 1000;
/// The most shards that a page looks through: of a million clusters, an eighth.
const MOST_SHARDS: usize = 128;
/// How many shards are read ahead.
const AHEAD: usize = 8;
/// The parameters.
const KNOWN: &str = "state, selector, prefix, limit, cursor";

/// Which clusters.
#[derive(Debug, Default, PartialEq, Eq)]
struct Filter {
    states: Vec<ClusterState>,
    selector: Vec<(LabelKey, LabelValue)>,
    prefix: String,
    limit: Option<usize>,
    cursor: Option<Cursor>,
}

/// After whom a page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cursor {
    shard: u16,
    /// After this one; none: with the first of the shard.
    after: Option<Name>,
}

/// A page of the clusters that are asked for.
///
/// # Errors
/// `401`, `400` for a parameter that is not one, `503`.
pub async fn list(hub: &Hub, request: Request<impl RequestBody>) -> Answer {
    let asked = admit(hub, request).await?;
    let filter = Filter::parse(&asked.query)?;
    let now = now();
    let publication = hub.view.publication(Freshness::Recent).await?;
    let summary = hub.statuses.summary().await.map_err(|error| Refusal::unavailable(error))?;
    let (clusters, next) = page(hub, &filter, publication.as_ref(), now).await?;
    let was_counted = summary.at > 0;
    let page = ClusterPage {
        counts: was_counted.then_some(summary.fleet),
        counted: was_counted.then_some(summary.at),
        clusters,
        next: next.map(|cursor| cursor.to_string()),
    };
    Ok(json(StatusCode::OK, &page))
}

async fn page(
    hub: &Hub,
    filter: &Filter,
    publication: Option<&Arc<Publication>>,
    now: UnixSeconds,
) -> Result<(Vec<ClusterItem>, Option<Cursor>), Refusal> {
    let limit = filter.limit.unwrap_or(PAGE);
    let first = filter.cursor.as_ref().map_or(0, |cursor| cursor.shard);
    let after = filter.cursor.as_ref().and_then(|cursor| cursor.after.as_ref());
    let read = async |shard| (shard, hub.statuses.shard(shard, now).await);
    let mut shards = Box::pin(stream::iter(first..SHARDS).map(read).buffered(AHEAD));
    let (mut items, mut looked) = (Vec::new(), 0);
    while let Some((shard, found)) = shards.next().await {
        let found = found?;
        if found.is_empty() {
            continue;
        }
        if looked == MOST_SHARDS {
            return Ok((items, Some(Cursor { shard, after: None })));
        }
        looked += 1;
        for found in found {
            let name = &found.entry.cluster;
            if shard == first && after.is_some_and(|after| name <= after) {
                continue;
            }
            if let Some(item) = filter.wanted(&found, publication, now) {
                let at = Cursor { shard, after: Some(item.name.clone()) };
                items.push(item);
                if items.len() == limit {
                    return Ok((items, Some(at)));
                }
            }
        }
    }
    Ok((items, None))
}

/// One cluster, with its last report.
///
/// # Errors
/// `401`, `404` for a name that is not enrolled, `503`.
pub async fn get(hub: &Hub, name: &str, request: Request<impl RequestBody>) -> Answer {
    admit(hub, request).await?;
    let cluster: Name =
        name.parse().map_err(|error: farshore_shared::names::BadName| bad(error.to_string()))?;
    let now = now();
    let publication = hub.view.publication(Freshness::Recent).await?;
    let found = hub.statuses.shard(record::shard_of(&cluster), now).await?;
    let found = found.into_iter().find(|found| found.entry.cluster == cluster);
    let Some((found, key)) = found.and_then(|found| found.entry.key.clone().map(|key| (found, key))) else {
        return Err(Refusal::of(StatusCode::NOT_FOUND, format!("cluster is not enrolled ({cluster})")));
    };
    let report = hub.statuses.report(&cluster).await?;
    // Whoever writes to the bucket could put anything there: it is the cluster's own, or nothing.
    let is_own = |envelope: &Envelope| envelope.open::<Status>(&Signers::one(&key), STATUS_LIMIT).is_ok();
    let status = report.map(|report| report.envelope).filter(is_own);
    let cluster = item(&found, publication.as_ref(), now);
    Ok(json(StatusCode::OK, &ClusterAnswer { cluster, key: key.id(), status }))
}

fn item(found: &Found, publication: Option<&Arc<Publication>>, now: UnixSeconds) -> ClusterItem {
    let published = |group: &GroupId| Some(publication?.group(group)?.sequence);
    let judged = found.judge(published, now);
    let facts = found.facts.as_ref();
    ClusterItem {
        name: found.entry.cluster.clone(),
        state: judged.state,
        message: judged.message,
        labels: found.labels().clone(),
        group: found.entry.roster.as_ref().map(|roster| roster.group),
        holds: facts.and_then(|facts| facts.holds),
        last_seen: found.heard,
        services: facts.map_or(0, |facts| facts.services),
        applied: facts.map_or(0, |facts| facts.applied),
    }
}

impl Filter {
    fn parse(query: &str) -> Result<Self, Refusal> {
        let mut filter = Self::default();
        for (name, value) in pairs(query)? {
            let values = || value.split(',').filter(|value| !value.is_empty());
            match name.as_str() {
                "state" => {
                    for value in values() {
                        filter.states.push(state(value)?);
                    }
                }
                "selector" => {
                    for value in values() {
                        filter.selector.push(label_pair(value).map_err(|error| bad(error.to_string()))?);
                    }
                }
                "prefix" => filter.prefix = value,
                "limit" => filter.limit = Some(limit(&value, PAGE_LIMIT)?),
                "cursor" => filter.cursor = Some(Cursor::parse(&value)?),
                name => return Err(unknown(name, KNOWN)),
            }
        }
        Ok(filter)
    }

    /// The cluster as it is shown, if it is asked for. Its state is found last: it takes longest.
    fn wanted(
        &self,
        found: &Found,
        publication: Option<&Arc<Publication>>,
        now: UnixSeconds,
    ) -> Option<ClusterItem> {
        let labels = found.labels();
        let is_named = found.entry.cluster.as_str().starts_with(&self.prefix);
        let is_selected = self.selector.iter().all(|(key, value)| labels.get(key) == Some(value));
        if !is_named || !is_selected {
            return None;
        }
        let item = item(found, publication, now);
        (self.states.is_empty() || self.states.contains(&item.state)).then_some(item)
    }
}

fn state(text: &str) -> Result<ClusterState, Refusal> {
    serde_json::from_value(text.into()).map_err(|_unknown| {
        bad(format!(
            "state is not known ({:?}; known: converged, converging, failed, unreachable, never-seen)",
            text.chars().take(80).collect::<String>()
        ))
    })
}

impl Cursor {
    fn parse(text: &str) -> Result<Self, Refusal> {
        let wrong = || bad("cursor is not one that a page had");
        let (shard, after) = text.split_once('.').ok_or_else(wrong)?;
        let shard = shard.parse().ok().filter(|shard| *shard < SHARDS).ok_or_else(wrong)?;
        let after = match after {
            "" => None,
            name => Some(name.parse().map_err(|_bad_name| wrong())?),
        };
        Ok(Self { shard, after })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let after = self.after.as_ref().map_or("", Name::as_str);
        write!(f, "{:04}.{after}", self.shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_nothing_else_does() {
        for cursor in [Cursor { shard: 7, after: None }, Cursor { shard: 1023, after: "a-1".parse().ok() }] {
            assert_eq!(Cursor::parse(&cursor.to_string()).expect("ours"), cursor);
        }
        for bad in ["", "1024.a", "x.a", "7", "0007.A", "0007.a b", "-1.a"] {
            assert!(Cursor::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused() {
        let good = Filter::parse("state=failed,unreachable&selector=tier=edge&prefix=shop-&limit=5");
        let good = good.expect("a query");
        assert_eq!(good.states, [ClusterState::Failed, ClusterState::Unreachable]);
        assert_eq!((good.prefix.as_str(), good.limit, good.selector.len()), ("shop-", Some(5), 1));
        for bad in ["state=broken", "selector=tier", "limit=0", "limit=1001", "cursor=x", "order=name"] {
            assert!(Filter::parse(bad).is_err(), "{bad:?}");
        }
    }
}
