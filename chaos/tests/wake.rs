//! News that reach a site long before its next poll.

use std::time::Duration;

use farshore_chaos::kit::{KitError, ProxyMode, TcpProxy, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Role, Site, Target, World};

const SOON: Duration = Duration::from_secs(60);
/// Beyond the end of any test: what arrives in one has not come by a poll.
const NEVER: &str = "--poll=1h";

async fn until_value(site: &Site, value: &str) -> Result<(), KitError> {
    wait_for(&format!("{value:?} at the site"), SOON, async || {
        let (_path, text) = site.config_map("till", "a")?;
        let is_there =
            [format!("value: {value}\n"), format!("value: \"{value}\""), format!("value: '{value}'")]
                .iter()
                .any(|line| text.contains(line));
        if is_there { Ok(()) } else { Err(text) }
    })
    .await
}

#[tokio::test]
async fn a_commit_reaches_a_waiting_site_long_before_its_next_poll() -> Result<(), KitError> {
    let mut world = World::on_disk("till", &[("a.yaml", &config_map("a", "zero"))]).await?;
    let mut site = world.fleet.site("shop-1", &world.hub.address(), Target::Directory)?.option(NEVER);
    site.start().await?;
    until_value(&site, "zero").await?;
    for value in ["one", "two", "three"] {
        world.commit(&[("a.yaml", &config_map("a", value))])?;
        until_value(&site, value).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_commit_reaches_sites_that_wait_at_any_replica_and_also_without_redis() -> Result<(), KitError> {
    let mut world = World::in_bucket("till", &[("a.yaml", &config_map("a", "zero"))]).await?;
    world.hub.kill()?;
    let mut hubs = [
        world.fleet.hub("serve-1", Role::Serve)?,
        world.fleet.hub("serve-2", Role::Serve)?,
        world.fleet.hub("publish-1", Role::Publish)?,
    ];
    for hub in &mut hubs {
        hub.start().await?;
    }
    let mut sites = Vec::new();
    for (n, hub) in hubs[..2].iter().enumerate() {
        let site = world.fleet.site(&format!("shop-{n}"), &hub.address(), Target::Directory)?;
        let mut site = site.option(NEVER);
        site.start().await?;
        until_value(&site, "zero").await?;
        sites.push(site);
    }
    world.commit(&[("a.yaml", &config_map("a", "one"))])?;
    for site in &sites {
        until_value(site, "one").await?;
    }
    world.fleet.redis().stop();
    world.commit(&[("a.yaml", &config_map("a", "two"))])?;
    for site in &sites {
        until_value(site, "two").await?;
    }
    world.fleet.redis().restart().await?;
    world.commit(&[("a.yaml", &config_map("a", "three"))])?;
    for site in &sites {
        until_value(site, "three").await?;
    }
    Ok(())
}

/// A site that lost its connection does not call for news by itself; its next poll brings both back.
#[tokio::test]
async fn a_site_whose_link_was_cut_waits_for_news_again_after_its_next_poll() -> Result<(), KitError> {
    let mut world = World::on_disk("till", &[("a.yaml", &config_map("a", "zero"))]).await?;
    let link = TcpProxy::start(&world.hub.address()).await?;
    let mut site = world.fleet.site("shop-1", &link.address(), Target::Directory)?.option("--poll=5s");
    site.start().await?;
    until_value(&site, "zero").await?;
    link.set_mode(ProxyMode::Refuse).await?;
    world.commit(&[("a.yaml", &config_map("a", "one"))])?;
    site.process().wait_for_line("the hub is not reached", SOON).await?;
    link.set_mode(ProxyMode::Forward).await?;
    until_value(&site, "one").await?;
    world.commit(&[("a.yaml", &config_map("a", "two"))])?;
    until_value(&site, "two").await
}
