//! The record that a real publisher has written from a real repository, read and approved.

mod kit;

use std::collections::BTreeSet;
use std::time::Duration;

use farshore_chaos::kit::{GitRepo, Port, Process, wait_for};
use farshore_hub_fn::retention::marks::{self, Marks};
use kit::{Ended, farshore};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_farshore");

/// A data folder with keys, and a fleet repository.
struct Fleet {
    folder: TempDir,
    repo: GitRepo,
}

impl Fleet {
    fn new() -> Self {
        let fleet = Self::without_keys();
        farshore(&["trust", "init", "--keys", &format!("{}/keys", fleet.data())]).with(0);
        fleet
    }

    /// What a hub that is complete by itself begins with.
    fn without_keys() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            repo: GitRepo::new().expect("a repository"),
        }
    }

    fn data(&self) -> &str {
        self.folder.path().to_str().expect("temporary folders have plain names")
    }

    fn write(&mut self, text: &str) -> String {
        let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\ndata:\n  text: ";
        self.repo.write("web/web.yaml", format!("{manifest}{text}\n")).expect("writes");
        let service = "apiVersion: farshore.dev/v1alpha1\nkind: Service\nmetadata:\n  name: web\nspec:\n  source: fleet\n  path: web\n  clusters: {}\n";
        self.repo.write("fleet.yaml", service).expect("writes");
        self.repo.commit(text).expect("commits")
    }

    fn publish(&self) -> Ended {
        let fleet = format!("{}#main", self.repo.path().display());
        farshore(&["hub", "--role", "publish", "--once", "--data", self.data(), "--fleet", &fleet])
    }

    fn get(&self, what: &str) -> Value {
        self.look(what).expect("the record is there")
    }

    /// What is there, or what was said instead: a hub that has just started has no record yet.
    fn look(&self, what: &str) -> Result<Value, String> {
        let shown = farshore(&["get", what, "--data", self.data(), "-o", "json"]);
        let shown = if shown.code == Some(0) { shown.out } else { return Err(shown.err) };
        Ok(serde_json::from_str::<Value>(&shown).expect("JSON")["items"].clone())
    }

    fn approve(&self, change: &str) -> Ended {
        farshore(&["approve", change, "--data", self.data()])
    }
}

#[test]
fn what_a_publisher_wrote_is_shown() {
    let mut fleet = Fleet::new();
    let commit = fleet.write("one");
    fleet.publish().with(0);
    let services = fleet.get("services");
    assert_eq!(services[0]["name"], "web");
    assert_eq!(services[0]["state"], "published");
    assert_eq!(services[0]["revision"], commit.as_str());
    assert_eq!(services[0]["clusters"], 0);
    assert!(services[0]["artifact"]["digest"].is_string());
    let sources = fleet.get("sources");
    assert_eq!((&sources[0]["name"], &sources[0]["state"]), (&"fleet".into(), &"ready".into()));
    assert_eq!(fleet.get("clusters"), Value::Array(vec![]));
    let none = farshore(&["get", "services", "--data", fleet.data(), "--state", "error,pending"]).with(0);
    assert_eq!(none.out.lines().count(), 1, "only the header: {}", none.out);
}

#[test]
fn a_rewritten_history_is_held_until_it_is_approved() {
    let mut fleet = Fleet::new();
    fleet.write("one");
    let published = fleet.write("two");
    fleet.publish().with(0);
    fleet.repo.git(&["checkout", "--quiet", "--orphan", "other"]).expect("git");
    let waiting = fleet.write("three");
    fleet.repo.git(&["branch", "--force", "main", "other"]).expect("git");
    fleet.publish().with(4);

    let source = &fleet.get("sources")[0];
    assert_eq!((&source["state"], &source["revision"]), (&"held".into(), &published.as_str().into()));
    assert_eq!(source["held"]["to"], waiting.as_str());
    let change = source["held"]["change"].as_str().expect("an id").to_owned();
    let wrong = fleet.approve("000000000000").with(3);
    assert!(wrong.err.contains(&change) && wrong.err.contains("fleet from"), "{}", wrong.err);
    fleet.publish().with(4);

    let approved = fleet.approve(&change).with(0);
    assert!(approved.out.contains(&waiting[..12]), "{}", approved.out);
    let again = fleet.approve(&change).with(0);
    assert!(again.out.contains("approved already"), "{}", again.out);
    fleet.publish().with(0);
    let source = &fleet.get("sources")[0];
    assert_eq!((&source["state"], &source["revision"]), (&"ready".into(), &waiting.as_str().into()));
    let late = fleet.approve(&change).with(0);
    assert!(late.out.contains("approved already"), "{}", late.out);
}

/// What `farshore gc` says, told to keep what is unneeded for an hour.
fn collect(fleet: &Fleet, more: &[&str]) -> Value {
    let always = ["gc", "--data", fleet.data(), "--keep-unneeded", "1h", "-o", "json"];
    let shown = farshore(&[&always, more].concat()).with(0);
    serde_json::from_str(&shown.out).expect("JSON")
}

/// The kinds of what is in this state.
fn kinds(said: &Value, state: &str) -> BTreeSet<String> {
    let items = said["items"].as_array().expect("a list").iter().filter(|item| item["state"] == state);
    items.map(|item| item["kind"].as_str().expect("a word").to_owned()).collect()
}

/// Makes every mark two hours older.
fn age_marks(fleet: &Fleet) {
    for shard in 0..marks::SHARDS {
        let path = fleet.folder.path().join("objects").join(marks::key_of(shard).as_str());
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let mut all = serde_json::to_value(Marks::decode(&bytes)).expect("JSON");
        for since in all.as_object_mut().expect("by key").values_mut() {
            *since = Value::from(since.as_u64().expect("a time") - 7200);
        }
        let aged: Marks = serde_json::from_value(all).expect("marks");
        std::fs::write(path, aged.encode()).expect("writes");
    }
}

#[test]
fn what_nobody_needs_is_shown_and_marked_and_after_its_time_deleted() {
    let mut fleet = Fleet::new();
    for text in ["one", "two", "three"] {
        fleet.write(text);
        fleet.publish().with(0);
    }
    let objects = fleet.folder.path().join("objects");
    let pack = objects.join("mirrors/gone").join(format!("{}.pack", "0".repeat(64)));
    std::fs::create_dir_all(pack.parent().expect("it has a folder")).expect("makes the folder");
    std::fs::write(&pack, "PACK").expect("writes");
    let all = ["artifact", "intent", "mirror-pack"].map(ToOwned::to_owned).into();
    for _ in 0..2 {
        let said = collect(&fleet, &["--dry-run"]);
        assert_eq!(kinds(&said, "waiting"), all, "{said}");
        let items = said["items"].as_array().expect("a list");
        assert!(items.iter().all(|item| item["unneededSince"].is_null()), "nothing is marked: {said}");
    }
    let marked = collect(&fleet, &[]);
    assert_eq!(
        (&marked["totals"]["deleted"]["objects"], kinds(&marked, "waiting")),
        (&0.into(), all.clone())
    );
    age_marks(&fleet);
    let due = collect(&fleet, &["--dry-run"]);
    assert_eq!(kinds(&due, "due"), all, "{due}");
    assert!(pack.exists(), "a look deletes nothing");
    let collected = collect(&fleet, &[]);
    assert_eq!(kinds(&collected, "deleted"), all, "{collected}");
    assert_eq!(collected["totals"]["deleted"]["objects"], due["totals"]["due"]["objects"]);
    assert!(!pack.exists());
    let text = farshore(&["gc", "--data", fleet.data(), "--dry-run"]).with(0);
    assert!(text.out.contains("deleted: 0 objects") && text.out.contains("due: 0 objects"), "{}", text.out);
    assert_eq!(fleet.get("services")[0]["state"], "published");
    fleet.write("four");
    fleet.publish().with(0);
    farshore(&["gc", "--data", fleet.data(), "--keep-unneeded", "59m"]).with(2);
}

#[test]
fn keys_of_another_fleet_approve_nothing() {
    let mut fleet = Fleet::new();
    fleet.write("one");
    fleet.publish().with(0);
    fleet.repo.git(&["checkout", "--quiet", "--orphan", "other"]).expect("git");
    fleet.write("two");
    fleet.repo.git(&["branch", "--force", "main", "other"]).expect("git");
    fleet.publish().with(4);
    let change = fleet.get("sources")[0]["held"]["change"].as_str().expect("an id").to_owned();
    let other = Fleet::new();
    let keys = format!("{}/keys", other.data());
    let refused = farshore(&["approve", &change, "--data", fleet.data(), "--keys", &keys]).with(3);
    assert!(refused.err.contains("does not belong to the record's root"), "{}", refused.err);
    fleet.publish().with(4);
}

#[test]
fn what_nobody_signed_is_told_and_left_out() {
    let mut fleet = Fleet::new();
    fleet.write("one");
    fleet.publish().with(0);
    for object in ["registrations/0001/evil", "sources/evil/head", "seen/00"] {
        let path = fleet.folder.path().join("objects").join(object);
        std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("makes the folder");
        let forged = r#"{"payloadType":"x","payload":"e30=","signatures":[]}"#;
        std::fs::write(path, forged).expect("writes");
    }
    let clusters = farshore(&["get", "clusters", "--data", fleet.data(), "-o", "json"]).with(0);
    assert_eq!(clusters.out, "{\n  \"items\": []\n}\n");
    assert!(clusters.err.contains("seen/00"), "{}", clusters.err);
    let sources = farshore(&["get", "sources", "--data", fleet.data()]).with(0);
    assert!(sources.out.contains("ready") && !sources.out.contains("evil"), "{}", sources.out);
    assert!(sources.err.contains("sources/evil/head"), "{}", sources.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_that_applied_what_is_published_is_shown_as_converged() {
    let mut fleet = Fleet::without_keys();
    let commit = fleet.write("one");
    let port = Port::take().expect("a port");
    let (data, repo) = (fleet.data().to_owned(), format!("{}#main", fleet.repo.path().display()));
    let hub = ["hub", "--data", &data, "--fleet", &repo, "--listen", &port.address(), "--interval", "1s"];
    let _hub = Process::start(PROGRAM, hub).expect("the hub starts");
    let token = wait_for("keys of the hub's own", Duration::from_secs(30), async || {
        let made = farshore(&["token", "create", "--data", &data, "--label", "tier=edge"]);
        if made.code == Some(0) { Ok(made.out) } else { Err(made.err) }
    });
    let token = token.await.expect("the hub makes keys");
    let (url, state) = (format!("https://{}", port.address()), format!("{data}/site/state"));
    let target = format!("dir:{data}/site/manifests");
    let agent = ["agent", "--hub", &url, "--join", token.trim_end(), "--name", "ship-1", "--state", &state];
    let agent = agent.into_iter().chain(["--target", &target, "--poll", "1s"]);
    let agent = Process::start(PROGRAM, agent).expect("the agent starts");
    let converged = wait_for("a converged cluster", Duration::from_secs(60), async || {
        let clusters = fleet.look("clusters")?;
        if clusters[0]["state"] == "converged" {
            Ok(clusters[0].clone())
        } else {
            Err(format!("{clusters}\n{}", agent.stderr()))
        }
    });
    let cluster = converged.await.expect("the site applies what is published");
    assert_eq!(cluster["name"], "ship-1");
    assert_eq!(cluster["labels"]["tier"], "edge");
    assert_eq!(cluster["services"][0]["commit"], commit.as_str());
    assert!(cluster["lastSeen"].is_string() && cluster["revision"].is_string(), "{cluster}");
    assert_eq!(fleet.get("services")[0]["clusters"], 1);
    let core = farshore(&["get", "clusters", "--data", &data, "--selector", "tier=core"]).with(0);
    assert_eq!(core.out.lines().count(), 1, "only the header: {}", core.out);
    assert!(core.err.starts_with("1 clusters: 1 converged, "), "{}", core.err);
    let asked = Asked { url, key: format!("{data}/keys/operator.key") };
    the_hub_shows_it_as_well(&asked, &cluster).await;
    a_removal_is_told_before_it_is_done(&asked, &data).await;
}

async fn the_hub_shows_it_as_well(asked: &Asked, cluster: &Value) {
    let converged = wait_for("the hub to have counted", Duration::from_secs(30), async || {
        let shown = asked.run(&["get", "clusters", "-l", "tier=edge", "--state", "converged", "-o", "json"]);
        let is_counted = shown.err.starts_with("1 clusters: 1 converged, ");
        if shown.code == Some(0) && is_counted { Ok(shown.out) } else { Err(format!("{shown:?}")) }
    });
    let shown: Value = serde_json::from_str(&converged.await.expect("it counts")).expect("JSON");
    let item = &shown["items"][0];
    assert_eq!((&item["name"], &item["revision"]), (&"ship-1".into(), &cluster["revision"]), "{item}");
    let services: Value =
        serde_json::from_str(&asked.run(&["get", "services", "-o", "json"]).with(0).out).expect("JSON");
    assert_eq!(
        (&services["items"][0]["name"], &services["items"][0]["clusters"]),
        (&"web".into(), &1.into())
    );
    let none = asked.run(&["get", "clusters", "--prefix", "shop", "--limit", "5"]).with(0);
    assert_eq!(none.out.lines().count(), 1, "only the header: {}", none.out);
}

async fn a_removal_is_told_before_it_is_done(asked: &Asked, data: &str) {
    let told = asked.run(&["remove", "ship-1"]).with(4);
    assert!(told.out.contains("the site keeps what it has, 1 services"), "{}", told.out);
    assert!(told.out.contains("its pass is refused"), "{}", told.out);
    let removals = format!("{data}/objects/removals");
    assert!(!std::path::Path::new(&removals).exists(), "nothing is done yet");
    asked.run(&["remove", "ship-2", "--yes"]).with(3);
    let removed = asked.run(&["remove", "ship-1", "--yes"]).with(0);
    assert!(removed.out.contains("removed: "), "{}", removed.out);
    let gone = wait_for("the publisher to have done it", Duration::from_secs(60), async || {
        let shown = asked.run(&["get", "clusters", "--prefix", "ship-1"]);
        if shown.code == Some(0) && shown.out.lines().count() == 1 {
            Ok(())
        } else {
            Err(format!("{shown:?}"))
        }
    });
    gone.await.expect("it does");
}

/// A hub that is asked as an operator.
struct Asked {
    url: String,
    key: String,
}

impl Asked {
    fn run(&self, arguments: &[&str]) -> Ended {
        farshore(&[arguments, &["--hub", &self.url, "--key", &self.key]].concat())
    }

    fn source(&self) -> Result<Value, String> {
        let shown = self.run(&["get", "sources", "-o", "json"]);
        let shown = if shown.code == Some(0) { shown.out } else { return Err(shown.err) };
        Ok(serde_json::from_str::<Value>(&shown).expect("JSON")["items"][0].clone())
    }

    async fn until(&self, state: &str) -> Value {
        let source = wait_for("the source's state", Duration::from_secs(60), async || {
            let source = self.source()?;
            if source["state"] == state { Ok(source) } else { Err(source.to_string()) }
        });
        source.await.expect(state)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_asks_and_approves_from_anywhere() {
    let mut fleet = Fleet::without_keys();
    fleet.write("one");
    let port = Port::take().expect("a port");
    let (data, repo) = (fleet.data().to_owned(), format!("{}#main", fleet.repo.path().display()));
    let hub = ["hub", "--data", &data, "--fleet", &repo, "--listen", &port.address(), "--interval", "1s"];
    let _hub = Process::start(PROGRAM, hub).expect("the hub starts");
    let url = format!("https://{}", port.address());
    let asked = Asked { url: url.clone(), key: format!("{data}/keys/operator.key") };
    asked.until("ready").await;

    let other = Fleet::new();
    let root = format!("{data}/keys/root.1.json");
    let stranger = format!("{}/keys/operator.key", other.data());
    let refused = farshore(&["get", "sources", "--hub", &url, "--key", &stranger, "--root", &root]).with(3);
    assert!(refused.err.contains("key is not an operator of this fleet (key "), "{}", refused.err);
    assert!(refused.err.contains("root names "), "{}", refused.err);
    let pin = "0".repeat(64);
    let refused = asked.run(&["get", "sources", "--pin", &pin]).with(3);
    assert!(refused.err.contains("a TLS key that is not pinned"), "{}", refused.err);
    farshore(&["get", "sources", "--hub", &url]).with(2);
    let nobody = Port::take().expect("a port");
    let away = Asked { url: format!("https://{}", nobody.address()), key: asked.key.clone() };
    let away = away.run(&["get", "clusters"]).with(5);
    assert!(away.err.contains("reaching the hub failed"), "{}", away.err);

    fleet.repo.git(&["checkout", "--quiet", "--orphan", "other"]).expect("git");
    let waiting = fleet.write("two");
    fleet.repo.git(&["branch", "--force", "main", "other"]).expect("git");
    let held = asked.until("held").await;
    let change = held["held"]["change"].as_str().expect("an id").to_owned();
    let wrong = asked.run(&["approve", "000000000000"]).with(3);
    assert!(wrong.err.contains(&change), "{}", wrong.err);
    let approved = asked.run(&["approve", &change]).with(0);
    assert!(approved.out.contains(&waiting[..12]), "{}", approved.out);
    let ready = asked.until("ready").await;
    assert_eq!(ready["revision"], waiting.as_str());
}
