//! A record that is restored from a backup makes no site go back.

use std::time::Duration;

use farshore_chaos::kit::{KitError, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Site, Target, World};

const SOON: Duration = Duration::from_secs(60);

async fn until_value(site: &Site, name: &str, value: &str) -> Result<(), KitError> {
    wait_for(&format!("{name} to be {value:?}"), SOON, async || {
        let (_path, text) = site.config_map("till", name)?;
        let is_so =
            text.contains(&format!("value: {value}\n")) || text.contains(&format!("value: \"{value}\"\n"));
        if is_so { Ok(()) } else { Err(text) }
    })
    .await
}

/// Returns after the site has looked at everything once more.
async fn passes(site: &Site) -> Result<(), KitError> {
    for _ in 0..2 {
        let (path, _text) = site.config_map("till", "probe").expect("the probe is in place");
        std::fs::remove_file(path).expect("the probe can be removed");
        until_value(site, "probe", "here").await?;
    }
    Ok(())
}

const FILES: [&str; 2] = ["a.yaml", "probe.yaml"];

async fn shop(world: &World) -> Result<Site, KitError> {
    let site = world.site("shop-1", Target::Directory).await?;
    until_value(&site, "a", "old").await?;
    Ok(site)
}

#[tokio::test]
async fn a_record_from_last_week_is_made_good_from_git() -> Result<(), KitError> {
    let files = [(FILES[0], &*config_map("a", "old")), (FILES[1], &config_map("probe", "here"))];
    let mut world = World::on_disk("till", &files).await?;
    let site = shop(&world).await?;
    let backup = world.fleet.back_up()?;
    world.commit(&[(FILES[0], &config_map("a", "new")), ("b.yaml", &config_map("b", "new"))])?;
    until_value(&site, "b", "new").await?;
    world.hub.kill()?;
    world.fleet.restore(&backup)?;
    // A site that joined since is unknown to that record: what it holds stays.
    world.hub.start().await?;
    passes(&site).await?;
    until_value(&site, "a", "new").await?;
    world.commit(&[(FILES[0], &config_map("a", "newer"))])?;
    until_value(&site, "a", "newer").await?;
    until_value(&site, "b", "new").await
}

#[tokio::test]
async fn a_record_and_a_git_server_from_last_week_take_no_site_back() -> Result<(), KitError> {
    let files = [(FILES[0], &*config_map("a", "old")), (FILES[1], &config_map("probe", "here"))];
    let mut world = World::on_disk("till", &files).await?;
    let mut site = shop(&world).await?;
    let (record, repository) = (world.fleet.back_up()?, world.app.back_up()?);
    world.commit(&[(FILES[0], &config_map("a", "new")), ("b.yaml", &config_map("b", "new"))])?;
    until_value(&site, "b", "new").await?;
    world.hub.kill()?;
    world.fleet.restore(&record)?;
    world.app.restore(&repository)?;
    // The mirror is a cache, and a new machine has none.
    std::fs::remove_dir_all(world.fleet.data("hub").join("mirrors")).expect("the mirrors are there");
    world.hub.start().await?;
    let status = wait_for("the site to say so", SOON, async || {
        let status = world.fleet.status("shop-1").map_err(|error| error.to_string())?.ok_or("no status")?;
        if status.alarms.iter().any(|alarm| alarm.contains("backup")) {
            Ok(status)
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await?;
    println!("{:?}", status.alarms);
    passes(&site).await?;
    until_value(&site, "a", "new").await?;
    until_value(&site, "b", "new").await?;
    site.kill()?;
    site.start().await?;
    passes(&site).await?;
    until_value(&site, "b", "new").await
}
