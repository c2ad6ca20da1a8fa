//! A serving replica and the directory of clusters: what it reads, how fresh it is, what it forgets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use farshore_chaos::kit::wait_for;
use farshore_hub_fn::directory::{Standing, write_snapshot};
use farshore_hub_fn::handlers::{Hub, Settings, desired};
use farshore_hub_fn::index::Index;
use farshore_hub_fn::index::memory::Memory;
use farshore_hub_fn::keyring::{Keyring, PublisherKeys, RootOptions};
use farshore_hub_fn::objects::disk::Disk;
use farshore_hub_fn::objects::faulty::{Decision, Faulty, Steps};
use farshore_hub_fn::objects::{Condition, Key, Objects, Operation, Stored, Version};
use farshore_hub_fn::record::{self, Entry, GroupRef, Head, LogPart, RosterRef, SHARDS, Table};
use farshore_hub_fn::trust::Trust;
use farshore_hub_fn::view::{Freshness, Room, STALENESS, View};
use farshore_shared::clock::now;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::SigningKey;
use farshore_shared::names::Labels;
use farshore_shared::pass;
use farshore_shared::wire::{BEHIND_HEADER, Group, HOLDS_HEADER, PASS_HEADER, Registration, Roster};
use futures::future::join_all;
use http::{Request, Response, StatusCode};
use tempfile::TempDir;

use crate::world::{NOW, name};

const SEQUENCE: u64 = 1_800_000_000_000;
const SOON: Duration = Duration::from_secs(20);

/// Counts reads by what they read, and fails all of them, never ends them, or answers some otherwise on demand.
#[derive(Debug, Default)]
struct Watcher {
    reads: Mutex<BTreeMap<String, usize>>,
    is_down: AtomicBool,
    is_stuck: AtomicBool,
    answers: Mutex<BTreeMap<Key, Stored>>,
    /// What is asked under the first key is answered once something under the second one was asked.
    after: Mutex<Option<(String, String)>>,
}

#[async_trait]
impl Steps for Watcher {
    async fn before(&self, operation: Operation, key: &str) -> Decision {
        if operation == Operation::Get {
            *self.reads.lock().expect("no test panics with it").entry(key.to_owned()).or_default() += 1;
        }
        if self.is_stuck.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let after = self.after.lock().expect("no test panics with it").clone();
        if let Some((held, awaited)) = after.filter(|(held, _)| key.starts_with(held)) {
            let (before, began) = (self.of(&awaited), Instant::now());
            while self.of(&awaited) == before {
                assert!(began.elapsed() < SOON, "nobody asks for {awaited} while {held} waits");
                tokio::task::yield_now().await;
            }
        }
        if self.is_down.load(Ordering::Relaxed) {
            return Decision::Fail;
        }
        let answers = self.answers.lock().expect("no test panics with it");
        let answer = Key::new(key).ok().and_then(|key| answers.get(&key).cloned());
        answer.map_or(Decision::Proceed, |stored| Decision::Answer(Some(stored)))
    }
}

impl Watcher {
    /// From now on, this object is answered with that.
    fn answer(&self, key: Key, stored: Stored) {
        self.answers.lock().expect("no test panics with it").insert(key, stored);
    }

    /// From now on, everything is answered with what is there.
    fn answer_as_it_is(&self) {
        self.answers.lock().expect("no test panics with it").clear();
    }

    /// Reads of objects whose keys begin so.
    fn of(&self, prefix: &str) -> usize {
        let reads = self.reads.lock().expect("no test panics with it");
        reads.iter().filter(|(key, _)| key.starts_with(prefix)).map(|(_, count)| count).sum()
    }

    /// Reads of shards of the directory.
    fn of_shards(&self) -> usize {
        self.of("index/") - self.of("index/head") - self.of("index/manifests/") - self.of("index/log/")
    }
}

/// A record with a directory, one group, and no publisher.
struct Fleet {
    _folder: TempDir,
    disk: Arc<dyn Objects>,
    watched: Arc<dyn Objects>,
    watcher: Arc<Watcher>,
    trust: Trust,
    keys: PublisherKeys,
    /// All clusters have the same.
    key: SigningKey,
    clusters: usize,
}

fn cluster(n: usize) -> String {
    format!("site-{n}")
}

fn tag() -> String {
    tag_of(SEQUENCE)
}

/// What a cluster holds of the group's body with this sequence.
fn tag_of(sequence: u64) -> String {
    let (roster, group) = (Digest::of(b"roster").short(), Digest::of(b"group").short());
    format!("\"1.{SEQUENCE}-{roster}.{sequence}-{group}\"")
}

fn noise() -> Stored {
    Stored { bytes: Bytes::from_static(b"noise"), version: Version::new("noise") }
}

/// As old as what a replica remembers may be, it looks again.
async fn until_stale(hub: &Hub) {
    while hub.view.age().is_some_and(|age| age <= STALENESS) {
        tokio::task::yield_now().await;
    }
}

impl Fleet {
    async fn of(clusters: usize) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let ring = Keyring::at(&folder.path().join("keys"));
        ring.init(RootOptions::default(), NOW).expect("an empty folder");
        let disk: Arc<dyn Objects> = Arc::new(Disk::open(&folder.path().join("record")).expect("a folder"));
        let (trust, keys) = Trust::establish(&*disk, &ring).await.expect("our own keys");
        let watcher = Arc::new(Watcher::default());
        let watched: Arc<dyn Objects> =
            Arc::new(Faulty::new(Arc::clone(&disk), Arc::clone(&watcher) as Arc<dyn Steps>));
        let key = SigningKey::generate();
        let fleet = Self { _folder: folder, disk, watched, watcher, trust, keys, key, clusters };
        fleet.publish(SEQUENCE).await;
        fleet.snapshot(0, (0..clusters).map(|n| fleet.entry(n, SEQUENCE, Some(&fleet.key)))).await;
        fleet
    }

    fn group() -> Digest {
        Digest::of(b"the group")
    }

    async fn publish(&self, sequence: u64) {
        let group = GroupRef {
            values: BTreeMap::new(),
            keys: None,
            sequence,
            digest: Digest::of(b"group"),
            content: Digest::of(b"content"),
            expires: u64::MAX,
            services: BTreeMap::new(),
            tombstones: vec![],
        };
        let table = Table([(Self::group(), group)].into());
        let bytes = serde_json::to_vec(&table).expect("JSON");
        let digest = Digest::of(&bytes);
        self.put(record::table(digest), bytes).await;
        let head =
            Head { epoch: 1, sequence, issued: NOW, intent: Digest::of(b"intent"), tables: vec![digest] };
        self.put(record::head(), Envelope::seal(&head, &[&self.keys.director]).to_bytes()).await;
    }

    async fn snapshot(&self, position: u64, entries: impl Iterator<Item = Entry>) {
        let standing = Standing { epoch: 1, position, issued: NOW };
        let director = &self.keys.director;
        let put = write_snapshot(&*self.disk, director, standing, Condition::Always, entries).await;
        let _ = put.expect("a disk");
    }

    async fn append(&self, position: u64, entries: Vec<Entry>) {
        let part = LogPart { epoch: 1, position, entries };
        let bytes = Envelope::seal(&part, &[&self.keys.director]).to_bytes();
        self.put(record::directory_log(position), bytes).await;
    }

    async fn put(&self, key: Key, bytes: Vec<u8>) {
        let _ = self.disk.put(&key, Bytes::from(bytes), Condition::Always).await.expect("a disk");
    }

    fn entry(&self, n: usize, sequence: u64, key: Option<&SigningKey>) -> Entry {
        let roster = RosterRef {
            group: Self::group(),
            floor: 1,
            epoch: 1,
            sequence: SEQUENCE,
            digest: Digest::of(b"roster"),
            expires: u64::MAX,
            labels: None,
            tombstones: vec![],
            footprint: Default::default(),
        };
        Entry {
            cluster: name(&cluster(n)),
            epoch: 1,
            sequence,
            key: key.map(|key| key.public().clone()),
            labels: Labels::default(),
            roster: key.map(|_| roster),
        }
    }

    /// The documents of a cluster that no directory tells of; what it holds then.
    async fn enrol(&self, n: usize) -> String {
        let (cluster, director) = (name(&cluster(n)), &self.keys.director);
        let registration = Registration {
            cluster: cluster.clone(),
            epoch: 1,
            sequence: SEQUENCE,
            issued: NOW,
            key: self.key.public().clone(),
            sealing_key: "sealing".to_owned(),
            labels: Labels::default(),
            token: "token".to_owned(),
            critical: vec![],
        };
        let envelope = Envelope::seal(&registration, &[director]).to_bytes();
        self.put(record::registration(&cluster), envelope).await;
        let roster = Roster {
            cluster: cluster.clone(),
            key: self.key.public().id(),
            group: Self::group(),
            floor: 1,
            epoch: 1,
            sequence: SEQUENCE,
            issued: NOW,
            expires: u64::MAX,
            labels: Labels::default(),
            tombstones: vec![],
            max_delay_seconds: 3600,
            footprint: Default::default(),
            critical: vec![],
        };
        let envelope = Envelope::seal(&roster, &[director]).to_bytes();
        let of_any = Digest::of(b"roster").short();
        let tag = tag().replace(&of_any, &Digest::of(&envelope).short());
        self.put(record::roster(&cluster), envelope).await;
        tag
    }

    /// A replica that has just been started.
    fn hub(&self, index: &Arc<dyn Index>, limit: usize) -> Hub {
        let room = Room { clusters: limit, ..Room::default() };
        let view = View::with_room(Arc::clone(&self.watched), Arc::clone(index), room);
        Hub::new(view, Arc::clone(index), Settings::default())
    }

    fn replica(&self) -> Hub {
        self.hub(&(Arc::new(Memory::new()) as Arc<dyn Index>), usize::MAX)
    }

    fn request(&self, n: usize, key: &SigningKey, tag: &str) -> Request<()> {
        // One pass a cluster and hour, as an agent has it.
        let at = now() / 1000 * 1000;
        let pass = pass::issue(key, &name(&cluster(n)), self.trust.fleet, at);
        let request = Request::builder().uri("/v1/desired").header(PASS_HEADER, pass);
        request.header(HOLDS_HEADER, tag).body(()).expect("good headers")
    }

    async fn poll_with(&self, hub: &Hub, n: usize, key: &SigningKey, tag: &str) -> (StatusCode, bool) {
        let request = self.request(n, key, tag);
        let response = match desired::steady(hub, &request) {
            Some(response) => response,
            None => {
                let answer = desired::get(hub, &request).await;
                answer.unwrap_or_else(farshore_hub_fn::answer::Refusal::into_response)
            }
        };
        let is_behind = |response: &Response<_>| response.headers().contains_key(BEHIND_HEADER);
        (response.status(), is_behind(&response))
    }

    async fn poll(&self, hub: &Hub, n: usize) -> StatusCode {
        self.poll_with(hub, n, &self.key, &tag()).await.0
    }

    async fn poll_all(&self, hub: &Hub) {
        let all = join_all((0..self.clusters).map(|n| self.poll(hub, n))).await;
        assert!(all.iter().all(|status| *status == StatusCode::NOT_MODIFIED), "{all:?}");
    }
}

#[tokio::test]
async fn a_new_replica_reads_by_shard_and_once_however_many_ask() {
    let fleet = Fleet::of(600).await;
    let index: Arc<dyn Index> = Arc::new(Memory::new());
    let hub = fleet.hub(&index, usize::MAX);
    fleet.poll_all(&hub).await;
    let shards = usize::try_from(hub.view.counts().shards).expect("a few");
    assert_eq!((fleet.watcher.of_shards(), hub.view.counts().loaded), (shards, 600));
    assert_eq!(fleet.watcher.of("registrations/") + fleet.watcher.of("rosters/"), 0);
    fleet.poll_all(&hub).await;
    assert_eq!(fleet.watcher.of_shards(), shards, "all of it is in memory");
    // What one replica has read, the index has for the next; without the index it is read again.
    fleet.poll_all(&fleet.hub(&index, usize::MAX)).await;
    assert_eq!(fleet.watcher.of_shards(), shards);
    fleet.poll_all(&fleet.replica()).await;
    assert_eq!(fleet.watcher.of_shards(), 2 * shards);
}

#[tokio::test]
async fn a_shard_that_the_index_has_damaged_is_read_from_objects() {
    let fleet = Fleet::of(3).await;
    let index: Arc<dyn Index> = Arc::new(Memory::new());
    for listed in fleet.disk.list("index/", None, 100).await.expect("a disk") {
        let entry = farshore_hub_fn::index::Entry { version: u64::MAX, bytes: Bytes::from_static(b"noise") };
        index.put(listed.key.as_str(), &entry).await.expect("memory");
    }
    fleet.poll_all(&fleet.hub(&index, usize::MAX)).await;
}

#[tokio::test]
async fn the_log_counts_in_any_order_and_also_for_shards_that_are_loaded_later() {
    let fleet = Fleet::of(2).await;
    let (early, late) = (fleet.replica(), fleet.replica());
    assert_eq!(fleet.poll(&early, 0).await, StatusCode::NOT_MODIFIED);
    let new = SigningKey::generate();
    fleet.append(1, vec![fleet.entry(0, SEQUENCE + 5, Some(&new))]).await;
    fleet.append(2, vec![fleet.entry(0, SEQUENCE, Some(&fleet.key))]).await;
    fleet.append(3, vec![fleet.entry(0, SEQUENCE + 5, Some(&new)), fleet.entry(1, SEQUENCE + 7, None)]).await;
    for hub in [early, late] {
        hub.view.publication(Freshness::Now).await.expect("a good record");
        assert_eq!(fleet.poll_with(&hub, 0, &new, &tag()).await.0, StatusCode::NOT_MODIFIED);
        assert_eq!(fleet.poll(&hub, 0).await, StatusCode::UNAUTHORIZED, "the key was replaced");
        assert_eq!(fleet.poll(&hub, 1).await, StatusCode::UNAUTHORIZED, "removed");
    }
}

#[tokio::test]
async fn a_replica_that_was_frozen_looks_before_it_answers() {
    let fleet = Fleet::of(2).await;
    let hub = fleet.replica();
    assert_eq!(fleet.poll(&hub, 0).await, StatusCode::NOT_MODIFIED);
    let request = fleet.request(0, &fleet.key, &tag());
    assert!(desired::steady(&hub, &request).is_some());
    // Parts that were collected are in a newer snapshot.
    let entries = [fleet.entry(0, SEQUENCE + 1, None), fleet.entry(1, SEQUENCE, Some(&fleet.key))];
    fleet.snapshot(4, entries.into_iter()).await;
    until_stale(&hub).await;
    assert!(desired::steady(&hub, &request).is_none(), "older than its bound");
    assert_eq!(fleet.poll(&hub, 0).await, StatusCode::UNAUTHORIZED);
    assert_eq!(fleet.poll(&hub, 1).await, StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn a_number_of_the_log_that_was_used_again_hides_nothing_from_a_replica_that_was_frozen() {
    let fleet = Fleet::of(2).await;
    let hub = fleet.replica();
    for n in 0..2 {
        assert_eq!(fleet.poll(&hub, n).await, StatusCode::NOT_MODIFIED);
    }
    // The first part removed a cluster, was folded into a snapshot and collected; then somebody who had stood
    // still as long created it again.
    let entries = [fleet.entry(0, SEQUENCE + 1, None), fleet.entry(1, SEQUENCE, Some(&fleet.key))];
    fleet.snapshot(1, entries.into_iter()).await;
    fleet.append(1, vec![fleet.entry(1, SEQUENCE, Some(&fleet.key))]).await;
    until_stale(&hub).await;
    assert_eq!(fleet.poll(&hub, 0).await, StatusCode::UNAUTHORIZED);
    assert_eq!(fleet.poll(&hub, 1).await, StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn a_directory_from_a_backup_is_read_anew() {
    let fleet = Fleet::of(1).await;
    let new = SigningKey::generate();
    fleet.snapshot(9, std::iter::once(fleet.entry(0, SEQUENCE + 1, Some(&new)))).await;
    let hub = fleet.replica();
    assert_eq!(fleet.poll_with(&hub, 0, &new, &tag()).await.0, StatusCode::NOT_MODIFIED);
    fleet.snapshot(5, std::iter::once(fleet.entry(0, SEQUENCE, Some(&fleet.key)))).await;
    fleet.append(6, vec![]).await;
    until_stale(&hub).await;
    assert_eq!(fleet.poll(&hub, 0).await, StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn a_cluster_that_says_to_hold_more_makes_us_look_once_in_a_while_only() {
    let fleet = Fleet::of(1).await;
    let hub = fleet.replica();
    let more = tag().replace(&SEQUENCE.to_string(), &u64::MAX.to_string());
    for _ in 0..20 {
        let answer = fleet.poll_with(&hub, 0, &fleet.key, &more).await;
        assert_eq!(answer, (StatusCode::NOT_MODIFIED, true));
    }
    // A test that takes longer than the rest between two looks may see another one.
    assert!(fleet.watcher.of("rosters/") <= 2, "{}", fleet.watcher.of("rosters/"));
}

#[tokio::test]
async fn a_replica_with_little_room_forgets_shards_and_answers_as_before() {
    let fleet = Fleet::of(400).await;
    let index: Arc<dyn Index> = Arc::new(Memory::new());
    let hub = fleet.hub(&index, 20_000);
    fleet.append(1, vec![fleet.entry(7, SEQUENCE + 1, None)]).await;
    for _ in 0..3 {
        for n in 0..fleet.clusters {
            let expected = if n == 7 { StatusCode::UNAUTHORIZED } else { StatusCode::NOT_MODIFIED };
            assert_eq!(fleet.poll(&hub, n).await, expected, "{n}");
        }
    }
    let counts = hub.view.counts();
    assert!(counts.evictions > 0 && counts.bytes <= 20_000, "{counts:?}");
    let heard: std::collections::BTreeSet<_> =
        hub.view.drain_seen(0..SHARDS).into_iter().map(|(cluster, _)| cluster).collect();
    assert_eq!(heard.len(), fleet.clusters - 1, "times survive their shards");
    assert_eq!(hub.view.drain_seen(0..SHARDS), vec![]);
}

#[tokio::test]
async fn without_the_record_only_those_who_hold_what_is_known_are_told_anything() {
    let fleet = Fleet::of(3).await;
    let hub = fleet.replica();
    assert_eq!(fleet.poll(&hub, 0).await, StatusCode::NOT_MODIFIED);
    fleet.watcher.is_down.store(true, Ordering::Relaxed);
    until_stale(&hub).await;
    assert_eq!(fleet.poll(&hub, 0).await, StatusCode::NOT_MODIFIED);
    let old = tag().replace(&SEQUENCE.to_string(), "5");
    let something = fleet.poll_with(&hub, 0, &fleet.key, &old).await;
    assert_eq!(something, (StatusCode::SERVICE_UNAVAILABLE, false), "documents would be needed");
    assert_eq!(fleet.poll(&hub, 1).await, StatusCode::SERVICE_UNAVAILABLE, "its pass was not verified");
    let forged = fleet.poll_with(&hub, 0, &SigningKey::generate(), &tag()).await;
    assert_eq!(forged.0, StatusCode::SERVICE_UNAVAILABLE);
    fleet.watcher.is_down.store(false, Ordering::Relaxed);
    hub.view.publication(Freshness::Now).await.expect("it is back");
    assert_eq!(fleet.poll(&hub, 1).await, StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn what_moved_is_told_and_a_tag_needs_no_reading() {
    let fleet = Fleet::of(1).await;
    let hub = fleet.replica();
    let mut changed = hub.view.changed();
    let caller = hub.gate.admit(fleet.request(0, &fleet.key, &tag()).headers(), now()).await;
    let caller = caller.expect("let in");
    assert!(changed.has_changed().expect("the view is there"));
    assert_eq!(*changed.borrow_and_update(), SEQUENCE);
    assert_eq!(hub.view.tag(&caller).map(|tag| tag.to_string()), Some(tag()));
    assert_eq!(hub.view.group_of(&caller.cluster), Some(Fleet::group()));
    fleet.append(1, vec![fleet.entry(0, SEQUENCE + 1, None)]).await;
    hub.view.publication(Freshness::Now).await.expect("a good record");
    assert!(changed.has_changed().expect("the view is there"), "the directory moved");
    assert_eq!(hub.view.tag(&caller), None, "removed");
}

#[tokio::test]
async fn what_moved_is_told_also_when_the_look_that_saw_it_failed_elsewhere() {
    let fleet = Fleet::of(3).await;
    let hub = fleet.replica();
    fleet.poll_all(&hub).await;
    let mut changed = hub.view.changed();
    changed.borrow_and_update();
    let _ = hub.view.take_moved();
    fleet.append(1, vec![fleet.entry(1, SEQUENCE + 1, None)]).await;
    // The head is answered, and wrongly, when the part of the log is taken already.
    fleet.watcher.answer(record::head(), noise());
    let second = record::directory_log(2).as_str().to_owned();
    *fleet.watcher.after.lock().expect("no test panics with it") =
        Some((record::head().as_str().to_owned(), second));
    assert!(hub.view.publication(Freshness::Now).await.is_err());
    assert!(!changed.has_changed().expect("the view is there"), "it is told with the head");
    *fleet.watcher.after.lock().expect("no test panics with it") = None;
    fleet.watcher.answer_as_it_is();
    hub.view.publication(Freshness::Now).await.expect("a good record");
    assert!(changed.has_changed().expect("the view is there"), "the directory moved");
    let moved: Vec<u16> = hub.view.take_moved().shards().collect();
    assert_eq!(moved, [record::directory_shard_of(&name(&cluster(1)))], "nobody else has to look");
    assert!(!hub.view.take_moved().is_any());
}

#[tokio::test]
async fn a_cluster_whose_shard_is_dropped_while_it_is_looked_for_is_let_in() {
    let fleet = Fleet::of(8).await;
    let hub = fleet.hub(&(Arc::new(Memory::new()) as Arc<dyn Index>), 1);
    // It is in no snapshot and in no log: its own documents tell of it.
    let late = fleet.clusters;
    let tag = fleet.enrol(late).await;
    let registration = record::registration(&name(&cluster(late))).as_str().to_owned();
    // While they are read, somebody else's shard takes the room of its own.
    let other = (0..late).find(|n| {
        record::directory_shard_of(&name(&cluster(*n))) != record::directory_shard_of(&name(&cluster(late)))
    });
    let other = other.expect("eight clusters are not in one shard");
    let go = Key::new("go/on").expect("a key");
    *fleet.watcher.after.lock().expect("no test panics with it") =
        Some((registration, go.as_str().to_owned()));
    let asks = fleet.poll_with(&hub, late, &fleet.key, &tag);
    let beside = async {
        let of = record::registration(&name(&cluster(late)));
        wait_for("it to be looked for", SOON, async || match fleet.watcher.of(of.as_str()) {
            0 => Err("not yet".to_owned()),
            _ => Ok(()),
        })
        .await
        .expect("it is");
        let status = fleet.poll(&hub, other).await;
        assert_eq!(fleet.watched.get(&go, 1).await.expect("a disk"), None);
        status
    };
    let (answer, beside) = futures::future::join(asks, beside).await;
    assert_eq!(beside, StatusCode::NOT_MODIFIED);
    assert_eq!(answer, (StatusCode::NOT_MODIFIED, false), "it is enrolled, and holds what is published");
}

#[tokio::test]
async fn strangers_who_ask_for_roots_that_there_are_not_cost_the_record_nothing() {
    let fleet = Fleet::of(1).await;
    let hub = fleet.replica();
    let ask = async |n: &str| match farshore_hub_fn::handlers::trust::get(&hub, n).await {
        Ok(response) => response.status(),
        Err(refusal) => refusal.into_response().status(),
    };
    for _ in 0..3 {
        assert_eq!(ask("1").await, StatusCode::OK);
    }
    let before = fleet.watcher.of("trust/");
    let strange = join_all((2..500).map(|n: u64| {
        let n = n.to_string();
        async move { ask(&n).await }
    }));
    assert!(strange.await.iter().all(|status| *status == StatusCode::NOT_FOUND));
    for n in ["0", "18446744073709551615"] {
        assert_eq!(ask(n).await, StatusCode::NOT_FOUND);
    }
    // The root is looked for anew every 10 s.
    assert!(fleet.watcher.of("trust/") <= before + 4, "{} reads", fleet.watcher.of("trust/") - before);
}

/// The bytes of a body, about: those of a hundred services.
const BODY: usize = 64 << 10;

/// Bodies of groups in a record, and a view that keeps so many of them, with nothing in its index.
struct Bodies {
    fleet: Fleet,
    view: View,
}

impl Bodies {
    async fn of(groups: u64, kept: usize) -> Self {
        let fleet = Fleet::of(1).await;
        let bodies = Self { view: Self::view(&fleet, 1 << 20), fleet };
        for n in 0..groups {
            bodies.publish(n, 1).await;
        }
        // Half of the room is for bodies, each of which counts for twice its bytes.
        let size = bodies.view.group(Self::group(0), 1).await.expect("a good record").size;
        let view = bodies.view_of(2 * kept * (2 * size + 1024));
        Self { view, ..bodies }
    }

    fn view(fleet: &Fleet, documents: usize) -> View {
        let room = Room { documents: documents as u64, ..Room::default() };
        View::with_room(Arc::clone(&fleet.watched), Arc::new(Memory::with(Duration::from_secs(1), 0)), room)
    }

    fn view_of(&self, documents: usize) -> View {
        Self::view(&self.fleet, documents)
    }

    fn group(n: u64) -> Digest {
        Digest::of(&n.to_le_bytes())
    }

    async fn publish(&self, n: u64, sequence: u64) {
        let group = Group {
            group: Self::group(n),
            epoch: 1,
            sequence,
            issued: NOW,
            expires: u64::MAX,
            previous: None,
            poll_seconds: 60,
            services: vec!["x".repeat(BODY).into()],
            tombstones: vec![],
            footprint: Default::default(),
            critical: vec![],
        };
        let bytes = Envelope::seal(&group, &[&self.fleet.keys.director]).to_bytes();
        self.fleet.put(record::group(Self::group(n), sequence), bytes).await;
    }

    /// Asks for each, and counts how many were read from the record.
    async fn read(&self, groups: std::ops::Range<u64>, sequence: u64) -> usize {
        let before = self.fleet.watcher.of("groups/");
        for n in groups {
            self.view.group(Self::group(n), sequence).await.expect("a good record");
        }
        self.fleet.watcher.of("groups/") - before
    }
}

#[tokio::test]
async fn documents_that_find_no_room_are_read_again() {
    let (groups, room) = (400, 20);
    let bodies = Bodies::of(groups, room).await;
    assert_eq!(bodies.read(0..groups, 1).await, 400);
    let kept = 400 - bodies.read(0..groups, 1).await;
    // What was kept last may go a little later.
    assert!(kept <= 100, "{kept} bodies are kept where there is room for {room}");
    let bodies = Bodies { view: bodies.view_of(1 << 30), ..bodies };
    assert_eq!((bodies.read(0..groups, 1).await, bodies.read(0..groups, 1).await), (400, 0));
}

#[tokio::test]
async fn what_is_published_finds_room_although_what_was_there_before_was_asked_for_more_often() {
    let bodies = Bodies::of(20, 20).await;
    assert_eq!(bodies.read(0..20, 1).await, 20);
    for _ in 0..50 {
        bodies.read(0..20, 1).await;
    }
    for n in 0..15 {
        bodies.publish(n, 2).await;
    }
    let mut reads = 0;
    for _ in 0..10 {
        reads += bodies.read(0..15, 2).await;
    }
    assert_eq!(reads, 15, "each once");
}

#[tokio::test]
async fn an_object_that_is_not_what_its_name_says_is_believed_by_nobody_and_blocks_only_itself() {
    let fleet = Fleet::of(2).await;
    let shards: Vec<u16> = (0..2).map(|n| record::directory_shard_of(&name(&cluster(n)))).collect();
    assert_ne!(shards[0], shards[1]);
    let listed = fleet.disk.list(&format!("index/{:04}/", shards[0]), None, 9).await.expect("a disk");
    fleet.watcher.answer(listed[0].key.clone(), noise());
    let hub = fleet.replica();
    assert_eq!(fleet.poll(&hub, 0).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(fleet.poll(&hub, 1).await, StatusCode::NOT_MODIFIED);
    fleet.watcher.answer_as_it_is();
    assert_eq!(fleet.poll(&hub, 0).await, StatusCode::NOT_MODIFIED, "the bucket has it right again");
    // What every poll needs: nobody is told anything until it is right, but who holds what is known is told so.
    let tables = fleet.disk.list("fleet/tables/", None, 9).await.expect("a disk");
    for key in [tables[0].key.clone(), record::head()] {
        fleet.watcher.answer(key, noise());
        let new = fleet.replica();
        assert_eq!(fleet.poll(&new, 0).await, StatusCode::SERVICE_UNAVAILABLE);
        until_stale(&hub).await;
        assert_eq!(fleet.poll(&hub, 0).await, StatusCode::NOT_MODIFIED);
        fleet.watcher.answer_as_it_is();
        wait_for("the new replica to look again", SOON, async || match fleet.poll(&new, 0).await {
            StatusCode::NOT_MODIFIED => Ok(()),
            other => Err(other.to_string()),
        })
        .await
        .expect("it does");
    }
}

#[tokio::test]
async fn a_part_of_the_log_that_is_damaged_stops_no_replica_and_counts_once_it_is_read() {
    let fleet = Fleet::of(2).await;
    let hub = fleet.replica();
    assert_eq!(fleet.poll(&hub, 0).await, StatusCode::NOT_MODIFIED);
    fleet.append(1, vec![fleet.entry(0, SEQUENCE + 1, None)]).await;
    fleet.watcher.answer(record::directory_log(1), noise());
    let new = fleet.replica();
    for replica in [&hub, &new] {
        replica.view.publication(Freshness::Now).await.expect("the rest of the record is good");
        assert_eq!(fleet.poll(replica, 1).await, StatusCode::NOT_MODIFIED);
    }
    fleet.watcher.answer_as_it_is();
    for replica in [&hub, &new] {
        replica.view.publication(Freshness::Now).await.expect("a good record");
        assert_eq!(fleet.poll(replica, 0).await, StatusCode::UNAUTHORIZED, "it was removed in that part");
    }
}

#[tokio::test]
async fn a_bucket_that_shows_what_was_there_before_takes_no_site_back() {
    let fleet = Fleet::of(2).await;
    let head = async |key: &Key| fleet.disk.get(key, 1 << 20).await.expect("a disk").expect("it is there");
    let (fleet_head, directory_head) = (record::head(), record::directory_head());
    let old = [head(&fleet_head).await, head(&directory_head).await];
    fleet.publish(SEQUENCE + 1).await;
    fleet.snapshot(4, [fleet.entry(0, SEQUENCE, Some(&fleet.key))].into_iter()).await;
    let (hub, newer) = (fleet.replica(), tag_of(SEQUENCE + 1));
    assert_eq!(fleet.poll_with(&hub, 0, &fleet.key, &newer).await, (StatusCode::NOT_MODIFIED, false));
    for (key, old) in [fleet_head, directory_head].into_iter().zip(old) {
        fleet.watcher.answer(key, old);
    }
    until_stale(&hub).await;
    for hub in [&hub, &fleet.replica()] {
        let answer = fleet.poll_with(hub, 0, &fleet.key, &newer).await;
        assert_eq!(answer, (StatusCode::NOT_MODIFIED, true), "it holds more than this replica sees");
        let answer = fleet.poll_with(hub, 0, &fleet.key, &tag()).await;
        assert_eq!(answer, (StatusCode::NOT_MODIFIED, false), "it holds what this replica sees");
    }
    fleet.watcher.answer_as_it_is();
    until_stale(&hub).await;
    assert_eq!(fleet.poll_with(&hub, 0, &fleet.key, &newer).await, (StatusCode::NOT_MODIFIED, false));
    assert_eq!(fleet.poll(&hub, 1).await, StatusCode::UNAUTHORIZED, "its removal is seen again");
}

#[tokio::test]
async fn a_bucket_that_does_not_answer_keeps_nobody_waiting_for_long() {
    let fleet = Fleet::of(2).await;
    let hub = fleet.replica();
    assert_eq!(fleet.poll(&hub, 0).await, StatusCode::NOT_MODIFIED);
    until_stale(&hub).await;
    fleet.watcher.is_stuck.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let polls = join_all((0..20).map(|n| fleet.poll(&hub, n % 2))).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(polls[0], StatusCode::NOT_MODIFIED, "it holds what is known");
    assert_eq!(polls[1], StatusCode::SERVICE_UNAVAILABLE, "nothing is known of it here");
    // While nobody may look again, nobody waits at all.
    let began = Instant::now();
    assert_eq!(fleet.poll(&hub, 0).await, StatusCode::NOT_MODIFIED);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    fleet.watcher.is_stuck.store(false, Ordering::Relaxed);
    wait_for("the replica to look again", SOON, async || match fleet.poll(&hub, 1).await {
        StatusCode::NOT_MODIFIED => Ok(()),
        other => Err(other.to_string()),
    })
    .await
    .expect("it does");
}
