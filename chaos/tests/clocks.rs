//! A site whose clock was wrong.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farshore_chaos::kit::{KitError, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Site, Target, World};

const SOON: Duration = Duration::from_secs(60);

/// Waits until the folder has this value.
async fn until_value(site: &Site, value: &str) -> Result<(), KitError> {
    wait_for(&format!("{value:?} in the folder"), SOON, async || {
        let (_, text) = site.config_map("till", "a")?;
        if text.contains(&format!("value: {value}")) { Ok(()) } else { Err(text) }
    })
    .await
}

/// Waits until the site has told that it is held, and what of its clock.
async fn until_held(world: &World, alarm: &str) -> Result<(), KitError> {
    wait_for("the site to tell of its hold", SOON, async || {
        let status =
            world.fleet.status("shop-1").map_err(|error| error.to_string())?.ok_or("none has come")?;
        let is_held =
            status.services.iter().any(|service| service.message.contains("held at the site until "));
        let is_told = status.alarms.iter().any(|told| told.starts_with(alarm));
        if is_held && is_told { Ok(()) } else { Err(format!("{:?} {:?}", status.services, status.alarms)) }
    })
    .await
}

#[tokio::test]
async fn a_hold_from_a_clock_that_was_wrong_holds_for_its_own_length_and_then_ends() -> Result<(), KitError> {
    let mut world = World::on_disk("till", &[("a.yaml", &config_map("a", "first"))]).await?;
    let site = world.site("shop-1", Target::Directory).await?;
    until_value(&site, "first").await?;
    let controls = site.state().join("controls");
    fs::create_dir_all(&controls).expect("the state folder is there");
    for (at, value) in [(2_147_483_647, "second"), (600, "third")] {
        let hold = controls.join("hold");
        // Nobody sees it before it has its date.
        let hidden = controls.join(".hold");
        fs::write(&hidden, "12s tills are counted").expect("the folder can be written to");
        let dated: SystemTime = UNIX_EPOCH + Duration::from_secs(at);
        fs::File::open(&hidden).and_then(|file| file.set_modified(dated)).expect("its time can be set");
        fs::rename(&hidden, &hold).expect("the folder can be written to");
        world.commit(&[("a.yaml", &config_map("a", value))])?;
        until_held(&world, "the clock of this site cannot tell when the hold ends").await?;
        until_value(&site, value).await?;
    }
    Ok(())
}
