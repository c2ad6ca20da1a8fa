//! One hub, two doors: what a site meets is the same, whether the hub is a server or a Lambda function.

use std::time::Duration;

use farshore_chaos::kit::{KitError, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Function, Hub, Role, Site, Target, World};
use farshore_shared::wire::Status;
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

/// Where sites poll.
enum Door {
    Server(Hub),
    Function(Box<Function>),
}

impl Door {
    async fn server(world: &World) -> Result<Self, KitError> {
        let mut hub = world.fleet.hub("door", Role::Serve)?;
        hub.start().await?;
        Ok(Self::Server(hub))
    }

    async fn function(world: &World) -> Result<Self, KitError> {
        let mut function = Box::new(world.fleet.function("door", Role::Serve).await?);
        function.start().await?;
        Ok(Self::Function(function))
    }

    fn address(&self) -> String {
        match self {
            Self::Server(hub) => hub.address(),
            Self::Function(function) => function.address(),
        }
    }

    async fn is_replaced(&mut self) -> Result<(), KitError> {
        match self {
            Self::Server(hub) => hub.start().await,
            Self::Function(function) => function.start().await,
        }
    }
}

async fn world() -> Result<World, KitError> {
    World::in_bucket("till", &[("a.yaml", &config_map("a", "one")), ("b.yaml", &config_map("b", "kept"))])
        .await
}

async fn until_value(site: &Site, name: &str, value: &str) -> Result<(), KitError> {
    wait_for(&format!("{name} with {value:?} at the site"), SOON, async || {
        let (_path, text) = site.config_map("till", name)?;
        let forms = [format!("value: {value}"), format!("value: \"{value}\"")];
        if forms.iter().any(|form| text.contains(form)) { Ok(()) } else { Err(text) }
    })
    .await
}

/// Waits until a report that is younger than `after` tells that all is in place.
async fn until_reported(world: &World, site: &str, after: Option<&Status>) -> Result<Status, KitError> {
    let before = after.and_then(|status| status.holds).map_or(0, |holds| holds.group);
    wait_for(&format!("a report of {site} above {before}"), SOON, async || {
        let status = world.fleet.status(site).map_err(|error| error.to_string())?;
        match status {
            Some(status) if status.holds.is_some_and(|holds| holds.group > before) => Ok(status),
            status => Err(format!("{status:?}")),
        }
    })
    .await
}

/// The story of a site from its first start on: it joins, gets what is declared, follows a commit, survives
/// that the door is replaced, and says all of it.
async fn a_site_is_served(world: &mut World, mut door: Door) -> Result<(), KitError> {
    let mut site = world.fleet.site("shop-1", &door.address(), Target::Directory)?;
    site.start().await?;
    until_value(&site, "a", "one").await?;
    until_value(&site, "b", "kept").await?;
    let first = until_reported(world, "shop-1", None).await?;
    assert!(first.alarms.is_empty(), "{:?}", first.alarms);

    world.commit(&[("a.yaml", &config_map("a", "two"))])?;
    until_value(&site, "a", "two").await?;
    let second = until_reported(world, "shop-1", Some(&first)).await?;

    door.is_replaced().await?;
    world.commit(&[("a.yaml", &config_map("a", "three"))])?;
    until_value(&site, "a", "three").await?;
    until_value(&site, "b", "kept").await?;
    let third = until_reported(world, "shop-1", Some(&second)).await?;
    assert_eq!(third.state_id, first.state_id, "it is one site all along");
    Ok(())
}

#[tokio::test]
async fn a_site_is_served_by_a_server() -> Result<(), KitError> {
    let mut world = world().await?;
    let door = Door::server(&world).await?;
    a_site_is_served(&mut world, door).await
}

#[tokio::test]
async fn a_site_is_served_by_a_function_that_is_frozen_between_two_requests() -> Result<(), KitError> {
    let mut world = world().await?;
    let door = Door::function(&world).await?;
    a_site_is_served(&mut world, door).await
}

#[tokio::test]
async fn a_function_publishes_one_step_for_each_event() -> Result<(), KitError> {
    let mut world = world().await?;
    world.hub.kill()?;
    let mut door = world.fleet.hub("door", Role::Serve)?;
    door.start().await?;
    let mut publisher = world.fleet.function("publisher", Role::Publish).await?;
    publisher.start().await?;
    let mut site = world.fleet.site("shop-1", &door.address(), Target::Directory)?;
    site.start().await?;
    wait_for("the site to be enrolled by a step", SOON, async || {
        publisher.invoke(&json!({ "source": "aws.events" })).await.map_err(|error| error.to_string())?;
        site.config_map("till", "a").map(|_found| ())
    })
    .await?;
    world.commit(&[("a.yaml", &config_map("a", "two"))])?;
    wait_for("a step that publishes the commit", SOON, async || {
        let steps = publisher.invocations();
        let report = publisher.invoke(&json!({ "source": "aws.events" })).await;
        let report = report.map_err(|error| error.to_string())?;
        assert_eq!(publisher.invocations(), steps + 1, "an event is one step");
        if report["published"].is_u64() { Ok(()) } else { Err(report.to_string()) }
    })
    .await?;
    until_value(&site, "a", "two").await
}
