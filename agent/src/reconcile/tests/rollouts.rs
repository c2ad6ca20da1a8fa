//! Services on their way from one revision to the next.

use farshore_shared::wire::{CheckOutcome, OnFailure};
use serde_json::json;

use super::*;
use crate::store::rollouts::ask_retry;
use crate::target::directory::Directory;

/// A workload of one replica, with something in it that a revision changes, and annotations.
fn deployment(name: &str, image: &str, annotations: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n\
         data: {{value: as signed}}\nspec: {{replicas: 1, image: {image}}}\n---\n"
    )
}

fn job(name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\nspec: {{}}\n---\n"
    )
}

fn in_wave(name: &str, wave: &str) -> String {
    config_map(name)
        .replace("metadata: {", &format!("metadata: {{annotations: {{farshore.dev/wave: '{wave}'}}, "))
}

const BEFORE: &str = "argocd.argoproj.io/hook: PreSync";
const TEST: &str = "farshore.dev/test: 'true'";

impl Case {
    /// What controllers say of an object.
    fn says(&self, name: &str, status: serde_json::Value) {
        self.target.inner().statuses.insert(name.to_owned(), status);
    }

    fn is_available(&self, name: &str) {
        self.says(
            name,
            json!({"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1,
                "conditions": [{"type": "Available", "status": "True"}]}),
        );
    }

    fn is_starting(&self, name: &str) {
        self.says(name, json!({"replicas": 1, "updatedReplicas": 1, "availableReplicas": 0}));
    }

    fn ended(&self, name: &str, how: &str) {
        let status = json!({"startTime": "now", "conditions": [{"type": how, "status": "True", "message": "as it says"}]});
        self.says(name, status);
    }

    /// The names of what is there, in order.
    fn names(&self) -> Vec<String> {
        let mut names = self.target.names();
        names.sort();
        names
    }

    fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.target.inner().log)
    }

    fn healthy_commit(&self) -> Option<String> {
        let healthy = self.store.healthy().expect("readable").good()?;
        healthy.get(&"web".parse::<Name>().expect("a name")).map(|healthy| healthy.commit.clone())
    }

    /// An entry that goes back at once when it is not healthy.
    fn impatient(&self, commit: &str, text: &str) -> ServiceEntry {
        ServiceEntry { on_failure: OnFailure::Revert, timeout_seconds: Some(0), ..self.entry(commit, text) }
    }
}

fn waited_for(status: &ServiceStatus) -> &str {
    assert_eq!(status.state, ServiceState::Waiting, "{status:?}");
    &status.progress.as_ref().expect("it is under way").object
}

#[tokio::test]
async fn a_wave_waits_for_the_health_of_the_one_before_it() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let orders = case.orders(&case.entry("1", &(deployment("a", "a:1", "") + &in_wave("b", "1"))));
    case.is_starting("a");
    for _ in 0..3 {
        let status = pass(&mut reconciler, &orders).await;
        assert_eq!(waited_for(&status), "Deployment.apps shop/a");
        assert!(
            status.message.contains("wave 0: waits for Deployment.apps shop/a: 0 of 1"),
            "{}",
            status.message
        );
        assert_eq!(case.names(), ["a"]);
        assert_eq!(case.healthy_commit(), None, "applied is not healthy");
    }
    case.is_available("a");
    let status = pass(&mut reconciler, &orders).await;
    assert_eq!((status.state, status.progress), (ServiceState::Applied, None));
    assert_eq!(case.names(), ["a", "b"]);
    assert_eq!(case.healthy_commit().as_deref(), Some("1"));
    case.take_log();
    case.is_starting("a");
    assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Applied);
    assert!(case.take_log().is_empty(), "what was healthy in this revision is not looked at again");
}

#[tokio::test]
async fn while_a_wave_is_waited_for_what_is_in_place_is_repaired_in_every_wave() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    case.is_available("a");
    let old = deployment("a", "a:1", "") + &in_wave("b", "1");
    pass(&mut reconciler, &case.orders(&case.entry("1", &old))).await;
    case.is_starting("a");
    let new = deployment("a", "a:2", "") + &in_wave("b", "1") + &in_wave("c", "1");
    let orders = case.orders(&case.entry("2", &new));
    waited_for(&pass(&mut reconciler, &orders).await);
    case.target.meddle("b", "as changed");
    case.target.meddle("a", "as changed");
    let status = pass(&mut reconciler, &orders).await;
    assert_eq!(status.repairs, 2);
    assert_eq!(case.target.value("b").as_deref(), Some("as signed"));
    assert_eq!(case.names(), ["a", "b"], "what is new waits for its turn");
}

#[tokio::test]
async fn a_newer_revision_pre_empts_a_stuck_one_at_once() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    case.is_starting("a");
    let stuck = case.orders(&case.entry("1", &(deployment("a", "a:1", "") + &in_wave("b", "1"))));
    waited_for(&pass(&mut reconciler, &stuck).await);
    case.is_available("a2");
    let newer = case.orders(&case.entry("2", &(deployment("a2", "a:2", "") + &in_wave("b", "1"))));
    let status = pass(&mut reconciler, &newer).await;
    assert_eq!((status.state, status.commit.as_str()), (ServiceState::Applied, "2"));
    assert_eq!(case.names(), ["a2", "b"], "the stuck one has left");
}

#[tokio::test]
async fn a_service_that_waits_delays_no_other_but_those_that_depend_on_it() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    case.is_starting("a");
    let named =
        |name: &str, entry: ServiceEntry| ServiceEntry { name: name.parse().expect("a name"), ..entry };
    let web = case.entry("1", &deployment("a", "a:1", ""));
    let other = named("other", case.entry("1", &config_map("o")));
    let mut dependent = named("dependent", case.entry("1", &config_map("d")));
    dependent.depends_on = vec!["web".parse().expect("a name")];
    let orders = case.orders_of(&[&web, &other, &dependent]);
    let states = |pass: Pass| pass.services.iter().map(|service| service.state).collect::<Vec<_>>();
    let passed = reconciler.pass(&orders).await.expect("the state folder is whole");
    assert!(passed.services[0].message.contains("web"), "{:?}", passed.services[0]);
    assert_eq!(states(passed), [ServiceState::Waiting, ServiceState::Applied, ServiceState::Waiting]);
    case.take_log();
    let again = reconciler.pass_over(&orders, Extent::Unfinished).await.expect("the state folder is whole");
    assert_eq!(states(again), [ServiceState::Waiting, ServiceState::Applied, ServiceState::Waiting]);
    assert_eq!(case.take_log(), ["inspect a"], "what is finished is not looked at");
    case.is_available("a");
    let done = reconciler.pass_over(&orders, Extent::Unfinished).await.expect("the state folder is whole");
    assert_eq!(states(done), [ServiceState::Applied; 3]);
}

#[tokio::test]
async fn a_revision_that_is_not_healthy_in_its_time_makes_room_for_the_last_healthy_one_also_after_a_reboot()
{
    let case = Case::new();
    let mut reconciler = case.reconciler();
    case.is_available("a");
    let good = case.impatient("good", &(deployment("a", "a:1", "") + &config_map("left") + &config_map("b")));
    assert_eq!(pass(&mut reconciler, &case.orders(&good)).await.state, ServiceState::Applied);
    case.is_starting("a");
    let bad = case.orders(
        &case.impatient("bad", &(deployment("a", "a:2", "") + &config_map("b") + &config_map("new"))),
    );
    let passed = reconciler.pass(&bad).await.expect("the state folder is whole");
    assert!(passed.again, "the way back begins at once");
    assert_eq!(passed.services[0].state, ServiceState::Failed);
    assert_eq!(case.names(), ["a", "b", "left", "new"], "what left stays until its successor is healthy");
    for mut reconciler in [reconciler, case.reconciler()] {
        case.take_log();
        let status = pass(&mut reconciler, &bad).await;
        assert_eq!((status.state, status.commit.as_str()), (ServiceState::Failed, "good"));
        let failed = status.failed_revision.expect("a revision was given up");
        assert_eq!(failed.commit, "bad");
        assert!(failed.why.contains("Deployment.apps shop/a: no progress"), "{}", failed.why);
        assert!(status.message.contains("commit bad was given up here"), "{}", status.message);
        assert!(status.message.ends_with("commit good is kept"), "{}", status.message);
        assert_eq!(case.names(), ["a", "b", "left"], "what only the bad one had is gone");
    }
    assert_eq!(case.take_log(), Vec::<String>::new(), "after the reboot nothing had to be done");
    assert_eq!(case.healthy_commit().as_deref(), Some("good"));
    case.target.meddle("b", "as changed");
    pass(&mut case.reconciler(), &bad).await;
    assert_eq!(case.target.value("b").as_deref(), Some("as signed"), "what is in force is repaired");
    case.is_available("a");
    let newer = case.orders(&case.impatient("newer", &deployment("a", "a:3", "")));
    let status = pass(&mut case.reconciler(), &newer).await;
    assert_eq!((status.state, status.failed_revision), (ServiceState::Applied, None));
    assert_eq!((case.names(), case.healthy_commit().as_deref()), (vec!["a".to_owned()], Some("newer")));
}

#[tokio::test]
async fn who_asks_gets_a_revision_tried_again_that_was_given_up() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    case.is_available("a");
    pass(&mut reconciler, &case.orders(&case.impatient("good", &deployment("a", "a:1", "")))).await;
    case.is_starting("a");
    let orders = case.orders(&case.impatient("late", &deployment("a", "a:2", "")));
    pass(&mut reconciler, &orders).await;
    assert_eq!(pass(&mut reconciler, &orders).await.commit, "good");
    case.is_available("a");
    assert_eq!(pass(&mut reconciler, &orders).await.commit, "good", "nobody has asked");
    ask_retry(case.temp.path(), &"web".parse().expect("a name")).expect("asked");
    let status = pass(&mut reconciler, &orders).await;
    assert_eq!((status.state, status.commit.as_str()), (ServiceState::Applied, "late"));
}

#[tokio::test]
async fn the_first_revision_has_nothing_to_go_back_to_and_a_held_one_becomes_healthy_late() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    case.is_starting("a");
    let text = deployment("a", "a:1", "") + &in_wave("b", "1");
    let orders = case.orders(&case.impatient("1", &text));
    for _ in 0..2 {
        let passed = reconciler.pass(&orders).await.expect("the state folder is whole");
        assert!(!passed.again);
        let status = &passed.services[0];
        assert_eq!(status.state, ServiceState::Failed);
        assert!(status.message.ends_with("nothing was healthy here before"), "{}", status.message);
    }
    let held = ServiceEntry { on_failure: OnFailure::Hold, ..case.impatient("2", &text) };
    let orders = case.orders(&held);
    for _ in 0..2 {
        let status = pass(&mut reconciler, &orders).await;
        assert_eq!(status.state, ServiceState::Failed);
        assert!(status.message.contains("no progress for 0 s: 0 of 1 replicas"), "{}", status.message);
        assert_eq!(case.names(), ["a"], "it stays where it is");
    }
    case.is_available("a");
    assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Applied);
}

#[tokio::test]
async fn an_object_that_cannot_be_applied_counts_against_its_revision() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    pass(&mut reconciler, &case.orders(&case.impatient("good", &config_map("a")))).await;
    case.target.inner().refused.insert("b".into());
    let orders = case.orders(&case.impatient("bad", &(config_map("a") + &config_map("b"))));
    let status = pass(&mut reconciler, &orders).await;
    assert_eq!((status.state, status.failures.len()), (ServiceState::Failed, 1));
    let status = pass(&mut reconciler, &orders).await;
    assert_eq!(status.commit, "good");
    assert!(status.failed_revision.expect("given up").why.contains("it is refused"));
}

#[tokio::test]
async fn a_hook_runs_once_in_a_revision_before_anything_else_and_again_in_the_next() {
    let case = Case::new();
    let text = job("migrate", BEFORE) + &config_map("a");
    let orders = case.orders(&case.entry("1", &text));
    assert_eq!(waited_for(&pass(&mut case.reconciler(), &orders).await), "Job.batch shop/migrate");
    assert_eq!(case.names(), ["migrate"]);
    case.ended("migrate", "Complete");
    case.take_log();
    assert_eq!(pass(&mut case.reconciler(), &orders).await.state, ServiceState::Applied);
    assert_eq!(case.names(), ["a", "migrate"]);
    assert_eq!(case.take_log(), ["inspect migrate", "apply a"], "a reboot does not run it again");
    assert_eq!(pass(&mut case.reconciler(), &orders).await.state, ServiceState::Applied);
    assert!(case.take_log().is_empty());
    case.says("migrate", json!({}));
    let next = case.orders(&case.entry("2", &(text + &config_map("b"))));
    let mut reconciler = case.reconciler();
    assert_eq!(waited_for(&pass(&mut reconciler, &next).await), "Job.batch shop/migrate");
    let log = case.take_log();
    assert!(log.contains(&"delete migrate".into()) && log.contains(&"apply migrate".into()), "{log:?}");
    assert_eq!(case.names(), ["a", "migrate"], "the rest waits");
    case.ended("migrate", "Complete");
    assert_eq!(pass(&mut reconciler, &next).await.state, ServiceState::Applied);
}

#[tokio::test]
async fn a_hook_that_fails_stops_its_revision_and_its_log_is_told() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let orders = case.orders(&case.entry("1", &(job("migrate", BEFORE) + &config_map("a"))));
    pass(&mut reconciler, &orders).await;
    case.ended("migrate", "Failed");
    case.target.inner().logs.insert("migrate".into(), "x".repeat(5000) + "no such table");
    for mut reconciler in [reconciler, case.reconciler()] {
        let status = pass(&mut reconciler, &orders).await;
        assert_eq!(status.state, ServiceState::Failed);
        assert!(
            status.message.contains("hooks before: Job.batch shop/migrate: the Job failed: as it says"),
            "{}",
            status.message
        );
        let [check] = &status.checks[..] else { panic!("{:?}", status.checks) };
        assert_eq!(check.outcome, CheckOutcome::Failed);
        assert!(check.log.len() <= 2048 && check.log.ends_with("no such table"), "{}", check.log);
    }
    assert_eq!(case.names(), ["migrate"]);
    ask_retry(case.temp.path(), &"web".parse().expect("a name")).expect("asked");
    case.ended("migrate", "Complete");
    assert_eq!(pass(&mut case.reconciler(), &orders).await.state, ServiceState::Applied);
}

#[tokio::test]
async fn a_hook_is_removed_when_its_annotation_says_so_and_one_that_vanished_is_not_run_twice() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let policy = format!("{BEFORE}, argocd.argoproj.io/hook-delete-policy: HookSucceeded");
    let orders = case.orders(&case.entry("1", &(job("migrate", &policy) + &config_map("a"))));
    pass(&mut reconciler, &orders).await;
    case.ended("migrate", "Complete");
    for _ in 0..2 {
        assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Applied);
        assert_eq!(case.names(), ["a"]);
    }
    let orders = case.orders(&case.entry("2", &(job("migrate", BEFORE) + &config_map("b"))));
    case.says("migrate", json!({}));
    pass(&mut reconciler, &orders).await;
    case.target.inner().objects.retain(|key, _| key.name != "migrate");
    let status = pass(&mut reconciler, &orders).await;
    assert_eq!(status.state, ServiceState::Failed);
    assert!(status.message.contains("gone before its end was seen"), "{}", status.message);
}

#[tokio::test]
async fn tests_run_once_after_everything_is_healthy_and_are_part_of_health() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    case.is_available("a");
    pass(&mut reconciler, &case.orders(&case.impatient("good", &deployment("a", "a:1", "")))).await;
    let text = deployment("a", "a:2", "") + &job("smoke", TEST);
    let patient = ServiceEntry { timeout_seconds: None, ..case.impatient("tested", &text) };
    let orders = case.orders(&patient);
    case.is_starting("a");
    assert_eq!(waited_for(&pass(&mut reconciler, &orders).await), "Deployment.apps shop/a");
    assert_eq!(case.names(), ["a"], "the test waits for health");
    case.is_available("a");
    assert_eq!(waited_for(&pass(&mut reconciler, &orders).await), "Job.batch shop/smoke");
    assert_eq!(case.healthy_commit().as_deref(), Some("good"), "it has not been tested");
    case.target.inner().logs.insert("smoke".into(), "all good".into());
    case.ended("smoke", "Complete");
    for mut reconciler in [reconciler, case.reconciler()] {
        let status = pass(&mut reconciler, &orders).await;
        assert_eq!(status.state, ServiceState::Applied);
        let [check] = &status.checks[..] else { panic!("{:?}", status.checks) };
        assert_eq!((check.outcome, check.log.as_str()), (CheckOutcome::Passed, "all good"));
    }
    assert_eq!(case.healthy_commit().as_deref(), Some("tested"));
    case.says("smoke", json!({}));
    let worse = case.orders(&ServiceEntry {
        timeout_seconds: None,
        ..case.impatient("worse", &(text + &config_map("c")))
    });
    let mut reconciler = case.reconciler();
    waited_for(&pass(&mut reconciler, &worse).await);
    case.ended("smoke", "Failed");
    assert_eq!(pass(&mut reconciler, &worse).await.state, ServiceState::Failed);
    let status = pass(&mut reconciler, &worse).await;
    assert_eq!((status.commit.as_str(), status.state), ("tested", ServiceState::Failed));
    assert_eq!(
        status.checks[0].outcome,
        CheckOutcome::Failed,
        "the failed test is told while the old one is in force"
    );
    assert!(!case.names().contains(&"c".to_owned()));
}

#[tokio::test]
async fn an_unreadable_wave_is_that_objects_error_alone() {
    let case = Case::new();
    let text = in_wave("bad", "first") + &config_map("a") + &in_wave("b", "1");
    let status = pass(&mut case.reconciler(), &case.orders(&case.entry("1", &text))).await;
    assert_eq!((status.state, status.failures.len()), (ServiceState::Failed, 1));
    assert!(status.failures[0].message.contains("farshore.dev/wave"), "{:?}", status.failures);
    assert_eq!(case.names(), ["a", "b"]);
}

#[tokio::test]
async fn what_is_left_to_others_is_neither_written_nor_removed() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    pass(&mut reconciler, &case.orders(&case.entry("1", &(config_map("a") + &config_map("b"))))).await;
    let noted = |name: &str, note: &str| {
        config_map(name).replace("metadata: {", &format!("metadata: {{annotations: {{{note}}}, "))
    };
    let skipped = noted("a", "argocd.argoproj.io/hook: Skip");
    let once = noted("b", "kustomize.toolkit.fluxcd.io/ssa: IfNotPresent");
    let new = noted("c", "kustomize.toolkit.fluxcd.io/ssa: IfNotPresent");
    let orders = case.orders(&case.entry("2", &(skipped + &once + &new)));
    for _ in 0..2 {
        for name in ["a", "b", "c"] {
            case.target.meddle(name, "theirs");
        }
        assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Applied);
    }
    assert_eq!(case.names(), ["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        assert_eq!(case.target.value(name).as_deref(), Some("theirs"), "{name}");
    }
    case.target.inner().objects.retain(|key, _| key.name == "a");
    pass(&mut reconciler, &orders).await;
    assert_eq!(case.names(), ["a", "b", "c"], "what is missing is made");
}

#[tokio::test]
async fn a_target_that_shows_no_health_gets_everything_but_tests_at_once() {
    let case = Case::new();
    let folder = tempfile::tempdir().expect("a folder");
    let target = Directory::open(folder.path());
    let cluster = case.fleet.cluster.clone();
    let mut reconciler = Reconciler::new(Arc::clone(&case.store), target, cluster, Tools::default());
    let text =
        job("migrate", BEFORE) + &deployment("a", "a:1", "") + &in_wave("b", "1") + &job("smoke", TEST);
    let orders = case.orders(&case.entry("1", &text));
    for _ in 0..2 {
        let passed = reconciler.pass(&orders).await.expect("the state folder is whole");
        assert_eq!((passed.services[0].state, passed.services[0].objects), (ServiceState::Applied, 3));
    }
}

#[tokio::test]
async fn a_corrupt_record_of_a_rollout_is_told_and_stops_nothing() {
    let case = Case::new();
    let orders = case.orders(&case.entry("1", &(job("migrate", BEFORE) + &config_map("a"))));
    case.ended("migrate", "Complete");
    let mut reconciler = case.reconciler();
    pass(&mut reconciler, &orders).await;
    pass(&mut reconciler, &orders).await;
    fs::write(case.temp.path().join("rollouts/web.json"), "x").expect("damaged");
    let passed = case.reconciler().pass(&orders).await.expect("the state folder is whole");
    assert_eq!(passed.services[0].state, ServiceState::Applied);
    assert!(passed.alarms[0].contains("the record of web's rollout is corrupt"), "{:?}", passed.alarms);
}

#[tokio::test]
async fn a_way_back_whose_content_is_gone_is_told_and_not_tried_without_end() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    case.is_available("a");
    let good = case.impatient("good", &deployment("a", "a:1", ""));
    pass(&mut reconciler, &case.orders(&good)).await;
    case.is_starting("a");
    let bad = case.orders(&case.impatient("bad", &deployment("a", "a:2", "")));
    assert!(reconciler.pass(&bad).await.expect("the state folder is whole").again);
    fs::remove_file(case.temp.path().join(format!("content/{}", good.artifact.digest))).expect("removed");
    for _ in 0..2 {
        let passed = reconciler.pass(&bad).await.expect("the state folder is whole");
        assert!(!passed.again);
        let status = &passed.services[0];
        assert_eq!((status.state, status.commit.as_str()), (ServiceState::Failed, "bad"));
        assert!(status.message.ends_with("what was healthy before is not here"), "{}", status.message);
    }
}

#[tokio::test]
async fn hooks_of_an_installation_do_not_run_again_when_the_record_of_what_was_healthy_is_lost() {
    let case = Case::new();
    let install = "helm.sh/hook: pre-install";
    let orders = case.orders(&case.entry("1", &(job("install", install) + &config_map("a"))));
    case.ended("install", "Complete");
    let mut reconciler = case.reconciler();
    pass(&mut reconciler, &orders).await;
    assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Applied);
    fs::write(case.temp.path().join("healthy.json"), "x").expect("damaged");
    case.take_log();
    let next = case.orders(&case.entry("2", &(job("install", install) + &config_map("b"))));
    assert_eq!(pass(&mut case.reconciler(), &next).await.state, ServiceState::Applied);
    let log = case.take_log();
    assert!(log.iter().all(|line| !line.contains("install")), "{log:?}");
}
