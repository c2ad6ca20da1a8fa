//! Two agents of one site, of which one works, in a real Kubernetes API.

use std::time::Duration;

use farshore_chaos::kit::{KitError, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Place, SharedCluster};

const SOON: Duration = Duration::from_secs(60);

/// For all tests of this file; each has a namespace, a fleet and a site of its own.
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
