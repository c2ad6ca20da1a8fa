//! What is looked at: a source with what is wanted of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use tokio::sync::mpsc;

use crate::artifact::Packed;
use crate::publish::settle::SourceSeen;
use crate::publish::sync::{self, Order, Place, Wanted};
use crate::publish::{Options, Publisher};
use crate::record::{self, FLEET, HeldChange, Intent, Made};
use crate::source::{Branch, Limits};

/// One source to look at.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) place: Place,
    pub(super) accepted: Option<String>,
    pub(super) published: Option<String>,
    pub(super) pairs: u64,
    pub(super) orders: Vec<Order>,
    pub(super) interval: Duration,
}

impl Job {
    /// What a look is for, once this commit is published.
    pub(super) fn basis(&self, published: Option<&str>) -> Digest {
        basis(&self.place, self.accepted.as_deref().or(published), &self.orders)
    }

    pub(super) fn run(
        &self,
        approved: &BTreeSet<String>,
        packed: &mpsc::Sender<Packed>,
        limits: &Limits,
    ) -> SourceSeen {
        let is_approved = |held: &HeldChange| approved.contains(&held.change);
        let wanted = match &self.accepted {
            Some(commit) => Wanted::Accepted(commit),
            None => Wanted::Newest {
                published: self.published.as_deref(),
                pairs: self.pairs,
                is_approved: &is_approved,
                limits,
            },
        };
        sync::source(&self.place, &wanted, &self.orders, packed)
    }
}

pub(super) fn basis(place: &Place, commit: Option<&str>, orders: &[Order]) -> Digest {
    let orders: Vec<_> = orders.iter().map(|order| (&order.name, Made::of(&order.spec))).collect();
    let parts = (&place.name, place.url.as_str(), place.branch.name(), commit, orders);
    Digest::of(&serde_json::to_vec(&parts).expect("names and declarations have string keys only"))
}

/// Everything that may be looked at: every declared source, and the fleet repository.
pub(super) fn declared(publisher: &Publisher, intent: &Intent) -> BTreeSet<String> {
    let fleet = publisher.options.fleet.as_ref().map(|_| FLEET.to_owned());
    intent.sources.keys().map(ToString::to_string).chain(fleet).collect()
}

pub(super) fn orders_of(intent: &Intent, source: &str) -> Vec<Order> {
    let of_source = intent.services.iter().filter(|(_, service)| service.spec.source.as_str() == source);
    let order = |(name, service): (&Name, &record::IntentService)| Order {
        name: name.clone(),
        spec: service.spec.clone(),
        published: service.published.clone(),
    };
    of_source.map(order).collect()
}

/// Every declared source, with what is wanted of it.
pub(super) fn jobs(publisher: &Publisher, intent: &Intent) -> Vec<Job> {
    let mut orders: BTreeMap<&str, Vec<Order>> = BTreeMap::new();
    for (name, service) in &intent.services {
        let (spec, published) = (service.spec.clone(), service.published.clone());
        let of_source = orders.entry(service.spec.source.as_str()).or_default();
        of_source.push(Order { name: name.clone(), spec, published });
    }
    let members = publisher.members.len() as u64;
    let job = |(name, source): (&Name, &record::IntentSource)| {
        let url = source.spec.git.url.to_string().parse().ok()?;
        let branch =
            source.spec.git.branch.as_ref().map_or(Ok(Branch::Default), |b| b.as_str().parse()).ok()?;
        let Options { files, mirrors, .. } = publisher.options.clone();
        let orders = orders.get(name.as_str()).cloned().unwrap_or_default();
        let pairs = members * orders.len() as u64;
        let place = Place { name: name.to_string(), url, branch, files, mirrors };
        let interval = publisher.interval_of(intent, name.as_str());
        let published = source.commit.clone();
        Some(Job { place, accepted: None, published, pairs, orders, interval })
    };
    intent.sources.iter().filter_map(job).collect()
}

/// The services that live in the fleet repository, at its accepted commit.
pub(super) fn fleet_services(publisher: &Publisher, intent: &Intent) -> Option<Job> {
    let (place, commit) = publisher.fleet_place().zip(intent.fleet.clone())?;
    let orders = orders_of(intent, FLEET);
    let (accepted, interval) = (Some(commit), publisher.options.interval);
    (!orders.is_empty()).then_some(Job { place, accepted, published: None, pairs: 0, orders, interval })
}
