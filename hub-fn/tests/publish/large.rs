//! What is large: a body and a table beyond their limits, and thousands of clusters that move at once.

use std::sync::Arc;

use bytes::Bytes;
use farshore_hub_fn::objects::memory::Memory;
use farshore_hub_fn::objects::{Condition, Objects};
use farshore_hub_fn::publish::{Publisher, Step};
use farshore_hub_fn::record::{self, Buried, Head, SourceHead, SourceState, Table};
use farshore_hub_fn::trust::Trust;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;

use crate::world::{Site, World, manifest, name, sync};

/// How the fleet repository is, for people.
async fn fleet_head(world: &World, objects: &Arc<dyn Objects>) -> SourceHead {
    let (trust, _) = Trust::establish(&**objects, &world.ring).await.expect("our own keys");
    let stored = objects.get(&record::source_head("fleet"), 1 << 20).await.expect("a disk").expect("written");
    let envelope: Envelope = serde_json::from_slice(&stored.bytes).expect("an envelope");
    envelope.open(&trust.director(), 1 << 20).expect("signed by us")
}

/// Publishes what is published once more, with so many tombstones in the group that has this service.
async fn bury(world: &World, objects: &Arc<dyn Objects>, service: &str, count: u64) {
    let published = world.published(objects).await;
    let (head, _) = published.head.expect("published");
    let mut table = published.table;
    let group = table.0.values_mut().find(|group| group.services.contains_key(&name(service)));
    group.expect("a group that has it").tombstones = (0..count)
        .map(|n| Buried { service: name(&format!("gone-{n}")), incarnation: n, since: n })
        .collect();
    let mut tables = Vec::new();
    for shard in table.shards() {
        let bytes = serde_json::to_vec(&shard).expect("JSON");
        let digest = Digest::of(&bytes);
        let _ = objects.put(&record::table(digest), bytes.into(), Condition::Always).await.expect("a disk");
        tables.push(digest);
    }
    let head = Head { sequence: head.sequence + 1, tables, ..head };
    let director = world.ring.publisher().expect("our own keys").director;
    let bytes = Bytes::from(Envelope::seal(&head, &[&director]).to_bytes());
    let _ = objects.put(&record::head(), bytes, Condition::Always).await.expect("a disk");
}

async fn two_groups() -> (World, Arc<dyn Objects>, Publisher) {
    let mut world = World::new();
    world.declare("edge", Some("edge"), "1");
    world.declare("core", Some("core"), "1");
    world.commit();
    let objects = world.objects();
    world.enrol(&objects, "harbour", "tier=edge").await;
    world.enrol(&objects, "vault", "tier=core").await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    (world, objects, publisher)
}

fn digest_of(table: &Table, service: &str) -> Digest {
    let mut groups = table.0.values();
    groups.find(|group| group.services.contains_key(&name(service))).expect("a group that has it").digest
}

#[tokio::test]
async fn a_body_beyond_its_limit_is_not_signed_and_its_group_keeps_what_it_had() {
    let (mut world, objects, mut publisher) = two_groups().await;
    let (mut harbour, mut vault) = (Site::default(), Site::default());
    bury(&world, &objects, "edge", 80_000).await;
    let before = world.published(&objects).await.table;
    for service in ["edge", "core"] {
        world.declare(service, Some(service), "2");
    }
    world.commit();
    let report = sync(&mut publisher).await;
    assert_eq!(report.groups, 1, "the other group is published");
    let after = world.published(&objects).await.table;
    assert_eq!(digest_of(&before, "edge"), digest_of(&after, "edge"));
    assert_ne!(digest_of(&before, "core"), digest_of(&after, "core"));
    let head = fleet_head(&world, &objects).await;
    assert_eq!(head.state, SourceState::Degraded);
    let told = head.messages.join("\n");
    assert!(told.contains("its document is too large (") && told.contains("bytes, limit "), "{told}");
    assert!(harbour.poll(&objects, "harbour").await && vault.poll(&objects, "vault").await);
    assert_eq!((harbour.names(), vault.names()), (vec!["edge"], vec!["core"]));
    // Once it is small again, it is published, and nothing is told of it any more.
    bury(&world, &objects, "edge", 1).await;
    assert_eq!(sync(&mut publisher).await.groups, 1);
    assert_ne!(digest_of(&before, "edge"), digest_of(&world.published(&objects).await.table, "edge"));
    assert_eq!(fleet_head(&world, &objects).await.state, SourceState::Ready);
}

#[tokio::test]
async fn a_roster_beyond_its_limit_is_not_signed_and_its_cluster_stays_where_it_is() {
    let (mut world, objects, mut publisher) = two_groups().await;
    let mut harbour = Site::default();
    // What it leaves behind when it moves is more than a roster holds.
    bury(&world, &objects, "edge", 3_000).await;
    let moved = "apiVersion: farshore.dev/v1alpha1\nkind: Cluster\nmetadata: { name: harbour, labels: { tier: core } }\n";
    world.fleet.write("fleet/harbour.yaml", moved).expect("a folder");
    world.commit();
    for _ in 0..2 {
        assert_eq!(sync(&mut publisher).await.rosters, 0);
        assert!(harbour.poll(&objects, "harbour").await);
        assert_eq!(harbour.names(), ["edge"]);
    }
    let head = fleet_head(&world, &objects).await;
    assert_eq!(head.state, SourceState::Degraded);
    let told = head.messages.join("\n");
    assert!(
        told.contains("cluster harbour: its roster is too large (") && told.contains("limit 65536"),
        "{told}"
    );
    // Once it is small enough, it is written at the next look at everybody.
    bury(&world, &objects, "edge", 10).await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    assert_eq!(sync(&mut publisher).await.rosters, 1);
    assert!(harbour.poll(&objects, "harbour").await);
    assert_eq!(harbour.names(), ["core"]);
    assert_eq!(fleet_head(&world, &objects).await.state, SourceState::Ready);
}

/// Steps until there is no more to write at once; how many rosters each has written.
async fn steps(publisher: &mut Publisher) -> Vec<usize> {
    let mut written = Vec::new();
    loop {
        let report = publisher.step(Step::Enrolments).await.expect("a good record");
        written.push(report.rosters);
        if !report.is_unfinished {
            return written;
        }
    }
}

#[tokio::test]
async fn thousands_that_new_selector_keys_move_are_moved_step_by_step_and_lose_nothing_meanwhile() {
    const CLUSTERS: usize = 2_100;
    let mut world = World::new();
    world.declare("edge", Some("edge"), "1");
    world.commit();
    let objects: Arc<dyn Objects> = Arc::new(Memory::new());
    for n in 0..CLUSTERS {
        world.enrol(&objects, &format!("c{n}"), &format!("tier=edge,zone=z{}", n % 2)).await;
    }
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    while publisher.clusters() < CLUSTERS {
        let _ = steps(&mut publisher).await;
    }
    let some = ["c0", "c1", "c2098", "c2099", "c1000", "c1001"];
    let mut sites: Vec<Site> = vec![Site::default(); some.len()];
    for (site, cluster) in sites.iter_mut().zip(some) {
        assert!(site.poll(&objects, cluster).await);
    }
    // A selector uses another key: everybody belongs to another group.
    let zoned = "apiVersion: farshore.dev/v1alpha1\nkind: Service\nmetadata: { name: zoned }\nspec: { source: fleet, path: apps/zoned, clusters: { matchLabels: { zone: z1 } } }\n";
    world.fleet.write("fleet/zoned.yaml", zoned).expect("a folder");
    world.fleet.write("apps/zoned/it.yaml", manifest("1")).expect("a folder");
    world.commit();
    let report = sync(&mut publisher).await;
    assert_eq!((report.rosters, report.moving, report.is_unfinished), (2_000, 100, true));
    for (site, cluster) in sites.iter_mut().zip(some) {
        assert!(site.poll(&objects, cluster).await);
        assert!(site.names().contains(&"edge"), "{cluster} has {:?}", site.names());
    }
    assert_eq!(steps(&mut publisher).await, [100]);
    assert_eq!(publisher.moving(), 0);
    for (n, (site, cluster)) in sites.iter_mut().zip(some).enumerate() {
        assert!(site.poll(&objects, cluster).await);
        let expected: &[&str] = if n % 2 == 0 { &["edge"] } else { &["edge", "zoned"] };
        assert_eq!(site.names(), expected, "{cluster}");
    }
    assert_eq!(sync(&mut publisher).await.rosters, 0, "and then there is nothing left to do");
}
