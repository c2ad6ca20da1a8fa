//! The record that a real publisher has written from a real repository, read and approved.

mod kit;

use farshore_chaos::kit::GitRepo;
use kit::{Ended, farshore};
use serde_json::Value;
use tempfile::TempDir;

/// A data folder with keys, and a fleet repository.
struct Fleet {
    folder: TempDir,
    repo: GitRepo,
}

impl Fleet {
    fn new() -> Self {
        let fleet = Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            repo: GitRepo::new().expect("a repository"),
        };
        farshore(&["trust", "init", "--keys", &format!("{}/keys", fleet.data())]).with(0);
        fleet
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
        let json = farshore(&["get", what, "--data", self.data(), "-o", "json"]).with(0).out;
        serde_json::from_str::<Value>(&json).expect("JSON")["items"].clone()
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
