//! Which documents say it: groups, rosters and the table, from the intent and the clusters. Pure.
//!
//! A group is the clusters that have equal values for the label keys that selectors use. A group
//! whose content did not change keeps its body, so that a commit rewrites only what it touches.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::digest::Digest;
use farshore_shared::keys::KeyId;
use farshore_shared::names::{LabelKey, Labels, Name};
use farshore_shared::retry::hashed_share;
use farshore_shared::wire::{Group, GroupId, Revision, Roster, ServiceEntry, Tombstone, UnixSeconds};

use crate::record::{GroupRef, Intent, Table};

/// A registered cluster.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its effective labels.
    pub labels: Labels,
    /// Its key.
    pub key: KeyId,
    /// Its roster as it stands, if it has one.
    pub roster: Option<Roster>,
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
#[derive(Debug, Clone, Copy)]
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

/// What is to be written.
#[derive(Debug)]
pub struct Publication {
    /// New bodies.
    pub groups: Vec<Group>,
    /// The table. The digest of a new body is that of its content until its envelope is made.
    pub table: Table,
    /// New rosters. They are written after the head has moved: a roster names a group that is there.
    pub rosters: Vec<Roster>,
}

/// The id of the group of clusters with these values.
#[must_use]
pub fn group_id(values: &BTreeMap<LabelKey, String>) -> GroupId {
    let parts = values.iter().flat_map(|(key, value)| [key.as_str().as_bytes(), value.as_bytes()]);
    Digest::of_parts(std::iter::once(b"farshore group".as_slice()).chain(parts))
}

/// Decides.
#[must_use]
pub fn partition(
    previous: &Table,
    intent: &Intent,
    members: &BTreeMap<Name, Member>,
    stamp: Stamp,
    policy: &Policy,
) -> Publication {
    let keys: BTreeSet<LabelKey> = intent.services.values().flat_map(|s| s.spec.clusters.keys()).collect();
    let placed: BTreeMap<&Name, (GroupId, BTreeMap<LabelKey, String>)> = members
        .iter()
        .map(|(name, member)| {
            let values = values_of(&member.labels, &keys);
            (name, (group_id(&values), values))
        })
        .collect();
    let mut publication =
        Publication { groups: vec![], table: kept_for_rosters(previous, members, stamp), rosters: vec![] };
    // Every member of a group shares its values, and so its labels as far as selectors look.
    let groups: BTreeMap<GroupId, &BTreeMap<LabelKey, String>> =
        placed.values().map(|(id, values)| (*id, values)).collect();
    for (id, values) in groups {
        place(&mut publication, previous.0.get(&id), (id, values), intent, stamp, policy);
    }
    for (name, member) in members {
        let id = placed[name].0;
        if let Some(roster) = roster((name, member), id, (previous, &publication.table), stamp, policy) {
            publication.rosters.push(roster);
        }
    }
    publication
}

fn values_of(labels: &Labels, keys: &BTreeSet<LabelKey>) -> BTreeMap<LabelKey, String> {
    let used = labels.iter().filter(|(key, _)| keys.contains(*key));
    used.map(|(key, value)| (key.clone(), value.as_str().to_owned())).collect()
}

/// Groups that some roster names stay until that roster has moved. Any other stays until its body has
/// expired: a roster that another publisher is writing just now may name it, and what it left there
/// has to be known when it moves on.
fn kept_for_rosters(previous: &Table, members: &BTreeMap<Name, Member>, stamp: Stamp) -> Table {
    let named: BTreeSet<GroupId> =
        members.values().filter_map(|member| member.roster.as_ref().map(|roster| roster.group)).collect();
    let kept = previous.0.iter().filter(|(id, group)| named.contains(*id) || group.expires > stamp.now);
    Table(kept.map(|(id, group)| (*id, group.clone())).collect())
}

fn place(
    publication: &mut Publication,
    before: Option<&GroupRef>,
    (id, values): (GroupId, &BTreeMap<LabelKey, String>),
    intent: &Intent,
    stamp: Stamp,
    policy: &Policy,
) {
    let entries = entries_for(intent, values);
    let services: BTreeMap<Name, u64> = entries.iter().map(|e| (e.name.clone(), e.incarnation)).collect();
    let tombstones = before.map(|before| tombstones(&before.tombstones, &before.services, &services));
    let tombstones = tombstones.unwrap_or_default();
    let group = Group {
        group: id,
        epoch: stamp.epoch,
        sequence: stamp.sequence,
        issued: stamp.now,
        expires: stamp.now + policy.group_life,
        previous: before.map(|before| before.sequence),
        poll_seconds: policy.poll,
        services: entries.iter().map(ServiceEntry::to_value).collect(),
        tombstones: tombstones.clone(),
        critical: vec![],
    };
    let content = content_of(&group);
    let fresh =
        |before: &&GroupRef| before.content == content && before.expires > stamp.now + policy.group_life / 2;
    let reference = match before.filter(fresh) {
        Some(before) => before.clone(),
        None => GroupRef {
            values: values.clone(),
            sequence: group.sequence,
            digest: content,
            content,
            expires: group.expires,
            services,
            tombstones,
        },
    };
    if reference.sequence == stamp.sequence {
        publication.groups.push(group);
    }
    publication.table.0.insert(id, reference);
}

/// What a body says, without its sequence and times.
fn content_of(group: &Group) -> Digest {
    let said = (&group.services, &group.tombstones, group.poll_seconds, group.epoch);
    Digest::of(&serde_json::to_vec(&said).expect("entries and tombstones have string keys only"))
}

fn entries_for(intent: &Intent, values: &BTreeMap<LabelKey, String>) -> Vec<ServiceEntry> {
    let labels: Labels =
        values.iter().map(|(k, v)| (k.clone(), v.parse().expect("it was a label value before"))).collect();
    let matching = intent.services.iter().filter(|(_, service)| service.spec.clusters.matches(&labels));
    matching
        .filter_map(|(name, service)| {
            let published = service.published.as_ref()?;
            let spec = &service.spec;
            let source = published.made.source.clone();
            Some(ServiceEntry {
                name: name.clone(),
                incarnation: published.incarnation,
                revision: Revision { source, commit: published.commit.clone() },
                artifact: published.artifact.clone(),
                path: published.made.path.to_string(),
                renderer: service.renderer(published).clone().into(),
                namespace: spec.namespace.as_ref().map(ToString::to_string),
                depends_on: spec.depends_on.clone(),
                prune: spec.prune.unwrap_or_default(),
                critical: vec![],
            })
        })
        .collect()
}

/// The tombstones after a step from `before` to `after`: the old ones, and what left, without what is
/// there in the same life again.
fn tombstones(
    old: &[Tombstone],
    before: &BTreeMap<Name, u64>,
    after: &BTreeMap<Name, u64>,
) -> Vec<Tombstone> {
    let left =
        before.iter().map(|(service, &incarnation)| Tombstone { service: service.clone(), incarnation });
    let all: BTreeSet<Tombstone> = old.iter().cloned().chain(left).collect();
    all.into_iter().filter(|t| after.get(&t.service) != Some(&t.incarnation)).collect()
}

fn roster(
    (name, member): (&Name, &Member),
    group: GroupId,
    (previous, table): (&Table, &Table),
    stamp: Stamp,
    policy: &Policy,
) -> Option<Roster> {
    let now_in = table.0.get(&group).expect("every member's group was placed");
    let before = member.roster.as_ref();
    // Signed again at an age between a quarter and half of its life, by the name's hash, so that a
    // fleet enrolled in one night is not signed again in one night.
    let share = hashed_share(&["roster", name.as_str()]);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "seconds of some weeks"
    )]
    let margin = policy.roster_life / 2 + (policy.roster_life as f64 / 4.0 * share) as u64;
    let is_current = before.is_some_and(|before| {
        before.group == group
            && before.labels == member.labels
            && before.key == member.key
            && before.epoch == stamp.epoch
            && before.expires > stamp.now + margin
            && before.tombstones.iter().all(|t| now_in.services.get(&t.service) != Some(&t.incarnation))
    });
    if is_current {
        return None;
    }
    let moved = before.filter(|before| before.group != group);
    let carried = match (before, moved.and_then(|before| previous.0.get(&before.group))) {
        (Some(before), Some(left)) => {
            let old: Vec<_> = before.tombstones.iter().chain(&left.tombstones).cloned().collect();
            tombstones(&old, &left.services, &now_in.services)
        }
        (Some(before), None) => tombstones(&before.tombstones, &BTreeMap::new(), &now_in.services),
        (None, _) => vec![],
    };
    Some(Roster {
        cluster: name.clone(),
        key: member.key,
        group,
        floor: now_in.sequence,
        epoch: stamp.epoch,
        sequence: stamp.sequence.max(before.map_or(0, |before| before.sequence + 1)),
        issued: stamp.now,
        expires: stamp.now + policy.roster_life,
        labels: member.labels.clone(),
        tombstones: carried,
        max_delay_seconds: policy.max_delay,
        critical: vec![],
    })
}

#[cfg(test)]
mod tests;
