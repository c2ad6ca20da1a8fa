//! Two serving replicas and two publishers on one bucket and one Redis: any may die, and a replica holds no key.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use farshore_chaos::kit::{KitError, Search, TcpProxy, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Fleet, Hub, Role, Site, Target, World};
use farshore_shared::keys::Secret;

const SOON: Duration = Duration::from_secs(60);
/// Each hub dies as often.
const DEATHS: usize = 3;

/// A fleet with two hubs of each role, and two sites behind a balancer of the replicas.
struct Pair {
    sites: [Site; 2],
    hubs: [Hub; 4],
    _balancer: TcpProxy,
    world: World,
}

/// The places of the hubs: they die in this order.
const SERVE: [usize; 2] = [0, 2];
const PUBLISH: [usize; 2] = [1, 3];

impl Pair {
    async fn start() -> Result<Self, KitError> {
        let files = [("a.yaml", &*config_map("a", "0")), ("b.yaml", &config_map("b", "kept"))];
        let mut world = World::in_bucket("till", &files).await?;
        // The fleet was made by it; from now on the others are there.
        world.hub.kill()?;
        let fleet = &world.fleet;
        let mut hubs = [
            fleet.hub("serve-1", Role::Serve)?,
            fleet.hub("publish-1", Role::Publish)?,
            fleet.hub("serve-2", Role::Serve)?,
            fleet.hub("publish-2", Role::Publish)?,
        ];
        for hub in &mut hubs {
            hub.start().await?;
        }
        let balancer = TcpProxy::balance(SERVE.map(|n| hubs[n].address())).await?;
        let site = |name| fleet.site(name, &balancer.address(), Target::Directory);
        let mut sites = [site("shop-1")?, site("shop-2")?];
        for site in &mut sites {
            site.start().await?;
        }
        let pair = Self { sites, hubs, _balancer: balancer, world };
        pair.until_value("0").await?;
        Ok(pair)
    }

    fn commit(&mut self, value: &str) -> Result<(), KitError> {
        self.world.commit(&[("a.yaml", &config_map("a", value))]).map(|_commit| ())
    }

    async fn until_value(&self, value: &str) -> Result<(), KitError> {
        for site in &self.sites {
            wait_for(&format!("{value:?} at a site"), SOON, async || {
                let (_path, text) = site.config_map("till", "a")?;
                let is_there = text.contains(&format!("value: '{value}'"))
                    || text.contains(&format!("value: \"{value}\""))
                    || text.contains(&format!("value: {value}\n"));
                if is_there { Ok(()) } else { Err(text) }
            })
            .await?;
        }
        Ok(())
    }

    /// Which file the object is in that no commit changes: one that was taken away and put back is another.
    fn life(&self) -> Vec<(u64, i64, i64)> {
        let life = |site: &Site| {
            let (path, _text) = site.config_map("till", "b").expect("it is in place");
            let found = std::fs::metadata(path).expect("it is in place");
            (found.ino(), found.mtime(), found.mtime_nsec())
        };
        self.sites.iter().map(life).collect()
    }
}

#[tokio::test]
async fn any_hub_may_die_at_any_time_and_sites_notice_nothing() -> Result<(), KitError> {
    let mut pair = Pair::start().await?;
    let before = pair.life();
    let mut value = 0;
    for round in 0..DEATHS {
        for victim in 0..pair.hubs.len() {
            value += 1;
            pair.commit(&value.to_string())?;
            if round > 0 && PUBLISH.contains(&victim) {
                // In the middle of a publication, where it is the one that makes it: its artifact is stored, and the
                // head is not yet moved.
                let stored =
                    pair.hubs[victim].process().wait_for_line("artifact is stored", Duration::from_secs(2));
                println!(
                    "publisher {victim} dies {}",
                    if stored.await.is_ok() { "publishing" } else { "idle" }
                );
            }
            pair.hubs[victim].kill()?;
            pair.until_value(&value.to_string()).await?;
            pair.hubs[victim].start().await?;
        }
    }
    // All but one of each role, at once.
    for victim in [0, 1] {
        pair.hubs[victim].kill()?;
    }
    pair.commit("alone")?;
    pair.until_value("alone").await?;
    for victim in [0, 1] {
        pair.hubs[victim].start().await?;
    }
    pair.commit("together")?;
    pair.until_value("together").await?;
    assert_eq!(pair.life(), before, "an object that no commit changed was written");
    for source in ["fleet", "app"] {
        pair.world.fleet.until_source(source, "ready").await?;
    }
    until_converged(&pair.world.fleet, 2).await
}

/// Waits until `farshore get clusters` shows so many clusters, all of them converged.
async fn until_converged(fleet: &Fleet, clusters: usize) -> Result<(), KitError> {
    wait_for("all clusters to be converged", SOON, async || {
        let said =
            fleet.farshore(&["get", "clusters", "--output=json"]).await.map_err(|error| error.to_string())?;
        let all: serde_json::Value = serde_json::from_str(&said.stdout).map_err(|error| error.to_string())?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let converged = items.iter().filter(|item| item["state"] == "converged").count();
        if (items.len(), converged) == (clusters, clusters) { Ok(()) } else { Err(all.to_string()) }
    })
    .await
}

/// The four private keys of a fleet, in every form in which somebody might keep them.
fn private_keys(keys: &Path) -> Search {
    let files = [("root", "ed25519"), ("director", "ed25519"), ("operator", "ed25519"), ("token", "token")];
    files.into_iter().fold(Search::default(), |search, (name, kind)| {
        let text = std::fs::read_to_string(keys.join(format!("{name}.key"))).expect("the key's file");
        let secret = Secret::from_file(&text, kind).expect("a key");
        let bytes = secret.as_bytes();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        search
            .with(name, *bytes)
            .with(name, hex.to_uppercase())
            .with(name, hex)
            .with(name, STANDARD_NO_PAD.encode(bytes))
            .with(name, URL_SAFE_NO_PAD.encode(bytes))
    })
}

#[tokio::test]
async fn a_serving_replica_holds_no_key_in_its_memory_or_its_files() -> Result<(), KitError> {
    let mut pair = Pair::start().await?;
    // It has enrolled sites, answered polls and taken statuses; both replicas have had their share.
    pair.commit("1")?;
    pair.until_value("1").await?;
    until_converged(&pair.world.fleet, 2).await?;
    let search = private_keys(&pair.world.fleet.keys());
    for (n, hub) in SERVE.into_iter().zip(["serve-1", "serve-2"]) {
        let memory = search.memory(pair.hubs[n].process())?;
        assert_eq!(memory.found, Vec::<String>::new(), "in the memory of {hub}");
        assert!(memory.bytes > 1 << 20, "only {} bytes were read", memory.bytes);
        let files = search.folder(&pair.world.fleet.data(hub))?;
        assert_eq!(files.found, Vec::<String>::new(), "in the files of {hub}");
        let work = search.folder(&pair.hubs[n].process().folder())?;
        assert_eq!(work.found, Vec::<String>::new(), "in the files of {hub}");
        println!("{hub}: {} MiB of memory, {} bytes of files", memory.bytes >> 20, files.bytes);
    }
    // Whoever holds the record or Redis holds none either.
    assert_eq!(search.folder(&pair.world.fleet.record())?.found, Vec::<String>::new(), "in the record");

    // The search can find: a publisher has two of the four, and their folder has all.
    let publisher = search.memory(pair.hubs[PUBLISH[0]].process())?;
    assert_eq!(publisher.found, ["director", "token"], "in the memory of a publisher");
    let folder = search.folder(&pair.world.fleet.keys())?;
    assert_eq!(folder.found, ["root", "director", "operator", "token"]);
    Ok(())
}
