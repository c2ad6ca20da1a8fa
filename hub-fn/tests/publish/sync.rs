//! From Git to the record: what a commit touches, and what no commit can do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use farshore_chaos::kit::GitRepo;
use farshore_hub_fn::objects::counted::Counted;
use farshore_hub_fn::objects::faulty::{Decision, Faulty, Steps};
use farshore_hub_fn::objects::{Condition, Objects, Operation};
use farshore_hub_fn::publish::Step;
use farshore_hub_fn::record::{self, HeldChange, HoldCause, SourceState};
use farshore_hub_fn::trust::{Trust, TrustError};
use farshore_shared::keys::SigningKey;

use crate::world::{Site, World, manifest, name, service, service_of, sync};

#[derive(Debug, Default)]
struct Writes(AtomicUsize);

#[async_trait]
impl Steps for Writes {
    async fn before(&self, operation: Operation, _key: &str) -> Decision {
        if matches!(operation, Operation::Put | Operation::Delete) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Decision::Proceed
    }
}

#[tokio::test]
async fn a_step_that_finds_nothing_new_writes_nothing() {
    let mut world = World::new();
    world.declare("web", None, "1");
    world.commit();
    let writes = Arc::new(Writes::default());
    let objects: Arc<dyn Objects> = Arc::new(Faulty::new(world.objects(), Arc::clone(&writes) as _));
    world.enrol(&objects, "harbour", "tier=edge").await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    let report = sync(&mut publisher).await;
    assert_eq!((report.published.is_some(), report.groups, report.rosters), (true, 1, 1));
    let before = writes.0.load(Ordering::SeqCst);
    let report = sync(&mut publisher).await;
    assert_eq!((report.published, report.groups, report.rosters), (None, 0, 0));
    assert_eq!(writes.0.load(Ordering::SeqCst), before);
    assert_eq!(publisher.step(Step::Enrolments).await.expect("nothing is due").published, None);
    // A publisher that starts anew has nothing to say either, but how the sources are.
    let mut again = world.publisher(&objects, "mirrors").await;
    assert_eq!(sync(&mut again).await.published, None);
}

#[tokio::test]
async fn a_commit_rewrites_only_the_groups_that_it_touches() {
    let mut world = World::new();
    world.declare("edge", Some("edge"), "1");
    world.declare("core", Some("core"), "1");
    world.commit();
    let objects = world.objects();
    for (cluster, labels) in [("a", "tier=edge"), ("b", "tier=edge"), ("c", "tier=core"), ("d", "")] {
        world.enrol(&objects, cluster, labels).await;
    }
    let mut publisher = world.publisher(&objects, "mirrors").await;
    let first = sync(&mut publisher).await;
    assert_eq!((first.groups, first.rosters), (3, 4));
    world.declare("edge", Some("edge"), "2");
    let commit = world.commit();
    let second = sync(&mut publisher).await;
    assert_eq!((second.groups, second.rosters), (1, 0));
    assert!(second.published > first.published);
    let intent = world.intent(&objects).await;
    let of = |service: &str| intent.services[&name(service)].published.clone().expect("published");
    assert_eq!(of("edge").commit, commit);
    assert_ne!(of("core").commit, commit, "content that did not change keeps its revision");
    world.enrol(&objects, "e", "tier=core").await;
    let third = publisher.step(Step::Enrolments).await.expect("a good record");
    assert_eq!((third.groups, third.rosters), (0, 1), "enrolling is one roster");
}

#[tokio::test]
async fn a_file_that_breaks_or_falls_silent_removes_nothing_and_the_others_go_on() {
    let mut world = World::new();
    world.declare("web", None, "1");
    world.declare("db", None, "1");
    world.commit();
    let objects = world.objects();
    world.enrol(&objects, "harbour", "").await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    let whole = service("web", None);
    for broken in
        ["", "# nothing\n", "kind: Service\n", &whole[..40], "apiVersion: farshore.dev/v1alpha1\nkind: ["]
    {
        world.fleet.write("fleet/web.yaml", broken).expect("a folder");
        world.declare("db", None, broken.len().to_string().as_str());
        let commit = world.commit();
        sync(&mut publisher).await;
        let intent = world.intent(&objects).await;
        assert_eq!(intent.services.len(), 2, "after {broken:?}");
        assert_eq!(intent.fleet, Some(commit.clone()));
        let db = intent.services[&name("db")].published.clone().expect("published");
        assert_eq!(db.commit, commit, "the other file goes on");
    }
    world.fleet.remove("fleet/web.yaml").expect("it is there");
    world.commit();
    sync(&mut publisher).await;
    assert_eq!(world.intent(&objects).await.services.len(), 1, "a file that is removed is a removal");
}

#[tokio::test]
async fn a_path_that_vanished_keeps_what_was_published_with_its_own_path() {
    let mut world = World::new();
    world.declare("web", None, "1");
    world.commit();
    let objects = world.objects();
    world.enrol(&objects, "harbour", "").await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    let before = world.published(&objects).await;
    world.fleet.write("fleet/web.yaml", service_of("fleet", "apps/typo", "web", None)).expect("a folder");
    world.commit();
    sync(&mut publisher).await;
    let after = world.published(&objects).await;
    let of = |intent: &record::Intent| intent.services[&name("web")].published.clone();
    assert_eq!(of(&after.intent), of(&before.intent));
    assert_eq!(after.table, before.table, "sites see nothing of it");
    world.fleet.remove("apps").expect("it is there");
    world.declare("web", None, "1");
    world.fleet.remove("apps").expect("it is there");
    world.commit();
    sync(&mut publisher).await;
    assert_eq!(of(&world.intent(&objects).await), of(&before.intent));
}

#[tokio::test]
async fn a_fleet_that_goes_back_is_held_until_that_very_change_is_approved() {
    let mut world = World::new();
    world.declare("web", None, "1");
    let first = world.commit();
    world.declare("db", None, "1");
    let second = world.commit();
    let objects = world.objects();
    world.enrol(&objects, "harbour", "").await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    world.fleet.reset_hard(&first).expect("it is there");
    let report = sync(&mut publisher).await;
    assert_eq!(report.published, None);
    let held = report.held.first().expect("it is held").clone();
    assert_eq!((held.why, held.removes, held.of), (HoldCause::NotDescending, 1, 2));
    assert_eq!(world.intent(&objects).await.fleet, Some(second));
    let operator = world.ring.operator().expect("made before");
    // Neither a stranger's word, nor one for another change, nor one whose id was exchanged.
    world.approve(&objects, &held, &SigningKey::generate()).await;
    let other = record::HeldChange { removes: 2, ..held.clone() };
    assert!(!publisher.is_any_approved(std::slice::from_ref(&held)).await.expect("a disk"));
    world.approve(&objects, &other, &operator).await;
    assert_eq!(sync(&mut publisher).await.published, None);
    world.approve(&objects, &held, &operator).await;
    assert!(publisher.is_any_approved(&[held]).await.expect("a disk"));
    assert!(sync(&mut publisher).await.published.is_some());
    let intent = world.intent(&objects).await;
    assert_eq!((intent.fleet, intent.services.len()), (Some(first), 1));
}

#[tokio::test]
async fn an_approval_is_read_once_and_forgotten_when_it_is_gone() {
    let mut world = World::new();
    world.declare("web", None, "1");
    world.commit();
    let objects = world.objects();
    let counted = Arc::new(Counted::new(Arc::clone(&objects)));
    let through: Arc<dyn Objects> = counted.clone();
    let mut publisher = world.publisher_through(&objects, &through, "mirrors").await;
    let operator = world.ring.operator().expect("made before");
    let held = |n: u64| HeldChange::new("fleet", None, "a commit", HoldCause::NothingLeft, n, 10);
    let mut reads = async || {
        sync(&mut publisher).await;
        let read = counted.take_by_kind().get("approvals").map_or(0, |tally| tally.gets);
        let mut found = vec![];
        for n in 0..4 {
            found.push(publisher.is_any_approved(&[held(n)]).await.expect("a disk"));
        }
        let _ = counted.take();
        (read, found)
    };
    for n in 0..3 {
        world.approve(&objects, &held(n), &operator).await;
    }
    assert_eq!(reads().await, (3, vec![true, true, true, false]));
    assert_eq!(reads().await, (0, vec![true, true, true, false]));
    world.approve(&objects, &held(3), &operator).await;
    assert_eq!(reads().await, (1, vec![true; 4]), "only the new one");
    let first = record::approval(&held(0).change).expect("a key");
    objects.delete(&first).await.expect("a disk");
    assert_eq!(reads().await, (0, vec![false, true, true, true]));
    // What is none is read again: an operator may write the right one over it.
    world.approve(&objects, &held(0), &SigningKey::generate()).await;
    assert_eq!(reads().await, (1, vec![false, true, true, true]));
    world.approve(&objects, &held(0), &operator).await;
    assert_eq!(reads().await, (1, vec![true; 4]));
}

#[tokio::test]
async fn a_repository_that_was_emptied_is_held_however_small_the_fleet() {
    let mut world = World::new();
    world.declare("web", None, "1");
    world.commit();
    let objects = world.objects();
    let mut site = Site::default();
    world.enrol(&objects, "harbour", "").await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    assert!(site.poll(&objects, "harbour").await);
    world.fleet.remove("fleet").expect("it is there");
    world.commit();
    let report = sync(&mut publisher).await;
    assert_eq!(report.held.first().map(|held| held.why), Some(HoldCause::NothingLeft));
    site.poll(&objects, "harbour").await;
    assert_eq!(site.names(), ["web"]);
    world.approve(&objects, &report.held[0], &world.ring.operator().expect("made before")).await;
    sync(&mut publisher).await;
    site.poll(&objects, "harbour").await;
    assert_eq!(site.names(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_service_that_comes_back_has_a_life_of_its_own() {
    let mut world = World::new();
    world.declare("web", None, "1");
    world.declare("db", None, "1");
    world.commit();
    let objects = world.objects();
    let mut site = Site::default();
    world.enrol(&objects, "harbour", "").await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    site.poll(&objects, "harbour").await;
    let first = site.services[&name("web")];
    world.fleet.remove("fleet/web.yaml").expect("it is there");
    world.commit();
    sync(&mut publisher).await;
    site.poll(&objects, "harbour").await;
    assert_eq!(site.names(), ["db"]);
    world.declare("web", None, "1");
    world.commit();
    sync(&mut publisher).await;
    site.poll(&objects, "harbour").await;
    assert!(site.services[&name("web")] > first);
}

#[tokio::test]
async fn a_source_that_goes_back_or_is_away_keeps_its_services_and_no_other_waits() {
    let mut world = World::new();
    let mut upstream = GitRepo::new().expect("git is on PATH");
    upstream.write("it.yaml", manifest("1")).expect("a folder");
    let first = upstream.commit("one").expect("git works");
    upstream.write("it.yaml", manifest("2")).expect("a folder");
    let second = upstream.commit("two").expect("git works");
    let source = format!(
        "apiVersion: farshore.dev/v1alpha1\nkind: Source\nmetadata: {{ name: up }}\nspec: {{ git: {{ url: \"{}\" }} }}\n---\n",
        upstream.file_url()
    );
    world.fleet.write("fleet/up.yaml", source + &service_of("up", "", "far", None)).expect("a folder");
    world.declare("near", None, "1");
    world.commit();
    let objects = world.objects();
    world.enrol(&objects, "harbour", "").await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    upstream.reset_hard(&first).expect("it is there");
    world.declare("near", None, "2");
    let commit = world.commit();
    let report = sync(&mut publisher).await;
    let held = report.held.first().expect("the source is held").clone();
    assert_eq!((held.scope.as_str(), held.why), ("up", HoldCause::NotDescending));
    let intent = world.intent(&objects).await;
    let of = |service: &str| intent.services[&name(service)].published.clone().expect("published").commit;
    assert_eq!((of("far"), of("near")), (second.clone(), commit));
    let away = upstream.path().with_extension("away");
    std::fs::rename(upstream.path(), &away).expect("a folder of ours");
    let report = publisher.step(Step::Sync).await.expect("a good record");
    assert_eq!(report.failed, ["up"]);
    let intent = world.intent(&objects).await;
    assert_eq!(intent.services[&name("far")].published.clone().expect("published").commit, second);
    std::fs::rename(&away, upstream.path()).expect("a folder of ours");
    world.approve(&objects, &held, &world.ring.operator().expect("made before")).await;
    sync(&mut publisher).await;
    let intent = world.intent(&objects).await;
    assert_eq!(intent.services[&name("far")].published.clone().expect("published").commit, first);
}

#[tokio::test]
async fn a_head_from_a_backup_makes_no_sequence_go_back() {
    let mut world = World::new();
    world.declare("web", None, "1");
    world.declare("db", None, "1");
    world.commit();
    let objects = world.objects();
    let mut site = Site::default();
    world.enrol(&objects, "harbour", "").await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    site.poll(&objects, "harbour").await;
    let old = objects.get(&record::head(), 1 << 20).await.expect("a disk").expect("published");
    world.fleet.remove("fleet/web.yaml").expect("it is there");
    world.declare("db", None, "2");
    world.commit();
    sync(&mut publisher).await;
    site.poll(&objects, "harbour").await;
    let newest = world.published(&objects).await.head.expect("published").0.sequence;
    let _ = objects.put(&record::head(), old.bytes, Condition::Always).await.expect("a disk");
    for mut publisher in [publisher, world.publisher(&objects, "mirrors").await] {
        sync(&mut publisher).await;
        assert!(world.published(&objects).await.head.expect("published").0.sequence > newest);
        site.poll(&objects, "harbour").await;
        assert_eq!(site.names(), ["db"]);
    }
}

#[tokio::test]
async fn keys_of_another_fleet_are_refused_and_both_are_named() {
    let world = World::new();
    let objects = world.objects();
    let (trust, _) = Trust::establish(&*objects, &world.ring).await.expect("our own keys");
    let other = World::new();
    let error = Trust::establish(&*objects, &other.ring).await.expect_err("keys of another fleet");
    let TrustError::Foreign { key, named } = &error else { panic!("{error:?}") };
    assert_eq!(*key, other.ring.publisher().expect("made before").director.public().id());
    assert_eq!(*named, trust.root.roles.director.keys[0].to_string());
    let again = Trust::load(&*objects).await.expect("a root").expect("the first one");
    assert_eq!((again.fleet, again.root), (world.root(), trust.root));
}

#[tokio::test]
async fn what_a_person_should_know_is_in_the_source_heads() {
    let mut world = World::new();
    world.declare("web", Some("sea"), "1");
    world
        .fleet
        .write("fleet/bad.yaml", "apiVersion: farshore.dev/v1alpha1\nkind: Servce\n")
        .expect("a folder");
    world.commit();
    let objects = world.objects();
    world.enrol(&objects, "harbour", "tier=edge").await;
    let mut publisher = world.publisher(&objects, "mirrors").await;
    sync(&mut publisher).await;
    let (trust, _) = Trust::establish(&*objects, &world.ring).await.expect("our own keys");
    let stored = objects.get(&record::source_head("fleet"), 1 << 20).await.expect("a disk").expect("written");
    let envelope: farshore_shared::dsse::Envelope =
        serde_json::from_slice(&stored.bytes).expect("an envelope");
    let head: record::SourceHead = envelope.open(&trust.director(), 1 << 20).expect("signed by us");
    assert_eq!(head.state, SourceState::Degraded);
    assert!(head.messages.iter().any(|message| message.starts_with("fleet/bad.yaml")), "{:?}", head.messages);
    assert!(head.messages.iter().any(|message| message.contains("matches no enrolled cluster")));
}
