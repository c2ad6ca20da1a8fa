mod controls;
mod drift;
mod moves;
mod rollouts;

use std::fs;
use std::time::Duration;

use farshore_chaos::kit::wait_for;
use farshore_shared::digest::Digest;
use farshore_shared::wire::{
    ApplyPolicy, Artifact, DriftRule, Group, OnFailure, PruneBudget, Renderer, Revision, ServiceEntry,
    ServiceState,
};

use super::*;
use crate::target::memory::Memory;
use crate::verify::Envelopes;
use crate::verify::kit::Fleet;

struct Case {
    temp: tempfile::TempDir,
    store: Arc<Store>,
    target: Memory,
    fleet: Fleet,
}

impl Case {
    fn new() -> Self {
        let temp = tempfile::tempdir().expect("a folder");
        let store = Arc::new(Store::open(temp.path()).expect("new"));
        Self { temp, store, target: Memory::default(), fleet: Fleet::new() }
    }

    /// A reconciler as after a restart.
    fn reconciler(&self) -> Reconciler<Memory> {
        let cluster = self.fleet.cluster.clone();
        Reconciler::new(Arc::clone(&self.store), self.target.clone(), cluster, Tools::default())
    }

    /// Puts an artifact with one file on disk, and names it as a service at a commit.
    fn entry(&self, commit: &str, text: &str) -> ServiceEntry {
        let mut header = tar::Header::new_gnu();
        header.set_path("a.yaml").expect("a short path");
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        let mut tar = tar::Builder::new(Vec::new());
        tar.append(&header, text.as_bytes()).expect("into memory");
        let tar = tar.into_inner().expect("into memory");
        let blob = zstd::bulk::compress(&tar, 3).expect("memory to memory");
        let (digest, tar_digest) = (Digest::of(&blob), Digest::of(&tar));
        self.store.content().put(digest, &blob).expect("written");
        ServiceEntry {
            name: "web".parse().expect("a name"),
            incarnation: 1,
            revision: Revision { source: "s".parse().expect("a name"), commit: commit.to_owned() },
            artifact: Artifact { digest, size: blob.len() as u64, tar_digest, tar_size: tar.len() as u64 },
            path: String::new(),
            renderer: Renderer::Raw,
            namespace: Some("shop".into()),
            depends_on: vec![],
            prune: PruneBudget::default(),
            health: vec![],
            timeout_seconds: None,
            on_failure: OnFailure::Hold,
            apply: ApplyPolicy::default(),
            drift: DriftRule::default(),
            critical: vec![],
        }
    }

    fn orders(&self, entry: &ServiceEntry) -> Orders {
        self.orders_of(&[entry])
    }

    fn orders_of(&self, entries: &[&ServiceEntry]) -> Orders {
        let roster = self.fleet.roster(1);
        let services = entries.iter().map(|entry| entry.to_value()).collect();
        let group = Group { services, ..self.fleet.group(1) };
        let offer = self.fleet.offer(Some(&roster), Some(&group));
        let envelopes =
            Envelopes { roster: offer.roster.expect("offered"), group: offer.group.expect("offered") };
        let documents = Some(Arc::new(Documents { roster, group, envelopes }));
        Orders { documents, prune: Prune::Allowed }
    }
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{value: as signed}}\n---\n")
}

async fn pass(reconciler: &mut Reconciler<Memory>, orders: &Orders) -> ServiceStatus {
    let pass = reconciler.pass(orders).await.expect("the state folder is whole");
    pass.services.into_iter().next().expect("one service")
}

#[tokio::test]
async fn a_broken_commit_takes_no_repair_from_what_was_healthy() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let good = case.orders(&case.entry("good", &config_map("a")));
    assert_eq!(pass(&mut reconciler, &good).await.state, ServiceState::Applied);
    let broken = case.orders(&case.entry("broken", "# nothing\n"));
    for mut reconciler in [reconciler, case.reconciler()] {
        case.target.meddle("a", "as changed");
        let status = pass(&mut reconciler, &broken).await;
        assert_eq!((status.state, status.commit.as_str()), (ServiceState::Failed, "good"));
        assert!(status.message.contains("no manifest"), "{}", status.message);
        assert_eq!(case.target.value("a").as_deref(), Some("as signed"));
    }
}

#[tokio::test]
async fn content_that_rotted_on_disk_counts_as_missing_and_takes_nothing_away() {
    let case = Case::new();
    let entry = case.entry("good", &config_map("a"));
    let orders = case.orders(&entry);
    pass(&mut case.reconciler(), &orders).await;
    let digest = entry.artifact.digest;
    fs::write(case.temp.path().join(format!("content/{digest}")), "rotten").expect("damaged");
    fs::remove_file(case.temp.path().join("rendered/web")).expect("what it rendered to");
    let mut reconciler = case.reconciler();
    assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Failed);
    assert!(case.store.content().present().expect("listed").is_empty(), "it is to be fetched again");
    assert_eq!(case.target.names(), ["a"]);
    case.entry("good", &config_map("a"));
    assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Applied);
}

#[tokio::test]
async fn a_corrupt_inventory_deletes_nothing() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let both = config_map("a") + &config_map("b");
    pass(&mut reconciler, &case.orders(&case.entry("1", &both))).await;
    fs::write(case.temp.path().join("inventory/web.json"), "x").expect("damaged");
    pass(&mut reconciler, &case.orders(&case.entry("2", &config_map("a")))).await;
    assert_eq!(case.target.names(), ["a", "b"]);
}

#[tokio::test]
async fn a_service_whose_objects_take_long_keeps_no_other_waiting_but_those_that_depend_on_it() {
    let case = Case::new();
    let named =
        |name: &str, entry: ServiceEntry| ServiceEntry { name: name.parse().expect("a name"), ..entry };
    let slow = named("a-slow", case.entry("1", &config_map("slow")));
    let quick = named("b-quick", case.entry("2", &config_map("quick")));
    let mut waits = named("c-waits", case.entry("3", &config_map("waits")));
    waits.depends_on = vec![slow.name.clone()];
    let orders = case.orders_of(&[&slow, &quick, &waits]);
    case.target.inner().stuck.insert("slow".to_owned());
    let mut reconciler = case.reconciler();
    let others = async {
        let there = wait_for("the quick one", Duration::from_secs(20), async || match case.target.names() {
            names if names == ["quick"] => Ok(()),
            names => Err(format!("there are {names:?}")),
        });
        there.await.expect("it does not wait");
        case.target.inner().stuck.clear();
    };
    let (pass, ()) = tokio::join!(reconciler.pass(&orders), others);
    let states: Vec<_> = pass.expect("a pass").services.iter().map(|service| service.state).collect();
    assert_eq!(states, [ServiceState::Applied; 3]);
    assert_eq!(case.target.names(), ["quick", "slow", "waits"]);
}

#[tokio::test]
async fn a_pass_that_is_out_of_date_ends_whatever_hangs_and_the_next_one_makes_good() {
    let case = Case::new();
    let names: Vec<String> = (10..50).map(|n| format!("a{n}")).collect();
    let entry = case.entry("1", &names.iter().map(|name| config_map(name)).collect::<String>());
    let orders = case.orders(&entry);
    case.target.inner().stuck.extend(names[1..].iter().cloned());
    let mut reconciler = case.reconciler();
    let shared = reconciler.shared();
    let ends = async {
        let begun = wait_for("the first one", Duration::from_secs(20), async || match case.target.names() {
            there if there == names[..1] => Ok(()),
            there => Err(format!("there are {there:?}")),
        });
        begun.await.expect("it begins");
        shared.turn_era();
    };
    let (pass, ()) = tokio::join!(reconciler.pass(&orders), ends);
    let pass = pass.expect("a pass");
    assert!(pass.overtaken);
    assert_eq!((pass.services[0].state, pass.services[0].objects), (ServiceState::Waiting, 1));
    assert_eq!(pass.services[0].failures, []);
    case.target.inner().stuck.clear();
    let pass = reconciler.pass(&orders).await.expect("a pass");
    assert!(!pass.overtaken);
    assert_eq!(pass.services[0].state, ServiceState::Applied);
    assert_eq!(case.target.names(), names);
}

#[tokio::test]
async fn a_target_that_is_away_is_waited_for() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let orders = case.orders(&case.entry("1", &config_map("a")));
    case.target.inner().silent = Some("switched off".into());
    let waiting = pass(&mut reconciler, &orders).await;
    assert_eq!(waiting.state, ServiceState::Waiting);
    assert!(waiting.message.contains("switched off"), "{}", waiting.message);
    case.target.inner().silent = None;
    assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Applied);
}

#[tokio::test]
async fn of_two_manifests_for_one_object_neither_is_applied_and_the_rest_is() {
    let case = Case::new();
    let text = config_map("a") + &config_map("a") + &config_map("b");
    let status = pass(&mut case.reconciler(), &case.orders(&case.entry("1", &text))).await;
    assert_eq!(status.state, ServiceState::Failed);
    assert!(status.failures[0].message.contains("two manifests"), "{status:?}");
    assert_eq!(case.target.names(), ["b"]);
}
