//! The directory of clusters as publishers keep it, and what publishing costs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use farshore_hub_fn::directory::Reader;
use farshore_hub_fn::keyring::PublisherKeys;
use farshore_hub_fn::objects::counted::{Counted, Tally};
use farshore_hub_fn::objects::faulty::{Decision, Faulty, Steps};
use farshore_hub_fn::objects::memory::Memory;
use farshore_hub_fn::objects::{Condition, Objects, Operation};
use farshore_hub_fn::publish::directory::{Directory, Followed, Pen, note};
use farshore_hub_fn::publish::{Publisher, Step};
use farshore_hub_fn::record::{self, Entry, Removal, RosterRef};
use farshore_hub_fn::retention::{Collector, Rules};
use farshore_hub_fn::trust::Trust;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::SigningKey;
use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::Tombstone;
use tokio::sync::Notify;

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

/// Stops whoever does the n-th operation until it is let go, and for ever so many operations later.
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
        let n = self.count.fetch_add(1, Ordering::SeqCst);
        if n == self.at {
            self.reached.notify_one();
            self.go.notified().await;
        }
        if self.fate == Fate::IsKilledAfter(n.wrapping_sub(self.at)) {
            self.reached.notify_one();
            std::future::pending::<()>().await;
        }
        Decision::Proceed
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    GoesOn,
    /// It does so many more operations.
    IsKilledAfter(usize),
}

/// Somebody who keeps the directory, and all that he knows.
struct Scribe {
    objects: Arc<dyn Objects>,
    trust: Trust,
    keys: PublisherKeys,
    directory: Directory,
    known: BTreeMap<Name, Entry>,
}

impl Scribe {
    async fn new(world: &World, objects: &Arc<dyn Objects>) -> Self {
        let (trust, keys) = Trust::establish(&**objects, &world.ring).await.expect("our own keys");
        let (directory, known) = (Directory::default(), BTreeMap::new());
        let mut scribe = Self { objects: Arc::clone(objects), trust, keys, directory, known };
        scribe.load().await;
        scribe
    }

    async fn load(&mut self) {
        let (director, known) = (self.trust.director(), &mut self.known);
        let reader = Reader::new(&*self.objects, &director);
        known.clear();
        let loaded = Directory::load(&reader, &mut |entry| note(known, entry)).await;
        self.directory = loaded.expect("a good record").unwrap_or_default();
    }

    async fn follow(&mut self) {
        let (director, known) = (self.trust.director(), &mut self.known);
        let reader = Reader::new(&*self.objects, &director);
        let followed = self.directory.follow(&reader, &mut |entry| note(known, entry)).await;
        if followed.expect("a good record") == Followed::Behind {
            self.load().await;
        }
    }

    /// Appends until it is told that it is done.
    async fn append(&mut self, entries: &[Entry]) {
        loop {
            let (director, known) = (self.trust.director(), &mut self.known);
            let pen = Pen {
                objects: &*self.objects,
                director: &self.keys.director,
                signers: &director,
                epoch: 1,
                now: NOW,
            };
            let appended = self.directory.append(&pen, entries, &mut |entry| note(known, entry)).await;
            match appended.expect("a good record") {
                Followed::UpToDate => break,
                Followed::Behind => self.load().await,
            }
        }
        entries.iter().cloned().for_each(|entry| note(&mut self.known, entry));
    }

    async fn compact(&mut self) -> Followed {
        let director = self.trust.director();
        let pen = Pen {
            objects: &*self.objects,
            director: &self.keys.director,
            signers: &director,
            epoch: 1,
            now: NOW,
        };
        self.directory.compact(&pen).await.expect("a good record")
    }

    /// Two rounds: what is unneeded is marked, and deleted a day later.
    async fn collect(&self) {
        for now in [NOW, NOW + 2 * 86_400] {
            let collector = Collector::new(&self.objects, &self.trust, Rules::default());
            collector.round(&self.keys.director, now).await.expect("a good record");
        }
    }

    fn knows(&self, names: &[&str]) -> bool {
        names.iter().all(|of| self.known.contains_key(&name(of)))
    }
}

/// So much is said of it that one part has no room for two.
fn large(cluster: &str) -> Entry {
    let tombstone = |n| Tombstone { service: name(&format!("{n:050}")), incarnation: n };
    let roster = RosterRef {
        group: Digest::of(b"group"),
        floor: 1,
        epoch: 1,
        sequence: 1,
        digest: Digest::of(b"roster"),
        expires: 1,
        labels: None,
        tombstones: (0..13_000).map(tombstone).collect(),
        footprint: Default::default(),
    };
    Entry { roster: Some(roster), ..small(cluster) }
}

fn small(cluster: &str) -> Entry {
    let (epoch, sequence, labels) = (1, 1, Labels::default());
    let key = Some(SigningKey::generate().public().clone());
    Entry { cluster: name(cluster), epoch, sequence, key, labels, roster: None }
}

/// One who appends two parts is stopped before his n-th operation, while another appends one, makes a snapshot of it,
/// and what that holds is collected; false if he has no so many.
async fn log_is_collected_meanwhile(world: &World, n: usize, fate: Fate) -> bool {
    world.copy_record("record", "stopped");
    let plain = world.objects_at("stopped");
    let (count, reached, go) = (AtomicUsize::new(0), Notify::new(), Notify::new());
    let stop = Arc::new(Stop { at: n, fate, count, reached, go });
    let stopped: Arc<dyn Objects> = Arc::new(Faulty::new(Arc::clone(&plain), Arc::clone(&stop) as _));
    let mut late = Scribe::new(world, &plain).await;
    let mut ours = Scribe::new(world, &plain).await;
    ours.objects = stopped;
    let mut ours = tokio::spawn(async move {
        ours.append(&[large("ours-1"), large("ours-2")]).await;
        ours
    });
    let was_reached = tokio::select! {
        () = stop.reached.notified() => true,
        _ = &mut ours => false,
    };
    if !was_reached {
        return false;
    }
    let mut theirs = Scribe::new(world, &plain).await;
    theirs.append(&[small("theirs")]).await;
    assert_eq!(theirs.compact().await, Followed::UpToDate);
    theirs.collect().await;
    let mut all = vec!["first", "theirs"];
    stop.go.notify_one();
    tokio::select! {
        () = stop.reached.notified() => ours.abort(),
        ours = &mut ours => {
            all.extend(["ours-1", "ours-2"]);
            assert!(ours.expect("no panic").knows(&all), "{fate:?} before {n}: who was stopped knows all");
        }
    }
    late.follow().await;
    assert!(late.knows(&all), "{fate:?} before {n}: who looks late knows {:?}", late.known.keys());
    let new = Scribe::new(world, &plain).await;
    assert!(new.knows(&all), "{fate:?} before {n}: who is new knows {:?}", new.known.keys());
    true
}

#[tokio::test]
async fn a_number_of_the_log_that_was_collected_while_somebody_stood_still_hides_nothing() {
    let mut world = World::new();
    world.declare("web", None, "1");
    world.commit();
    let objects = world.objects();
    sync(&mut world.publisher(&objects, "mirrors").await).await;
    let mut first = Scribe::new(&world, &objects).await;
    first.append(&[small("first")]).await;
    assert_eq!(first.compact().await, Followed::UpToDate);
    let killed = [0, 1, 2].map(Fate::IsKilledAfter);
    for fate in [Fate::GoesOn].into_iter().chain(killed) {
        let mut n = 0;
        while log_is_collected_meanwhile(&world, n, fate).await {
            n += 1;
        }
        assert!(n >= 3, "two parts and a look at the head are more than {n} operations");
    }
}

/// The part of the log that says last that this cluster is removed, and its bytes.
async fn part_of_removal(objects: &Arc<dyn Objects>) -> (farshore_hub_fn::objects::Key, Bytes) {
    let last = objects.list("index/log/", None, 99).await.expect("a disk").pop().expect("a part");
    let stored = objects.get(&last.key, 1 << 20).await.expect("a disk").expect("it is listed");
    (last.key, stored.bytes)
}

async fn put(objects: &Arc<dyn Objects>, key: &farshore_hub_fn::objects::Key, bytes: Bytes) {
    let _ = objects.put(key, bytes, Condition::Always).await.expect("a disk");
}

#[tokio::test]
async fn a_snapshot_ends_before_a_part_that_is_damaged_and_forgets_no_removal() {
    let world = World::new();
    let objects = world.objects();
    let mut scribe = Scribe::new(&world, &objects).await;
    scribe.append(&[small("before"), small("removed")]).await;
    scribe.append(&[Entry::removed(name("removed"), 1, 2)]).await;
    let (key, said) = part_of_removal(&objects).await;
    scribe.append(&[small("after")]).await;
    put(&objects, &key, Bytes::from_static(b"noise")).await;
    assert_eq!(scribe.compact().await, Followed::Behind, "it had read what nobody can read any more");
    assert_eq!(scribe.compact().await, Followed::UpToDate, "and is told so once");
    let new = Scribe::new(&world, &objects).await;
    assert!(new.knows(&["before", "after"]) && new.directory.is_doubtful());
    // Whoever has it from a backup puts it back.
    put(&objects, &key, said).await;
    let mut new = Scribe::new(&world, &objects).await;
    assert!(!new.known[&name("removed")].is_enrolled() && !new.directory.is_doubtful());
    assert_eq!(new.compact().await, Followed::UpToDate);
    for listed in objects.list("index/log/", None, 9).await.expect("a disk") {
        objects.delete(&listed.key).await.expect("a disk");
    }
    let new = Scribe::new(&world, &objects).await;
    assert!(new.knows(&["before", "after"]) && !new.known[&name("removed")].is_enrolled());
}

/// A fleet of two clusters, of which one is removed; the publisher that did so, and the damaged part that said it.
async fn removed_in_a_damaged_part(world: &mut World, objects: &Arc<dyn Objects>) -> Publisher {
    world.declare("web", None, "1");
    world.commit();
    let key = world.enrol(objects, "harbour", "").await;
    world.enrol(objects, "beach", "").await;
    let mut publisher = world.publisher(objects, "mirrors").await;
    sync(&mut publisher).await;
    let operator = world.ring.operator().expect("made before");
    let removal = Removal { cluster: name("harbour"), key: key.public().id(), issued: u64::MAX / 2 };
    let asked = Bytes::from(Envelope::seal(&removal, &[&operator]).to_bytes());
    put(objects, &record::removal(&name("harbour")), asked).await;
    enrolments(&mut publisher).await;
    let (part, _) = part_of_removal(objects).await;
    put(objects, &part, Bytes::from_static(b"noise")).await;
    assert!(directory(world, objects).await[&name("harbour")].is_enrolled(), "nobody says otherwise");
    publisher
}

#[tokio::test]
async fn a_removal_that_was_told_in_a_damaged_part_is_told_again_by_a_new_publisher() {
    let mut world = World::new();
    let objects = world.objects();
    removed_in_a_damaged_part(&mut world, &objects).await;
    sync(&mut world.publisher(&objects, "mirrors").await).await;
    let known = directory(&world, &objects).await;
    assert!(!known[&name("harbour")].is_enrolled() && known[&name("beach")].is_enrolled());
}

/// Makes the log so long that it is folded, with what changes nothing.
async fn lengthen(scribe: &mut Scribe) {
    for n in 0..256 {
        scribe.append(&[Entry::removed(name("nobody"), 1, n + 1)]).await;
    }
}

#[tokio::test]
async fn a_removal_in_a_part_that_is_damaged_later_is_told_again_by_the_publisher_that_runs() {
    let mut world = World::new();
    let objects = world.objects();
    let mut running = removed_in_a_damaged_part(&mut world, &objects).await;
    lengthen(&mut Scribe::new(&world, &objects).await).await;
    // It finds the damage when it folds the log, and begins as a new one does.
    sync(&mut running).await;
    sync(&mut running).await;
    let known = directory(&world, &objects).await;
    assert!(!known[&name("harbour")].is_enrolled() && known[&name("beach")].is_enrolled());
}

#[tokio::test]
async fn a_part_that_is_lost_stops_snapshots_and_is_not_looked_for_at_each_step() {
    let world = World::new();
    let objects = world.objects();
    let mut scribe = Scribe::new(&world, &objects).await;
    scribe.append(&[small("before")]).await;
    lengthen(&mut scribe).await;
    objects.delete(&record::directory_log(2)).await.expect("a disk");
    assert!(scribe.directory.is_long(0));
    assert_eq!(scribe.compact().await, Followed::UpToDate);
    assert!(!scribe.directory.is_long(0), "it is tried again later");
    let director = scribe.trust.director();
    let (head, _) = Reader::new(&*objects, &director).head().await.expect("a disk").expect("a snapshot");
    assert_eq!(head.position, 1, "what follows the gap is in no snapshot");
}
