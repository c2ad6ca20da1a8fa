//! Two publishers at once, one of them stopped at every single operation, to go on later or never.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use farshore_hub_fn::objects::Objects;
use farshore_hub_fn::objects::Operation;
use farshore_hub_fn::objects::faulty::{Decision, Faulty, Steps};
use farshore_hub_fn::publish::{Publisher, Step};
use tokio::sync::Notify;

use crate::world::{Site, World, sync};

/// Stops whoever does the n-th operation until it is let go.
#[derive(Debug)]
struct Stop {
    at: usize,
    count: AtomicUsize,
    reached: Notify,
    go: Notify,
}

#[async_trait]
impl Steps for Stop {
    async fn before(&self, operation: Operation, key: &str) -> Decision {
        // A table under its digest is the same whenever it is read.
        if operation != Operation::Get || !key.starts_with("fleet/tables/") {
            let n = self.count.fetch_add(1, Ordering::SeqCst);
            if n == self.at {
                self.reached.notify_one();
                self.go.notified().await;
            }
        }
        Decision::Proceed
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    GoesOn,
    IsKilled,
}

const CLUSTERS: [&str; 3] = ["a", "b", "c"];

struct Race {
    world: World,
    commits: [String; 3],
    sites: Vec<Site>,
}

impl Race {
    /// Published: three services; then a cluster moves and one service goes; then another moves, one
    /// moves back, and a service comes.
    async fn new() -> Self {
        let mut world = World::new();
        for (service, tier) in [("all", None), ("edge", Some("edge")), ("core", Some("core"))] {
            world.declare(service, tier, "1");
        }
        let tier = |cluster: &str, tier: &str| {
            format!(
                "apiVersion: farshore.dev/v1alpha1\nkind: Cluster\nmetadata: {{ name: {cluster}, labels: {{ tier: {tier} }} }}\n"
            )
        };
        world.fleet.write("fleet/a.yaml", tier("a", "edge")).expect("a folder");
        world.fleet.write("fleet/b.yaml", tier("b", "edge")).expect("a folder");
        let first = world.commit();
        world.fleet.write("fleet/a.yaml", tier("a", "core")).expect("a folder");
        world.fleet.remove("fleet/all.yaml").expect("it is there");
        let second = world.commit();
        world.fleet.write("fleet/a.yaml", tier("a", "edge")).expect("a folder");
        world.fleet.write("fleet/b.yaml", tier("b", "far")).expect("a folder");
        world.declare("far", Some("far"), "1");
        let third = world.commit();
        world.fleet.reset_hard(&first).expect("it is there");
        let objects = world.objects();
        for cluster in CLUSTERS {
            world.enrol(&objects, cluster, "tier=core").await;
        }
        sync(&mut world.publisher(&objects, "mirrors-0").await).await;
        let mut race = Self { world, commits: [first, second, third], sites: vec![Site::default(); 3] };
        race.poll(&objects).await;
        race
    }

    async fn poll(&mut self, objects: &Arc<dyn Objects>) {
        for (site, cluster) in self.sites.iter_mut().zip(CLUSTERS) {
            assert!(site.poll(objects, cluster).await, "{cluster} has its documents");
        }
    }

    /// One publication that is stopped before its n-th operation; false if it has no so many.
    async fn run(&mut self, n: usize, fate: Fate) -> bool {
        let record = format!("record-{n}");
        self.world.copy_record("record", &record);
        let start = self.sites.clone();
        let plain = self.world.objects_at(&record);
        let stop =
            Arc::new(Stop { at: n, count: AtomicUsize::new(0), reached: Notify::new(), go: Notify::new() });
        let stopped: Arc<dyn Objects> = Arc::new(Faulty::new(Arc::clone(&plain), Arc::clone(&stop) as _));
        // What A knows before it begins is from before; B has been running all the time.
        let mut b = self.world.publisher(&plain, "mirrors-b").await;
        self.world.fleet.reset_hard(&self.commits[0]).expect("it is there");
        sync(&mut b).await;
        self.world.fleet.reset_hard(&self.commits[1]).expect("it is there");
        let mut a = self.world.publisher_through(&plain, &stopped, &format!("mirrors-{n}-{fate:?}")).await;
        let mut a = tokio::spawn(async move {
            let report = a.step(Step::Sync).await;
            (a, report)
        });
        let before = self.world.published(&plain).await.head.expect("published").0.sequence;
        let was_reached = tokio::select! {
            () = stop.reached.notified() => true,
            _ = &mut a => false,
        };
        if !was_reached {
            self.sites = start;
            return false;
        }
        self.poll(&plain).await;
        let middle = self.world.published(&plain).await.head.expect("published").0.sequence;
        self.world.fleet.reset_hard(&self.commits[2]).expect("it is there");
        sync(&mut b).await;
        self.poll(&plain).await;
        let after_b = self.world.published(&plain).await.head.expect("published").0.sequence;
        assert!(before <= middle && middle < after_b, "sequences grow");
        match fate {
            Fate::IsKilled => {
                a.abort();
                let _ = a.await;
            }
            Fate::GoesOn => {
                stop.go.notify_one();
                let (_, report) = a.await.expect("no panic");
                report.expect("A decides again");
                self.poll(&plain).await;
            }
        }
        self.settle(&plain, &mut b, after_b).await;
        std::fs::remove_dir_all(self.world.folder.path().join(record)).expect("a folder of ours");
        self.sites = start;
        true
    }

    /// Whatever was left behind, one more step of anybody makes it good.
    async fn settle(&mut self, plain: &Arc<dyn Objects>, b: &mut Publisher, after_b: u64) {
        sync(b).await;
        self.poll(plain).await;
        let published = self.world.published(plain).await;
        assert_eq!(published.intent.fleet.as_ref(), Some(&self.commits[2]), "no publication is lost");
        assert!(published.head.expect("published").0.sequence >= after_b);
        let have: Vec<Vec<&str>> = self.sites.iter().map(Site::names).collect();
        assert_eq!(have, [vec!["edge"], vec!["far"], vec!["core"]], "every site has what is declared for it");
        assert_eq!(sync(b).await.published, None, "and then there is nothing left to do");
    }
}

async fn everywhere(fate: Fate) {
    let mut race = Race::new().await;
    let mut n = 0;
    while race.run(n, fate).await {
        n += 1;
    }
    assert!(n > 25, "a publication has more than {n} operations");
}

#[tokio::test]
async fn two_publishers_that_interleave_anywhere_publish_the_newest_commit_whole() {
    everywhere(Fate::GoesOn).await;
}

#[tokio::test]
async fn a_publisher_that_is_killed_anywhere_leaves_nothing_half_done() {
    everywhere(Fate::IsKilled).await;
}
