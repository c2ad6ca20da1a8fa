//! Which documents say it: groups, rosters and the table, from the intent and the clusters. Pure.
//!
//! A group is the clusters that have equal values for the label keys that selectors use. A group
//! whose content did not change keeps its body, so that a commit rewrites only what it touches.
//!
//! When selectors begin to use another key, clusters move to other groups one after the other. Until the last one
//! has left it, a group stays what it was for them: it is judged by the keys that told its clusters apart
//! before, a service whose selector needs another key stays where it was, and nobody moves in.
//!
//! A tombstone leaves a body when every cluster of the group has said, signed with its own key, that it has accepted a
//! body with it and that the service is not in place any more ([`Heard`]); not before it is as old as a body may
//! become, and only where the body is written for another reason.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::digest::Digest;
use farshore_shared::keys::KeyId;
use farshore_shared::names::{LabelKey, Labels, Name};
use farshore_shared::retry::hashed_share;
use farshore_shared::wire::{
    Footprint, Group, GroupId, Revision, Roster, ServiceEntry, Tombstone, UnixSeconds,
};
use serde_json::Value;

use crate::record::{Buried, GroupRef, Intent, IntentService, Table};

/// A registered cluster.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its effective labels.
    pub labels: Labels,
    /// Its key.
    pub key: KeyId,
    /// Its roster as it stands, if it has one.
    pub roster: Option<Roster>,
    /// Groups that it left and whose services it may hold still.
    pub owed: BTreeSet<GroupId>,
    /// How much its agent may ask.
    pub footprint: Footprint,
}

/// When, and as what, a publication is made.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// Given by root.
    pub epoch: u64,
    /// The publication's sequence.
    pub sequence: u64,
    /// The time.
    pub now: UnixSeconds,
}

/// How long documents live, and what sites are told about polling. All in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The poll interval.
    pub poll: u64,
    /// The longest delay that a site accepts from a server.
    pub max_delay: u64,
    /// The life of a group document.
    pub group_life: u64,
    /// The life of a roster.
    pub roster_life: u64,
}

impl Default for Policy {
    fn default() -> Self {
        const DAY: u64 = 86_400;
        Self { poll: 120, max_delay: 3600, group_life: 14 * DAY, roster_life: 60 * DAY }
    }
}

/// How all clusters are told apart, and how many are in which group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// The label keys that selectors use.
    pub keys: BTreeSet<LabelKey>,
    /// Every group that any cluster belongs to, or that any roster names.
    pub groups: BTreeMap<GroupId, Standing>,
    /// What all clusters of a group have said, where all have.
    pub heard: BTreeMap<GroupId, Heard>,
}

/// What every cluster of a group has said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The lowest sequence of the group's body that any of them has accepted.
    pub accepted: u64,
    /// The services that any of them has in place, of those that the group has tombstones for.
    pub in_place: BTreeSet<Name>,
}

impl Heard {
    /// Whether nobody of the group needs to be told of this any more.
    fn settles(&self, buried: &Buried, stamp: Stamp, policy: &Policy) -> bool {
        // A sequence is never behind the milliseconds of its time. Who comes back from a backup that is no older
        // than a body may become is still told.
        let is_old = buried.since.saturating_add(policy.group_life * 1000) <= stamp.now.saturating_mul(1000);
        is_old && buried.since <= self.accepted && !self.in_place.contains(&buried.service)
    }
}

/// How the clusters stand to one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// The label values that its clusters share; empty where none belongs to it.
    pub values: BTreeMap<LabelKey, String>,
    /// Clusters that belong to it.
    pub placed: u64,
    /// Clusters whose roster names it.
    pub named: u64,
    /// Clusters whose roster names it, and that belong to another one.
    pub strangers: u64,
}

/// Which services may have changed since the table was made.
#[derive(Debug, Clone, Copy)]
pub enum Scope<'a> {
    /// Any.
    Everything,
    /// Those that differ from this intent, from which the table was made under the same policy.
    Since(&'a Intent),
}

/// What is to be written.
#[derive(Debug, Default)]
pub struct Plan {
    /// New bodies.
    pub bodies: Vec<Body>,
    /// Groups whose place in the table stays, and is told otherwise.
    pub retold: BTreeMap<GroupId, GroupRef>,
    /// Groups that leave the table.
    pub dropped: BTreeSet<GroupId>,
}

/// A body that is to be signed.
#[derive(Debug, Clone)]
pub struct Body {
    /// Whose.
    pub id: GroupId,
    /// Its place in the table. The digest of the body is that of its content until its envelope is made.
    pub reference: GroupRef,
    /// The sequence of the body before it.
    pub previous: Option<u64>,
}

impl Plan {
    /// Whether the table stays as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bodies.is_empty() && self.retold.is_empty() && self.dropped.is_empty()
    }

    /// The table after it.
    #[must_use]
    pub fn applied(&self, previous: &Table) -> Table {
        let mut table = previous.clone();
        table.0.retain(|id, _| !self.dropped.contains(id));
        table.0.extend(self.retold.iter().map(|(id, reference)| (*id, reference.clone())));
        table.0.extend(self.bodies.iter().map(|body| (body.id, body.reference.clone())));
        table
    }
}

/// The id of the group of clusters with these values.
#[must_use]
pub fn group_id(values: &BTreeMap<LabelKey, String>) -> GroupId {
    let parts = values.iter().flat_map(|(key, value)| [key.as_str().as_bytes(), value.as_bytes()]);
    Digest::of_parts(std::iter::once(b"farshore group".as_slice()).chain(parts))
}

/// The label keys that selectors use.
#[must_use]
pub fn keys_of(intent: &Intent) -> BTreeSet<LabelKey> {
    intent.services.values().flat_map(|service| service.spec.clusters.keys()).collect()
}

/// The values that place a cluster with these labels.
#[must_use]
pub fn values_of(labels: &Labels, keys: &BTreeSet<LabelKey>) -> BTreeMap<LabelKey, String> {
    let used = labels.iter().filter(|(key, _)| keys.contains(*key));
    used.map(|(key, value)| (key.clone(), value.as_str().to_owned())).collect()
}

fn labels_of(values: &BTreeMap<LabelKey, String>) -> Labels {
    let label = |(key, value): (&LabelKey, &String)| {
        (key.clone(), value.parse().expect("it was a label value before"))
    };
    values.iter().map(label).collect()
}

/// Decides which bodies are signed, and what becomes of the table.
#[must_use]
pub fn plan(
    previous: &Table,
    (intent, scope): (&Intent, Scope<'_>),
    placement: &Placement,
    stamp: Stamp,
    policy: &Policy,
) -> Plan {
    let services = Services::of(intent, scope);
    let mut plan = Plan::default();
    let empty = Standing::default();
    let ids: BTreeSet<&GroupId> = placement.groups.keys().chain(previous.0.keys()).collect();
    for id in ids {
        let before = previous.0.get(id);
        let standing = placement.groups.get(id).unwrap_or(&empty);
        if standing.placed + standing.named == 0 {
            // It stays until its body has expired: a roster that another publisher is writing just now may
            // name it, and what that cluster left there has to be known when it moves on.
            if let Some(before) = before {
                leave(&mut plan, (*id, before), &placement.keys, &services, (stamp, policy));
            }
            continue;
        }
        let Some(judged) = Judged::new(before, standing, &placement.keys) else { continue };
        let judged = Judged { heard: placement.heard.get(id), ..judged };
        let is_old = |before: &GroupRef| {
            before.expires <= stamp.now + policy.group_life / 2 || before.keys.as_ref() != Some(judged.keys)
        };
        if before.is_none_or(is_old) || services.may_touch(&judged) {
            place(&mut plan, (*id, before), &judged, &services, (stamp, policy));
        }
    }
    plan
}

/// A group, and how its clusters are told apart.
struct Judged<'a> {
    before: Option<&'a GroupRef>,
    values: &'a BTreeMap<LabelKey, String>,
    labels: Labels,
    keys: &'a BTreeSet<LabelKey>,
    heard: Option<&'a Heard>,
}

impl<'a> Judged<'a> {
    /// None where clusters have rosters of a group that the table does not know: there is nothing to say.
    fn new(
        before: Option<&'a GroupRef>,
        standing: &'a Standing,
        keys: &'a BTreeSet<LabelKey>,
    ) -> Option<Self> {
        let is_left = standing.strangers > 0;
        let old_keys = before.and_then(|before| before.keys.as_ref());
        let (values, keys) = match (before, old_keys) {
            (Some(before), Some(old)) if is_left && old != keys => (&before.values, old),
            (Some(before), _) if standing.placed == 0 => (&before.values, keys),
            (None, _) if standing.placed == 0 => return None,
            _ => (&standing.values, keys),
        };
        Some(Self { before, values, labels: labels_of(values), keys, heard: None })
    }
}

/// The services that are published, each with what a body says of it.
struct Services<'a> {
    all: BTreeMap<&'a Name, Published<'a>>,
    /// Those that may have changed; none is any.
    touched: Option<BTreeSet<&'a Name>>,
    /// What every body says beside them.
    footprint: Footprint,
}

struct Published<'a> {
    service: &'a IntentService,
    keys: BTreeSet<LabelKey>,
    incarnation: u64,
    content: Digest,
}

impl<'a> Services<'a> {
    fn of(intent: &'a Intent, scope: Scope<'a>) -> Self {
        let published = |(name, service): (&'a Name, &'a IntentService)| {
            let value = entry(name, service)?;
            let content = Digest::of(&serde_json::to_vec(&value).expect("an entry has string keys only"));
            let incarnation = service.published.as_ref()?.incarnation;
            let keys = service.spec.clusters.keys();
            Some((name, Published { service, keys, incarnation, content }))
        };
        let touched = match scope {
            Scope::Everything => None,
            // Every body says it.
            Scope::Since(before) if before.footprint() != intent.footprint() => None,
            Scope::Since(before) => {
                let names = intent.services.keys().chain(before.services.keys());
                Some(names.filter(|name| before.services.get(*name) != intent.services.get(*name)).collect())
            }
        };
        // With nothing touched, only groups that are new or old are looked at.
        let all = intent.services.iter().filter_map(published).collect();
        Self { all, touched, footprint: intent.footprint() }
    }

    fn may_touch(&self, group: &Judged<'_>) -> bool {
        let Some(touched) = &self.touched else { return true };
        let had = |name: &Name| group.before.is_some_and(|before| before.services.contains_key(name));
        touched.iter().any(|name| had(name) || self.all.get(*name).is_some_and(|p| p.is_for(name, group)))
    }

    fn for_group<'s>(
        &'s self,
        group: &'s Judged<'_>,
    ) -> impl Iterator<Item = (&'a Name, &'s Published<'a>)> + 's {
        self.all.iter().filter(|(name, p)| p.is_for(name, group)).map(|(name, p)| (*name, p))
    }
}

impl Published<'_> {
    fn is_for(&self, name: &Name, group: &Judged<'_>) -> bool {
        if self.keys.is_subset(group.keys) {
            return self.service.spec.clusters.matches(&group.labels);
        }
        // It cannot be told for clusters of whom only other labels are known: it stays where it was.
        group.before.is_some_and(|before| before.services.get(name) == Some(&self.incarnation))
    }
}

fn place(
    plan: &mut Plan,
    (id, before): (GroupId, Option<&GroupRef>),
    group: &Judged<'_>,
    services: &Services<'_>,
    (stamp, policy): (Stamp, &Policy),
) {
    let mut said = said(group, services, stamp);
    let content = said.content(stamp, policy);
    let keys = Some(group.keys.clone());
    let is_fresh =
        |before: &&GroupRef| before.content == content && before.expires > stamp.now + policy.group_life / 2;
    if let Some(before) = before.filter(is_fresh) {
        if before.keys != keys {
            plan.retold.insert(id, GroupRef { keys, ..before.clone() });
        }
        return;
    }
    said.tombstones.retain(|buried| !group.heard.is_some_and(|heard| heard.settles(buried, stamp, policy)));
    let content = said.content(stamp, policy);
    let reference = GroupRef {
        values: group.values.clone(),
        keys,
        sequence: stamp.sequence,
        digest: content,
        content,
        expires: stamp.now + policy.group_life,
        services: said.services,
        tombstones: said.tombstones,
    };
    plan.bodies.push(Body { id, reference, previous: before.map(|before| before.sequence) });
}

/// What becomes of a group that nobody is in. Its body is not written any more, so that where it would say
/// something else now, the table does not hold it for judged: whoever comes finds it looked at whole.
fn leave(
    plan: &mut Plan,
    (id, before): (GroupId, &GroupRef),
    keys: &BTreeSet<LabelKey>,
    services: &Services<'_>,
    (stamp, policy): (Stamp, &Policy),
) {
    if before.expires <= stamp.now {
        plan.dropped.insert(id);
        return;
    }
    let (values, labels) = (&before.values, labels_of(&before.values));
    let group = Judged { before: Some(before), values, labels, keys, heard: None };
    let is_behind = before.keys.as_ref() != Some(keys)
        || (services.may_touch(&group)
            && said(&group, services, stamp).content(stamp, policy) != before.content);
    if before.keys.is_some() && is_behind {
        plan.retold.insert(id, GroupRef { keys: None, ..before.clone() });
    }
}

/// What a body says.
struct Said {
    entries: Vec<Digest>,
    services: BTreeMap<Name, u64>,
    tombstones: Vec<Buried>,
    footprint: Footprint,
}

impl Said {
    /// Without its sequence and times.
    fn content(&self, stamp: Stamp, policy: &Policy) -> Digest {
        let tombstones: Vec<Tombstone> = self.tombstones.iter().map(Buried::tombstone).collect();
        let said = (&self.entries, tombstones, policy.poll, stamp.epoch);
        let said = match self.footprint.is_empty() {
            true => serde_json::to_vec(&said),
            false => serde_json::to_vec(&(said, self.footprint)),
        };
        Digest::of(&said.expect("digests and tombstones have string keys only"))
    }
}

fn said(group: &Judged<'_>, services: &Services<'_>, stamp: Stamp) -> Said {
    let mut entries = Vec::new();
    let mut incarnations = BTreeMap::new();
    for (name, published) in services.for_group(group) {
        entries.push(published.content);
        incarnations.insert(name.clone(), published.incarnation);
    }
    let tombstones = group.before.map(|before| buried(before, &incarnations, stamp.sequence));
    let (tombstones, footprint) = (tombstones.unwrap_or_default(), services.footprint);
    Said { entries, services: incarnations, tombstones, footprint }
}

/// The tombstones of a body after `before`, whose services are `after`: the old ones keep their time.
fn buried(before: &GroupRef, after: &BTreeMap<Name, u64>, sequence: u64) -> Vec<Buried> {
    let since = |buried: &Buried| if buried.since == 0 { before.sequence } else { buried.since };
    let old: BTreeMap<Tombstone, u64> =
        before.tombstones.iter().map(|buried| (buried.tombstone(), since(buried))).collect();
    let all = tombstones(old.keys().cloned(), &before.services, after).into_iter();
    all.map(|tombstone| {
        let since = old.get(&tombstone).copied().unwrap_or(sequence);
        Buried { service: tombstone.service, incarnation: tombstone.incarnation, since }
    })
    .collect()
}

/// The body itself. It is made when it is written, so that no more than a few are in memory.
#[must_use]
pub fn body(intent: &Intent, body: &Body, stamp: Stamp, policy: &Policy) -> Group {
    let said = body.reference.services.keys();
    let said = said.filter_map(|name| entry(name, intent.services.get(name)?));
    Group {
        group: body.id,
        epoch: stamp.epoch,
        sequence: body.reference.sequence,
        issued: stamp.now,
        expires: body.reference.expires,
        previous: body.previous,
        poll_seconds: policy.poll,
        services: said.collect(),
        tombstones: body.reference.tombstones.iter().map(Buried::tombstone).collect(),
        footprint: intent.footprint(),
        critical: vec![],
    }
}

fn entry(name: &Name, service: &IntentService) -> Option<Value> {
    let published = service.published.as_ref()?;
    let spec = &service.spec;
    let source = published.made.source.clone();
    let entry = ServiceEntry {
        name: name.clone(),
        incarnation: published.incarnation,
        revision: Revision { source, commit: published.commit.clone() },
        artifact: published.artifact.clone(),
        path: published.made.path.to_string(),
        renderer: service.renderer(published).clone().into(),
        namespace: spec.namespace.as_ref().map(ToString::to_string),
        depends_on: spec.depends_on.clone(),
        prune: spec.prune.unwrap_or_default(),
        health: spec.health.clone(),
        timeout_seconds: spec.timeout.map(|timeout| timeout.duration().as_secs()),
        on_failure: spec.on_failure,
        apply: spec.apply,
        drift: spec.drift.clone().unwrap_or_default().0,
        critical: vec![],
    };
    Some(entry.to_value())
}

/// The tombstones after a step from `before` to `after`: the old ones, and what left, without what is
/// there in the same life again.
fn tombstones(
    old: impl Iterator<Item = Tombstone>,
    before: &BTreeMap<Name, u64>,
    after: &BTreeMap<Name, u64>,
) -> Vec<Tombstone> {
    let left =
        before.iter().map(|(service, &incarnation)| Tombstone { service: service.clone(), incarnation });
    let all: BTreeSet<Tombstone> = old.chain(left).collect();
    all.into_iter().filter(|t| after.get(&t.service) != Some(&t.incarnation)).collect()
}

/// How long before it expires a cluster's roster is signed again: at an age between a quarter and three
/// quarters of its life, by the name's hash, so that a fleet enrolled in one night is not signed again in one.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "seconds of some weeks"
)]
pub fn margin(name: &Name, policy: &Policy) -> u64 {
    let share = hashed_share(&["roster", name.as_str()]);
    policy.roster_life / 4 + (policy.roster_life as f64 / 2.0 * share) as u64
}

/// Whether a cluster that only other selectors bring here may get a roster of this group: not while those who are
/// in it are told apart by other keys than are in use. Nobody waits for each other in a ring by that: such a move is
/// from a group to one whose values are more. A cluster whose labels changed does not wait.
#[must_use]
pub fn is_open(table: &Table, group: &GroupId, keys: &BTreeSet<LabelKey>) -> bool {
    table.0.get(group).is_some_and(|group| group.keys.as_ref() == Some(keys))
}

/// The services that a cluster may hold from groups which it left, as tombstones, without what it has now.
#[must_use]
pub fn left_behind<'a>(
    table: &Table,
    old: impl IntoIterator<Item = &'a Tombstone>,
    left: impl IntoIterator<Item = &'a GroupId>,
    now_in: &GroupRef,
) -> Vec<Tombstone> {
    let mut all: BTreeSet<Tombstone> = old.into_iter().cloned().collect();
    for group in left.into_iter().filter_map(|group| table.0.get(group)) {
        let old = group.tombstones.iter().map(Buried::tombstone);
        all.extend(tombstones(old, &group.services, &now_in.services));
    }
    all.into_iter().filter(|t| now_in.services.get(&t.service) != Some(&t.incarnation)).collect()
}

/// The roster that a cluster of this group needs, where it is not the one that it has.
#[must_use]
pub fn roster(
    (name, member): (&Name, &Member),
    (group, keys): (GroupId, &BTreeSet<LabelKey>),
    table: &Table,
    stamp: Stamp,
    policy: &Policy,
) -> Option<Roster> {
    // None where its body was refused, and so never published.
    let now_in = table.0.get(&group)?;
    let before = member.roster.as_ref();
    let moved = before.map(|before| before.group).filter(|left| *left != group);
    let has_same_labels = before.is_some_and(|before| before.labels == member.labels);
    if moved.is_some() && has_same_labels && !is_open(table, &group, keys) {
        return None;
    }
    let old = before.map_or(&[][..], |before| &before.tombstones);
    let left: BTreeSet<GroupId> = member.owed.iter().copied().chain(moved).filter(|l| *l != group).collect();
    let tombstones = left_behind(table, old, &left, now_in);
    let is_current = before.is_some_and(|before| {
        before.group == group
            && before.labels == member.labels
            && before.key == member.key
            && before.epoch == stamp.epoch
            && before.expires > stamp.now + margin(name, policy)
            && before.tombstones == tombstones
            && before.footprint == member.footprint
    });
    (!is_current).then(|| Roster {
        cluster: name.clone(),
        key: member.key,
        group,
        floor: now_in.sequence,
        epoch: stamp.epoch,
        sequence: stamp.sequence.max(before.map_or(0, |before| before.sequence + 1)),
        issued: stamp.now,
        expires: stamp.now + policy.roster_life,
        labels: member.labels.clone(),
        tombstones,
        max_delay_seconds: policy.max_delay,
        footprint: member.footprint,
        critical: vec![],
    })
}

#[cfg(test)]
mod tests;
