//! A publisher that is stopped in the middle of its work, outlived by another, and resumed, changes nothing
//! that its successor published. Neither does a Redis that forgot who held which lease.

use std::time::Duration;

use farshore_chaos::kit::{KitError, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Hub, Role, Site, Target, World};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
/// How often the holder is stopped, each time somewhere else.
const ROUNDS: usize = 4;

async fn until_value(site: &Site, value: &str) -> Result<(), KitError> {
    wait_for(&format!("{value:?} at the site"), SOON, async || {
        let (_path, text) = site.config_map("till", "a")?;
        if text.contains(value) { Ok(()) } else { Err(text) }
    })
    .await
}

/// The sequence that is published, and when it was.
fn published(world: &World) -> Result<u64, KitError> {
    let head: Option<Value> = world.fleet.document("fleet/head")?;
    Ok(head.and_then(|head| head["sequence"].as_u64()).unwrap_or(0))
}

/// Stops a publisher while it publishes, or, where it is not its turn, while it waits.
async fn stop_at_work(hub: &mut Hub, at: &str) -> Result<(), KitError> {
    let seen = hub.process().wait_for_line(at, Duration::from_secs(3)).await;
    println!("it is stopped {}", if seen.is_ok() { at } else { "idle" });
    hub.process().pause()
}

#[tokio::test]
async fn a_publisher_that_was_stopped_past_its_lease_undoes_nothing_of_its_successor() -> Result<(), KitError>
{
    let mut world = World::in_bucket("till", &[("a.yaml", &config_map("a", "value-0"))]).await?;
    world.hub.kill()?;
    let mut serve = world.fleet.hub("serve", Role::Serve)?;
    serve.start().await?;
    let mut site = world.fleet.site("shop-1", &serve.address(), Target::Directory)?;
    site.start().await?;
    let mut publishers =
        [world.fleet.hub("publish-1", Role::Publish)?, world.fleet.hub("publish-2", Role::Publish)?];
    publishers[0].start().await?;
    until_value(&site, "value-0").await?;
    let places = ["artifact is stored", "published", "artifact is stored", "step of publishing"];
    for round in 1..=ROUNDS {
        let [stopped, other] = &mut publishers;
        let (old, new) = (format!("old-{round}"), format!("new-{round}"));
        world.commit(&[("a.yaml", &config_map("a", &old))])?;
        stop_at_work(stopped, places[round - 1]).await?;
        if round >= 3 {
            world.fleet.redis().flush_all().await?;
        }
        // The lease lapses, or was forgotten; the other one goes on.
        other.start().await?;
        until_value(&site, &old).await?;
        world.commit(&[("a.yaml", &config_map("a", &new))])?;
        until_value(&site, &new).await?;
        let before = published(&world)?;
        stopped.process().resume()?;
        // What it was about to do is done, or given up, once it publishes or follows what comes next.
        let last = format!("last-{round}");
        world.commit(&[("a.yaml", &config_map("a", &last))])?;
        until_value(&site, &last).await?;
        other.kill()?;
        let alone = format!("alone-{round}");
        world.commit(&[("a.yaml", &config_map("a", &alone))])?;
        until_value(&site, &alone).await?;
        assert!(published(&world)? > before, "the publication went back");
    }
    Ok(())
}
