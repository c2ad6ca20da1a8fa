//! Waves, hooks, health and the way back, against a real Kubernetes API: its controllers run, and the test is the
//! scheduler and the kubelet of its Pods.

use std::time::Duration;

use farshore_chaos::kit::{KitError, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Place, SharedCluster};
use farshore_shared::wire::{CheckOutcome, ServiceState};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(90);

/// For all tests of this file; each has a namespace, a fleet and a site of its own.
static CLUSTER: SharedCluster = SharedCluster::with_controllers();

/// How a Pod ends up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pods {
    Ready,
    Succeeded,
    Failed,
}

/// Starts a site with these manifests. `policy` is what its declaration says beside, from the first revision on.
async fn begun(name: &'static str, policy: &str, manifests: &[(&str, &str)]) -> Result<Place, KitError> {
    Place::of(CLUSTER.get().await?, name, policy, manifests).await?.started().await
}

async fn until_image(place: &Place, name: &str, image: &str) -> Result<(), KitError> {
    place.until("deployment", name, "{.spec.template.spec.containers[0].image}", Some(image)).await
}

/// Gives the Pods of a label a node and an end, as soon as there are some that run an image.
async fn until_pods(place: &Place, label: &str, image: &str, are: Pods) -> Result<(), KitError> {
    wait_for(&format!("Pods with {label} and {image} to be {are:?}"), SOON, async || {
        let listed = place.kubectl(&["get", "pods", "--selector", label, "--output=json"]);
        let listed: Value = serde_json::from_str(&listed.map_err(|error| error.to_string())?)
            .map_err(|error| error.to_string())?;
        let pods = listed["items"].as_array().cloned().unwrap_or_default();
        let mine: Vec<&Value> =
            pods.iter().filter(|pod| pod["spec"]["containers"][0]["image"] == image).collect();
        if mine.is_empty() {
            return Err(format!("there are {} Pods", pods.len()));
        }
        for pod in mine {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let patch = status(are).to_string();
            let arguments = ["patch", "pod", name, "--subresource=status", "--type=merge", "--patch", &patch];
            place.kubectl(&arguments).map_err(|error| error.to_string())?;
        }
        Ok(())
    })
    .await
}

/// What a kubelet says of a Pod.
fn status(are: Pods) -> Value {
    let condition = |kind: &str, is: bool| json!({"type": kind, "status": if is { "True" } else { "False" }});
    let ended = |code: i64| json!({"terminated": {"exitCode": code, "finishedAt": "2026-11-21T09:00:01Z"}});
    let (phase, state) = match are {
        Pods::Ready => ("Running", json!({"running": {"startedAt": "2026-11-21T09:00:00Z"}})),
        Pods::Succeeded => ("Succeeded", ended(0)),
        Pods::Failed => ("Failed", ended(1)),
    };
    let is_ready = are == Pods::Ready;
    json!({"status": {"phase": phase, "startTime": "2026-11-21T09:00:00Z",
        "conditions": [condition("Ready", is_ready), condition("ContainersReady", is_ready),
            condition("PodScheduled", true), condition("Initialized", true)],
        "containerStatuses": [{"name": "a", "image": "a", "imageID": "a", "ready": is_ready, "restartCount": 0,
            "state": state}]}})
}

fn deployment(name: &str, image: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{ name: {name} }}\nspec:\n  replicas: 1\n  \
         selector: {{ matchLabels: {{ app: {name} }} }}\n  strategy: {{ type: Recreate }}\n  template:\n    \
         metadata: {{ labels: {{ app: {name} }} }}\n    spec:\n      terminationGracePeriodSeconds: 0\n      \
         containers: [{{ name: a, image: \"{image}\" }}]\n"
    )
}

fn job(name: &str, image: &str, annotation: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\n  annotations: {{ {annotation} }}\nspec:\n  \
         backoffLimit: 0\n  template:\n    metadata: {{ labels: {{ run: {name} }} }}\n    spec:\n      \
         restartPolicy: Never\n      containers: [{{ name: a, image: \"{image}\" }}]\n"
    )
}

fn in_wave(name: &str, wave: i32) -> String {
    config_map(name, "1")
        .replace("metadata: {", &format!("metadata: {{ annotations: {{ farshore.dev/wave: \"{wave}\" }}, "))
}

#[tokio::test]
async fn a_wave_waits_for_health_and_a_stuck_revision_is_pre_empted_by_a_newer_one_at_once()
-> Result<(), KitError> {
    let manifests = [("web.yaml", &*deployment("web", "web:1")), ("after.yaml", &in_wave("after", 1))];
    let mut place = begun("waits", "", &manifests).await?;
    let status = place.until_service("wave 0 to be waited for", |status| status.progress.is_some()).await?;
    let progress = status.progress.expect("it is under way");
    assert_eq!((progress.stage.as_str(), progress.object.as_str()), ("wave 0", "Deployment.apps waits/web"));
    assert_eq!(status.state, ServiceState::Waiting);
    assert_eq!(place.look("configmap", "after", "{.metadata.name}"), Ok(None));

    place.world.commit(&[("web.yaml", &deployment("web", "web:2"))])?;
    until_image(&place, "web", "web:2").await?;
    assert_eq!(place.look("configmap", "after", "{.metadata.name}"), Ok(None), "it waits for the newer one");
    until_pods(&place, "app=web", "web:2", Pods::Ready).await?;
    let done = place.until_state(ServiceState::Applied).await?;
    assert_eq!((done.objects, done.progress), (2, None));
    place.until("configmap", "after", "{.metadata.name}", Some("after")).await
}

#[tokio::test]
async fn a_site_goes_back_to_what_was_healthy_without_the_hub_and_stays_there_after_a_power_cut()
-> Result<(), KitError> {
    let policy = "  onFailure: revert\n  timeout: 10s\n";
    let mut place = begun("reverts", policy, &[("web.yaml", &deployment("web", "web:1"))]).await?;
    until_pods(&place, "app=web", "web:1", Pods::Ready).await?;
    let good = place.until_state(ServiceState::Applied).await?.commit;

    let files = [("web.yaml", &*deployment("web", "web:bad")), ("new.yaml", &config_map("new", "1"))];
    let bad = place.world.commit(&files)?;
    until_image(&place, "web", "web:bad").await?;
    place.world.hub.kill()?;
    until_image(&place, "web", "web:1").await?;
    place.until("configmap", "new", "{.metadata.name}", None).await?;
    until_pods(&place, "app=web", "web:1", Pods::Ready).await?;

    place.site.kill()?;
    place.kubectl(&["delete", "deployment", "web"])?;
    place.site.start().await?;
    until_image(&place, "web", "web:1").await?;

    place.world.hub.start().await?;
    let told =
        place.until_service("the way back to be told", |status| status.failed_revision.is_some()).await?;
    let failed = told.failed_revision.expect("a revision was given up");
    assert_eq!((told.state, &told.commit, &failed.commit), (ServiceState::Failed, &good, &bad));
    assert!(failed.why.contains("Deployment.apps reverts/web: no progress for 10 s"), "{}", failed.why);
    assert_eq!(
        place.look("deployment", "web", "{.metadata.generation}"),
        Ok(Some("1".to_owned())),
        "it was not tried again"
    );

    place.world.commit(&[("web.yaml", &deployment("web", "web:3"))])?;
    until_pods(&place, "app=web", "web:3", Pods::Ready).await?;
    let done = place.until_state(ServiceState::Applied).await?;
    assert_eq!(done.failed_revision, None);
    place.until("configmap", "new", "{.metadata.name}", Some("new")).await
}

#[tokio::test]
async fn a_hook_that_fails_stops_its_revision_and_the_next_one_runs_it_again() -> Result<(), KitError> {
    let before = "argocd.argoproj.io/hook: PreSync";
    let manifests = [("migrate.yaml", &*job("migrate", "m:1", before)), ("a.yaml", &config_map("a", "1"))];
    let mut place = begun("hooks", "", &manifests).await?;
    until_pods(&place, "run=migrate", "m:1", Pods::Failed).await?;
    let failed = place.until_state(ServiceState::Failed).await?;
    assert!(
        failed.message.contains("hooks before: Job.batch hooks/migrate: the Job failed"),
        "{}",
        failed.message
    );
    assert_eq!(failed.checks.first().map(|check| check.outcome), Some(CheckOutcome::Failed));
    assert_eq!(place.look("configmap", "a", "{.metadata.name}"), Ok(None));

    place.world.commit(&[("migrate.yaml", &job("migrate", "m:2", before))])?;
    until_pods(&place, "run=migrate", "m:2", Pods::Succeeded).await?;
    let done = place.until_state(ServiceState::Applied).await?;
    assert!(done.checks.is_empty(), "{:?}", done.checks);
    place.until("configmap", "a", "{.metadata.name}", Some("a")).await
}

#[tokio::test]
async fn a_test_runs_after_its_service_is_healthy_and_its_outcome_is_part_of_health() -> Result<(), KitError>
{
    let test = "farshore.dev/test: \"true\"";
    let manifests = [("web.yaml", &*deployment("web", "web:1")), ("smoke.yaml", &job("smoke", "t:1", test))];
    let mut place = begun("tested", "", &manifests).await?;
    place.until_service("health to be waited for", |status| status.progress.is_some()).await?;
    assert_eq!(place.look("job", "smoke", "{.metadata.name}"), Ok(None));
    until_pods(&place, "app=web", "web:1", Pods::Ready).await?;
    until_pods(&place, "run=smoke", "t:1", Pods::Succeeded).await?;
    let done = place.until_state(ServiceState::Applied).await?;
    assert_eq!(done.checks.first().map(|check| check.outcome), Some(CheckOutcome::Passed));

    place.world.commit(&[("smoke.yaml", &job("smoke", "t:2", test))])?;
    until_pods(&place, "run=smoke", "t:2", Pods::Failed).await?;
    let failed = place.until_state(ServiceState::Failed).await?;
    assert!(failed.message.contains("tests: Job.batch tested/smoke: the Job failed"), "{}", failed.message);
    Ok(())
}

#[tokio::test]
async fn definitions_and_their_objects_come_in_one_go_and_a_rule_of_the_service_judges_them()
-> Result<(), KitError> {
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
        metadata: { name: tills.judged.example }\nspec:\n  group: judged.example\n  scope: Namespaced\n  \
        names: { kind: Till, plural: tills }\n  versions:\n    - name: v1\n      served: true\n      storage: true\n      \
        subresources: { status: {} }\n      schema:\n        openAPIV3Schema:\n          type: object\n          \
        x-kubernetes-preserve-unknown-fields: true\n";
    let till = "apiVersion: judged.example/v1\nkind: Till\nmetadata: { name: one }\nspec: { lanes: 4 }\n";
    let rule = "  health:\n    - apiVersion: judged.example/v1\n      kind: Till\n      \
        current: status.phase == 'Open'\n";
    let manifests =
        [("definition.yaml", definition), ("till.yaml", till), ("after.yaml", &in_wave("after", 1))];
    let place = begun("judged", rule, &manifests).await?;
    let status = place.until_service("the till to be waited for", |status| status.progress.is_some()).await?;
    let progress = status.progress.expect("it is under way");
    assert_eq!(progress.object, "Till.judged.example judged/one");
    assert!(progress.why.contains("its health rule finds nothing yet"), "{}", progress.why);
    assert_eq!(place.look("configmap", "after", "{.metadata.name}"), Ok(None));
    let open = r#"{"status":{"phase":"Open"}}"#;
    place.kubectl(&["patch", "till", "one", "--subresource=status", "--type=merge", "--patch", open])?;
    place.until_state(ServiceState::Applied).await?;
    place.until("configmap", "after", "{.metadata.name}", Some("after")).await
}

#[tokio::test]
async fn one_bad_object_blocks_only_itself() -> Result<(), KitError> {
    let unreadable = config_map("odd", "1")
        .replace("metadata: {", "metadata: { annotations: { farshore.dev/wave: first }, ");
    let invalid = "apiVersion: v1\nkind: Service\nmetadata: { name: bad }\nspec: { ports: [{ port: -1 }] }\n";
    let manifests = [
        ("a.yaml", &*config_map("a", "1")),
        ("bad.yaml", invalid),
        ("odd.yaml", &unreadable),
        ("web.yaml", &deployment("web", "web:1")),
    ];
    let mut place = begun("blocks", "", &manifests).await?;
    until_image(&place, "web", "web:1").await?;
    place.until("configmap", "a", "{.data.value}", Some("1")).await?;
    let failed = place.until_state(ServiceState::Failed).await?;
    let mut names: Vec<&str> = failed.failures.iter().map(|failure| failure.object.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["ConfigMap blocks/odd", "Service blocks/bad"]);

    place.world.commit(&[("bad.yaml", "# nothing\n"), ("odd.yaml", &in_wave("odd", 1))])?;
    until_pods(&place, "app=web", "web:1", Pods::Ready).await?;
    place.until_state(ServiceState::Applied).await?;
    place.until("configmap", "odd", "{.metadata.name}", Some("odd")).await
}
