//! Two agents of one site, of which one works, in a real Kubernetes API.

use std::time::Duration;

use farshore_chaos::kit::{ApiRequest, KitError, Kubernetes, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Place, SharedCluster};
use farshore_shared::wire::ServiceState;

const SOON: Duration = Duration::from_secs(60);

/// For all tests of this file but one; each has a namespace, a fleet and a site of its own.
static CLUSTER: SharedCluster = SharedCluster::new();

/// A place with one `ConfigMap` whose agent has not been started.
async fn without_agent(name: &'static str, options: &[&str]) -> Result<Place, KitError> {
    let place = Place::of(CLUSTER.get().await?, name, "", &[("a.yaml", &config_map("a", "1"))]).await?;
    let place = place.option("--sweep=1h").patience(SOON);
    Ok(options.iter().fold(place, |place, option| place.option(*option)))
}

fn spoil(place: &Place) -> Result<String, KitError> {
    place.patch("configmap", "a", r#"{"data":{"value":"theirs"}}"#)
}

async fn until_value(place: &Place, wanted: Option<&str>) -> Result<(), KitError> {
    place.until("configmap", "a", "{.data.value}", wanted).await
}

#[tokio::test]
async fn of_two_agents_of_one_site_one_works_and_the_other_takes_over_when_it_ends_or_dies()
-> Result<(), KitError> {
    let place = without_agent("leading", &["--leader-elect=default/leading"]).await?;
    let mut first = place.site.launch()?;
    first.wait_for_line("this agent leads", SOON).await?;
    until_value(&place, Some("1")).await?;
    let mut second = place.site.launch()?;
    second.wait_for_line("another agent leads; this one stands by", SOON).await?;
    spoil(&place)?;
    until_value(&place, Some("1")).await?;

    first.terminate()?;
    let ended = first.wait_with_deadline(Duration::from_secs(2)).await?;
    assert!(ended.success(), "{ended:?}");
    // The lease was given back: nobody waits for it to end.
    second.wait_for_line("this agent leads", Duration::from_secs(12)).await?;
    second.wait_for_line("enforcing what is held", SOON).await?;
    spoil(&place)?;
    until_value(&place, Some("1")).await?;

    let mut third = place.site.launch()?;
    third.wait_for_line("another agent leads; this one stands by", SOON).await?;
    second.kill()?;
    third.wait_for_line("this agent leads", SOON).await?;
    spoil(&place)?;
    until_value(&place, Some("1")).await?;

    // Somebody else has the lease, and never renews it.
    let taken = r#"{"spec":{"holderIdentity":"somebody","leaseDurationSeconds":4}}"#;
    place.kubernetes.kubectl(&[
        "patch",
        "lease",
        "leading",
        "--namespace=default",
        "--type=merge",
        "--patch",
        taken,
    ])?;
    third.wait_for_line("another agent has taken the lease", SOON).await?;
    wait_for("the agent to lead again", SOON, async || {
        let leads = third.stderr().matches("this agent leads").count();
        if leads == 2 { Ok(()) } else { Err(third.stderr()) }
    })
    .await?;
    spoil(&place)?;
    until_value(&place, Some("1")).await
}

#[tokio::test]
async fn an_agent_that_waits_for_the_state_folder_ends_when_it_is_told_to() -> Result<(), KitError> {
    let mut place = without_agent("entering", &[]).await?;
    let mut first = place.site.launch()?;
    first.wait_for_line("held", SOON).await?;
    place.site = place.site.option("--leader-elect=default/entering");
    let mut second = place.site.launch()?;
    second.wait_for_line("this agent leads", SOON).await?;
    second.terminate()?;
    let ended = second.wait_with_deadline(Duration::from_secs(5)).await?;
    assert!(ended.success(), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn an_agent_that_stands_by_ends_when_it_is_told_to_and_the_one_that_leads_goes_on()
-> Result<(), KitError> {
    let place = without_agent("standing-by", &["--leader-elect=default/standing-by"]).await?;
    let mut first = place.site.launch()?;
    first.wait_for_line("this agent leads", SOON).await?;
    until_value(&place, Some("1")).await?;
    let mut second = place.site.launch()?;
    second.wait_for_line("another agent leads; this one stands by", SOON).await?;
    let holder = || {
        let get = [
            "get",
            "lease",
            "standing-by",
            "--namespace=default",
            "--output=jsonpath={.spec.holderIdentity}",
        ];
        place.kubernetes.kubectl(&get)
    };
    let leads = holder()?;
    second.terminate()?;
    let ended = second.wait_with_deadline(Duration::from_secs(2)).await?;
    assert_eq!(ended.code(), Some(0), "{}", second.stderr());
    assert_eq!(holder()?, leads, "it gave back what it did not have");
    spoil(&place)?;
    until_value(&place, Some("1")).await?;
    let said = first.stderr();
    assert!(!said.contains("another agent has taken the lease"), "{said}");
    Ok(())
}

#[tokio::test]
async fn an_agent_that_takes_over_from_one_that_died_reads_each_kind_and_not_each_object()
-> Result<(), KitError> {
    const OBJECTS: usize = 200;
    let all: String = (0..OBJECTS).map(|n| config_map(&format!("c{n}"), "1") + "---\n").collect();
    let files = [("a.yaml", &*config_map("a", "1")), ("all.yaml", &all)];
    // A cluster of its own, so that every agent's request is one of these two.
    let place = Place::of(Kubernetes::start().await?, "succeeding", "", &files).await?;
    let place = place.option("--sweep=1h").option("--leader-elect=default/succeeding").patience(SOON);
    let mut first = place.site.launch()?;
    first.wait_for_line("this agent leads", SOON).await?;
    place.until_state(ServiceState::Applied).await?;
    let mut second = place.site.launch()?;
    second.wait_for_line("another agent leads; this one stands by", SOON).await?;

    first.kill()?;
    let mark = place.kubernetes.audit_mark()?;
    place.patch("configmap", "a", r#"{"data":{"value":"theirs"}}"#)?;
    place.patch("configmap", "c7", r#"{"data":{"value":"theirs"}}"#)?;
    second.wait_for_line("this agent leads", SOON).await?;
    for name in ["a", "c7"] {
        place.until("configmap", name, "{.data.value}", Some("1")).await?;
    }
    // What is changed from then on is heard of, and needs no further look at everything.
    place.patch("configmap", "c9", r#"{"data":{"value":"theirs"}}"#)?;
    place.until("configmap", "c9", "{.data.value}", Some("1")).await?;
    let ours = |mut requests: Vec<ApiRequest>| {
        requests.retain(|request| {
            let uri = &request.uri;
            request.user_agent.starts_with("farshore-agent/") && uri.contains("configmaps")
        });
        requests
    };
    let reads = ours(place.kubernetes.audit_reads_since(mark)?);
    let of = |verb: &str| reads.iter().filter(|read| read.verb == verb).count();
    assert!(of("list") <= 4, "{reads:#?}");
    assert!(of("get") <= 6, "{} looks: {reads:#?}", of("get"));
    assert!(of("watch") <= 2, "{reads:#?}");
    let writes = ours(place.kubernetes.audit_writes_since(mark)?);
    assert_eq!(writes.len(), 3, "one for each change: {writes:#?}");
    Ok(())
}
