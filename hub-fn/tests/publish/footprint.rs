//! How much agents may ask, from the fleet repository into the signed documents.

use std::sync::Arc;

use farshore_hub_fn::index::memory::Memory;
use farshore_hub_fn::objects::Objects;
use farshore_hub_fn::publish::{Publisher, Step, StepReport};
use farshore_hub_fn::record::{self, SourceHead, SourceState};
use farshore_hub_fn::trust::Trust;
use farshore_hub_fn::view::{Freshness, View};
use farshore_shared::dsse::Envelope;
use farshore_shared::wire::Footprint;

use crate::world::{World, name, sync};

struct Office {
    world: World,
    objects: Arc<dyn Objects>,
    publisher: Publisher,
}

impl Office {
    /// Three clusters of two groups.
    async fn open() -> Self {
        let mut world = World::new();
        let objects = world.objects();
        world.declare("edge", Some("edge"), "1");
        world.commit();
        let mut publisher = world.publisher(&objects, "mirrors").await;
        for (cluster, tier) in [("harbour", "edge"), ("lighthouse", "edge"), ("vault", "core")] {
            world.enrol(&objects, cluster, &format!("tier={tier}")).await;
        }
        publisher.step(Step::Enrolments).await.expect("a good record");
        sync(&mut publisher).await;
        Self { world, objects, publisher }
    }

    async fn commit(&mut self, files: &[(&str, String)]) -> StepReport {
        for (file, text) in files {
            self.world.fleet.write(format!("fleet/{file}"), text).expect("a folder");
        }
        self.world.commit();
        sync(&mut self.publisher).await
    }

    /// What the documents of a cluster say: of itself, and of all.
    async fn said(&self, cluster: &str) -> (Footprint, Footprint) {
        let view = View::new(Arc::clone(&self.objects), Arc::new(Memory::new()));
        let roster = view.roster(&name(cluster), Freshness::Now).await.expect("a good record");
        let roster = roster.expect("it is enrolled");
        let publication = view.publication(Freshness::Now).await.expect("a good record");
        let id = roster.document.group;
        let sequence = publication.as_ref().and_then(|p| p.group(&id)).expect("a group").sequence;
        let group = view.group(id, sequence).await.expect("a body that the table names");
        (roster.document.footprint, group.document.footprint)
    }

    /// What a person is told of the fleet repository.
    async fn messages(&self) -> Vec<String> {
        let (trust, _) = Trust::establish(&*self.objects, &self.world.ring).await.expect("our own keys");
        let stored = self.objects.get(&record::source_head("fleet"), 1 << 20).await.expect("a disk");
        let envelope: Envelope =
            serde_json::from_slice(&stored.expect("written").bytes).expect("an envelope");
        let head: SourceHead = envelope.open(&trust.director(), 1 << 20).expect("signed by us");
        assert_eq!(head.state, SourceState::Degraded);
        head.messages
    }
}

fn declared(kind: &str, name: &str, footprint: &str) -> String {
    format!(
        "apiVersion: farshore.dev/v1alpha1\nkind: {kind}\nmetadata: {{ name: {name} }}\nspec: {{ footprint: {footprint} }}\n"
    )
}

fn qps(qps: u64) -> Footprint {
    Footprint { qps: Some(qps), ..Footprint::default() }
}

#[tokio::test]
async fn what_holds_for_all_writes_the_groups_and_what_holds_for_one_its_roster() {
    let mut office = Office::open().await;
    let none = Footprint::default();
    assert_eq!(office.said("harbour").await, (none, none));
    let report = office.commit(&[("fleet.yaml", declared("Fleet", "shops", "{ qps: 50 }"))]).await;
    assert_eq!((report.groups, report.rosters), (2, 0));
    assert_eq!(office.said("vault").await, (none, qps(50)));
    let report = office.commit(&[("harbour.yaml", declared("Cluster", "harbour", "{ qps: 5 }"))]).await;
    assert_eq!((report.groups, report.rosters), (0, 1));
    assert_eq!(office.said("harbour").await, (qps(5), qps(50)));
    assert_eq!(office.said("lighthouse").await, (none, qps(50)));
    assert_eq!(office.commit(&[]).await.rosters, 0, "nothing is written that is so already");
    // Another publisher knows it from the directory, and a newcomer finds it.
    office.publisher = office.world.publisher(&office.objects, "mirrors-2").await;
    office.world.enrol(&office.objects, "ferry", "tier=core").await;
    office.publisher.step(Step::Enrolments).await.expect("a good record");
    let report = office.commit(&[("ferry.yaml", declared("Cluster", "ferry", "{ qps: 9 }"))]).await;
    assert_eq!((report.groups, report.rosters), (0, 1));
    assert_eq!(office.said("ferry").await, (qps(9), qps(50)));
    // What is not said any more holds no more.
    office.world.fleet.remove("fleet/fleet.yaml").expect("it was there");
    office.world.fleet.remove("fleet/harbour.yaml").expect("it was there");
    let report = office.commit(&[]).await;
    assert_eq!((report.groups, report.rosters), (2, 1));
    assert_eq!(office.said("harbour").await, (none, none));
}

#[tokio::test]
async fn a_footprint_that_cannot_be_read_keeps_its_last_good_form() {
    let mut office = Office::open().await;
    let good = [
        ("fleet.yaml", declared("Fleet", "shops", "{ qps: 50 }")),
        ("harbour.yaml", declared("Cluster", "harbour", "{ qps: 5 }")),
    ];
    office.commit(&good).await;
    let bad = [
        ("fleet.yaml", declared("Fleet", "shops", "{ qps: 0 }")),
        ("harbour.yaml", declared("Cluster", "harbour", "{ processMemory: 1Mi }")),
        ("lighthouse.yaml", declared("Cluster", "lighthouse", "{ qps: 7 }")),
    ];
    office.commit(&bad).await;
    assert_eq!(office.said("harbour").await, (qps(5), qps(50)));
    assert_eq!(office.said("lighthouse").await, (qps(7), qps(50)), "what can be read goes on");
    let messages = office.messages().await;
    let limits = [
        "fleet/fleet.yaml:4:27: spec.footprint.qps: the number is too small or too large (0) \
         (expected: a whole number from 1 to 100000)",
        "fleet/harbour.yaml:4:37: spec.footprint.processMemory: the amount is too small or too large (1Mi) \
         (expected: an amount of memory from 256Mi to 64Gi, such as 512Mi or 2Gi)",
    ];
    for limit in limits {
        assert!(messages.iter().any(|message| message == limit), "{messages:#?}");
    }
    office.commit(&good).await;
    assert_eq!(office.said("harbour").await, (qps(5), qps(50)));
}

#[tokio::test]
async fn of_two_fleets_neither_counts_and_what_was_declared_before_goes_on() {
    let mut office = Office::open().await;
    office.commit(&[("fleet.yaml", declared("Fleet", "shops", "{ qps: 50 }"))]).await;
    // The first by its place, and a third, are no better than the second.
    for file in ["a-team.yaml", "z-team.yaml"] {
        office.commit(&[(file, declared("Fleet", "team", "{ inFlight: 2 }"))]).await;
        let (_, all) = office.said("harbour").await;
        assert_eq!(all, qps(50), "{file}");
        assert!(office.messages().await.iter().any(|message| message.contains("Fleet is declared twice")));
    }
}
