//! What lives under listed keys: metadata only, one paged list per kind, and one look at each object
//! that the list did not show.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::StreamExt as _;
use serde::Deserialize;

use super::connection::{Connection, Request};
use super::discovery::{Discovery, GroupVersion, Resource};
use super::fault::{Complaint, Fault};
use super::metadata::{Metadata, Partial, null_is_empty};
use super::path;
use crate::object::{Owner, SERVICE_LABEL};
use crate::plan::Item;
use crate::target::{Live, ObjectError};

/// Objects per page of a list.
const PAGE: usize = 500;
/// The most pages of one list; more than a million objects of one service and kind are an endless list.
const PAGES_LIMIT: usize = 2_000;
/// How many kinds are listed at a time.
const CONCURRENT_KINDS: usize = 4;
/// How many objects of one kind are looked at one by one at a time.
const CONCURRENT_LOOKS: usize = 8;

/// One answer per item, in order.
pub(super) async fn observe(
    connection: &Connection,
    discovery: &Discovery,
    owner: &Owner,
    items: &[Item],
) -> Vec<Result<Live, ObjectError>> {
    let mut kinds: BTreeMap<(GroupVersion, &str), Vec<usize>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let at = GroupVersion { group: item.key.group.clone(), version: item.version.clone() };
        kinds.entry((at, &item.key.kind)).or_default().push(index);
    }
    let questions: Vec<_> = kinds
        .into_iter()
        .map(|((at, kind), indices)| {
            let looker = Looker { connection, discovery, owner, items };
            looker.kind(at, kind, indices)
        })
        .collect();
    let mut answers: Vec<_> = futures::stream::iter(questions)
        .buffer_unordered(CONCURRENT_KINDS)
        .flat_map(futures::stream::iter)
        .collect::<Vec<Observed>>()
        .await;
    answers.sort_by_key(|(index, _)| *index);
    let mut observed = Vec::with_capacity(answers.len());
    for (index, live) in answers {
        observed.push(match live {
            Ok(live) => Ok(live),
            Err(complaint) => Err(complaint.about(&items[index].key)),
        });
    }
    observed
}

/// What was found for the item with this number.
type Observed = (usize, Result<Live, Complaint>);
/// Namespace and name.
type Place = (Option<String>, String);

#[derive(Clone, Copy)]
struct Looker<'a> {
    connection: &'a Connection,
    discovery: &'a Discovery,
    owner: &'a Owner,
    items: &'a [Item],
}

impl Looker<'_> {
    /// All items of one kind.
    async fn kind(self, at: GroupVersion, kind: &str, indices: Vec<usize>) -> Vec<Observed> {
        let resource = match self.discovery.resource_in_any_version(&at, kind).await {
            Ok(Some(resource)) => resource,
            // The definition of the kind is gone, and all its objects with it.
            Ok(None) => return same(&indices, &Ok(Live::Absent)),
            Err(fault) => {
                return same(&indices, &Err(fault.complaint(&format!("find out about kind {kind} of {at}"))));
            }
        };
        self.everywhere(&resource, kind, indices).await
    }

    /// All items of one kind, from one list if it may be: who may not list everywhere may still list
    /// where the service is at home.
    async fn everywhere(self, resource: &Resource, kind: &str, indices: Vec<usize>) -> Vec<Observed> {
        let mut homes: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
        for index in &indices {
            let home = resource.namespace(self.items[*index].key.namespace.as_deref());
            homes.entry(home).or_default().push(*index);
        }
        if homes.len() > 1 {
            match self.home(resource, None, &indices).await {
                Ok(observed) => return observed,
                Err(fault) if fault.is(403) => {}
                Err(fault) => return self.unlisted(resource, kind, &indices, &fault).await,
            }
        }
        let mut observed = Vec::with_capacity(indices.len());
        for (home, indices) in homes {
            observed.extend(match self.home(resource, home, &indices).await {
                Ok(observed) => observed,
                Err(fault) => self.unlisted(resource, kind, &indices, &fault).await,
            });
        }
        observed
    }

    /// The items that live in one namespace, or anywhere.
    async fn home(
        self,
        resource: &Resource,
        namespace: Option<&str>,
        indices: &[usize],
    ) -> Result<Vec<Observed>, Fault> {
        // One look costs less than one list; and what cannot be listed is looked at.
        let listed = if indices.len() < 2 || !resource.can("list") {
            HashMap::new()
        } else {
            let wanted = indices.iter().map(|index| self.items[*index].key.name.as_str()).collect();
            self.list(resource, namespace, &wanted).await?
        };
        Ok(self.each(resource, indices, listed).await)
    }

    /// When a list is not found, either the kind went a moment ago or the API says two things.
    async fn unlisted(
        self,
        resource: &Resource,
        kind: &str,
        indices: &[usize],
        fault: &Fault,
    ) -> Vec<Observed> {
        let complaint = fault.complaint(&format!("list {resource}"));
        if !fault.is(404) {
            return same(indices, &Err(complaint));
        }
        self.discovery.forget(&resource.at.group);
        match self.discovery.resource_in_any_version(&resource.at, kind).await {
            Ok(None) => same(indices, &Ok(Live::Absent)),
            Ok(Some(_)) => same(indices, &Err(complaint)),
            Err(fault) => same(indices, &Err(fault.complaint(&format!("find out about {resource}")))),
        }
    }

    /// The objects with these names that carry the service's label.
    async fn list(
        self,
        resource: &Resource,
        namespace: Option<&str>,
        wanted: &BTreeSet<&str>,
    ) -> Result<HashMap<Place, Live>, Fault> {
        let mut found = HashMap::new();
        let collection = path::collection(resource, namespace)?;
        let selector = path::query(&format!("{SERVICE_LABEL}={}", self.owner.service.as_str()));
        let first = format!("{collection}?limit={PAGE}&labelSelector={selector}");
        let mut target = first.clone();
        for _ in 0..PAGES_LIMIT {
            let page: Page = self.connection.call(Request::list_metadata(target)).await?;
            for Partial { metadata } in page.items {
                if wanted.contains(metadata.name.as_str()) {
                    let place = (metadata.namespace.clone(), metadata.name.clone());
                    found.insert(place, metadata.live());
                }
            }
            match page.metadata.next.filter(|next| !next.is_empty()) {
                Some(next) => target = format!("{first}&continue={}", path::query(&next)),
                None => return Ok(found),
            }
        }
        Err(Fault::Endless { pages: PAGES_LIMIT })
    }

    /// Each item as listed, or else as a look at it shows.
    async fn each(
        self,
        resource: &Resource,
        indices: &[usize],
        mut listed: HashMap<Place, Live>,
    ) -> Vec<Observed> {
        let mut observed = Vec::with_capacity(indices.len());
        let mut unlisted = Vec::new();
        for index in indices {
            let key = &self.items[*index].key;
            let namespace = resource.namespace(key.namespace.as_deref()).map(ToOwned::to_owned);
            match listed.remove(&(namespace, key.name.clone())) {
                Some(live) => observed.push((*index, Ok(live))),
                None => unlisted.push(self.look(resource, *index)),
            }
        }
        let looked =
            futures::stream::iter(unlisted).buffer_unordered(CONCURRENT_LOOKS).collect::<Vec<_>>().await;
        observed.extend(looked);
        observed
    }

    /// One object. Without the label it would look deleted.
    async fn look(self, resource: &Resource, index: usize) -> Observed {
        let key = &self.items[index].key;
        let live = match look(self.connection, resource, key.namespace.as_deref(), &key.name).await {
            Ok(Some(metadata)) => Ok(metadata.live()),
            Ok(None) => Ok(Live::Absent),
            Err(fault) => Err(fault.complaint(&format!("get {resource}"))),
        };
        (index, live)
    }
}

/// The metadata of one object, if it exists.
pub(super) async fn look(
    connection: &Connection,
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<Metadata>, Fault> {
    let target = path::object(resource, resource.namespace(namespace), name)?;
    match connection.call::<Partial>(Request::get_metadata(target)).await {
        Ok(partial) => Ok(Some(partial.metadata)),
        Err(fault) if fault.is(404) => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn same(indices: &[usize], live: &Result<Live, Complaint>) -> Vec<Observed> {
    indices.iter().map(|index| (*index, live.clone())).collect()
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(default, deserialize_with = "null_is_empty")]
    items: Vec<Partial>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}
