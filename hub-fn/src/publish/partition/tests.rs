use farshore_shared::wire::Artifact;
use proptest::prelude::*;

use super::*;
use crate::declare;
use crate::record::{IntentDefaults, IntentService, Made, Published};

const DAY: u64 = 86_400;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn labels(text: &str) -> Labels {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    pairs.map(|pair| farshore_shared::names::label_pair(pair).expect("a label")).collect()
}

/// An intent with these services: name, selector (`key=value` or empty), life, content.
fn intent(services: &[(&str, &str, u64, u64)]) -> Intent {
    let declared = services.iter().map(|(service, selector, incarnation, content)| {
        let selector = match selector.split_once('=') {
            Some((key, value)) => format!("{{ matchLabels: {{ {key}: \"{value}\" }} }}"),
            None => "{}".to_owned(),
        };
        let text = format!(
            "apiVersion: farshore.dev/v1alpha1\nkind: Service\nmetadata: {{ name: {service} }}\nspec: {{ source: fleet, path: p, clusters: {selector} }}\n"
        );
        let (name, declared) = declare::read([("a.yaml", text)]).fleet.services.pop_first().expect("one service");
        let digest = Digest::of(&content.to_be_bytes());
        let artifact = Artifact { digest, size: 1, tar_digest: digest, tar_size: 1 };
        let made = Made::of(&declared.spec);
        let published =
            Published { incarnation: *incarnation, commit: content.to_string(), key: digest, artifact, made };
        (name, IntentService { spec: declared.spec, origin: declared.origin, published: Some(published) })
    });
    Intent { services: declared.collect(), ..Intent::default() }
}

struct Publication {
    groups: Vec<Group>,
    table: Table,
    rosters: Vec<Roster>,
}

/// How all clusters stand, counted anew.
fn placement(intent: &Intent, members: &BTreeMap<Name, Member>) -> Placement {
    let mut placement = Placement { keys: keys_of(intent), ..Placement::default() };
    for member in members.values() {
        let values = values_of(&member.labels, &placement.keys);
        let id = group_id(&values);
        let standing = placement.groups.entry(id).or_default();
        (standing.values, standing.placed) = (values, standing.placed + 1);
        if let Some(roster) = &member.roster {
            let standing = placement.groups.entry(roster.group).or_default();
            standing.named += 1;
            standing.strangers += u64::from(roster.group != id);
        }
    }
    placement
}

/// Everything that a publication writes, for everybody at once.
fn partition(
    previous: &Table,
    (intent, scope): (&Intent, Scope<'_>),
    (members, heard): (&BTreeMap<Name, Member>, &BTreeMap<GroupId, Heard>),
    stamp: Stamp,
) -> Publication {
    let policy = Policy::default();
    let placement = Placement { heard: heard.clone(), ..placement(intent, members) };
    let plan = plan(previous, (intent, scope), &placement, stamp, &policy);
    let groups = plan.bodies.iter().map(|it| body(intent, it, stamp, &policy)).collect();
    let table = plan.applied(previous);
    let roster = |(name, member): (&Name, &Member)| {
        let id = group_id(&values_of(&member.labels, &placement.keys));
        roster((name, member), (id, &placement.keys), &table, stamp, &policy)
    };
    let rosters = members.iter().filter_map(roster).collect();
    Publication { groups, table, rosters }
}

/// The record of a fleet, and its sites.
#[derive(Default)]
struct Fleet {
    members: BTreeMap<Name, Member>,
    table: Table,
    bodies: BTreeMap<(GroupId, u64), Group>,
    sites: BTreeMap<Name, Site>,
    sequence: u64,
    now: UnixSeconds,
    /// What was published last.
    published: Option<Intent>,
    /// What each has said of itself last, which may be long ago.
    reports: BTreeMap<Name, Site>,
    heard: BTreeMap<GroupId, Heard>,
}

#[derive(Default, Clone)]
struct Site {
    services: BTreeMap<Name, u64>,
    roster: u64,
    groups: BTreeMap<GroupId, u64>,
}

impl Site {
    fn take(&mut self, roster: &Roster, group: &Group) {
        assert!(self.roster <= roster.sequence, "a roster went back");
        let mark = self.groups.entry(group.group).or_default();
        assert!(*mark <= group.sequence && roster.floor <= group.sequence, "a group went back");
        (*mark, self.roster) = (group.sequence, roster.sequence);
        let entries = group.entries().into_iter().map(|entry| entry.expect("an entry"));
        let named: BTreeMap<Name, u64> = entries.map(|entry| (entry.name, entry.incarnation)).collect();
        for t in roster.tombstones.iter().chain(&group.tombstones) {
            let is_named = named.get(&t.service) == Some(&t.incarnation);
            if !is_named && self.services.get(&t.service) == Some(&t.incarnation) {
                self.services.remove(&t.service);
            }
        }
        self.services.extend(named);
    }
}

impl Fleet {
    fn enrol(&mut self, cluster: &str, text: &str) {
        let key = farshore_shared::keys::SigningKey::from_seed([7; 32].into()).public().id();
        let roster = self.members.get(&name(cluster)).and_then(|member| member.roster.clone());
        self.members.insert(
            name(cluster),
            Member {
                labels: labels(text),
                key,
                roster,
                owed: BTreeSet::new(),
                footprint: Footprint::default(),
            },
        );
        self.sites.entry(name(cluster)).or_default();
    }

    /// One publication; only the rosters that `is_written` lets through are written.
    fn publish(&mut self, intent: &Intent, is_written: impl Fn(&Name) -> bool) -> (usize, usize) {
        self.sequence += 10;
        let stamp = Stamp { epoch: 1, sequence: self.sequence, now: self.now };
        let before = self.published.replace(intent.clone());
        let scope = before.as_ref().map_or(Scope::Everything, Scope::Since);
        let of = (&self.members, &self.heard);
        let whole = partition(&self.table, (intent, Scope::Everything), of, stamp);
        let publication = partition(&self.table, (intent, scope), of, stamp);
        assert_eq!(publication.table, whole.table, "what changed is all that had to be looked at");
        let counts = (publication.groups.len(), publication.rosters.len());
        self.table = publication.table;
        for group in publication.groups {
            assert!(self.bodies.insert((group.group, group.sequence), group).is_none(), "written twice");
        }
        for (id, group) in &self.table.0 {
            assert!(self.bodies.contains_key(&(*id, group.sequence)), "the table names a body that is there");
        }
        for roster in publication.rosters.into_iter().filter(|roster| is_written(&roster.cluster)) {
            let member = self.members.get_mut(&roster.cluster).expect("rosters are of members");
            member.roster = Some(roster);
        }
        counts
    }

    fn body(&self, cluster: &str) -> (&Roster, &Group) {
        let roster = self.members[&name(cluster)].roster.as_ref().expect("written");
        let reference = self.table.0.get(&roster.group).expect("a roster names a group of the table");
        (roster, &self.bodies[&(roster.group, reference.sequence)])
    }

    fn poll(&mut self, cluster: &Name) {
        if self.members[cluster].roster.is_some() {
            let (roster, group) = self.body(cluster.as_str());
            let (roster, group) = (roster.clone(), group.clone());
            self.sites.get_mut(cluster).expect("enrolled").take(&roster, &group);
        }
    }

    fn report(&mut self, cluster: &Name) {
        self.reports.insert(cluster.clone(), self.sites[cluster].clone());
    }

    /// What all clusters of each group have said, as a publisher hears it.
    fn hear(&mut self) {
        let ids: Vec<GroupId> = self.table.0.keys().copied().collect();
        for id in ids {
            let of_group =
                self.members.iter().filter_map(|(name, member)| Some((name, member.roster.as_ref()?)));
            let said = of_group.filter(|(_, roster)| roster.group == id).map(|(name, roster)| {
                let site = self.reports.get(name).filter(|site| site.roster >= roster.sequence)?;
                Some((*site.groups.get(&id)?, site.services.keys().cloned().collect::<BTreeSet<Name>>()))
            });
            let said: Option<Vec<_>> = said.collect();
            self.heard.remove(&id);
            if let Some(said) = said.filter(|said| !said.is_empty()) {
                let accepted =
                    said.iter().map(|(sequence, _)| *sequence).min().expect("somebody has said so");
                let in_place = said.into_iter().flat_map(|(_, services)| services).collect();
                self.heard.insert(id, Heard { accepted, in_place });
            }
        }
    }
}

fn tombstone(service: &str, incarnation: u64) -> Tombstone {
    Tombstone { service: name(service), incarnation }
}

fn harbour() -> Fleet {
    let mut fleet = Fleet { now: 1000 * DAY, ..Fleet::default() };
    for (cluster, labels) in [("a", "tier=edge"), ("b", "tier=edge"), ("c", "tier=core"), ("d", "")] {
        fleet.enrol(cluster, labels);
    }
    fleet
}

#[test]
fn a_commit_writes_the_groups_that_have_what_it_touches_and_no_roster() {
    let mut fleet = harbour();
    let services = [("all", "", 1, 1), ("edge", "tier=edge", 1, 1), ("core", "tier=core", 1, 1)];
    assert_eq!(fleet.publish(&intent(&services), |_| true), (3, 4));
    assert_eq!(fleet.publish(&intent(&services), |_| true), (0, 0));
    let [all, _, core] = services;
    assert_eq!(fleet.publish(&intent(&[all, ("edge", "tier=edge", 1, 2), core]), |_| true), (1, 0));
    let (_, group) = fleet.body("a");
    assert_eq!((group.sequence, group.previous), (30, Some(10)));
    assert_eq!(
        fleet.publish(&intent(&[("all", "", 1, 2), ("edge", "tier=edge", 1, 2), core]), |_| true),
        (3, 0)
    );
}

#[test]
fn what_holds_for_all_agents_writes_every_group_and_what_holds_for_one_its_roster() {
    let mut fleet = harbour();
    let silent = intent(&[("edge", "tier=edge", 1, 1)]);
    fleet.publish(&silent, |_| true);
    let footprint = Footprint { qps: Some(50), ..Footprint::default() };
    let origin = silent.services[&name("edge")].origin.clone();
    let said = Intent { defaults: Some(IntentDefaults { footprint, origin }), ..silent.clone() };
    assert_eq!(fleet.publish(&said, |_| true), (fleet.table.0.len(), 0));
    assert_eq!(fleet.body("d").1.footprint, footprint);
    assert_eq!(fleet.publish(&said, |_| true), (0, 0));
    fleet.members.get_mut(&name("a")).expect("enrolled").footprint = footprint;
    assert_eq!(fleet.publish(&said, |_| true), (0, 1));
    assert_eq!(fleet.body("a").0.footprint, footprint);
    assert_eq!(fleet.publish(&silent, |_| true), (fleet.table.0.len(), 0));
    assert!(fleet.body("d").1.footprint.is_empty());
}

#[test]
fn enrolling_is_one_roster_and_a_group_only_where_there_is_none() {
    let mut fleet = harbour();
    let intent = intent(&[("edge", "tier=edge", 1, 1)]);
    fleet.publish(&intent, |_| true);
    fleet.enrol("e", "tier=edge,other=x");
    assert_eq!(fleet.publish(&intent, |_| true), (0, 1));
    fleet.enrol("f", "tier=far");
    assert_eq!(fleet.publish(&intent, |_| true), (1, 1));
}

#[test]
fn a_group_is_named_by_its_values_alone() {
    let values = |text: &str| labels(text).into_iter().map(|(k, v)| (k, v.as_str().to_owned())).collect();
    assert_eq!(group_id(&values("a=1,b=2")), group_id(&values("b=2,a=1")));
    let all = ["", "a=1", "a=2", "b=1", "a=1,b=1", "a=1b,b=", "ab=1"];
    let ids: BTreeSet<GroupId> = all.iter().map(|text| group_id(&values(text))).collect();
    assert_eq!(ids.len(), all.len());
    let mut fleet = harbour();
    fleet.publish(&intent(&[("edge", "tier=edge", 1, 1)]), |_| true);
    let before = fleet.body("a").0.group;
    fleet.publish(&intent(&[("other", "tier=core", 2, 1)]), |_| true);
    assert_eq!(fleet.body("a").0.group, before);
}

#[test]
fn a_removed_service_leaves_a_tombstone_in_each_group_that_had_it_and_in_no_other() {
    let mut fleet = harbour();
    fleet.publish(&intent(&[("all", "", 1, 1), ("edge", "tier=edge", 2, 1)]), |_| true);
    fleet.publish(&intent(&[("all", "", 1, 1), ("core", "tier=core", 3, 1)]), |_| true);
    assert_eq!(fleet.body("a").1.tombstones, [tombstone("edge", 2)]);
    assert_eq!(fleet.body("c").1.tombstones, []);
    // The same life again drops it, a new life does not.
    fleet.publish(&intent(&[("all", "", 1, 1), ("edge", "tier=edge", 9, 1)]), |_| true);
    assert_eq!(fleet.body("a").1.tombstones, [tombstone("edge", 2)]);
    fleet.publish(&intent(&[("all", "", 1, 1), ("edge", "tier=edge", 2, 1)]), |_| true);
    assert_eq!(fleet.body("a").1.tombstones, [tombstone("edge", 9)]);
}

#[test]
fn a_tombstone_leaves_when_every_cluster_of_the_group_has_said_that_its_service_is_gone() {
    let mut fleet = harbour();
    fleet.sequence = fleet.now * 1000;
    let core = ("core", "tier=core", 1, 1);
    let [both, one] = [("edge", "tier=edge", 2, 1), ("x", "tier=edge", 3, 1)].map(|of| intent(&[core, of]));
    let everybody = ["a", "b"].map(name);
    let heard = |fleet: &mut Fleet| {
        everybody.iter().for_each(|cluster| fleet.report(cluster));
        fleet.hear();
    };
    fleet.publish(&both, |_| true);
    everybody.iter().for_each(|cluster| fleet.poll(cluster));
    fleet.publish(&one, |_| true);
    fleet.poll(&name("a"));
    fleet.now += 20 * DAY;
    heard(&mut fleet);
    fleet.publish(&one, |_| true);
    assert_eq!(fleet.body("a").1.tombstones, [tombstone("edge", 2)], "b has not heard of it");
    everybody.iter().for_each(|cluster| fleet.poll(cluster));
    // Now all have, but one of them could not delete it yet.
    let stuck = fleet.sites.get_mut(&name("b")).expect("enrolled");
    stuck.services.insert(name("edge"), 2);
    fleet.now += 20 * DAY;
    heard(&mut fleet);
    fleet.publish(&one, |_| true);
    assert_eq!(fleet.body("a").1.tombstones, [tombstone("edge", 2)], "it is in place at b");
    everybody.iter().for_each(|cluster| fleet.poll(cluster));
    heard(&mut fleet);
    assert_eq!(fleet.publish(&one, |_| true), (0, 0), "no body is written for it");
    fleet.now += 20 * DAY;
    fleet.publish(&one, |_| true);
    assert_eq!(fleet.body("a").1.tombstones, []);
    // What came and went since has to be heard of anew, although nobody has said that he has it.
    fleet.publish(&intent(&[core, ("late", "tier=edge", 4, 1)]), |_| true);
    fleet.now += 20 * DAY;
    fleet.publish(&intent(&[core]), |_| true);
    fleet.now += 20 * DAY;
    fleet.publish(&intent(&[core]), |_| true);
    assert_eq!(fleet.body("a").1.tombstones, [tombstone("late", 4), tombstone("x", 3)]);
}

#[test]
fn a_cluster_that_moves_carries_what_it_leaves_behind_until_it_has_it_again() {
    let mut fleet = harbour();
    let services = intent(&[("all", "", 1, 1), ("edge", "tier=edge", 2, 1), ("core", "tier=core", 3, 1)]);
    fleet.publish(&services, |_| true);
    fleet.enrol("a", "tier=core");
    assert_eq!(fleet.publish(&services, |_| true), (0, 1));
    let (roster, group) = fleet.body("a");
    assert_eq!(roster.tombstones, [tombstone("edge", 2)]);
    assert_eq!((roster.floor, group.sequence), (10, 10), "the group's body stays as it was");
    fleet.enrol("a", "");
    fleet.publish(&services, |_| true);
    assert_eq!(fleet.body("a").0.tombstones, [tombstone("core", 3), tombstone("edge", 2)]);
    let wider = intent(&[("all", "", 1, 1), ("edge", "", 2, 1), ("core", "tier=core", 3, 1)]);
    fleet.publish(&wider, |_| true);
    assert_eq!(fleet.body("a").0.tombstones, [tombstone("core", 3)]);
}

#[test]
fn a_new_selector_key_moves_clusters_and_the_old_group_stays_until_they_have_moved() {
    let mut fleet = harbour();
    fleet.enrol("a", "tier=edge,site=x");
    let before = intent(&[("edge", "tier=edge", 1, 1)]);
    fleet.publish(&before, |_| true);
    let old = fleet.body("a").0.group;
    let after = intent(&[("edge", "tier=edge", 1, 1), ("x", "site=x", 2, 1)]);
    fleet.now += 100 * DAY;
    fleet.publish(&after, |cluster| cluster.as_str() != "a");
    assert_eq!(fleet.body("a").0.group, old, "its roster could not be written: it is served as before");
    fleet.publish(&after, |_| true);
    let (roster, group) = fleet.body("a");
    assert_ne!(roster.group, old);
    assert_eq!((group.services.len(), roster.tombstones.as_slice()), (2, [].as_slice()));
    assert_eq!(fleet.body("b").0.group, old, "b has no such label, so it is where it was");
}

#[test]
fn a_group_that_nobody_is_in_is_forgotten_when_its_body_has_expired() {
    let mut fleet = harbour();
    let intent = intent(&[("core", "tier=core", 1, 1)]);
    fleet.publish(&intent, |_| true);
    let core = fleet.body("c").0.group;
    fleet.enrol("c", "tier=edge");
    fleet.publish(&intent, |_| true);
    assert!(fleet.table.0.contains_key(&core));
    fleet.now += 15 * DAY;
    fleet.publish(&intent, |_| true);
    assert!(!fleet.table.0.contains_key(&core));
}

#[test]
fn documents_are_signed_again_before_they_expire_and_rosters_spread() {
    let mut fleet = Fleet { now: 1000 * DAY, ..Fleet::default() };
    for n in 0..400 {
        fleet.enrol(&format!("c{n}"), "");
    }
    let intent = intent(&[("all", "", 1, 1)]);
    let mut busiest = 0;
    fleet.publish(&intent, |_| true);
    for _ in 0..90 {
        fleet.now += DAY;
        let (_, rosters) = fleet.publish(&intent, |_| true);
        busiest = busiest.max(rosters);
        for cluster in fleet.members.keys() {
            let (roster, group) = fleet.body(cluster.as_str());
            assert!(roster.expires > fleet.now + 14 * DAY && group.expires > fleet.now + 6 * DAY);
        }
    }
    assert!((10..80).contains(&busiest), "{busiest} of 400 rosters in one day");
}

#[test]
fn a_new_epoch_or_key_signs_what_it_concerns() {
    let mut fleet = harbour();
    let intent = intent(&[("all", "", 1, 1)]);
    fleet.publish(&intent, |_| true);
    let key = farshore_shared::keys::SigningKey::from_seed([9; 32].into()).public().id();
    fleet.members.get_mut(&name("a")).expect("enrolled").key = key;
    assert_eq!(fleet.publish(&intent, |_| true), (0, 1));
    let stamp = Stamp { epoch: 2, sequence: 1000, now: fleet.now };
    let of = (&fleet.members, &fleet.heard);
    let publication = partition(&fleet.table, (&intent, Scope::Everything), of, stamp);
    assert_eq!((publication.groups.len(), publication.rosters.len()), (1, 4));
}

/// What happens to a fleet.
#[derive(Debug, Clone)]
enum Event {
    Declare {
        service: u8,
        selector: u8,
        content: u8,
    },
    Remove {
        service: u8,
    },
    Label {
        cluster: u8,
        labels: u8,
    },
    Poll {
        cluster: u8,
    },
    /// A publisher hears what all have said; some have said it just now: bit n for cluster n.
    Hear {
        reported: u8,
    },
    /// A publication, of which only some rosters are written: bit n for cluster n.
    Publish {
        written: u8,
    },
    Wait {
        days: u8,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..4u8, 0..6u8, 0..3u8).prop_map(|(service, selector, content)| Event::Declare {
            service,
            selector,
            content
        }),
        (0..4u8).prop_map(|service| Event::Remove { service }),
        (0..4u8, 0..6u8).prop_map(|(cluster, labels)| Event::Label { cluster, labels }),
        (0..4u8).prop_map(|cluster| Event::Poll { cluster }),
        any::<u8>().prop_map(|reported| Event::Hear { reported }),
        Just(Event::Hear { reported: 255 }),
        any::<u8>().prop_map(|written| Event::Publish { written }),
        Just(Event::Publish { written: 255 }),
        (0..20u8).prop_map(|days| Event::Wait { days }),
    ]
}

const SERVICES: [&str; 4] = ["s0", "s1", "s2", "s3"];
const CLUSTERS: [&str; 4] = ["c0", "c1", "c2", "c3"];
const SELECTORS: [&str; 6] = ["", "x=1", "x=2", "w=1", "w=2", "z=1"];
const LABELS: [&str; 6] = ["", "x=1", "x=2,w=1", "x=1,w=2", "w=1,z=1", "z=1"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order, and whenever sites poll: nothing goes back, nothing leaves a
    /// site without a tombstone (the model has no other way), and once everything is written and heard,
    /// every site has exactly what is declared for it.
    #[test]
    fn sites_end_with_exactly_what_is_declared_for_them(events in prop::collection::vec(event(), 1..60)) {
        let mut fleet = Fleet { now: 1000 * DAY, ..Fleet::default() };
        let mut declared: BTreeMap<usize, (usize, u64, u64)> = BTreeMap::new();
        let intent_of = |declared: &BTreeMap<usize, (usize, u64, u64)>| {
            let services =
                declared.iter().map(|(s, (selector, life, content))| (SERVICES[*s], SELECTORS[*selector], *life, *content));
            intent(&services.collect::<Vec<_>>())
        };
        for cluster in CLUSTERS {
            fleet.enrol(cluster, "");
        }
        for event in events {
            match event {
                Event::Declare { service, selector, content } => {
                    let life = fleet.sequence + 10;
                    let known = declared.entry(service.into()).or_insert((0, life, 0));
                    *known = (selector.into(), known.1, content.into());
                }
                // A life is over only where it was published, as in the publisher.
                Event::Remove { service } => drop(declared.remove(&usize::from(service))),
                Event::Label { cluster, labels } => {
                    fleet.enrol(CLUSTERS[usize::from(cluster)], LABELS[usize::from(labels)]);
                }
                Event::Poll { cluster } => fleet.poll(&name(CLUSTERS[usize::from(cluster)])),
                Event::Hear { reported } => {
                    let says = |n: &usize| reported >> n & 1 == 1;
                    (0..CLUSTERS.len()).filter(says).for_each(|n| fleet.report(&name(CLUSTERS[n])));
                    fleet.hear();
                }
                Event::Publish { written } => {
                    let is_written = |cluster: &Name| {
                        CLUSTERS.iter().position(|c| *c == cluster.as_str()).is_some_and(|n| written >> n & 1 == 1)
                    };
                    fleet.publish(&intent_of(&declared), is_written);
                }
                Event::Wait { days } => fleet.now += u64::from(days) * DAY,
            }
        }
        let last = intent_of(&declared);
        // Who moves into a group whose clusters were told apart by other keys waits until they have moved.
        for _ in 0..CLUSTERS.len() {
            fleet.publish(&last, |_| true);
        }
        prop_assert_eq!(fleet.publish(&last, |_| true), (0, 0), "then there is nothing left to do");
        for cluster in CLUSTERS.map(name) {
            fleet.poll(&cluster);
            let labels = &fleet.members[&cluster].labels;
            let wanted: BTreeMap<Name, u64> = last
                .services
                .iter()
                .filter(|(_, service)| service.spec.clusters.matches(labels))
                .map(|(name, service)| (name.clone(), service.published.as_ref().expect("published").incarnation))
                .collect();
            prop_assert_eq!(&fleet.sites[&cluster].services, &wanted);
        }
    }
}
