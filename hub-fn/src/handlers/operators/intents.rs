//! `GET /v1/services` and `GET /v1/sources`: what is intended, and how its sources are.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use farshore_shared::dsse::{Envelope, Signers};
use farshore_shared::names::Name;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{Request, StatusCode};

use super::answers::{ServicePage, SourcePage};
use super::query::{bad, limit, pairs, unknown};
use super::{Hub, admit};
use crate::answer::{Answer, Refusal, RequestBody, json};
use crate::objects::ObjectsError;
use crate::publish::state::{Published, StateError};
use crate::record::{self, FLEET, SourceHead, Summary, Table};

/// How many items a page has unless it says otherwise.
const PAGE: usize = 100;
/// The most items of a page.
const PAGE_LIMIT: usize = 200;
/// The most bytes of a source head in the record.
const HEAD_LIMIT: usize = 4 << 20;
/// The most messages of a source in an answer; all of them are in the record.
const MESSAGES: usize = 50;
/// The most characters of a message in an answer.
const MESSAGE_LIMIT: usize = 2000;
/// How many heads are read at once.
const IN_FLIGHT: usize = 8;

/// Which items.
#[derive(Debug)]
struct Slice {
    after: Option<Name>,
    limit: usize,
}

impl Slice {
    fn parse(query: &str) -> Result<Self, Refusal> {
        let mut slice = Self { after: None, limit: PAGE };
        for (name, value) in pairs(query)? {
            match name.as_str() {
                "limit" => slice.limit = limit(&value, PAGE_LIMIT)?,
                "cursor" => {
                    let after =
                        value.parse().map_err(|_bad_name| bad("cursor is not one that a page had"))?;
                    slice.after = Some(after);
                }
                name => return Err(unknown(name, "limit, cursor")),
            }
        }
        Ok(slice)
    }

    /// The items of this page, and after whom the next one begins.
    fn of<T: Clone>(&self, all: &BTreeMap<Name, T>) -> (BTreeMap<Name, T>, Option<String>) {
        let from = self.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = all.range((from, Bound::Unbounded));
        let items: BTreeMap<Name, T> =
            rest.by_ref().take(self.limit).map(|(name, item)| (name.clone(), item.clone())).collect();
        let next = rest.next().and_then(|_| items.keys().last()).map(ToString::to_string);
        (items, next)
    }
}

/// A page of services.
///
/// # Errors
/// `401`, `400`, `503`.
pub async fn services(hub: &Hub, request: Request<impl RequestBody>) -> Answer {
    let asked = admit(hub, request).await?;
    let slice = Slice::parse(&asked.query)?;
    let trust = hub.view.trust().await?;
    let published = Published::load(hub.view.objects(), &trust.director()).await?;
    let summary = hub.statuses.summary().await.map_err(|error| Refusal::unavailable(error))?;
    let (services, next) = slice.of(&published.intent.services);
    let sources = services.values().map(|service| service.spec.source.to_string()).collect();
    let heads = heads(hub, sources, &trust.director()).await?;
    let clusters = clusters_of(services.keys(), &published.table, &summary);
    Ok(json(StatusCode::OK, &ServicePage { services, heads, clusters, next }))
}

/// A page of sources.
///
/// # Errors
/// `401`, `400`, `503`.
pub async fn sources(hub: &Hub, request: Request<impl RequestBody>) -> Answer {
    let asked = admit(hub, request).await?;
    let slice = Slice::parse(&asked.query)?;
    let trust = hub.view.trust().await?;
    let published = Published::load(hub.view.objects(), &trust.director()).await?;
    let (sources, next) = slice.of(&published.intent.sources);
    let mut names: BTreeSet<String> = sources.keys().map(ToString::to_string).collect();
    if slice.after.is_none() {
        names.insert(FLEET.to_owned());
    }
    let heads = heads(hub, names, &trust.director()).await?;
    Ok(json(StatusCode::OK, &SourcePage { sources, heads, next }))
}

/// How sources are; one that is damaged or not signed is left out, as it says nothing.
async fn heads(
    hub: &Hub,
    sources: BTreeSet<String>,
    director: &Signers<'_>,
) -> Result<Vec<SourceHead>, ObjectsError> {
    let read = stream::iter(sources).map(|source| async move {
        let key = record::source_head(&source);
        let stored = hub.view.objects().get(&key, 2 * HEAD_LIMIT as u64).await?;
        let envelope: Option<Envelope> = stored.and_then(|stored| serde_json::from_slice(&stored.bytes).ok());
        let head: Option<SourceHead> = envelope.and_then(|envelope| envelope.open(director, HEAD_LIMIT).ok());
        Ok::<_, ObjectsError>(head.filter(|head| head.source == source).map(shortened))
    });
    let heads: Vec<Option<SourceHead>> = read.buffered(IN_FLIGHT).try_collect().await?;
    Ok(heads.into_iter().flatten().collect())
}

fn shortened(mut head: SourceHead) -> SourceHead {
    let more = head.messages.len().saturating_sub(MESSAGES);
    head.messages.truncate(MESSAGES);
    for message in head.messages.iter_mut().chain(head.services.values_mut()) {
        if let Some((cut, _)) = message.char_indices().nth(MESSAGE_LIMIT) {
            message.truncate(cut);
        }
    }
    if more > 0 {
        head.messages.push(format!("and {more} more messages"));
    }
    head
}

/// How many clusters are in groups that have each service.
fn clusters_of<'a>(
    services: impl Iterator<Item = &'a Name>,
    table: &Table,
    summary: &Summary,
) -> BTreeMap<Name, u64> {
    let of = |service: &Name| {
        let groups = table.0.iter().filter(|(_, group)| group.services.contains_key(service));
        groups.filter_map(|(id, _)| summary.groups.get(id)).map(record::Counts::total).sum()
    };
    services.map(|service| (service.clone(), of(service))).collect()
}

impl From<StateError> for Refusal {
    fn from(error: StateError) -> Self {
        Self::unavailable(Arc::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_without_a_gap() {
        let all: BTreeMap<Name, ()> =
            ["a", "b", "c", "d", "e"].map(|name| (name.parse().expect("a name"), ())).into();
        let mut slice = Slice::parse("limit=2").expect("a query");
        let mut seen = Vec::new();
        loop {
            let (items, next) = slice.of(&all);
            seen.extend(items.into_keys().map(String::from));
            let Some(next) = next else { break };
            slice = Slice::parse(&format!("limit=2&cursor={next}")).expect("a query");
        }
        assert_eq!(seen, ["a", "b", "c", "d", "e"]);
        assert!(Slice::parse("state=x").is_err() && Slice::parse("limit=201").is_err());
    }
}
