//! The directory of clusters as publishers keep it, and what publishing costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use farshore_hub_fn::directory::Reader;
use farshore_hub_fn::objects::counted::{Counted, Tally};
use farshore_hub_fn::objects::memory::Memory;
use farshore_hub_fn::objects::{Condition, Objects};
use farshore_hub_fn::publish::directory::{Directory, note};
use farshore_hub_fn::publish::{Publisher, Step};
use farshore_hub_fn::record::{self, Entry, Removal};
use farshore_hub_fn::trust::Trust;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::SigningKey;
use farshore_shared::names::Name;

use crate::world::{NOW, Site, World, name, sync};

/// What a replica that starts now would know.
async fn directory(world: &World, objects: &Arc<dyn Objects>) -> BTreeMap<Name, Entry> {
    let (trust, _) = Trust::establish(&**objects, &world.ring).await.expect("our own keys");
    let (director, mut newest) = (trust.director(), BTreeMap::new());
    let reader = Reader::new(&**objects, &director);
    Directory::load(&reader, &mut |entry| note(&mut newest, entry)).await.expect("a good record");
    newest
}

async fn enrolments(publisher: &mut Publisher) {
    publisher.step(Step::Enrolments).await.expect("a good record");
}

#[tokio::test]
async fn the_directory_says_of_every_cluster_what_its_own_documents_say() {
    let mut world = World::new();
    world.declare("web", Some("edge"), "1");
    world.commit();
    let objects = world.objects();
    let key = world.enrol(&objects, "harbour", "tier=edge").await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    world.enrol(&objects, "beach", "").await;
    enrolments(&mut publisher).await;
    let known = directory(&world, &objects).await;
    assert_eq!(known.keys().map(Name::as_str).collect::<Vec<_>>(), ["beach", "harbour"]);
    let entry = &known[&name("harbour")];
    assert_eq!(entry.key.as_ref(), Some(key.public()));
    let roster = objects.get(&record::roster(&name("harbour")), 1 << 20).await.expect("a disk").expect("it");
    let reference = entry.roster.as_ref().expect("it has a roster");
    assert_eq!(reference.digest, farshore_shared::digest::Digest::of(&roster.bytes));
    // A publisher that starts anew knows as much and has nothing to write.
    let mut again = world.publisher(&objects, "mirrors").await;
    sync(&mut again).await;
    assert_eq!((again.clusters(), directory(&world, &objects).await), (2, known));
}

#[tokio::test]
async fn a_record_without_a_directory_gets_one_from_what_it_has() {
    let mut world = World::new();
    world.declare("web", None, "1");
    world.commit();
    let objects = world.objects();
    for cluster in ["a", "b", "c"] {
        world.enrol(&objects, cluster, "tier=edge").await;
    }
    sync(&mut world.publisher(&objects, "mirrors").await).await;
    let before = directory(&world, &objects).await;
    for listed in objects.list("index/", None, 1000).await.expect("a disk") {
        objects.delete(&listed.key).await.expect("a disk");
    }
    let mut publisher = world.publisher(&objects, "mirrors").await;
    assert_eq!(sync(&mut publisher).await.rosters, 0);
    assert_eq!(directory(&world, &objects).await, before);
    assert_eq!(objects.list("index/log/", None, 9).await.expect("a disk"), [], "it is a snapshot");
}

#[tokio::test]
async fn an_enrolment_that_the_directory_was_not_told_of_is_told_when_the_site_asks_again() {
    let mut world = World::new();
    world.declare("web", None, "1");
    world.commit();
    let objects = world.objects();
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    world.enrol(&objects, "first", "").await;
    enrolments(&mut publisher).await;
    let key = SigningKey::generate();
    let request = world.request(World::claims("t", "", 1), "harbour", &key);
    world.ask(&objects, &request).await;
    enrolments(&mut publisher).await;
    // The part that told of it is gone, as if the publisher had been killed before it.
    let last = objects.list("index/log/", None, 9).await.expect("a disk").pop().expect("a part");
    objects.delete(&last.key).await.expect("a disk");
    assert!(!directory(&world, &objects).await.contains_key(&name("harbour")));
    let mut again = world.publisher(&objects, "mirrors").await;
    world.ask(&objects, &request).await;
    enrolments(&mut again).await;
    assert!(directory(&world, &objects).await[&name("harbour")].roster.is_some());
}

#[tokio::test]
async fn a_removed_cluster_is_gone_from_the_directory_and_its_name_is_free() {
    let mut world = World::new();
    world.declare("web", None, "1");
    world.commit();
    let objects = world.objects();
    let key = world.enrol(&objects, "harbour", "").await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    let operator = world.ring.operator().expect("made before");
    let ask = async |of: &SigningKey, by: &SigningKey, issued: u64| {
        let removal = Removal { cluster: name("harbour"), key: of.public().id(), issued };
        let bytes = Bytes::from(Envelope::seal(&removal, &[by]).to_bytes());
        let _ =
            objects.put(&record::removal(&name("harbour")), bytes, Condition::Always).await.expect("a disk");
    };
    let later = u64::MAX / 2;
    // A stranger's word, one about another key, one that is older than the registration.
    for (of, by, issued) in [
        (&key, &SigningKey::generate(), later),
        (&SigningKey::generate(), &operator, later),
        (&key, &operator, 1),
    ] {
        ask(of, by, issued).await;
        enrolments(&mut publisher).await;
        assert!(directory(&world, &objects).await[&name("harbour")].is_enrolled());
    }
    ask(&key, &operator, later).await;
    enrolments(&mut publisher).await;
    assert!(!directory(&world, &objects).await[&name("harbour")].is_enrolled());
    assert_eq!(publisher.clusters(), 0);
    for gone in [record::registration, record::roster, record::removal].map(|of| of(&name("harbour"))) {
        assert_eq!(objects.get(&gone, 1 << 20).await.expect("a disk"), None, "{gone}");
    }
    let new = SigningKey::generate();
    let request = world.request(World::claims("again", "", 1), "harbour", &new);
    world.ask(&objects, &request).await;
    enrolments(&mut publisher).await;
    let entry = directory(&world, &objects).await[&name("harbour")].clone();
    assert_eq!(entry.key.as_ref(), Some(new.public()));
    assert!(entry.sequence > NOW, "a later life");
    assert!(Site::default().poll(&objects, "harbour").await);
}

/// What a commit, an enrolment and a relabelling cost in a fleet of so many clusters.
async fn costs(clusters: usize) -> [Tally; 3] {
    let mut world = World::new();
    world.declare("edge", Some("edge"), "1");
    world.declare("core", Some("core"), "1");
    world.commit();
    let counted = Arc::new(Counted::new(Arc::new(Memory::new())));
    let objects: Arc<dyn Objects> = counted.clone();
    for n in 0..clusters {
        world.enrol(&objects, &format!("c{n}"), if n % 2 == 0 { "tier=edge" } else { "tier=core" }).await;
    }
    let mut publisher = world.publisher(&objects, "mirrors").await;
    assert_eq!(sync(&mut publisher).await.rosters, clusters);
    world.declare("edge", Some("edge"), "2");
    world.commit();
    let _ = counted.take();
    let report = sync(&mut publisher).await;
    assert_eq!((report.groups, report.rosters), (1, 0));
    let commit = counted.take();
    world.enrol(&objects, "one-more", "tier=edge").await;
    let _ = counted.take();
    enrolments(&mut publisher).await;
    let enrolment = counted.take();
    let other = "apiVersion: farshore.dev/v1alpha1\nkind: Cluster\nmetadata: { name: one-more, labels: { tier: core } }\n";
    world.fleet.write("fleet/one-more.yaml", other).expect("a folder");
    world.commit();
    let _ = counted.take();
    assert_eq!(sync(&mut publisher).await.rosters, 1);
    [commit, enrolment, counted.take()]
}

#[tokio::test]
async fn what_a_commit_an_enrolment_or_a_relabelling_writes_does_not_grow_with_the_fleet() {
    let (few, many) = (costs(10).await, costs(200).await);
    let puts = |of: &[Tally; 3]| of.map(|tally| (tally.puts, tally.conflicts, tally.deletes));
    assert_eq!(puts(&few), puts(&many));
    for (few, many) in few.iter().zip(&many) {
        assert!(many.bytes_put <= few.bytes_put + few.bytes_put / 20, "{few:?} {many:?}");
    }
    let [commit, enrolment, relabelling] = many;
    // Artifact, body, intent, one shard of the table, head, the fleet's source head.
    assert!(commit.puts <= 6, "{commit:?}");
    // Use of the token, registration, roster, log.
    assert!(enrolment.puts <= 4, "{enrolment:?}");
    assert!(relabelling.puts <= 6, "{relabelling:?}");
}
