//! From what a service rendered to, to what is to be done with it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::wire::HealthRule;

use crate::apply::Desired;
use crate::apply::stages::Seat;
use crate::claims::Claimed;
use crate::health::is_judged;
use crate::health::rules::rule_for;
use crate::object::{BadManifest, Manifest, ObjectKey};
use crate::plan::{Completeness, Removal};
use crate::target::{ObjectError, Retry};
use crate::waves::{self, Arranged, Hook, Keeping, Member, Occasion};

/// What is to be done with the objects of one service.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) desired: Desired,
    /// Every object that is kept, with its turn.
    pub(crate) seats: Vec<Seat>,
    /// What runs once.
    pub(crate) hooks: Vec<Hook>,
    /// Objects that cannot be handled at all.
    pub(crate) failures: Vec<ObjectError>,
    /// Documents that are no manifests.
    pub(crate) mistakes: Vec<BadManifest>,
}

/// Whether a target shows how objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    Seeing,
    Blind,
}

/// Reads annotations, and sets aside what is not to be planned. `removal` and the revision are the caller's.
pub(crate) fn arrange(
    mut manifests: Vec<Manifest>,
    mut completeness: Completeness,
    occasion: Occasion,
    sight: Sight,
    rules: &[HealthRule],
) -> Ready {
    let mut failures = take_doubles(&mut manifests);
    let mut arranged = waves::arrange(manifests, occasion);
    if sight == Sight::Blind {
        arranged = arranged.without_health();
    }
    let Arranged { members, hooks, aside, failures: unread } = arranged;
    failures.extend(unread);
    if !failures.is_empty() {
        completeness = Completeness::Partial;
    }
    let seats = members.iter().map(|member| seat(member, rules)).collect();
    let is_made_once = |member: &&Member| member.keeping == Keeping::MadeOnce;
    let once: BTreeSet<ObjectKey> =
        members.iter().filter(is_made_once).map(|member| member.manifest.key.clone()).collect();
    let manifests = members.into_iter().map(|member| member.manifest).collect();
    let (removal, claimed) = (Removal::Nothing, Claimed::default());
    let desired = Desired { manifests, completeness, removal, revision: None, aside, once, claimed };
    Ready { desired, seats, hooks, failures, mistakes: vec![] }
}

fn seat(member: &Member, rules: &[HealthRule]) -> Seat {
    let Manifest { key, version, .. } = &member.manifest;
    Seat {
        key: key.clone(),
        version: version.clone(),
        place: member.place,
        is_judged: is_judged(&member.manifest) || rule_for(rules, &key.group, &key.kind).is_some(),
    }
}

/// Two manifests for one object: neither is applied, for nobody said which one is meant.
fn take_doubles(manifests: &mut Vec<Manifest>) -> Vec<ObjectError> {
    let mut origins: BTreeMap<ObjectKey, Vec<String>> = BTreeMap::new();
    for manifest in manifests.iter() {
        origins.entry(manifest.key.clone()).or_default().push(manifest.origin.clone());
    }
    origins.retain(|_, origins| origins.len() > 1);
    if origins.is_empty() {
        return vec![];
    }
    manifests.retain(|manifest| !origins.contains_key(&manifest.key));
    let error = |(key, origins): (ObjectKey, Vec<String>)| ObjectError {
        key,
        message: format!("two manifests describe it ({}): keep one", origins.join(" and ")),
        retry: Retry::Pointless,
    };
    origins.into_iter().map(error).collect()
}
