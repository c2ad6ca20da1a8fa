//! Collection beside publication: each stopped at every single operation while the other runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use farshore_chaos::kit::GitRepo;
use farshore_hub_fn::objects::faulty::{Decision, Faulty, Steps};
use farshore_hub_fn::objects::{Objects, ObjectsError, Operation};
use farshore_hub_fn::publish::{Publisher, Step};
use farshore_hub_fn::record;
use farshore_hub_fn::retention::{Collector, Guarded, Kind, Round, Rules, TAKEOVER};
use farshore_hub_fn::source::kept::{self, Head, KeptError, KeptPack};
use farshore_hub_fn::source::{Branch, GitUrl, Limits, Mirror};
use farshore_hub_fn::trust::Trust;
use tokio::sync::Notify;

use crate::world::{NOW, Site, World, sync};

const DAY: u64 = 86_400;

/// Which operations a stop counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// All but the reading of what never changes.
    All,
    /// Those on what decides between the two: the head, the claim, the artifacts.
    Shared,
}

/// Stops whoever does the n-th operation until it is let go.
#[derive(Debug)]
struct Stop {
    counted: Counted,
    at: usize,
    count: AtomicUsize,
    reached: Notify,
    go: Notify,
}

impl Stop {
    fn at(counted: Counted, at: usize) -> Arc<Self> {
        Arc::new(Self { counted, at, count: AtomicUsize::new(0), reached: Notify::new(), go: Notify::new() })
    }
}

#[async_trait]
impl Steps for Stop {
    async fn before(&self, operation: Operation, key: &str) -> Decision {
        let reads = matches!(operation, Operation::Get | Operation::List);
        // What is under its digest, or under its number, is the same whenever it is read.
        let fixed = ["fleet/tables/", "fleet/intents/", "groups/", "registrations/", "rosters/", "trust/"];
        let shared = ["fleet/head", "gc/claim", "artifacts/"];
        let is_of = |prefixes: &[&str]| prefixes.iter().any(|prefix| key.starts_with(prefix));
        let plays_no_part = match self.counted {
            Counted::All => reads && is_of(&fixed),
            Counted::Shared => !is_of(&shared),
        };
        if !plays_no_part && self.count.fetch_add(1, Ordering::SeqCst) == self.at {
            self.reached.notify_one();
            self.go.notified().await;
        }
        Decision::Proceed
    }
}

/// A fleet of one cluster whose service had the content 1, 2, 3: what content 1 left behind is due, and the
/// next commit needs it again.
struct Fleet {
    world: World,
    site: Site,
    /// The last commit that is published, and the one that brings back content 1.
    commits: [String; 2],
}

impl Fleet {
    async fn new() -> Self {
        let mut world = World::new();
        let objects = world.objects();
        world.enrol(&objects, "harbour", "tier=edge").await;
        let mut last = String::new();
        for content in ["1", "2", "3"] {
            world.declare("app", None, content);
            last = world.commit();
            sync(&mut world.publisher(&objects, "mirrors-0").await).await;
        }
        world.declare("app", None, "1");
        let back = world.commit();
        world.fleet.reset_hard(&last).expect("it is there");
        let mut fleet = Self { world, site: Site::default(), commits: [last, back] };
        let marked = fleet.collect(&objects, NOW).await;
        assert!(marked.deleted.is_empty(), "nothing is deleted in the round that marks it");
        fleet.poll(&objects).await;
        fleet
    }

    async fn collect(&self, objects: &Arc<dyn Objects>, now: u64) -> Round {
        collect(objects, &self.world.ring, now).await.expect("a good record")
    }

    async fn poll(&mut self, objects: &Arc<dyn Objects>) {
        assert!(
            self.site.poll(objects, "harbour").await,
            "it has its documents, and what they name is there"
        );
    }

    fn copy(&self, name: &str) -> Arc<dyn Objects> {
        self.world.copy_record("record", name);
        self.world.objects_at(name)
    }

    fn bring_back(&self) {
        self.world.fleet.reset_hard(&self.commits[1]).expect("it is there");
    }

    fn begin_anew(&self) {
        self.world.fleet.reset_hard(&self.commits[0]).expect("it is there");
    }

    /// Publishes until nothing is being collected any more; the site may look at any time.
    async fn settle(&mut self, objects: &Arc<dyn Objects>, publisher: &mut Publisher, now: u64) {
        self.collect(objects, now + TAKEOVER).await;
        publisher.step(Step::Sync).await.expect("a good record");
        self.poll(objects).await;
        let intent = self.world.intent(objects).await;
        assert_eq!(intent.fleet.as_ref(), Some(&self.commits[1]), "no publication is lost");
        self.collect(objects, now + 9 * DAY).await;
        self.collect(objects, now + 99 * DAY).await;
        self.poll(objects).await;
    }
}

async fn collect(
    objects: &Arc<dyn Objects>,
    ring: &farshore_hub_fn::keyring::Keyring,
    now: u64,
) -> Result<Round, farshore_hub_fn::retention::RetentionError> {
    let trust = Trust::load(&**objects).await.expect("a record").expect("a root");
    let director = ring.publisher().expect("our own keys").director;
    Collector::new(objects, &trust, Rules::default()).round(&director, now).await
}

fn kinds(round: &Round) -> BTreeSet<Kind> {
    round.deleted.iter().map(|found| found.kind).collect()
}

#[tokio::test]
async fn what_nobody_needs_goes_after_its_time_and_all_that_is_needed_stays() {
    let mut fleet = Fleet::new().await;
    let objects = fleet.world.objects();
    let early = fleet.collect(&objects, NOW + DAY - 1).await;
    assert!(early.deleted.is_empty() && !early.unneeded.is_empty());
    let round = fleet.collect(&objects, NOW + DAY).await;
    assert_eq!(kinds(&round), [Kind::Artifact, Kind::Group, Kind::Intent, Kind::Table].into());
    fleet.poll(&objects).await;
    let again = fleet.collect(&objects, NOW + DAY).await;
    assert_eq!((again.unneeded, again.deleted), (vec![], vec![]), "there is nothing left to collect");
    let artifacts = objects.list("artifacts/", None, 10).await.expect("a disk");
    assert_eq!(artifacts.len(), 2, "the current and the previous document name one each");
}

#[tokio::test]
async fn a_publisher_does_not_take_a_fence_for_another_publisher() {
    let fleet = Fleet::new().await;
    let objects = fleet.world.objects();
    let mut publisher = fleet.world.publisher(&objects, "mirrors-1").await;
    sync(&mut publisher).await;
    let before = fleet.world.published(&objects).await.head.expect("published").0;
    assert!(!fleet.collect(&objects, NOW + DAY).await.deleted.is_empty());
    let after = fleet.world.published(&objects).await.head.expect("published").0;
    assert_eq!((before.says(), before.sequence + 1), (after.says(), after.sequence));
    assert_eq!(sync(&mut publisher).await.published, None);
}

#[tokio::test]
async fn a_record_that_cannot_be_read_whole_loses_nothing() {
    let fleet = Fleet::new().await;
    let objects = fleet.copy("damaged");
    let (id, group) = fleet.world.published(&objects).await.table.0.into_iter().next().expect("a group");
    objects.delete(&record::group(id, group.sequence)).await.expect("a disk");
    let before = objects.list("", None, 1000).await.expect("a disk").len();
    collect(&objects, &fleet.world.ring, NOW + DAY).await.expect_err("a body is missing");
    assert_eq!(objects.list("", None, 1000).await.expect("a disk").len(), before);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    GoesOn,
    IsKilled,
}

/// A collector that is stopped before its n-th operation, while content 1 is brought back; false if it has no
/// so many.
async fn collector_stopped(fleet: &mut Fleet, n: usize, fate: Fate) -> bool {
    let plain = fleet.copy("stopped");
    let start = fleet.site.clone();
    fleet.begin_anew();
    let mut publisher = fleet.world.publisher(&plain, "mirrors-1").await;
    sync(&mut publisher).await;
    let stop = Stop::at(Counted::All, n);
    let stopped: Arc<dyn Objects> = Arc::new(Faulty::new(Arc::clone(&plain), Arc::clone(&stop) as _));
    let ring = fleet.world.ring.clone();
    let mut collector = tokio::spawn(async move { collect(&stopped, &ring, NOW + DAY).await });
    let was_reached = tokio::select! {
        () = stop.reached.notified() => true,
        _ = &mut collector => false,
    };
    if was_reached {
        fleet.poll(&plain).await;
        fleet.bring_back();
        // It may meet what is being deleted, and then comes back later.
        publisher.step(Step::Sync).await.expect("a source that waits is no error");
        fleet.poll(&plain).await;
        match fate {
            Fate::IsKilled => {
                collector.abort();
                let _ = collector.await;
            }
            Fate::GoesOn => {
                stop.go.notify_one();
                collector.await.expect("no panic").expect("a good record");
            }
        }
        fleet.poll(&plain).await;
        fleet.settle(&plain, &mut publisher, NOW + DAY).await;
    }
    fleet.site = start;
    was_reached
}

/// A publisher that is stopped before its n-th operation, while all that is due is collected.
async fn publisher_stopped(fleet: &mut Fleet, n: usize, fate: Fate) -> bool {
    let plain = fleet.copy("stopped");
    let start = fleet.site.clone();
    let stop = Stop::at(Counted::All, n);
    let stopped: Arc<dyn Objects> = Arc::new(Faulty::new(Arc::clone(&plain), Arc::clone(&stop) as _));
    let mut publisher = fleet.world.publisher_through(&plain, &stopped, "mirrors-2").await;
    fleet.bring_back();
    let mut publishing = tokio::spawn(async move {
        let report = publisher.step(Step::Sync).await;
        (publisher, report)
    });
    let was_reached = tokio::select! {
        () = stop.reached.notified() => true,
        _ = &mut publishing => false,
    };
    if was_reached {
        let round = fleet.collect(&plain, NOW + DAY).await;
        assert!(!round.was_busy);
        fleet.poll(&plain).await;
        match fate {
            Fate::IsKilled => {
                publishing.abort();
                let _ = publishing.await;
            }
            Fate::GoesOn => {
                stop.go.notify_one();
                let (_, report) = publishing.await.expect("no panic");
                report.expect("it decides again");
            }
        }
        fleet.poll(&plain).await;
        let mut publisher = fleet.world.publisher(&plain, "mirrors-1").await;
        fleet.settle(&plain, &mut publisher, NOW + DAY).await;
    }
    fleet.site = start;
    was_reached
}

#[tokio::test]
async fn a_collector_that_is_stopped_or_killed_anywhere_takes_nothing_from_a_publisher() {
    let mut fleet = Fleet::new().await;
    for fate in [Fate::GoesOn, Fate::IsKilled] {
        let mut n = 0;
        while collector_stopped(&mut fleet, n, fate).await {
            n += 1;
        }
        assert!(n > 15, "a collection has more than {n} operations");
    }
}

#[tokio::test]
async fn a_publisher_that_is_stopped_or_killed_anywhere_loses_nothing_to_a_collector() {
    let mut fleet = Fleet::new().await;
    for fate in [Fate::GoesOn, Fate::IsKilled] {
        let mut n = 0;
        while publisher_stopped(&mut fleet, n, fate).await {
            n += 1;
        }
        assert!(n > 15, "a publication has more than {n} operations");
    }
}

/// Both stopped: the publisher before its n-th operation, the collector before its m-th; then the publisher
/// ends first, and then the collector.
#[tokio::test]
async fn a_publisher_and_a_collector_that_interleave_anywhere_lose_nothing() {
    let mut fleet = Fleet::new().await;
    let start = fleet.site.clone();
    let (mut n, mut pairs) = (0, 0);
    loop {
        let mut m = 0;
        loop {
            let plain = fleet.copy("both");
            let (ours, theirs) = (Stop::at(Counted::Shared, n), Stop::at(Counted::Shared, m));
            let through: Arc<dyn Objects> = Arc::new(Faulty::new(Arc::clone(&plain), Arc::clone(&ours) as _));
            let mut publisher = fleet.world.publisher_through(&plain, &through, "mirrors-3").await;
            fleet.bring_back();
            let mut publishing = tokio::spawn(async move { publisher.step(Step::Sync).await });
            let is_stopped = tokio::select! {
                () = ours.reached.notified() => true,
                _ = &mut publishing => false,
            };
            if !is_stopped {
                assert!(n >= 4 && pairs >= 30, "{n} operations, {pairs} pairs");
                return;
            }
            let through: Arc<dyn Objects> =
                Arc::new(Faulty::new(Arc::clone(&plain), Arc::clone(&theirs) as _));
            let ring = fleet.world.ring.clone();
            let mut collecting = tokio::spawn(async move { collect(&through, &ring, NOW + DAY).await });
            let is_stopped = tokio::select! {
                () = theirs.reached.notified() => true,
                _ = &mut collecting => false,
            };
            ours.go.notify_one();
            publishing.await.expect("no panic").expect("a source that waits is no error");
            fleet.poll(&plain).await;
            if !is_stopped {
                fleet.site = start.clone();
                break;
            }
            theirs.go.notify_one();
            collecting.await.expect("no panic").expect("a good record");
            fleet.poll(&plain).await;
            let mut publisher = fleet.world.publisher(&plain, "mirrors-1").await;
            fleet.settle(&plain, &mut publisher, NOW + DAY).await;
            fleet.site = start.clone();
            (m, pairs) = (m + 1, pairs + 1);
        }
        n += 1;
    }
}

/// A record with two mirrors, each of which has a pack that its head lists and one that it listed before. One is that
/// of a declared source, the other of a source that is declared no more. What nobody needs is marked.
struct Mirrored {
    world: World,
    /// Their addresses, before and now, and the mirror of each on this disk.
    places: [(GitUrl, std::path::PathBuf); 2],
}

const MIRRORS: [&str; 2] = ["app", "gone"];

impl Mirrored {
    async fn new() -> Self {
        let mut world = World::new();
        let mut urls = Vec::new();
        for name in ["before", "now"] {
            let mut repo = GitRepo::new().expect("git is on PATH");
            repo.write("a", name).expect("a folder");
            repo.commit(name).expect("git works");
            let url: GitUrl = repo.file_url().parse().expect("a URL");
            let dir = world.folder.path().join(format!("local-{name}"));
            let mut mirror = Mirror::open(&dir).expect("an empty folder");
            mirror.fetch(&url, &Branch::Default, &Limits::default()).expect("a good repository");
            urls.push((url, dir));
        }
        let places: [_; 2] = urls.try_into().expect("two");
        let declared = format!(
            "apiVersion: farshore.dev/v1alpha1\nkind: Source\nmetadata: {{ name: app }}\nspec: {{ git: {{ url: \"{}\" }} }}\n",
            GitUrl::of_path(world.fleet.path()).expect("an absolute path").as_str()
        );
        world.fleet.write("fleet/app.yaml", declared).expect("a folder");
        world.commit();
        let objects = world.objects();
        sync(&mut world.publisher(&objects, "mirrors-0").await).await;
        let mirrored = Self { world, places };
        for place in 0..2 {
            for name in MIRRORS {
                assert!(mirrored.keep(&objects, name, place).await.expect("a disk"));
            }
        }
        let marked = collect(&objects, &mirrored.world.ring, NOW).await.expect("a good record");
        assert!(marked.deleted.is_empty());
        mirrored
    }

    /// Stores the mirror of the address of before (0) or of now (1), as a publisher of its own.
    async fn keep(&self, objects: &Arc<dyn Objects>, name: &str, place: usize) -> Result<bool, KeptError> {
        let (url, dir) = &self.places[place];
        kept::keep(&Guarded::new(Arc::clone(objects)), name, url, dir).await
    }

    /// Whether a mirror has all that its head lists. A head that lists something else is as good.
    async fn is_whole(objects: &Arc<dyn Objects>, name: &str) -> bool {
        let Head::Listed(kept, _) = kept::read_head(&**objects, name).await.expect("a disk") else {
            return true;
        };
        let prefix = format!("mirrors/{name}/");
        let there = objects.list(&prefix, None, 99).await.expect("a disk");
        let is_there =
            |pack: &KeptPack| there.iter().any(|listed| listed.key == record::mirror_pack(name, pack.digest));
        kept.packs.iter().all(is_there)
    }

    /// What a replica with an empty disk makes of it.
    async fn restores(&self, objects: &Arc<dyn Objects>, name: &str, place: usize) -> bool {
        let dir = self.world.folder.path().join("restored-here");
        let restored = kept::restore(&**objects, name, &self.places[place].0, &dir).await;
        if dir.exists() {
            std::fs::remove_dir_all(&dir).expect("a folder of ours");
        }
        restored.expect("what is listed is there")
    }

    fn copy(&self) -> Arc<dyn Objects> {
        self.world.copy_record("record", "stopped");
        self.world.objects_at("stopped")
    }
}

#[tokio::test]
async fn packs_that_no_mirror_has_and_mirrors_of_sources_that_are_gone_go_after_their_time() {
    let mirrored = Mirrored::new().await;
    let objects = mirrored.world.objects();
    let early = collect(&objects, &mirrored.world.ring, NOW + DAY - 1).await.expect("a good record");
    assert!(early.deleted.is_empty());
    let round = collect(&objects, &mirrored.world.ring, NOW + DAY).await.expect("a good record");
    let deleted = |kind| round.deleted.iter().filter(|found| found.kind == kind).count();
    assert_eq!((deleted(Kind::Mirror), deleted(Kind::MirrorPack)), (1, 3), "{:?}", round.deleted);
    assert!(objects.list("mirrors/gone/", None, 9).await.expect("a disk").is_empty());
    assert_eq!(objects.list("mirrors/app/", None, 9).await.expect("a disk").len(), 2);
    assert!(mirrored.restores(&objects, "app", 1).await, "what is needed stays");
    assert!(!mirrored.keep(&objects, "app", 1).await.expect("a disk"), "and is not stored again");
    let again = collect(&objects, &mirrored.world.ring, NOW + DAY).await.expect("a good record");
    assert_eq!((again.unneeded, again.deleted), (vec![], vec![]));
}

#[tokio::test]
async fn a_pack_that_somebody_deleted_is_stored_again() {
    let mirrored = Mirrored::new().await;
    let objects = mirrored.world.objects();
    let Head::Listed(kept, _) = kept::read_head(&*objects, "app").await.expect("a disk") else {
        panic!("it is there")
    };
    objects.delete(&record::mirror_pack("app", kept.packs[0].digest)).await.expect("a disk");
    assert!(mirrored.keep(&objects, "app", 1).await.expect("a disk"));
    assert!(mirrored.restores(&objects, "app", 1).await);
}

/// Somebody stores the mirror of before again, whose pack is due, and is stopped before his n-th operation while it is
/// collected; false if he has no so many.
async fn keeper_stopped(mirrored: &Mirrored, name: &str, n: usize, fate: Fate) -> bool {
    let plain = mirrored.copy();
    let stop = Stop::at(Counted::All, n);
    let stopped: Arc<dyn Objects> = Arc::new(Faulty::new(Arc::clone(&plain), Arc::clone(&stop) as _));
    let (url, dir) = mirrored.places[0].clone();
    let of = name.to_owned();
    let mut keeping = tokio::spawn(async move { kept::keep(&Guarded::new(stopped), &of, &url, &dir).await });
    let was_reached = tokio::select! {
        () = stop.reached.notified() => true,
        _ = &mut keeping => false,
    };
    if was_reached {
        let round = collect(&plain, &mirrored.world.ring, NOW + DAY).await.expect("a good record");
        assert!(!round.was_busy);
        match fate {
            Fate::IsKilled => {
                keeping.abort();
                let _ = keeping.await;
            }
            Fate::GoesOn => {
                stop.go.notify_one();
                keeping.await.expect("no panic").expect("it decides again");
                assert!(mirrored.restores(&plain, name, 0).await, "{name} before {n}");
            }
        }
        assert!(Mirrored::is_whole(&plain, name).await, "{name} {fate:?} before {n}");
        mirrored.keep(&plain, name, 0).await.expect("nobody collects any more");
        assert!(mirrored.restores(&plain, name, 0).await, "{name} {fate:?} before {n}");
    }
    was_reached
}

#[tokio::test]
async fn a_mirror_that_is_stored_while_it_is_collected_has_all_that_it_lists() {
    let mirrored = Mirrored::new().await;
    for name in MIRRORS {
        for fate in [Fate::GoesOn, Fate::IsKilled] {
            let mut n = 0;
            while keeper_stopped(&mirrored, name, n, fate).await {
                n += 1;
            }
            assert!(n >= 4, "to store a mirror has more than {n} operations");
        }
    }
}

/// A collector is stopped before its n-th operation while the mirrors of before are stored again.
async fn collector_of_mirrors_stopped(mirrored: &Mirrored, n: usize, fate: Fate) -> bool {
    let plain = mirrored.copy();
    let stop = Stop::at(Counted::All, n);
    let stopped: Arc<dyn Objects> = Arc::new(Faulty::new(Arc::clone(&plain), Arc::clone(&stop) as _));
    let ring = mirrored.world.ring.clone();
    let mut collecting = tokio::spawn(async move { collect(&stopped, &ring, NOW + DAY).await });
    let was_reached = tokio::select! {
        () = stop.reached.notified() => true,
        _ = &mut collecting => false,
    };
    if was_reached {
        for name in MIRRORS {
            // What is being deleted is not stored just now.
            let kept = mirrored.keep(&plain, name, 0).await;
            assert!(
                matches!(kept, Ok(true) | Err(KeptError::Objects(ObjectsError::Claimed { .. }))),
                "{kept:?}"
            );
        }
        match fate {
            Fate::IsKilled => {
                collecting.abort();
                let _ = collecting.await;
            }
            Fate::GoesOn => {
                stop.go.notify_one();
                collecting.await.expect("no panic").expect("a good record");
            }
        }
        for name in MIRRORS {
            assert!(Mirrored::is_whole(&plain, name).await, "{name} {fate:?} before {n}");
        }
        let later = NOW + DAY + TAKEOVER;
        collect(&plain, &mirrored.world.ring, later).await.expect("a good record");
        for name in MIRRORS {
            assert!(Mirrored::is_whole(&plain, name).await, "{name} {fate:?} before {n}");
            mirrored.keep(&plain, name, 0).await.expect("nobody collects any more");
            assert!(mirrored.restores(&plain, name, 0).await, "{name} {fate:?} before {n}");
        }
    }
    was_reached
}

#[tokio::test]
async fn a_collector_that_is_stopped_or_killed_anywhere_leaves_every_mirror_whole() {
    let mirrored = Mirrored::new().await;
    for fate in [Fate::GoesOn, Fate::IsKilled] {
        let mut n = 0;
        while collector_of_mirrors_stopped(&mirrored, n, fate).await {
            n += 1;
        }
        assert!(n > 25, "a collection has more than {n} operations");
    }
}
