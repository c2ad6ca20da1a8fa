//! What a person gives wrongly ends in an error that says so, with the exit code that scripts rely on.

use std::path::Path;
use std::time::Duration;

use farshore_chaos::kit::{Finished, GitMode, KitError, Kubernetes, wait_for};
use farshore_chaos::world::declare::{config_map, service, source};
use farshore_chaos::world::{Fleet, Hub, Repository, Role, Site, Target, World};
use farshore_shared::keys::SigningKey;
use farshore_shared::wire::{ServiceState, ServiceStatus};

const SOON: Duration = Duration::from_secs(60);
/// What the programs end with (`farshore_shared::exit`).
const USAGE: i32 = 2;
const BAD_INPUT: i32 = 3;
const HELD: i32 = 4;
const UNREACHABLE: i32 = 5;

/// Demands this exit code, and these words on standard error.
fn assert_ended(finished: &Finished, code: i32, fragments: &[&str]) {
    assert_eq!(finished.status.code(), Some(code), "{finished:#?}");
    for fragment in fragments {
        assert!(finished.stderr.contains(fragment), "no {fragment:?} in:\n{}", finished.stderr);
    }
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
}

async fn assert_site_ends(site: &Site, code: i32, fragments: &[&str]) -> Result<(), KitError> {
    assert_ended(&site.launch()?.output(SOON).await?, code, fragments);
    Ok(())
}

async fn assert_hub_ends(hub: &Hub, code: i32, fragments: &[&str]) -> Result<(), KitError> {
    assert_ended(&hub.launch()?.output(SOON).await?, code, fragments);
    Ok(())
}

fn world_files() -> Vec<(&'static str, String)> {
    vec![("a.yaml", config_map("a", "1"))]
}

async fn world() -> Result<World, KitError> {
    let files = world_files();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    World::on_disk("till", &files).await
}

async fn until_there(site: &Site) -> Result<(), KitError> {
    wait_for("the object", SOON, async || site.config_map("till", "a").map(|_there| ())).await
}

#[tokio::test]
async fn a_join_token_that_is_no_good_ends_the_agent_and_says_why() -> Result<(), KitError> {
    let (world, other) = (world().await?, world().await?);
    let hub = world.hub.address();
    let new_site = |name: &str, join: &str| -> Result<Site, KitError> {
        Ok(world.fleet.site(name, &hub, Target::Directory)?.option(format!("--join={join}")))
    };
    let far = u64::from(u32::MAX);
    let once = world.fleet.token(1, far)?;
    let mut first = new_site("first", &once)?;
    first.start().await?;
    until_there(&first).await?;
    assert_site_ends(&new_site("second", &once)?, BAD_INPUT, &["used up", "ask for a new one"]).await?;

    let expired = world.fleet.token(1, 1)?;
    assert_site_ends(&new_site("late", &expired)?, BAD_INPUT, &["expired", "ask for a new one"]).await?;
    let cut = &once[..once.len() - 10];
    assert_site_ends(&new_site("cut", cut)?, BAD_INPUT, &["may have been cut"]).await?;
    assert_site_ends(&new_site("odd", "nonsense")?, BAD_INPUT, &["join token"]).await?;
    let foreign = other.fleet.token(1, far)?;
    assert_site_ends(&new_site("astray", &foreign)?, BAD_INPUT, &["root"]).await?;
    let forged = forged(&world.fleet.token(1, far)?, &world.fleet.token(1, far)?);
    assert_site_ends(&new_site("forger", &forged)?, BAD_INPUT, &["not of this hub, or was changed"]).await?;
    let taken = world.fleet.token(1, far)?;
    assert_site_ends(&new_site("first", &taken)?, BAD_INPUT, &["named first", "another name"]).await?;

    let tokenless = world.fleet.site("tokenless", &hub, Target::Directory)?.without("--join");
    assert_site_ends(&tokenless, USAGE, &["start it with a join token (--join TOKEN)"]).await?;
    // None of it was worth a word to a site that has joined.
    first.kill()?;
    let mut again = first.option(format!("--join={cut}"));
    again.start().await?;
    std::fs::remove_file(again.config_map("till", "a").expect("it is in place").0).expect("a file of ours");
    until_there(&again).await
}

/// The claims of one token with the secret of another.
fn forged(claims: &str, secret: &str) -> String {
    let part = |token: &str, n: usize| token.split('.').nth(n).expect("a token has four parts").to_owned();
    format!("fs1.{}.{}.{}", part(claims, 1), part(secret, 2), part(claims, 3))
}

#[tokio::test]
async fn a_state_folder_that_cannot_be_used_ends_the_agent_and_is_not_touched() -> Result<(), KitError> {
    let world = world().await?;
    let mut site = world.site("shop-1", Target::Directory).await?;
    until_there(&site).await?;
    let holder = site.process().id().to_string();
    assert_site_ends(&site, BAD_INPUT, &["in use by another agent", &holder]).await?;
    assert_eq!(site.process().ended()?, None, "the first one goes on");
    site.kill()?;

    let version = site.state().join("version");
    let before = std::fs::read_to_string(&version).expect("it names its version");
    std::fs::write(&version, "999\n").expect("it can be written");
    assert_site_ends(&site, BAD_INPUT, &["newer version", "999", "run the newer agent"]).await?;
    std::fs::write(&version, before).expect("it can be written");

    // Root may write into every folder, but not where there is none.
    for place in [version.join("below-a-file"), "/proc/farshore".into()] {
        let elsewhere = world.fleet.site("shop-2", &world.hub.address(), Target::Directory)?;
        let elsewhere = elsewhere.option(format!("--state={}", place.display()));
        assert_site_ends(&elsewhere, BAD_INPUT, &["not writable", &place.display().to_string()]).await?;
    }
    let mut renamed = site.option("--name=shop-9");
    assert_site_ends(&renamed, BAD_INPUT, &["another cluster", "shop-1", "shop-9"]).await?;
    renamed = renamed.option("--name=shop-1");
    renamed.start().await?;
    until_there(&renamed).await
}

#[tokio::test]
async fn a_data_folder_or_a_port_that_cannot_be_used_ends_the_hub() -> Result<(), KitError> {
    let mut world = world().await?;
    let data = world.fleet.data("hub");
    assert_hub_ends(&world.hub, BAD_INPUT, &["another hub uses it", &data.display().to_string()]).await?;
    assert_eq!(world.hub.process().ended()?, None, "the first one goes on");
    let neighbour = world.fleet.hub("neighbour", Role::All)?;
    let neighbour = neighbour.option(format!("--listen={}", world.hub.address()));
    assert_hub_ends(&neighbour, BAD_INPUT, &["is another hub running there", &world.hub.address()]).await?;
    world.hub.kill()?;

    let version = data.join("version");
    std::fs::write(&version, "999\n").expect("it can be written");
    assert_hub_ends(&world.hub, BAD_INPUT, &["of version 999", "a newer one"]).await?;
    std::fs::write(&version, "1\n").expect("it can be written");
    for place in [version.join("below-a-file"), "/proc/farshore".into()] {
        let hub = world.fleet.hub("elsewhere", Role::All)?.option(format!("--data={}", place.display()));
        assert_hub_ends(&hub, BAD_INPUT, &[&place.display().to_string()]).await?;
    }
    let odd = world.fleet.hub("odd", Role::All)?.option("--fleet=ftp://nowhere/fleet.git");
    assert_hub_ends(&odd, USAGE, &["--fleet"]).await
}

fn director(keys: &Path) -> String {
    let text = std::fs::read_to_string(keys.join("director.key")).expect("the key's file");
    SigningKey::from_file(&text).expect("a key").public().id().to_string()
}

#[tokio::test]
async fn a_publisher_with_the_keys_of_another_fleet_names_both_and_stops() -> Result<(), KitError> {
    let (mut world, other) = (world().await?, world().await?);
    world.hub.kill()?;
    let (ours, theirs) = (director(&world.fleet.keys()), director(&other.fleet.keys()));
    assert_ne!(ours, theirs);
    for role in [Role::All, Role::Publish] {
        let hub = world.fleet.hub("hub", role)?.option(format!("--keys={}", other.fleet.keys().display()));
        assert_hub_ends(&hub, BAD_INPUT, &[&ours, &theirs, "use the keys that this record was made with"])
            .await?;
    }
    let missing = world.fleet.hub("hub", Role::Publish)?.option("--keys=/nowhere");
    assert_hub_ends(&missing, BAD_INPUT, &["/nowhere", "farshore trust init"]).await
}

#[tokio::test]
async fn one_step_of_publishing_tells_by_its_exit_code_what_it_met() -> Result<(), KitError> {
    let mut declared = Repository::of(&[("README.md", "soon")]).await?;
    let fleet = Fleet::on_disk(&declared.url())?;
    let once = || Ok::<_, KitError>(fleet.hub("hub", Role::All)?.option("--once"));
    assert_hub_ends(&once()?, 0, &[]).await?;
    declared.server().set_mode(GitMode::Fail);
    assert_hub_ends(&once()?, UNREACHABLE, &["fleet"]).await?;
    declared.server().set_mode(GitMode::Serve);
    declared.commit(&[("app.yaml", &source("app", &declared.url()))])?;
    assert_hub_ends(&once()?, 0, &[]).await?;
    let other = Repository::of(&[("README.md", "from somewhere else")]).await?.back_up()?;
    declared.restore(&other)?;
    assert_hub_ends(&once()?, HELD, &[]).await
}

/// The one service of a site, once it is as demanded.
async fn until_service(
    world: &World,
    site: &str,
    is_so: impl Fn(&ServiceStatus) -> bool,
) -> Result<ServiceStatus, KitError> {
    wait_for("the status of the service", SOON, async || {
        let status = world.fleet.status(site).map_err(|error| error.to_string())?.ok_or("no status")?;
        let service = status.services.into_iter().next().ok_or("no service")?;
        if is_so(&service) { Ok(service) } else { Err(format!("{service:#?}")) }
    })
    .await
}

#[tokio::test]
async fn bad_manifests_are_told_one_by_one_and_the_others_are_applied() -> Result<(), KitError> {
    let kubernetes = Kubernetes::start().await?;
    let unknown = "apiVersion: nobody.example/v1\nkind: Unheard\nmetadata: { name: of }\n";
    let twice = config_map("twice", "1");
    let files = [
        ("a.yaml", &*config_map("a", "1")),
        ("kindless.yaml", "apiVersion: v1\nmetadata: { name: kindless }\n"),
        ("unknown.yaml", unknown),
        ("one.yaml", &twice),
        ("two.yaml", &twice),
        ("broken.yaml", "a: [b"),
    ];
    let mut world = World::on_disk("till", &files).await?;
    let _site = world.site("shop-1", Target::Kubernetes(kubernetes.kubeconfig())).await?;
    let service = until_service(&world, "shop-1", |service| service.state == ServiceState::Failed).await?;
    assert_eq!(service.objects, 1, "{service:#?}");
    assert_eq!(
        kubernetes.kubectl(&[
            "get",
            "configmap",
            "a",
            "--namespace=till",
            "--output=jsonpath={.data.value}"
        ])?,
        "1"
    );
    assert!(service.message.starts_with("4 of 5 objects failed; "), "{service:#?}");
    for (object, message) in [
        ("broken.yaml", "unclosed bracket"),
        ("kindless.yaml", "kind is missing"),
        ("Unheard", "not known here"),
        ("ConfigMap till/twice", "manifests/one.yaml (document 1) and manifests/two.yaml (document 1)"),
    ] {
        let is_told =
            service.failures.iter().any(|f| f.object.contains(object) && f.message.contains(message));
        assert!(is_told, "no {object}: {message} in {service:#?}");
    }

    world.app.repo().remove("manifests/two.yaml")?;
    world.app.repo().remove("manifests/broken.yaml")?;
    world.app.repo().remove("manifests/unknown.yaml")?;
    world.app.commit_without(&["manifests/kindless.yaml"])?;
    let service = until_service(&world, "shop-1", |service| service.state == ServiceState::Applied).await?;
    assert_eq!(service.objects, 2, "{service:#?}");
    Ok(())
}

#[tokio::test]
async fn every_mistake_of_a_fleet_repository_is_shown_at_once_and_the_rest_is_published()
-> Result<(), KitError> {
    let mut world = world().await?;
    let cycle =
        |name: &str, on: &str| service(name, "app", "manifests", "raw") + &format!("  dependsOn: [{on}]\n");
    let text = service("picky", "app", "manifests", "raw")
        .replace("clusters: {}", "clusters: { matchLabels: { tier: none } }");
    world.declared.commit(&[
        ("unknown.yaml", &service("odd", "app", "manifests", "raw").replace("renderer:", "rendrer:")),
        ("double.yaml", &service("till", "app", "manifests", "raw")),
        ("cycle.yaml", &format!("{}---\n{}", cycle("egg", "hen"), cycle("hen", "egg"))),
        ("broken.yaml", "kind: [Service"),
        ("picky.yaml", &text),
    ])?;
    let site = world.site("shop-1", Target::Directory).await?;
    until_there(&site).await?;
    let fragments =
        ["unknown.yaml", "rendrer", "double.yaml", "cycle.yaml", "broken.yaml", "picky", "matches no"];
    wait_for("every mistake to be shown", SOON, async || {
        let fleet = world.fleet.until_source("fleet", "degraded").await.map_err(|error| error.to_string())?;
        let messages = fleet["messages"].to_string();
        match fragments.iter().find(|fragment| !messages.contains(**fragment)) {
            Some(missing) => Err(format!("no {missing:?} in {fleet:#}")),
            None => Ok(()),
        }
    })
    .await?;
    Ok(())
}
