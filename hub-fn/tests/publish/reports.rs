//! The log of reports folded by two at once, one of them stopped, killed or failed at every single operation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use farshore_hub_fn::index::memory::Memory;
use farshore_hub_fn::index::redis::Redis;
use farshore_hub_fn::index::{Index, Kept};
use farshore_hub_fn::objects::disk::Disk;
use farshore_hub_fn::objects::faulty::{Decision, Faulty, Steps};
use farshore_hub_fn::objects::{Condition, Objects, Operation};
use farshore_hub_fn::record::{self, Place, Report, SPLIT_AT, STATUS_LOG, StatusLog};
use farshore_hub_fn::status::shard::{Content, decode};
use farshore_hub_fn::status::{Compactor, Statuses, TOGETHER, Writer};
use farshore_hub_fn::view::View;
use farshore_shared::clock::now;
use farshore_shared::compress;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::SigningKey;
use farshore_shared::names::Name;
use farshore_shared::wire::Status;
use futures::future::join_all;
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::world::{World, copy, name, sync};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    GoesOn,
    IsKilled,
    Fails,
    LosesItsAnswer,
}

/// Stops whoever does the n-th operation until it is let go.
#[derive(Debug)]
struct Stop {
    at: usize,
    fate: Fate,
    count: AtomicUsize,
    reached: Notify,
    go: Notify,
}

#[async_trait]
impl Steps for Stop {
    async fn before(&self, _: Operation, _: &str) -> Decision {
        if self.count.fetch_add(1, Ordering::SeqCst) != self.at {
            return Decision::Proceed;
        }
        self.reached.notify_one();
        self.go.notified().await;
        match self.fate {
            Fate::GoesOn | Fate::IsKilled => Decision::Proceed,
            Fate::Fails => Decision::Fail,
            Fate::LosesItsAnswer => Decision::LoseAnswer,
        }
    }
}

struct Fleet {
    folder: TempDir,
    key: SigningKey,
    /// The last report of each that was acknowledged.
    acknowledged: BTreeMap<Name, u64>,
}

impl Fleet {
    fn new() -> Self {
        Self {
            folder: TempDir::new().expect("a temporary folder"),
            key: SigningKey::generate(),
            acknowledged: BTreeMap::new(),
        }
    }

    fn objects(&self, record: &str) -> Arc<dyn Objects> {
        Arc::new(Disk::open(&self.folder.path().join(record)).expect("a folder of ours"))
    }

    fn report(&self, cluster: &Name, sequence: u64) -> Report {
        let status = serde_json::json!({
            "cluster": cluster, "stateId": "one", "sequence": sequence, "at": 1, "agent": "test",
            "pollSeconds": 60, "services": [],
        });
        let status: Status = serde_json::from_value(status).expect("a status");
        let envelope = Envelope::seal(&status, &[&self.key]);
        Report { cluster: cluster.clone(), received: 1000 + sequence, envelope }
    }

    /// Each of them reports once.
    async fn reports(&mut self, objects: &Arc<dyn Objects>, clusters: &[Name], sequence: u64) {
        let writer = Writer::start(Arc::clone(objects), TOGETHER);
        let reports = clusters.iter().map(|cluster| writer.append(self.report(cluster, sequence)));
        for taken in join_all(reports).await {
            taken.expect("a disk");
        }
        self.acknowledged.extend(clusters.iter().map(|cluster| (cluster.clone(), sequence)));
    }

    /// Every acknowledged report is in its shard, and nothing is left in the log.
    async fn assert_folded(&self, objects: &Arc<dyn Objects>) {
        let left = objects.list(STATUS_LOG, None, 9).await.expect("a disk");
        assert!(left.is_empty(), "{left:?}");
        let facts = every(objects).await;
        assert_eq!(facts, self.acknowledged);
    }
}

/// The sequence that is held of each cluster.
async fn every(objects: &Arc<dyn Objects>) -> BTreeMap<Name, u64> {
    let mut all = BTreeMap::new();
    for leaf in 0..record::LEAVES {
        let shards = Place::Leaf(leaf).shards().map(Place::Shard);
        for place in [Place::Leaf(leaf)].into_iter().chain(shards) {
            let stored = objects.get(&record::status_place(place), 1 << 30).await.expect("a disk");
            match stored.map(|stored| decode(&stored.bytes).expect("whole")) {
                Some(Content::Leaf(reports)) => {
                    let facts = reports.facts().into_iter();
                    all.extend(facts.map(|(cluster, facts)| (cluster, facts.sequence)));
                    if matches!(place, Place::Leaf(_)) {
                        break;
                    }
                }
                Some(Content::Split) => {}
                None if matches!(place, Place::Leaf(_)) => break,
                None => {}
            }
        }
    }
    all
}

fn compactor(objects: &Arc<dyn Objects>) -> Compactor {
    let index = Arc::new(Memory::new());
    Compactor::new(View::new(Arc::clone(objects), index.clone()), index)
}

/// Clusters of three leaves.
fn clusters(count: usize) -> Vec<Name> {
    of_leaves(&[3, 4, 9], count)
}

/// Clusters of one leaf.
fn neighbours(count: usize) -> Vec<Name> {
    of_leaves(&[3], count)
}

fn of_leaves(leaves: &[u16], count: usize) -> Vec<Name> {
    let names = (0..).map(|n| format!("c-{n}").parse::<Name>().expect("a name"));
    let is_there = |leaf: &u16, name: &Name| Place::leaf_of(record::shard_of(name)) == Place::Leaf(*leaf);
    names.filter(|name| leaves.iter().any(|leaf| is_there(leaf, name))).take(count).collect()
}

/// One fold that is stopped before its n-th operation, while another goes on; false if it has no so many.
async fn run(fleet: &mut Fleet, later: &[Name], n: usize, fate: Fate) -> bool {
    let record = format!("record-{fate:?}-{n}");
    copy(&fleet.folder.path().join("record"), &fleet.folder.path().join(&record));
    let plain = fleet.objects(&record);
    let before = fleet.acknowledged.clone();
    let stop =
        Arc::new(Stop { at: n, fate, count: AtomicUsize::new(0), reached: Notify::new(), go: Notify::new() });
    let stopped: Arc<dyn Objects> = Arc::new(Faulty::new(Arc::clone(&plain), Arc::clone(&stop) as _));
    let a = compactor(&stopped);
    let mut a = tokio::spawn(async move { a.fold().await });
    let was_reached = tokio::select! {
        () = stop.reached.notified() => true,
        ended = &mut a => {
            ended.expect("no panic").expect("a disk");
            false
        }
    };
    if was_reached {
        fleet.reports(&plain, later, 7).await;
        compactor(&plain).fold().await.expect("a disk");
        fleet.reports(&plain, later, 8).await;
        if fate == Fate::IsKilled {
            a.abort();
            let _ = a.await;
        } else {
            stop.go.notify_one();
            let outcome = a.await.expect("no panic");
            assert!(outcome.is_ok() || fate != Fate::GoesOn, "{outcome:?}");
        }
    }
    compactor(&plain).fold().await.expect("a disk");
    fleet.assert_folded(&plain).await;
    fleet.acknowledged = before;
    std::fs::remove_dir_all(fleet.folder.path().join(record)).expect("a folder of ours");
    was_reached
}

#[tokio::test]
async fn no_acknowledged_report_is_lost_wherever_folding_is_stopped() {
    let mut fleet = Fleet::new();
    let objects = fleet.objects("record");
    let all = clusters(40);
    fleet.reports(&objects, &all, 1).await;
    compactor(&objects).fold().await.expect("a disk");
    fleet.reports(&objects, &all[..30], 2).await;
    fleet.reports(&objects, &all[..10], 3).await;
    for fate in [Fate::GoesOn, Fate::IsKilled, Fate::Fails, Fate::LosesItsAnswer] {
        let mut n = 0;
        while run(&mut fleet, &all[5..25], n, fate).await {
            n += 1;
        }
        assert!(n > 10, "folding has more than {n} operations");
    }
}

#[tokio::test]
async fn no_acknowledged_report_is_lost_while_a_leaf_is_split() {
    let mut fleet = Fleet::new();
    let objects = fleet.objects("record");
    let all = neighbours(SPLIT_AT + 20);
    fleet.reports(&objects, &all[..SPLIT_AT], 1).await;
    compactor(&objects).fold().await.expect("a disk");
    fleet.reports(&objects, &all[SPLIT_AT - 20..], 2).await;
    for fate in [Fate::GoesOn, Fate::IsKilled] {
        // The beginning, two of the shards, and the end.
        let mut n = 0;
        while run(&mut fleet, &all[SPLIT_AT - 10..], n, fate).await {
            n += if (3..125).contains(&n) { 61 } else { 1 };
        }
        assert!(n > 125, "splitting has more than {n} operations");
    }
}

#[tokio::test]
async fn a_log_of_more_parts_than_one_listing_shows_is_folded_in_one_step() {
    let mut fleet = Fleet::new();
    let objects: Arc<dyn Objects> = Arc::new(farshore_hub_fn::objects::memory::Memory::new());
    // One report in each: of one leaf, and more than one listing has keys.
    let all = neighbours(300);
    let parts = 1_100;
    for n in 0..parts {
        let cluster = &all[n % all.len()];
        let sequence = u64::try_from(n / all.len()).expect("a few") + 1;
        let log = StatusLog(vec![fleet.report(cluster, sequence)]);
        let bytes = compress::pack(&serde_json::to_vec(&log).expect("JSON"));
        let key = record::status_log(ulid::Ulid::from_parts(1, u128::try_from(n).expect("a number")));
        let _ = objects.put(&key, bytes.into(), Condition::Absent).await.expect("memory");
        fleet.acknowledged.insert(cluster.clone(), sequence);
    }
    let done = compactor(&objects).fold().await.expect("memory");
    assert_eq!((done.parts, done.reports), (parts, parts));
    fleet.assert_folded(&objects).await;
}

#[tokio::test]
async fn a_damaged_part_or_shard_blocks_only_itself() {
    let mut fleet = Fleet::new();
    let objects = fleet.objects("record");
    let all = clusters(20);
    fleet.reports(&objects, &all, 1).await;
    let damaged = record::status_log(ulid::Ulid::from_parts(1, 1));
    let shard = record::status_place(Place::leaf_of(record::shard_of(&all[0])));
    for key in [&damaged, &shard] {
        let _ = objects.put(key, "rubbish".into(), Condition::Always).await.expect("a disk");
    }
    compactor(&objects).fold().await.expect("a disk");
    assert_eq!(every(&objects).await, fleet.acknowledged);
    let left = objects.list(STATUS_LOG, None, 9).await.expect("a disk");
    assert_eq!(left.iter().map(|left| &left.key).collect::<Vec<_>>(), [&damaged]);
    let aside = objects.list("status/damaged/", None, 9).await.expect("a disk");
    assert_eq!(aside.len(), 1, "it is kept for a person");
}

#[tokio::test]
async fn statuses_of_the_old_layout_are_folded_and_then_gone() {
    let mut fleet = Fleet::new();
    let objects = fleet.objects("record");
    let all = clusters(30);
    for cluster in &all {
        let envelope = fleet.report(cluster, 4).envelope.to_bytes();
        let _ =
            objects.put(&record::old_status(cluster), envelope.into(), Condition::Always).await.expect("ok");
        fleet.acknowledged.insert(cluster.clone(), 4);
    }
    fleet.reports(&objects, &all[..5], 5).await;
    let compactor = compactor(&objects);
    assert_eq!(compactor.fold_old().await.expect("a disk"), 30);
    assert_eq!(compactor.fold_old().await.expect("a disk"), 0);
    compactor.fold().await.expect("a disk");
    fleet.assert_folded(&objects).await;
    let index = Arc::new(Memory::new());
    let statuses = Statuses::new(&View::new(Arc::clone(&objects), index.clone()), index);
    let report = statuses.report(&all[9]).await.expect("a disk").expect("it has reported");
    assert_eq!(report.envelope, fleet.report(&all[9], 4).envelope);
}

#[tokio::test]
async fn whoever_counts_the_fleet_forgets_when_clusters_were_heard_that_are_gone() {
    let redis = farshore_chaos::kit::Redis::start().await.expect("a Redis");
    let index: Arc<dyn Index> = Arc::new(Redis::connect(&redis.url()).expect("a URL"));
    let mut world = World::new();
    world.declare("web", None, "1");
    world.commit();
    let objects = world.objects();
    world.enrol(&objects, "harbour", "").await;
    sync(&mut world.publisher(&objects, "mirrors").await).await;
    let shard = record::shard_of(&name("harbour"));
    let mut beside = (0..).map(|n| name(&format!("c-{n}"))).filter(|name| record::shard_of(name) == shard);
    let [removed, new] = [(); 2].map(|()| beside.next().expect("there is no end"));
    let (long_ago, now) = (now() - 7200, now());
    let times = [(name("harbour"), long_ago), (removed, long_ago), (new.clone(), now)];
    let kept = index.note_seen(&times.into()).await.expect("it is there");
    assert_eq!(kept, Kept::Yes);
    let view = View::new(Arc::clone(&objects), Arc::clone(&index));
    Compactor::new(view, Arc::clone(&index)).step(now).await.expect("a good record");
    let left = index.seen(shard).await.expect("it is there").expect("it keeps times").times;
    let left: Vec<Name> = left.into_keys().collect();
    assert_eq!(left, [new, name("harbour")], "who is enrolled, and who may be in a moment");
}
