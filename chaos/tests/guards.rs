//! What Git says by accident takes nothing from a site: it is kept, shown, and done only when a person says so.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use farshore_chaos::kit::{GitMode, GitRepo, KitError, wait_for};
use farshore_chaos::world::declare::{config_map, service, source};
use farshore_chaos::world::{Fleet, Hub, Repository, Role, Site, Target};
use farshore_shared::wire::ServiceState;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
/// Twenty services at two sites: removing eighteen exceeds the budget, removing one does not.
const SERVICES: usize = 20;

/// In which file each object of a site is: another one, even of the same name and content, is another life.
type Lives = BTreeMap<String, (u64, i64)>;

/// A fleet of [`SERVICES`] services, each of one `ConfigMap`, and two sites that have them all.
struct Shops {
    sites: [Site; 2],
    _hub: Hub,
    fleet: Fleet,
    declared: Repository,
    app: Repository,
}

fn name(n: usize) -> String {
    format!("s{n}")
}

fn file_of(n: usize) -> String {
    format!("services/s{n}.yaml")
}

fn declaration(n: usize) -> String {
    service(&name(n), "app", &name(n), "raw")
}

impl Shops {
    async fn open() -> Result<Self, KitError> {
        let manifests: Vec<(String, String)> =
            (0..SERVICES).map(|n| (format!("s{n}/a.yaml"), config_map("a", "1"))).collect();
        let app = Repository::of(&borrowed(&manifests)).await?;
        let mut files: Vec<(String, String)> = (0..SERVICES).map(|n| (file_of(n), declaration(n))).collect();
        files.push(("source.yaml".to_owned(), source("app", &app.url())));
        let declared = Repository::of(&borrowed(&files)).await?;
        let fleet = Fleet::on_disk(&declared.url())?;
        let mut hub = fleet.hub("hub", Role::All)?;
        hub.start().await?;
        let mut sites = [1, 2].map(|n| fleet.site(&format!("shop-{n}"), &hub.address(), Target::Directory));
        for site in sites.iter_mut().flatten() {
            site.start().await?;
        }
        let [one, two] = sites;
        let shops = Self { sites: [one?, two?], _hub: hub, fleet, declared, app };
        for site in &shops.sites {
            until_count(site, SERVICES).await?;
        }
        Ok(shops)
    }

    /// The lives of both sites' objects.
    fn lives(&self) -> Result<Vec<Lives>, KitError> {
        self.sites.iter().map(lives).collect()
    }

    /// Waits until an object has this value at both sites.
    async fn until_value(&self, n: usize, value: &str) -> Result<(), KitError> {
        for site in &self.sites {
            until_value(site, n, value).await?;
        }
        Ok(())
    }

    /// Returns after both sites have looked at everything once more: each has put back a file twice.
    async fn passes(&self, probe: usize) -> Result<(), KitError> {
        for site in &self.sites {
            for _ in 0..2 {
                let (path, text) = site.config_map(&name(probe), "a").expect("the probe is in place");
                std::fs::remove_file(&path).expect("the probe can be removed");
                wait_for("the probe to return", SOON, async || {
                    site.config_map(&name(probe), "a").map(|(_path, again)| assert_eq!(again, text))
                })
                .await?;
            }
        }
        Ok(())
    }

    /// Demands that nothing was taken away since: all is in place, in the files it was in, except the probe and what
    /// was meant to change.
    async fn assert_nothing_lost(&self, before: &[Lives], changed: &[usize]) -> Result<(), KitError> {
        const PROBE: usize = 0;
        self.passes(PROBE).await?;
        let is_meant =
            |file: &str| changed.iter().chain(&[PROBE]).any(|n| file.starts_with(&format!("s{n}-")));
        for (before, after) in before.iter().zip(self.lives()?) {
            for (file, life) in before.iter().filter(|(file, _life)| !is_meant(file)) {
                assert_eq!(after.get(file), Some(life), "{file}");
            }
            assert!(before.keys().all(|file| after.contains_key(file)), "{after:?}");
        }
        Ok(())
    }
}

fn lives(site: &Site) -> Result<Lives, KitError> {
    let life = |file: String| {
        let found = std::fs::metadata(site.manifests().join(&file)).expect("it was listed just now");
        (file, (found.ino(), found.mtime_nsec()))
    };
    Ok(site.objects()?.into_keys().map(life).collect())
}

fn borrowed(files: &[(String, String)]) -> Vec<(&str, &str)> {
    files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect()
}

async fn until_count(site: &Site, wanted: usize) -> Result<(), KitError> {
    wait_for(&format!("{wanted} objects"), SOON, async || match site.objects() {
        Ok(objects) if objects.len() == wanted => Ok(()),
        Ok(objects) => Err(format!("{}: {:?}", objects.len(), objects.keys())),
        Err(error) => Err(error.to_string()),
    })
    .await
}

async fn until_value(site: &Site, n: usize, value: &str) -> Result<(), KitError> {
    wait_for(&format!("s{n} to be {value}"), SOON, async || {
        let (_path, text) = site.config_map(&name(n), "a")?;
        if text.contains(&format!("value: {value}")) || text.contains(&format!("value: \"{value}\"")) {
            return Ok(());
        }
        Err(text)
    })
    .await
}

/// Demands that a source says all of this in its messages.
fn assert_says(source: &Value, fragments: &[&str]) {
    let messages = source["messages"].to_string();
    for fragment in fragments {
        assert!(messages.contains(fragment), "no {fragment:?} in {source:#}");
    }
}

#[tokio::test]
async fn a_broken_declaration_keeps_its_last_good_form_and_removes_nothing() -> Result<(), KitError> {
    let mut shops = Shops::open().await?;
    let before = shops.lives()?;
    // While one file cannot be read, that another is gone says nothing: the two may be one file that was renamed.
    shops.declared.repo().remove(file_of(4))?;
    let extra = service("extra", "app", "s1", "raw");
    shops
        .declared
        .commit(&[(&file_of(3), "kind: Service\nspec: [broken"), ("services/extra.yaml", &extra)])?;
    for site in &shops.sites {
        until_count(site, SERVICES + 1).await?;
    }
    let fleet = shops.fleet.until_source("fleet", "degraded").await?;
    assert_says(&fleet, &[&file_of(3)]);
    shops.assert_nothing_lost(&before, &[]).await?;

    shops.declared.commit(&[(&file_of(3), &declaration(3)), (&file_of(4), &declaration(4))])?;
    let fleet = shops.fleet.until_source("fleet", "ready").await?;
    assert_eq!(fleet["messages"], Value::Array(vec![]), "{fleet:#}");
    shops.assert_nothing_lost(&before, &[]).await
}

#[tokio::test]
async fn an_emptied_path_keeps_what_it_had_and_is_that_services_error_alone() -> Result<(), KitError> {
    let mut shops = Shops::open().await?;
    let before = shops.lives()?;
    shops.app.repo().remove("s5")?;
    shops.app.repo().remove("s7/a.yaml")?;
    shops.app.repo().remove("s8/a.yaml")?;
    let files = [
        ("s6/a.yaml", config_map("a", "2")),
        ("s7/README.md", "nothing here any more\n".to_owned()),
        ("s8/a.yaml", "# all of it is a comment\n".to_owned()),
    ];
    shops.app.commit(&files.each_ref().map(|(path, text)| (*path, text.as_str())))?;
    shops.until_value(6, "2").await?;
    let app = shops.fleet.until_source("app", "degraded").await?;
    assert_says(&app, &["service s5", "does not exist", "restore it"]);
    wait_for("the site to say so of s8", SOON, async || {
        let status = shops.fleet.status("shop-1").map_err(|error| error.to_string())?.ok_or("no status")?;
        let found = status.services.into_iter().find(|service| service.name.as_str() == "s8");
        match found {
            Some(service) if service.state == ServiceState::Failed => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    shops.assert_nothing_lost(&before, &[6]).await
}

#[tokio::test]
async fn a_force_push_to_an_older_commit_is_held_until_it_is_approved() -> Result<(), KitError> {
    let mut shops = Shops::open().await?;
    let old = [shops.declared.repo().head()?, shops.app.repo().head()?];
    let extra = service("extra", "app", "s1", "raw");
    shops.declared.commit(&[("services/extra.yaml", &extra)])?;
    shops.app.commit(&[("s2/a.yaml", &config_map("a", "2"))])?;
    for site in &shops.sites {
        until_count(site, SERVICES + 1).await?;
    }
    shops.until_value(2, "2").await?;
    let before = shops.lives()?;

    shops.declared.repo().reset_hard(&old[0])?;
    shops.app.repo().reset_hard(&old[1])?;
    let fleet = shops.fleet.until_source("fleet", "held").await?;
    let app = shops.fleet.until_source("app", "held").await?;
    assert_says(&fleet, &["does not descend", "farshore approve", &old[0][..12]]);
    assert_says(&app, &["does not descend", "farshore approve", &old[1][..12]]);
    shops.assert_nothing_lost(&before, &[]).await?;
    shops.until_value(2, "2").await?;

    // A change of something else is not what was held.
    let wrong = shops.fleet.farshore(&["approve", "000000000000"]).await?;
    assert_eq!(wrong.status.code(), Some(3), "{wrong:?}");
    shops.fleet.approve("app").await?;
    shops.until_value(2, "1").await?;
    shops.fleet.approve("fleet").await?;
    for site in &shops.sites {
        until_count(site, SERVICES).await?;
    }
    shops.fleet.until_source("fleet", "ready").await.map(|_source| ())
}

#[tokio::test]
async fn a_mass_removal_is_held_until_approved_and_then_honoured_by_a_site_that_was_away()
-> Result<(), KitError> {
    let mut shops = Shops::open().await?;
    let before = shops.lives()?;
    shops.sites[1].kill()?;
    let most: Vec<String> = (2..SERVICES).map(file_of).collect();
    let most: Vec<&str> = most.iter().map(String::as_str).collect();
    shops.declared.commit_without(&most)?;
    let fleet = shops.fleet.until_source("fleet", "held").await?;
    assert_says(&fleet, &["would remove 36 of 40 cluster-service pairs", "farshore approve"]);
    shops.sites[1].start().await?;
    shops.assert_nothing_lost(&before, &[]).await?;
    shops.sites[1].kill()?;

    shops.fleet.approve("fleet").await?;
    until_count(&shops.sites[0], 2).await?;
    shops.fleet.until_source("fleet", "ready").await?;
    assert_eq!(shops.sites[1].objects()?.len(), SERVICES, "it is away");
    shops.sites[1].start().await?;
    until_count(&shops.sites[1], 2).await
}

#[tokio::test]
async fn a_git_server_that_fails_or_comes_back_from_last_month_takes_nothing_away() -> Result<(), KitError> {
    let mut shops = Shops::open().await?;
    let backup = [shops.declared.back_up()?, shops.app.back_up()?];
    let extra = service("extra", "app", "s1", "raw");
    shops.declared.commit(&[("services/extra.yaml", &extra)])?;
    shops.app.commit(&[("s2/a.yaml", &config_map("a", "2"))])?;
    for site in &shops.sites {
        until_count(site, SERVICES + 1).await?;
    }
    shops.until_value(2, "2").await?;
    let before = shops.lives()?;

    shops.declared.server().set_mode(GitMode::Fail);
    shops.app.server().stop().await?;
    let fleet = shops.fleet.until_source("fleet", "failed").await?;
    assert_says(&fleet, &["500"]);
    shops.fleet.until_source("app", "failed").await?;
    shops.assert_nothing_lost(&before, &[]).await?;

    shops.declared.restore(&backup[0])?;
    shops.app.restore(&backup[1])?;
    shops.declared.server().set_mode(GitMode::Serve);
    shops.app.server().start_again().await?;
    for name in ["fleet", "app"] {
        let source = shops.fleet.until_source(name, "held").await?;
        assert_says(&source, &["does not descend", "farshore approve"]);
    }
    shops.assert_nothing_lost(&before, &[]).await
}

#[tokio::test]
async fn a_fleet_repository_that_is_emptied_missing_or_without_a_commit_takes_nothing_away()
-> Result<(), KitError> {
    let mut shops = Shops::open().await?;
    let before = shops.lives()?;
    shops.declared.commit_without(&["services", "source.yaml"])?;
    let fleet = shops.fleet.until_source("fleet", "held").await?;
    assert_says(&fleet, &["farshore approve"]);
    shops.assert_nothing_lost(&before, &[]).await?;

    // Somebody made it anew, and has not pushed yet.
    shops.declared.restore(&GitRepo::new()?)?;
    let fleet = shops.fleet.until_source("fleet", "failed").await?;
    assert_says(&fleet, &["no commit"]);
    shops.declared.repo().remove(".git")?;
    let fleet = wait_for("another reason", SOON, async || {
        let source = shops.fleet.source("fleet").await.map_err(|error| error.to_string())?;
        if source["messages"].to_string().contains("no commit") {
            Err(source.to_string())
        } else {
            Ok(source)
        }
    })
    .await?;
    assert_eq!(fleet["state"], "failed", "{fleet:#}");
    println!("a missing repository: {}", fleet["messages"]);
    shops.assert_nothing_lost(&before, &[]).await
}
