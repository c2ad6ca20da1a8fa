//! The steps of the story. Each does one thing to the world, watches what follows on disk, and tells it.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::DemoError;
use super::repository::FIRST_NOTICE;
use super::screen::{Screen, bytes, counted};
use super::world::{Poll, Site, World};

/// How long anything may take. Most of it takes a few seconds; machines that are busy compiling take longer.
const DEADLINE: Duration = Duration::from_secs(90);
/// How often what is waited for is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// What the notice says from the first commit of the story on.
const STORM: &str = "closed for the storm";
/// What it says from the second on.
const CALM: &str = "open again";
/// How many polls in a row are steady.
const STEADY: usize = 3;

/// Hub and sites start, and sites get what is declared for them.
pub(super) async fn sites_join(world: &mut World, screen: &mut Screen) -> Result<(), DemoError> {
    screen.step(&format!("{} join", counted(world.sites.len(), "site")));
    world.fleet.make().await?;
    screen.act("git commit -m 'Three services': two for every site, one for those at sea");
    let start = Instant::now();
    let hub = world.start_hub()?;
    until(world, screen, "the hub to listen", |world| {
        TcpStream::connect(world.hub.address).map_err(|error| error.to_string())
    })
    .await?;
    screen
        .took(&format!("the hub (process {hub}) listens on https://{}", world.hub.address), start.elapsed());
    let start = Instant::now();
    for site in 0..world.sites.len() {
        let token = world.token(site).await?;
        world.start_agent(site, Some(&token))?;
    }
    let arrived = at_every_site(world, screen, start, "every site to have its services", |site| {
        let lacks = site.services().iter().find(|service| !site.file(service).exists());
        match lacks {
            Some(service) => Err(format!("{} lacks {service}", site.name)),
            // Else its bytes would be counted among those of the next step.
            None if site.polls().is_empty() => Err(format!("{} has not told of its poll", site.name)),
            None => says(site, "notice", FIRST_NOTICE),
        }
    })
    .await?;
    for (site, after) in world.sites.iter().zip(arrived) {
        let (services, process) = (counted(site.services().len(), "service"), site.id().unwrap_or_default());
        screen.took(&format!("{} (process {process}) has enrolled and has its {services}", site.name), after);
    }
    Ok(())
}

/// A commit reaches every site.
pub(super) async fn a_commit_arrives(world: &mut World, screen: &mut Screen) -> Result<(), DemoError> {
    screen.step("A commit arrives");
    let polls = world.polls();
    let commit = world.fleet.change_notice(STORM).await?;
    screen.act(&format!("git commit -m 'The notice says: {STORM}'   ({commit})"));
    let start = Instant::now();
    let arrived =
        at_every_site(world, screen, start, "the commit to arrive", |site| says(site, "notice", STORM))
            .await?;
    for (n, after) in arrived.into_iter().enumerate() {
        let told = format!("{} to tell of its poll", world.sites[n].name);
        let poll = until(world, screen, &told, |world| {
            let fresh = world.sites[n].polls().into_iter().skip(polls[n]).find(|poll| poll.status == 200);
            fresh.ok_or_else(|| "none that brought anything".into())
        })
        .await?;
        let received = bytes(poll.received);
        screen.took(&format!("{} has it, with {received} received,", world.sites[n].name), after);
    }
    Ok(())
}

/// SIGKILL for the hub.
pub(super) async fn the_hub_dies(world: &mut World, screen: &mut Screen) -> Result<(), DemoError> {
    screen.step("The hub is killed");
    world.check()?;
    let hub = world.hub.kill().unwrap_or_default();
    screen.act(&format!("kill -9 {hub}"));
    until(world, screen, "the hub's port to be closed", |world| {
        match TcpStream::connect(world.hub.address) {
            Ok(_) => Err("somebody answers".into()),
            Err(_) => Ok(()),
        }
    })
    .await?;
    screen.saw("nobody answers any more; every site is on its own");
    Ok(())
}

/// A changed and a deleted file come back.
pub(super) async fn drift_is_repaired_without_a_hub(
    world: &mut World,
    screen: &mut Screen,
) -> Result<(), DemoError> {
    screen.step("Drift is repaired without it");
    let (first, last) = (0, world.sites.len() - 1);
    let file = world.sites[first].file("notice");
    let good = read(&file)?;
    let start = Instant::now();
    write(&file, &good.replace(STORM, "free beer"))?;
    screen.act(&format!("somebody edits {}", world.shown(&file)));
    returns(world, screen, &file, &good).await?;
    screen.took(&format!("{} has put it back", world.sites[first].name), start.elapsed());
    let file = world.sites[last].file("greeting");
    let good = read(&file)?;
    let start = Instant::now();
    remove(&file)?;
    screen.act(&format!("rm {}", world.shown(&file)));
    returns(world, screen, &file, &good).await?;
    screen.took(&format!("{} has it again", world.sites[last].name), start.elapsed());
    Ok(())
}

/// An agent that starts while there is no hub enforces what it holds.
pub(super) async fn a_site_boots_cold_without_a_hub(
    world: &mut World,
    screen: &mut Screen,
) -> Result<(), DemoError> {
    let last = world.sites.len() - 1;
    let name = world.sites[last].name.clone();
    screen.step(&format!("{name} boots cold, with the hub still gone"));
    let agent = world.sites[last].kill().unwrap_or_default();
    screen.act(&format!("kill -9 {agent}   (its agent)"));
    let files = world.sites[last].services().iter().map(|service| world.sites[last].file(service));
    let lost: Vec<_> = files.map(|file| read(&file).map(|good| (file, good))).collect::<Result<_, _>>()?;
    for (file, _) in &lost {
        remove(file)?;
    }
    let folder = world.shown(&world.sites[last].manifests);
    screen.act(&format!("rm {folder}/demo-*   (nobody is there to see it)"));
    let start = Instant::now();
    let agent = world.start_agent(last, None)?;
    screen.act(&format!("farshore agent --name {name} ...   (process {agent}, on the same state folder)"));
    for (file, good) in &lost {
        returns(world, screen, file, good).await?;
    }
    let count = counted(lost.len(), "service");
    screen.took(&format!("{name} has its {count} again, from its own disk,"), start.elapsed());
    Ok(())
}

/// What was committed meanwhile arrives when there is a hub again.
pub(super) async fn the_hub_returns(world: &mut World, screen: &mut Screen) -> Result<(), DemoError> {
    screen.step("A commit made meanwhile arrives when the hub returns");
    let commit = world.fleet.change_notice(CALM).await?;
    screen.act(&format!("git commit -m 'The notice says: {CALM}'   ({commit})"));
    if let Some(site) = world.sites.iter().find(|site| says(site, "notice", CALM).is_ok()) {
        return Err(DemoError::Wrong(format!("{} has a commit that no hub has published", site.name)));
    }
    let start = Instant::now();
    let hub = world.start_hub()?;
    screen.act(&format!("farshore hub ...   (process {hub}, on the same data folder)"));
    let arrived =
        at_every_site(world, screen, start, "the commit to arrive", |site| says(site, "notice", CALM))
            .await?;
    for (site, after) in world.sites.iter().zip(arrived) {
        screen.took(&format!("{} has it", site.name), after);
    }
    Ok(())
}

/// A commit that removes everything removes nothing until somebody approves it.
pub(super) async fn a_mass_removal_waits(world: &mut World, screen: &mut Screen) -> Result<(), DemoError> {
    screen.step("A commit that removes everything is held");
    let commit = world.fleet.remove_services().await?;
    screen.act(&format!("git rm services.yaml; git commit -m 'Remove everything'   ({commit})"));
    let start = Instant::now();
    let held = loop {
        let listing = world.ask(&["get", "sources", "--output", "json"]).await?;
        if let Some(message) = held_change(&listing) {
            break message;
        }
        pause(world, screen, "the hub to hold the commit", start, &listing).await?;
    };
    screen.took("the hub holds it", start.elapsed());
    screen.act("farshore get sources --data hub");
    held.split("; ").for_each(|part| screen.say(&format!("  {part}")));
    let polls = world.polls();
    until(world, screen, "every site to poll once more", |world| {
        let silent = world.sites.iter().zip(&polls).find(|(site, before)| site.polls().len() <= **before);
        silent.map_or(Ok(()), |(site, _)| Err(format!("{} has not", site.name)))
    })
    .await?;
    for site in &world.sites {
        if let Some(service) = site.services().iter().find(|service| !site.file(service).exists()) {
            return Err(DemoError::Wrong(format!("{} has lost {service}", site.name)));
        }
    }
    screen.saw("every site has asked again, and none has lost anything");
    let commit = world.fleet.take_back().await?;
    screen.act(&format!("git revert HEAD   ({commit})"));
    Ok(())
}

/// What `farshore get sources` says of a change that waits for an approval.
fn held_change(listing: &str) -> Option<String> {
    let listing: serde_json::Value = serde_json::from_str(listing).ok()?;
    let source = listing.get("items")?.as_array()?.iter().find(|source| source["state"] == "held")?;
    Some(source.get("message")?.as_str()?.to_owned())
}

/// Where nothing changes, next to nothing is said.
pub(super) async fn steady_polls_are_small(world: &mut World, screen: &mut Screen) -> Result<(), DemoError> {
    screen.step("Nothing changes, and polls are small");
    let polls = world.polls();
    for (n, before) in polls.into_iter().enumerate() {
        let what = format!("{STEADY} steady polls of {}", world.sites[n].name);
        let steady = until(world, screen, &what, |world| {
            let polls = world.sites[n].polls();
            let fresh = &polls[before.min(polls.len())..];
            let same = fresh.iter().rev().take_while(|poll| poll.status == 304).count();
            if same < STEADY { Err(format!("{same}")) } else { Ok(fresh[fresh.len() - STEADY..].to_vec()) }
        })
        .await?;
        let (sent, received) = (median(&steady, |poll| poll.sent), median(&steady, |poll| poll.received));
        let (name, all) = (&world.sites[n].name, bytes(sent + received));
        screen.saw(&format!("{name} is told 304 Not Modified: {all} a poll ({sent} out, {received} in)"));
    }
    Ok(())
}

fn median(polls: &[Poll], figure: impl Fn(&Poll) -> u64) -> u64 {
    let mut figures: Vec<u64> = polls.iter().map(figure).collect();
    figures.sort_unstable();
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

fn says(site: &Site, service: &str, text: &str) -> Result<(), String> {
    match site.read(service) {
        found if found.contains(text) => Ok(()),
        found if found.is_empty() => Err(format!("{} has no {service}", site.name)),
        _ => Err(format!("{} has an older {service}", site.name)),
    }
}

/// Waits until something holds at every site; how long after `start` it did, in the order of the sites.
async fn at_every_site(
    world: &mut World,
    screen: &mut Screen,
    start: Instant,
    what: &str,
    holds: impl Fn(&Site) -> Result<(), String>,
) -> Result<Vec<Duration>, DemoError> {
    let mut seen: Vec<Option<Duration>> = vec![None; world.sites.len()];
    until(world, screen, what, |world| {
        let mut lacking = Ok(());
        for (site, seen) in world.sites.iter().zip(&mut seen).filter(|(_, seen)| seen.is_none()) {
            match holds(site) {
                Ok(()) => *seen = Some(start.elapsed()),
                Err(why) => lacking = Err(why),
            }
        }
        lacking
    })
    .await?;
    Ok(seen.into_iter().flatten().collect())
}

async fn returns(world: &mut World, screen: &mut Screen, file: &Path, good: &str) -> Result<(), DemoError> {
    let what = format!("{} to be as it was", world.shown(file));
    until(world, screen, &what, |_| match fs::read_to_string(file) {
        Ok(found) if found == good => Ok(()),
        Ok(_) => Err("it is different".into()),
        Err(error) => Err(error.to_string()),
    })
    .await
}

/// Waits until `look` finds what it looks for, as long as everything runs that should.
async fn until<T>(
    world: &mut World,
    screen: &mut Screen,
    what: &str,
    mut look: impl FnMut(&World) -> Result<T, String>,
) -> Result<T, DemoError> {
    let start = Instant::now();
    loop {
        let last = match look(world) {
            Ok(found) => return Ok(found),
            Err(last) => last,
        };
        pause(world, screen, what, start, &last).await?;
    }
}

/// Between two looks: an error when there shall be no other.
async fn pause(
    world: &mut World,
    screen: &mut Screen,
    what: &str,
    start: Instant,
    last: &str,
) -> Result<(), DemoError> {
    world.check()?;
    let waited = start.elapsed();
    if waited > DEADLINE {
        return Err(DemoError::NotYet { what: what.to_owned(), waited, last: last.to_owned() });
    }
    screen.wait(what, waited);
    tokio::time::sleep(LOOK).await;
    Ok(())
}

fn read(path: &Path) -> Result<String, DemoError> {
    fs::read_to_string(path).map_err(|source| DemoError::Io {
        doing: "reading a file of a site",
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, text: &str) -> Result<(), DemoError> {
    fs::write(path, text).map_err(|source| DemoError::Io {
        doing: "changing a file of a site",
        path: path.to_owned(),
        source,
    })
}

fn remove(path: &Path) -> Result<(), DemoError> {
    fs::remove_file(path).map_err(|source| DemoError::Io {
        doing: "removing a file of a site",
        path: path.to_owned(),
        source,
    })
}
