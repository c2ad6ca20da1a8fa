//! What `farshore get` decides and shows.

use std::collections::BTreeMap;

use farshore_hub_fn::declare::{Origin, ServiceSpec, SourceSpec};
use farshore_hub_fn::publish::state::Published;
use farshore_hub_fn::record::{
    self, GroupRef, HeldChange, HoldCause, Intent, IntentCluster, IntentService, IntentSource, SourceHead,
};
use farshore_shared::digest::Digest;
use farshore_shared::keys::{Secret, SigningKey};
use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::{self, Holds, ObjectFailure, Registration, Roster, ServiceStatus, Status};
use insta::assert_snapshot;
use serde_json::json;

use super::*;
use crate::record::Known;

const NOW: u64 = 1_800_000_000;
const POLL: u64 = 120;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(k, v)| (k.parse().expect("a key"), v.parse().expect("a value"))).collect()
}

fn group() -> Digest {
    Digest::of(b"edge")
}

/// A cluster at the edge that was heard a moment ago and holds what is published.
fn cluster(called: &str, services: &[(&str, wire::ServiceState, &str)]) -> Known {
    let key = SigningKey::from_seed(Secret::from([7; 32])).public().clone();
    let service = |(called, state, message): &(&str, wire::ServiceState, &str)| ServiceStatus {
        message: (*message).to_owned(),
        objects: 3,
        repairs: 1,
        ..ServiceStatus::new(name(called), &"c".repeat(40), *state)
    };
    let status = Status {
        cluster: name(called),
        state_id: "s".into(),
        sequence: 9,
        at: NOW - 5,
        agent: "0.1.0".into(),
        poll_seconds: POLL,
        holds: Some(Holds { epoch: 1, roster: 40, group: 41 }),
        services: services.iter().map(service).collect(),
        alarms: vec![],
        dropped: 0,
        controls: None,
        critical: vec![],
    };
    let roster = Roster {
        cluster: name(called),
        key: key.id(),
        group: group(),
        floor: 1,
        epoch: 1,
        sequence: 40,
        issued: NOW,
        expires: NOW + 1,
        labels: Labels::new(),
        tombstones: vec![],
        max_delay_seconds: 900,
        footprint: Default::default(),
        critical: vec![],
    };
    let registration = Registration {
        cluster: name(called),
        key,
        sealing_key: String::new(),
        labels: labels(&[("tier", "edge")]),
        token: "t".into(),
        epoch: 1,
        sequence: 1,
        issued: NOW,
        critical: vec![],
    };
    let (roster, status, heard) = (Some(roster), Some(status), NOW - 5);
    Known { registration, roster, status, received: heard * 1000, seen: Some(heard) }
}

fn published() -> Published {
    let reference = GroupRef {
        values: BTreeMap::new(),
        keys: None,
        sequence: 41,
        digest: group(),
        content: group(),
        expires: NOW + 1,
        services: BTreeMap::new(),
        tombstones: vec![],
    };
    Published { head: None, intent: intent(), table: record::Table(BTreeMap::from([(group(), reference)])) }
}

fn origin() -> Origin {
    Origin { file: "fleet.yaml".into(), line: 1 }
}

fn intent() -> Intent {
    let source: SourceSpec =
        serde_json::from_value(json!({"git": {"url": "https://git.example/web.git"}})).expect("a source");
    let service = |spec: serde_json::Value, is_published: bool| {
        let spec: ServiceSpec = serde_json::from_value(spec).expect("a service");
        let artifact = wire::Artifact { digest: group(), size: 812, tar_digest: group(), tar_size: 4096 };
        let published = is_published.then(|| record::Published {
            incarnation: 1,
            made: record::Made::of(&spec),
            commit: "d".repeat(40),
            key: group(),
            artifact,
        });
        IntentService { spec, origin: origin(), published }
    };
    let edge = json!({"matchLabels": {"tier": "edge"}});
    let nobody = json!({"matchLabels": {"tier": "moon"}});
    let web = json!({"source": "web", "path": "deploy", "renderer": "kustomize", "clusters": edge});
    Intent {
        fleet: Some("f".repeat(40)),
        sources: BTreeMap::from([(
            name("web"),
            IntentSource { spec: source, origin: origin(), commit: Some("d".repeat(40)) },
        )]),
        services: BTreeMap::from([
            (name("web"), service(web.clone(), true)),
            (name("emptied"), service(web, true)),
            (name("lonely"), service(json!({"source": "fleet", "clusters": nobody}), true)),
            (name("new"), service(json!({"source": "fleet", "path": "new", "clusters": {}}), false)),
        ]),
        defaults: None,
        clusters: BTreeMap::from([(
            name("far"),
            IntentCluster {
                labels: labels(&[("region", "north")]),
                footprint: Default::default(),
                origin: origin(),
            },
        )]),
    }
}

fn head(source: &str, state: record::SourceState, messages: &[&str]) -> SourceHead {
    SourceHead {
        source: source.into(),
        url: format!("https://git.example/{source}.git"),
        commit: Some("f".repeat(40)),
        state,
        messages: messages.iter().map(|&message| message.to_owned()).collect(),
        held: None,
        services: BTreeMap::new(),
        epoch: 1,
        sequence: 1,
        issued: NOW,
    }
}

fn table(listing: &Listing) -> String {
    let mut out = Vec::new();
    listing.write_table(&mut out, NOW).expect("memory takes it");
    let plain = anstream::adapter::strip_bytes(&out).into_vec();
    String::from_utf8(plain).expect("tables are text")
}

/// One cluster of each kind.
fn clusters() -> Vec<Known> {
    use wire::ServiceState::{Applied, Failed, Held, Waiting};
    let mut behind = cluster("behind", &[("web", Applied, "")]);
    behind.status.as_mut().expect("it has one").holds = Some(Holds { epoch: 1, roster: 40, group: 33 });
    let mut moved = cluster("moved", &[]);
    moved.roster.as_mut().expect("it has one").sequence = 41;
    let mut far = cluster("far", &[("web", Applied, "")]);
    far.seen = Some(NOW - 3 * POLL - 61);
    far.received = 0;
    let mut failed = cluster("failed", &[("a", Waiting, ""), ("web", Failed, "")]);
    let failure = ObjectFailure { object: "v1/ConfigMap shop/x".into(), message: "denied\u{1b}[2J".into() };
    failed.status.as_mut().expect("it has one").services[1].failures.push(failure);
    let mut alarmed = cluster("alarmed", &[]);
    alarmed.status.as_mut().expect("it has one").alarms.push("the clock was set back".into());
    let silent = Known { status: None, received: 0, ..cluster("silent", &[]) };
    vec![
        cluster("good", &[("web", Applied, "")]),
        alarmed,
        behind,
        moved,
        cluster("held", &[("web", Held, "removes 12 of 20 objects")]),
        failed,
        far,
        silent.clone(),
        Known { roster: None, ..cluster("new", &[]) },
        Known {
            seen: None,
            registration: Registration { cluster: name("never"), ..silent.registration.clone() },
            ..silent
        },
    ]
}

#[test]
fn every_cluster_is_judged_by_what_it_holds_and_when_it_was_heard() {
    let items = clusters::rows(&clusters(), &published(), NOW);
    assert_snapshot!(table(&Listing::Clusters(List { items })));
}

#[test]
fn a_cluster_is_unreachable_only_after_three_polls_and_a_minute() {
    let at = |seen: Option<u64>, received: u64| {
        let mut known = cluster("shop-7", &[]);
        known.seen = seen;
        known.received = received * 1000;
        clusters::rows(&[known], &published(), NOW)[0].state
    };
    let last = NOW - 3 * POLL - 60;
    assert_eq!(at(Some(last), 0), ClusterState::Converged);
    assert_eq!(at(Some(last - 1), last - 1), ClusterState::Unreachable);
    assert_eq!(at(None, last), ClusterState::Converged, "the status counts where nothing else is known");
    assert_eq!(at(None, last - 1), ClusterState::Unreachable);
    assert_eq!(at(None, NOW + 99), ClusterState::Converged, "another hub's clock is ahead");
}

#[test]
fn a_poll_interval_that_a_site_invents_does_not_overflow() {
    let mut known = cluster("shop-7", &[]);
    known.status.as_mut().expect("it has one").poll_seconds = u64::MAX;
    (known.seen, known.received) = (Some(0), 0);
    assert_eq!(clusters::rows(&[known], &published(), NOW)[0].state, ClusterState::Converged);
}

#[test]
fn services_show_what_is_published_and_what_is_wrong() {
    let mut web = head("web", record::SourceState::Degraded, &["service emptied: nothing is at deploy"]);
    web.services.insert(name("emptied"), "nothing is at deploy".into());
    let items = services::rows(&intent(), &[web], &[cluster("a", &[]), cluster("b", &[])]);
    assert_snapshot!(table(&Listing::Services(List { items })));
}

#[test]
fn sources_show_what_is_held_and_what_was_never_looked_at() {
    let held =
        HeldChange::new("fleet", Some(&"a".repeat(40)), &"b".repeat(40), HoldCause::MassRemoval, 12, 20);
    let mut fleet = head("fleet", record::SourceState::Held, &[&held.explain(), "a.yaml:3: odd"]);
    fleet.held = Some(held);
    let broken = head("aside", record::SourceState::Failed, &["fetching: it does not answer"]);
    let items = sources::rows(&intent(), &[fleet, broken]);
    assert_snapshot!(table(&Listing::Sources(List { items })));
}

#[test]
fn json_has_the_same_four_fields_for_everything() {
    let listings = [
        Listing::Clusters(List { items: clusters::rows(&clusters(), &published(), NOW) }),
        Listing::Services(List { items: services::rows(&intent(), &[], &[]) }),
        Listing::Sources(List { items: sources::rows(&intent(), &[]) }),
    ];
    for listing in listings {
        let json = serde_json::to_value(&listing).expect("rows are JSON");
        let items = json["items"].as_array().expect("a list");
        assert!(!items.is_empty());
        for item in items {
            assert!(item["name"].is_string() && item["state"].is_string() && item["message"].is_string());
            assert!(item["revision"].is_string() || item["revision"].is_null(), "{item}");
        }
    }
    let far = clusters::rows(&clusters()[6..7], &published(), NOW);
    assert_snapshot!(serde_json::to_string_pretty(&far).expect("rows are JSON"));
}

#[test]
fn the_committed_schema_is_that_of_the_rows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/get.schema.json");
    let made =
        serde_json::to_string_pretty(&schemars::schema_for!(Listing)).expect("a schema is JSON") + "\n";
    if std::env::var_os("FARSHORE_UPDATE_SCHEMAS").is_some() {
        std::fs::write(path, &made).expect("writes the schema");
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap_or_default(),
        made,
        "schemas/get.schema.json differs from the rows; make it again with: \
         FARSHORE_UPDATE_SCHEMAS=1 cargo test -p farshore --bin farshore get::tests::the_committed"
    );
}
