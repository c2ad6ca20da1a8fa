//! What to do with every service of this site, from what is held. Pure: no clock, no network, no disk.
//!
//! Absence never deletes: a service leaves only by a tombstone for the life that is in place. What has
//! no content yet, or waits for another service, stays at what was last healthy.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use farshore_shared::wire::{FailedRevision, Group, OnFailure, Roster, ServiceEntry, Tombstone};

use crate::plan::Removal;
use crate::store::{Healthy, Prune};

/// What is held at the site.
#[derive(Debug)]
pub struct Holding<'a> {
    /// The accepted documents, if any.
    pub documents: Option<(&'a Roster, &'a Group)>,
    /// Whether anything may be removed.
    pub prune: Prune,
    /// What was last healthy.
    pub healthy: &'a BTreeMap<Name, Healthy>,
    /// The services that have objects in place, and which life of each.
    pub in_place: &'a BTreeMap<Name, Option<u64>>,
    /// Those among them that a tombstone has begun to remove.
    pub doomed: &'a BTreeSet<Name>,
    /// The artifacts that are on disk.
    pub content: &'a BTreeSet<Digest>,
    /// The revisions that were given up here, by service.
    pub given_up: &'a BTreeMap<Name, (Digest, FailedRevision)>,
}

/// What to do with one service.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Bring its objects to what an entry renders to.
    Enforce(Box<Enforce>),
    /// Remove all its objects: a tombstone says so.
    Remove(Name),
    /// Nothing can be done.
    Blocked {
        /// The service, as far as its name is known.
        name: String,
        /// Why.
        why: String,
    },
}

/// A service that is to be enforced.
#[derive(Debug, Clone, PartialEq)]
pub struct Enforce {
    /// The entry.
    pub entry: ServiceEntry,
    /// The signed revision: what makes a removal legitimate when it changes.
    pub revision: Digest,
    /// Why it is not the newest entry, if it is not.
    pub note: Option<String>,
    /// The newest entry was given up for it.
    pub instead_of: Option<FailedRevision>,
}

impl Work {
    /// The service.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Enforce(enforce) => enforce.entry.name.as_str(),
            Self::Remove(name) => name.as_str(),
            Self::Blocked { name, .. } => name,
        }
    }
}

/// Decides, in the order in which it is to be done: what others depend on first, removals last.
#[must_use]
pub fn decide(holding: &Holding<'_>) -> Vec<Work> {
    let Some((roster, group)) = holding.documents else { return keep_all(holding, &BTreeSet::new()) };
    let mut named = BTreeSet::new();
    let (mut entries, mut work) = (BTreeMap::new(), vec![]);
    for entry in group.entries() {
        match entry {
            Ok(entry) => {
                named.insert(entry.name.clone());
                entries.insert(entry.name.clone(), entry);
            }
            Err(bad) => {
                let kept = bad.name.parse().ok().and_then(|name: Name| {
                    named.insert(name.clone());
                    last_healthy(holding, &name, &bad.to_string())
                });
                work.push(
                    kept.unwrap_or_else(|| Work::Blocked { name: bad.name.clone(), why: bad.to_string() }),
                );
            }
        }
    }
    for entry in in_order(entries) {
        work.push(enforce(holding, roster, entry));
    }
    let removed = removals(holding, roster, group, &named);
    named.extend(removed.iter().cloned());
    work.extend(keep_all(holding, &named));
    work.extend(removed.into_iter().map(Work::Remove));
    work
}

/// The revision of an entry: everything signed that its rendering depends on.
#[must_use]
pub fn revision(entry: &ServiceEntry, roster: &Roster) -> Digest {
    let said = (entry, &roster.labels);
    Digest::of(&serde_json::to_vec(&said).expect("entries and labels have string keys only"))
}

/// Every service of the documents with its revision; none where the entry cannot be read.
#[must_use]
pub fn newest(holding: &Holding<'_>) -> BTreeMap<String, Option<Digest>> {
    holding.documents.map(|(roster, group)| newest_of(roster, group)).unwrap_or_default()
}

/// The same of documents.
#[must_use]
pub fn newest_of(roster: &Roster, group: &Group) -> BTreeMap<String, Option<Digest>> {
    let mut newest = BTreeMap::new();
    for entry in group.entries() {
        match entry {
            Ok(entry) => newest.insert(entry.name.to_string(), Some(revision(&entry, roster))),
            Err(bad) => newest.insert(bad.name, None),
        };
    }
    newest
}

fn enforce(holding: &Holding<'_>, roster: &Roster, entry: ServiceEntry) -> Work {
    if let Some(work) = instead(holding, &entry, revision(&entry, roster)) {
        return work;
    }
    if holding.content.contains(&entry.artifact.digest) {
        let revision = revision(&entry, roster);
        return Work::Enforce(Box::new(Enforce { entry, revision, note: None, instead_of: None }));
    }
    let why = format!("content of commit {} is not here yet", short(&entry.revision.commit));
    last_healthy(holding, &entry.name, &why).unwrap_or(Work::Blocked { name: entry.name.to_string(), why })
}

/// What was last healthy, in the place of a revision that was given up. A revision for which there is
/// nothing to go back to stays.
fn instead(holding: &Holding<'_>, entry: &ServiceEntry, revision: Digest) -> Option<Work> {
    let (_, failed) = holding.given_up.get(&entry.name).filter(|(given_up, _)| *given_up == revision)?;
    if entry.on_failure != OnFailure::Revert {
        return None;
    }
    let why = format!("commit {} was given up here ({})", short(&failed.commit), failed.why);
    match last_healthy(holding, &entry.name, &why)? {
        Work::Enforce(kept) => {
            Some(Work::Enforce(Box::new(Enforce { instead_of: Some(failed.clone()), ..*kept })))
        }
        Work::Remove(_) | Work::Blocked { .. } => None,
    }
}

fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

/// The entry that was last healthy, where its content is still here.
#[must_use]
pub fn last_healthy(holding: &Holding<'_>, name: &Name, why: &str) -> Option<Work> {
    let healthy = holding.healthy.get(name)?;
    let entry: ServiceEntry = serde_json::from_value(healthy.entry.clone()).ok()?;
    let is_here = holding.content.contains(&entry.artifact.digest);
    let note = Some(format!("{why}; commit {} is kept", short(&healthy.commit)));
    let kept = Enforce { entry, revision: healthy.revision, note, instead_of: None };
    is_here.then(|| Work::Enforce(Box::new(kept)))
}

/// An entry that depends on services which are not in order waits, at what was last healthy. What was
/// healthy in this very revision does not wait again: a dependency that breaks later takes nothing away.
#[must_use]
pub fn after_dependencies(holding: &Holding<'_>, work: Work, done: &BTreeSet<Name>) -> Work {
    let Work::Enforce(enforce) = work else { return work };
    let entry = &enforce.entry;
    let was_healthy =
        holding.healthy.get(&entry.name).is_some_and(|healthy| healthy.revision == enforce.revision);
    let is_here = |name: &&Name| {
        let documents = holding.documents.iter();
        let named = documents.flat_map(|(_, group)| &group.services).any(|s| s["name"] == name.as_str());
        named && !done.contains(*name)
    };
    let missing = entry.depends_on.iter().find(is_here).cloned();
    match missing {
        Some(missing) if !was_healthy => {
            let why = format!("it waits for {missing}, on which it depends");
            last_healthy(holding, &entry.name, &why)
                .unwrap_or(Work::Blocked { name: entry.name.to_string(), why })
        }
        Some(_) | None => Work::Enforce(enforce),
    }
}

/// What is in place and not spoken of is kept: nobody signed that it should go.
fn keep_all(holding: &Holding<'_>, spoken_of: &BTreeSet<Name>) -> Vec<Work> {
    let kept = holding.in_place.keys().filter(|name| !spoken_of.contains(*name));
    let why = "no document names this service, and no tombstone removes it";
    kept.map(|name| {
        let blocked = |why: &str| Work::Blocked { name: name.to_string(), why: why.to_owned() };
        if holding.doomed.contains(name) {
            return blocked("its removal has begun; it goes on when this site holds something newer");
        }
        last_healthy(holding, name, why).unwrap_or_else(|| blocked(why))
    })
    .collect()
}

fn removals(holding: &Holding<'_>, roster: &Roster, group: &Group, named: &BTreeSet<Name>) -> Vec<Name> {
    if holding.prune == Prune::Forbidden {
        return vec![];
    }
    let is_dead = |name: &Name, life: Option<u64>| {
        let mut tombstones = roster.tombstones.iter().chain(&group.tombstones);
        tombstones.any(|Tombstone { service, incarnation }| service == name && life == Some(*incarnation))
    };
    // What was begun is ended, also when the tombstone has left the documents.
    let is_dead = |name: &Name, life| holding.doomed.contains(name) || is_dead(name, life);
    let left = holding.in_place.iter().filter(|(name, life)| !named.contains(*name) && is_dead(name, **life));
    left.map(|(name, _)| name.clone()).collect()
}

/// Dependencies first. What depends on itself in a circle comes last, by name: the circle is the
/// publisher's to refuse, and no reason to stop here.
fn in_order(mut entries: BTreeMap<Name, ServiceEntry>) -> Vec<ServiceEntry> {
    let mut ordered = Vec::with_capacity(entries.len());
    loop {
        let free = |entry: &&ServiceEntry| !entry.depends_on.iter().any(|name| entries.contains_key(name));
        let ready: Vec<Name> = entries.values().filter(free).map(|entry| entry.name.clone()).collect();
        if ready.is_empty() {
            ordered.extend(entries.into_values());
            return ordered;
        }
        ordered.extend(ready.iter().filter_map(|name| entries.remove(name)));
    }
}

/// What may be removed while an entry is enforced. What was last healthy is put back and kept, and
/// takes nothing away: what it does not have may be what the newer entry has brought. Only where that entry
/// was given up, what nothing but it has brought goes with it.
#[must_use]
pub fn removal(enforce: &Enforce, prune: Prune) -> Removal {
    let Enforce { entry, revision, note, instead_of } = enforce;
    match (prune, note, instead_of) {
        (Prune::Forbidden, ..) => Removal::Nothing,
        (Prune::Allowed, _, Some(_)) => Removal::Unproven { budget: entry.prune },
        (Prune::Allowed, None, None) => Removal::Revision { revision: *revision, budget: entry.prune },
        (Prune::Allowed, Some(_), None) => Removal::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshore_shared::wire::{ApplyPolicy, Artifact, DriftRule, PruneBudget, Renderer, Revision};

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn entry(text: &str, content: &str) -> ServiceEntry {
        let digest = Digest::of(content.as_bytes());
        ServiceEntry {
            name: name(text),
            incarnation: 1,
            revision: Revision { source: name("s"), commit: content.into() },
            artifact: Artifact { digest, size: 1, tar_digest: digest, tar_size: 1 },
            path: String::new(),
            renderer: Renderer::Raw,
            namespace: None,
            depends_on: vec![],
            prune: PruneBudget::default(),
            health: vec![],
            timeout_seconds: None,
            on_failure: OnFailure::Hold,
            apply: ApplyPolicy::default(),
            drift: DriftRule::default(),
            critical: vec![],
        }
    }

    struct Case {
        roster: Roster,
        group: Group,
        prune: Prune,
        healthy: BTreeMap<Name, Healthy>,
        in_place: BTreeMap<Name, Option<u64>>,
        content: BTreeSet<Digest>,
        given_up: BTreeMap<Name, (Digest, FailedRevision)>,
        doomed: BTreeSet<Name>,
    }

    impl Case {
        fn new(entries: &[ServiceEntry]) -> Self {
            let id = Digest::of(b"group");
            let group = Group {
                group: id,
                epoch: 1,
                sequence: 1,
                issued: 1,
                expires: 2,
                previous: None,
                poll_seconds: 60,
                services: entries.iter().map(ServiceEntry::to_value).collect(),
                tombstones: vec![],
                footprint: Default::default(),
                critical: vec![],
            };
            let roster = Roster {
                cluster: name("shop-7"),
                key: id,
                group: id,
                floor: 0,
                epoch: 1,
                sequence: 1,
                issued: 1,
                expires: 2,
                labels: BTreeMap::new(),
                tombstones: vec![],
                max_delay_seconds: 60,
                footprint: Default::default(),
                critical: vec![],
            };
            let content = entries.iter().map(|entry| entry.artifact.digest).collect();
            let (healthy, in_place, given_up, doomed) = Default::default();
            Self { roster, group, prune: Prune::Allowed, healthy, in_place, content, given_up, doomed }
        }

        fn gave_up(&mut self, entry: &ServiceEntry) {
            let failed =
                FailedRevision { commit: entry.revision.commit.clone(), why: "it hangs".into(), at: 1 };
            self.given_up.insert(entry.name.clone(), (revision(entry, &self.roster), failed));
        }

        fn was_healthy(&mut self, entry: &ServiceEntry) {
            let healthy = Healthy {
                artifact: entry.artifact.digest,
                commit: entry.revision.commit.clone(),
                revision: Digest::of(b"before"),
                entry: entry.to_value(),
            };
            self.healthy.insert(entry.name.clone(), healthy);
            self.in_place.insert(entry.name.clone(), Some(entry.incarnation));
            self.content.insert(entry.artifact.digest);
        }

        fn decide(&self) -> Vec<Work> {
            decide(&Holding {
                documents: Some((&self.roster, &self.group)),
                prune: self.prune,
                healthy: &self.healthy,
                in_place: &self.in_place,
                doomed: &self.doomed,
                content: &self.content,
                given_up: &self.given_up,
            })
        }
    }

    fn commits(work: &[Work]) -> Vec<(&str, &str)> {
        let commit = |work: &'_ Work| match work {
            Work::Enforce(enforce) => Some(enforce.entry.revision.commit.clone()),
            Work::Remove(_) | Work::Blocked { .. } => None,
        };
        let text = |commit: Option<String>| match commit.as_deref() {
            Some("new") => "new",
            Some("old") => "old",
            _ => "",
        };
        work.iter().map(|work| (work.name(), text(commit(work)))).collect()
    }

    #[test]
    fn dependencies_come_first_and_a_circle_stops_nothing() {
        let mut web = entry("a-web", "new");
        web.depends_on = vec![name("z-database"), name("not-here")];
        let case = Case::new(&[web, entry("z-database", "new")]);
        assert_eq!(commits(&case.decide()), [("z-database", "new"), ("a-web", "new")]);
        let (mut a, mut b) = (entry("a", "new"), entry("b", "new"));
        a.depends_on = vec![name("b")];
        b.depends_on = vec![name("a")];
        assert_eq!(Case::new(&[a, b]).decide().len(), 2);
    }

    #[test]
    fn a_service_without_its_new_content_stays_at_what_was_healthy() {
        let mut case = Case::new(&[entry("web", "new")]);
        case.content.clear();
        assert!(matches!(&case.decide()[..], [Work::Blocked { .. }]));
        case.was_healthy(&entry("web", "old"));
        assert_eq!(commits(&case.decide()), [("web", "old")]);
    }

    #[test]
    fn a_service_that_nobody_speaks_of_is_kept() {
        let mut case = Case::new(&[]);
        case.was_healthy(&entry("web", "old"));
        assert_eq!(commits(&case.decide()), [("web", "old")]);
    }

    #[test]
    fn a_tombstone_removes_the_life_that_it_names_and_no_other() {
        let mut case = Case::new(&[]);
        case.was_healthy(&entry("web", "old"));
        case.group.tombstones = vec![Tombstone { service: name("web"), incarnation: 2 }];
        assert_eq!(commits(&case.decide()), [("web", "old")]);
        case.roster.tombstones = vec![Tombstone { service: name("web"), incarnation: 1 }];
        assert_eq!(case.decide(), [Work::Remove(name("web"))]);
        case.prune = Prune::Forbidden;
        assert_eq!(commits(&case.decide()), [("web", "old")]);
    }

    #[test]
    fn a_removal_that_has_begun_goes_on_when_its_tombstone_is_gone() {
        let mut case = Case::new(&[]);
        case.was_healthy(&entry("web", "old"));
        case.doomed.insert(name("web"));
        assert_eq!(case.decide(), [Work::Remove(name("web"))]);
        case.prune = Prune::Forbidden;
        assert!(matches!(&case.decide()[..], [Work::Blocked { .. }]), "nothing brings it back");
        let mut case = Case::new(&[entry("web", "new")]);
        case.doomed.insert(name("web"));
        case.was_healthy(&entry("web", "old"));
        assert_eq!(commits(&case.decide()), [("web", "new")]);
    }

    #[test]
    fn a_service_that_is_named_again_outlives_its_tombstone() {
        let mut case = Case::new(&[entry("web", "new")]);
        case.was_healthy(&entry("web", "old"));
        case.group.tombstones = vec![Tombstone { service: name("web"), incarnation: 1 }];
        assert_eq!(commits(&case.decide()), [("web", "new")]);
    }

    #[test]
    fn without_any_documents_everything_in_place_is_kept() {
        let mut case = Case::new(&[]);
        case.was_healthy(&entry("web", "old"));
        let holding = Holding {
            documents: None,
            prune: Prune::Forbidden,
            healthy: &case.healthy,
            in_place: &case.in_place,
            doomed: &case.doomed,
            content: &case.content,
            given_up: &case.given_up,
        };
        assert_eq!(commits(&decide(&holding)), [("web", "old")]);
    }

    #[test]
    fn an_entry_that_is_not_understood_keeps_what_was_healthy() {
        let mut case = Case::new(&[entry("web", "new")]);
        case.was_healthy(&entry("web", "old"));
        case.group.services[0]["renderer"]["kind"] = "wasm".into();
        assert_eq!(commits(&case.decide()), [("web", "old")]);
    }

    #[test]
    fn a_revision_that_was_given_up_makes_room_for_the_one_before_it_where_its_service_wants_that() {
        let new = entry("web", "new");
        let wanting = ServiceEntry { on_failure: OnFailure::Revert, ..new.clone() };
        for (entry, wanted) in [(&new, "new"), (&wanting, "old")] {
            let mut case = Case::new(std::slice::from_ref(entry));
            case.gave_up(entry);
            assert_eq!(commits(&case.decide()), [("web", "new")], "there is nothing to go back to");
            case.was_healthy(&super::tests::entry("web", "old"));
            let work = case.decide();
            assert_eq!(commits(&work), [("web", wanted)]);
            let Work::Enforce(enforce) = &work[0] else { panic!("it is enforced") };
            assert_eq!(enforce.instead_of.is_some(), wanted == "old");
            let removal = removal(enforce, Prune::Allowed);
            assert_eq!(matches!(removal, Removal::Unproven { .. }), wanted == "old", "{removal:?}");
        }
    }

    #[test]
    fn a_newer_revision_is_tried_whatever_was_given_up() {
        let wanting = |content: &str| ServiceEntry { on_failure: OnFailure::Revert, ..entry("web", content) };
        let mut case = Case::new(&[wanting("new")]);
        case.was_healthy(&entry("web", "old"));
        case.gave_up(&wanting("broken"));
        assert_eq!(commits(&case.decide()), [("web", "new")]);
    }
}
