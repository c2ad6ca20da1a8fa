//! What others change, with a target in memory that tells of it, and with one that does not.

use std::time::Duration;

use farshore_chaos::kit::wait_for;
use farshore_shared::wire::{DriftAction, DriftException, DriftPolicy, ObjectDrift};

use tokio::sync::mpsc;

use super::*;

const SOON: Duration = Duration::from_secs(20);

/// A service `web` with this word on drift, applied, and the mender that works for it.
struct Mended {
    case: Case,
    reconciler: Reconciler<Memory>,
    orders: Orders,
    _told: mpsc::Receiver<crate::drift::mender::Mended>,
}

impl Mended {
    async fn with(rule: DriftRule, text: &str) -> Self {
        let case = Case::new();
        let entry = ServiceEntry { drift: rule, ..case.entry("1", text) };
        let orders = case.orders(&entry);
        let mut reconciler = case.reconciler();
        assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Applied);
        let (tell, told) = mpsc::channel(16);
        tokio::spawn(reconciler.mender(tell).run());
        case.target.inner().log.clear();
        Self { case, reconciler, orders, _told: told }
    }

    async fn pass(&mut self) -> ServiceStatus {
        pass(&mut self.reconciler, &self.orders).await
    }

    /// Somebody changes `a`, and the target tells of it.
    fn meddle(&self, value: &str) {
        self.case.target.meddle("a", value);
        self.case.target.tell(None);
    }

    async fn until_value(&self, value: &str) {
        let put_back = wait_for("the value", SOON, async || match self.case.target.value("a") {
            Some(is) if is == value => Ok(()),
            other => Err(format!("it is {other:?}")),
        });
        put_back.await.expect("it comes");
    }

    /// Returns when the mender has looked at `a` so many times in all.
    async fn until_looks(&self, count: usize) {
        let looked = wait_for("the looks", SOON, async || match self.done("read a") {
            looks if looks >= count => Ok(()),
            looks => Err(format!("there were {looks}")),
        });
        looked.await.expect("it looks");
    }

    /// How often something was done in the target.
    fn done(&self, what: &str) -> usize {
        self.case.target.inner().log.iter().filter(|line| *line == what).count()
    }
}

fn rule(policy: DriftPolicy) -> DriftRule {
    DriftRule { policy, except: vec![] }
}

fn actions(drift: &[ObjectDrift]) -> Vec<(DriftAction, &str)> {
    drift.iter().map(|found| (found.action, found.object.as_str())).collect()
}

#[tokio::test]
async fn what_the_target_tells_of_is_put_back_without_a_pass_for_one_look_and_one_apply() {
    let mut mended = Mended::with(DriftRule::default(), &(config_map("a") + &config_map("b"))).await;
    mended.meddle("theirs");
    mended.until_value("as signed").await;
    // What it wrote itself it hears of, too; after that it puts back a second change.
    mended.case.target.tell(None);
    mended.meddle("theirs again");
    mended.until_value("as signed").await;
    assert_eq!((mended.done("read a"), mended.done("apply a")), (2, 2));
    assert_eq!((mended.done("read b"), mended.done("apply b")), (0, 0));
    let status = mended.pass().await;
    assert_eq!((status.state, status.repairs, mended.done("apply a")), (ServiceState::Applied, 2, 2));
    assert_eq!(actions(&status.drift), [(DriftAction::Corrected, "ConfigMap shop/a")]);
    assert_eq!(status.drift[0].fields, ["/data/value"]);
    assert_eq!(mended.case.target.inner().followed, ["ConfigMap"]);
}

#[tokio::test]
async fn what_is_gone_from_sight_comes_back() {
    let mended = Mended::with(DriftRule::default(), &config_map("a")).await;
    let (key, _) = mended.case.target.inner().objects.pop_first().expect("it was applied");
    mended.case.target.tell(Some(key));
    mended.until_value("as signed").await;
}

#[tokio::test]
async fn what_is_made_once_is_left_to_who_changes_it_and_made_again_when_it_is_gone() {
    let once = config_map("a")
        .replace("metadata: {", "metadata: {annotations: {kustomize.toolkit.fluxcd.io/ssa: IfNotPresent}, ");
    let mut mended = Mended::with(DriftRule::default(), &once).await;
    mended.meddle("theirs");
    mended.until_looks(1).await;
    let status = mended.pass().await;
    assert_eq!((status.state, status.drift.len(), status.repairs), (ServiceState::Applied, 0, 0));
    assert_eq!(mended.case.target.value("a").as_deref(), Some("theirs"));
    assert_eq!(mended.done("apply a"), 0);
    let (key, _) = mended.case.target.inner().objects.pop_first().expect("it was applied");
    mended.case.target.tell(Some(key));
    mended.until_value("as signed").await;
}

#[tokio::test]
async fn a_service_that_wants_to_be_told_is_told_and_one_that_does_not_care_is_not() {
    for (policy, told) in [(DriftPolicy::Alert, 1), (DriftPolicy::Ignore, 0)] {
        let mut mended = Mended::with(rule(policy), &config_map("a")).await;
        mended.meddle("theirs");
        mended.until_looks(1).await;
        let status = mended.pass().await;
        let looks = mended.done("read a");
        let again = mended.pass().await;
        // Who is told of it may have put it back; else what was looked at and let be is not looked at again.
        let looks = looks + told;
        assert_eq!(mended.case.target.value("a").as_deref(), Some("theirs"), "{policy:?}");
        assert_eq!((status.state, status.drift.len()), (ServiceState::Applied, told), "{policy:?}");
        assert_eq!(again.drift, status.drift);
        assert_eq!(mended.done("read a"), looks, "{policy:?}");
        // Somebody puts it back by hand.
        mended.meddle("as signed");
        assert_eq!(mended.pass().await.drift, []);
        assert_eq!(mended.done("apply a"), 0);
    }
}

#[tokio::test]
async fn what_has_left_the_service_is_told_of_no_more() {
    let alert = rule(DriftPolicy::Alert);
    let mut mended = Mended::with(alert.clone(), &(config_map("a") + &config_map("b"))).await;
    mended.meddle("theirs");
    mended.until_looks(1).await;
    assert_eq!(mended.pass().await.drift.len(), 1);
    let entry = ServiceEntry { drift: alert, ..mended.case.entry("2", &config_map("b")) };
    mended.orders = mended.case.orders(&entry);
    assert_eq!(mended.pass().await.drift, []);
    assert_eq!(mended.case.target.names(), ["b"]);
}

#[tokio::test]
async fn a_service_with_a_document_that_is_no_manifest_is_told_of_drift_as_its_policy_says() {
    let text = config_map("a") + "kind: Nameless\napiVersion: v1\n";
    let case = Case::new();
    let entry = ServiceEntry { drift: rule(DriftPolicy::Alert), ..case.entry("1", &text) };
    let orders = case.orders(&entry);
    let mut reconciler = case.reconciler();
    assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Failed);
    case.target.meddle("a", "theirs");
    let status = pass(&mut reconciler, &orders).await;
    assert_eq!(case.target.value("a").as_deref(), Some("theirs"));
    assert_eq!(actions(&status.drift), [(DriftAction::Reported, "ConfigMap shop/a")]);
}

#[tokio::test]
async fn a_new_revision_is_applied_whatever_the_policy_and_a_new_policy_is_heard() {
    let mut mended = Mended::with(rule(DriftPolicy::Ignore), &config_map("a")).await;
    mended.case.target.meddle("a", "theirs");
    assert_eq!(mended.pass().await.state, ServiceState::Applied);
    assert_eq!(mended.case.target.value("a").as_deref(), Some("theirs"));
    mended.orders = mended.case.orders(&mended.case.entry("1", &config_map("a")));
    let status = mended.pass().await;
    assert_eq!(mended.case.target.value("a").as_deref(), Some("as signed"), "{status:?}");
    let other = config_map("a").replace("as signed", "as signed next");
    let entry = ServiceEntry { drift: rule(DriftPolicy::Ignore), ..mended.case.entry("2", &other) };
    mended.orders = mended.case.orders(&entry);
    mended.case.target.meddle("a", "theirs");
    mended.pass().await;
    assert_eq!(mended.case.target.value("a").as_deref(), Some("as signed next"));
}

#[tokio::test]
async fn fields_that_others_may_change_are_left_to_them_and_the_others_are_put_back() {
    let except =
        DriftException { kind: "ConfigMap".into(), name: "a*".into(), pointers: vec!["/data/value".into()] };
    let rule = DriftRule { policy: DriftPolicy::Correct, except: vec![except] };
    let text =
        config_map("a").replace("data: {value: as signed}", "data: {value: as signed, other: as signed}");
    let mut mended = Mended::with(rule.clone(), &text).await;
    mended.meddle("theirs");
    mended.until_looks(1).await;
    let status = mended.pass().await;
    assert_eq!((status.state, status.drift.len(), mended.done("apply a")), (ServiceState::Applied, 0, 0));
    for (_, body) in mended.case.target.inner().objects.values_mut() {
        body["data"]["other"] = "theirs".into();
    }
    mended.case.target.tell(None);
    mended.until_looks(2).await;
    let put_back = wait_for("the other field", SOON, async || {
        let inner = mended.case.target.inner();
        let data = inner.objects.values().next().map(|(_, body)| body["data"].clone());
        match data {
            Some(data) if data["other"] == "as signed" => Ok(data),
            other => Err(format!("{other:?}")),
        }
    });
    let data = put_back.await.expect("it is put back");
    assert_eq!(data["value"], "theirs");
    // A new revision leaves it to them as well.
    let entry = ServiceEntry {
        drift: rule,
        ..mended.case.entry("2", &text.replace("other: as signed", "other: new"))
    };
    mended.orders = mended.case.orders(&entry);
    assert_eq!(mended.pass().await.state, ServiceState::Applied);
    assert_eq!(mended.case.target.value("a").as_deref(), Some("theirs"));
}

#[tokio::test]
async fn who_changes_an_object_time_and_again_is_not_fought_without_end() {
    let mut mended = Mended::with(DriftRule::default(), &config_map("a")).await;
    for round in 0..5 {
        mended.meddle(&format!("theirs {round}"));
        mended.until_value("as signed").await;
    }
    mended.meddle("theirs at last");
    mended.until_looks(6).await;
    let status = mended.pass().await;
    assert_eq!((status.state, mended.done("apply a")), (ServiceState::Applied, 5));
    assert_eq!(actions(&status.drift), [(DriftAction::Damped, "ConfigMap shop/a")]);
    assert_eq!(mended.case.target.value("a").as_deref(), Some("theirs at last"));
}

#[tokio::test]
async fn nothing_is_rendered_for_a_service_that_is_as_it_was_left() {
    let case = Case::new();
    let entry = case.entry("1", &(config_map("a") + &config_map("b")));
    let orders = case.orders(&entry);
    pass(&mut case.reconciler(), &orders).await;
    // Without its content nothing can be rendered: it is damaged, and nobody notices.
    let content = case.temp.path().join(format!("content/{}", entry.artifact.digest));
    fs::write(&content, "rotten").expect("damaged");
    case.target.inner().log.clear();
    let status = pass(&mut case.reconciler(), &orders).await;
    assert_eq!((status.state, status.objects), (ServiceState::Applied, 2));
    assert_eq!(case.target.inner().log, [""; 0]);
    // What was changed is put back from what is kept, also after a restart.
    case.target.meddle("b", "theirs");
    assert_eq!(pass(&mut case.reconciler(), &orders).await.repairs, 1);
    assert_eq!(case.target.value("b").as_deref(), Some("as signed"));
    assert!(case.store.content().present().expect("listed").contains(&entry.artifact.digest));
}

#[tokio::test]
async fn a_kept_render_that_is_damaged_is_made_again() {
    let case = Case::new();
    let orders = case.orders(&case.entry("1", &config_map("a")));
    pass(&mut case.reconciler(), &orders).await;
    let path = case.temp.path().join("rendered/web");
    let whole = fs::read(&path).expect("it is kept");
    let mut damaged = whole.clone();
    damaged[whole.len() - 3] ^= 1;
    fs::write(&path, damaged).expect("damaged");
    case.target.meddle("a", "theirs");
    let status = pass(&mut case.reconciler(), &orders).await;
    assert_eq!((status.state, case.target.value("a").as_deref()), (ServiceState::Applied, Some("as signed")));
    assert_eq!(fs::read(&path).expect("it is kept again"), whole);
}

/// A service of another name with the same content.
fn second(entry: &ServiceEntry) -> ServiceEntry {
    ServiceEntry { name: "xeb".parse().expect("a name"), ..entry.clone() }
}

async fn both(reconciler: &mut Reconciler<Memory>, orders: &Orders) -> (ServiceStatus, ServiceStatus) {
    let pass = reconciler.pass(orders).await.expect("the state folder is whole");
    let [first, second] = pass.services.try_into().expect("two services");
    (first, second)
}

#[tokio::test]
async fn of_two_services_that_declare_one_object_the_first_has_it_and_the_second_is_told() {
    let case = Case::new();
    let first = case.entry("1", &config_map("a"));
    let other = second(&case.entry("2", &(config_map("a") + &config_map("b"))));
    let orders = case.orders_of(&[&first, &other]);
    let mut reconciler = case.reconciler();
    for _ in 0..3 {
        let (first, second) = both(&mut reconciler, &orders).await;
        assert_eq!((first.state, first.repairs), (ServiceState::Applied, 0));
        assert_eq!(second.state, ServiceState::Failed);
        assert!(second.failures[0].message.contains("service web declares it as well"), "{second:?}");
        assert_eq!(case.target.names(), ["a", "b"]);
        reconciler = case.reconciler();
    }
    let applied = case.target.inner().log.iter().filter(|line| *line == "apply a").count();
    assert_eq!(applied, 1, "nobody fights");
    // Once the first does not declare it any more, the second has it.
    let moved = case.entry("3", &config_map("c"));
    let orders = case.orders_of(&[&moved, &other]);
    both(&mut reconciler, &orders).await;
    let (first, second) = both(&mut reconciler, &orders).await;
    assert_eq!((first.state, second.state), (ServiceState::Applied, ServiceState::Applied), "{second:?}");
    assert_eq!(case.target.names(), ["a", "b", "c"]);
}

#[tokio::test]
async fn what_was_refused_is_no_less_failed_after_new_orders_where_every_change_is_told_of() {
    let case = Case::new();
    case.target.inner().coverage.watched = 1;
    let orders = case.orders(&case.entry("1", &config_map("a")));
    let mut reconciler = case.reconciler();
    assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Applied);
    case.target.meddle("a", "theirs");
    case.target.inner().refused.insert("a".to_owned());
    assert_eq!(pass(&mut reconciler, &orders).await.state, ServiceState::Failed);
    let mut ordered = async || {
        let pass = reconciler.pass_over(&orders, Extent::Ordered).await.expect("the state folder is whole");
        pass.services[0].state
    };
    assert_eq!(ordered().await, ServiceState::Failed);
    case.target.inner().refused.clear();
    assert_eq!(ordered().await, ServiceState::Applied);
    assert_eq!(case.target.value("a").as_deref(), Some("as signed"));
}
