//! Collection beside publication: each stopped at every single operation while the other runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use farshore_hub_fn::objects::faulty::{Decision, Faulty, Steps};
use farshore_hub_fn::objects::{Objects, Operation};
use farshore_hub_fn::publish::{Publisher, Step};
use farshore_hub_fn::record;
use farshore_hub_fn::retention::{Collector, Kind, Round, Rules, TAKEOVER};
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
