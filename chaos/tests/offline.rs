//! A site without its hub, and a hub without its Redis.

use std::path::PathBuf;
use std::time::Duration;

use farshore_chaos::kit::{KitError, Kubernetes, ProxyMode, TcpProxy, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Role, Site, Target, World};

const SOON: Duration = Duration::from_secs(60);

/// Waits until the only entry of a `ConfigMap` in the site's folder is `value`.
async fn until_file(site: &Site, namespace: &str, name: &str, value: &str) -> Result<PathBuf, KitError> {
    wait_for(&format!("{name} with {value:?} in the folder"), SOON, async || {
        let (path, text) = site.config_map(namespace, name)?;
        // Written as YAML by the agent, so only the value is looked for.
        if text.contains(&format!("value: {value}")) || text.contains(&format!("value: \"{value}\"")) {
            return Ok(path);
        }
        Err(text)
    })
    .await
}

async fn until_object(
    kubernetes: &Kubernetes,
    namespace: &str,
    name: &str,
    value: &str,
) -> Result<(), KitError> {
    wait_for(&format!("{name} with {value:?} in the API"), SOON, async || {
        let namespace = format!("--namespace={namespace}");
        let get = ["get", "configmap", name, &namespace, "--output=jsonpath={.data.value}"];
        match kubernetes.kubectl(&get) {
            Ok(found) if found == value => Ok(()),
            Ok(found) => Err(found),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
}

#[tokio::test]
async fn a_folder_is_repaired_without_the_hub_also_after_a_power_cut() -> Result<(), KitError> {
    let mut world = World::on_disk("till", &[("a.yaml", &config_map("a", "one"))]).await?;
    let mut site = world.site("shop-1", Target::Directory).await?;
    let file = until_file(&site, "till", "a", "one").await?;
    world.hub.kill()?;
    std::fs::write(&file, "changed by hand").expect("the file can be written");
    until_file(&site, "till", "a", "one").await?;

    site.kill()?;
    std::fs::remove_file(&file).expect("the file can be removed");
    site.start().await?;
    until_file(&site, "till", "a", "one").await?;
    std::fs::write(&file, "").expect("the file can be written");
    until_file(&site, "till", "a", "one").await?;

    world.commit(&[("a.yaml", &config_map("a", "two"))])?;
    world.hub.start().await?;
    until_file(&site, "till", "a", "two").await.map(|_file| ())
}

#[tokio::test]
async fn a_cluster_is_repaired_without_the_hub_also_after_a_power_cut() -> Result<(), KitError> {
    let kubernetes = Kubernetes::start().await?;
    let mut world = World::on_disk("till", &[("a.yaml", &config_map("a", "one"))]).await?;
    let mut site = world.site("shop-1", Target::Kubernetes(kubernetes.kubeconfig())).await?;
    until_object(&kubernetes, "till", "a", "one").await?;
    world.hub.kill()?;
    let spoil = ["patch", "configmap", "a", "--namespace=till", "--patch", r#"{"data":{"value":"theirs"}}"#];
    kubernetes.kubectl(&spoil)?;
    until_object(&kubernetes, "till", "a", "one").await?;

    site.kill()?;
    kubernetes.kubectl(&["delete", "configmap", "a", "--namespace=till"])?;
    site.start().await?;
    until_object(&kubernetes, "till", "a", "one").await?;
    kubernetes.kubectl(&spoil)?;
    until_object(&kubernetes, "till", "a", "one").await?;

    world.commit(&[("a.yaml", &config_map("a", "two"))])?;
    world.hub.start().await?;
    until_object(&kubernetes, "till", "a", "two").await
}

#[tokio::test]
async fn a_power_cut_during_the_first_apply_is_made_good_without_the_hub() -> Result<(), KitError> {
    let names: Vec<String> = (0..300).map(|n| format!("m{n}")).collect();
    let text: String = names.iter().map(|name| config_map(name, "one") + "---\n").collect();
    let mut world = World::on_disk("till", &[("all.yaml", &text)]).await?;
    let mut site = world.site("shop-1", Target::Directory).await?;
    wait_for("the first object", SOON, async || match site.objects() {
        Ok(objects) if !objects.is_empty() => Ok(()),
        Ok(_none) => Err("no object yet".to_owned()),
        Err(error) => Err(error.to_string()),
    })
    .await?;
    site.kill()?;
    world.hub.kill()?;
    let cut = site.objects()?.len();
    site.start().await?;
    wait_for("all objects", SOON, async || match site.objects() {
        Ok(objects) if objects.len() == names.len() => Ok(()),
        Ok(objects) => Err(format!("{} of {}", objects.len(), names.len())),
        Err(error) => Err(error.to_string()),
    })
    .await?;
    println!("the power was cut after {cut} of {} objects", names.len());
    Ok(())
}

#[tokio::test]
async fn without_redis_or_with_an_emptied_one_sites_keep_what_they_have_and_commits_arrive()
-> Result<(), KitError> {
    let files = [("a.yaml", &*config_map("a", "one")), ("b.yaml", &config_map("b", "kept"))];
    let mut world = World::in_bucket("till", &files).await?;
    let site = world.site("shop-1", Target::Directory).await?;
    until_file(&site, "till", "a", "one").await?;
    let untouched = until_file(&site, "till", "b", "kept").await?;
    let written =
        |path: &PathBuf| std::fs::metadata(path).and_then(|file| file.modified()).expect("it is there");
    let before = written(&untouched);

    world.fleet.redis().flush_all().await?;
    world.commit(&[("a.yaml", &config_map("a", "flushed"))])?;
    until_file(&site, "till", "a", "flushed").await?;
    world.fleet.redis().flush_all().await?;

    world.fleet.redis().stop();
    world.commit(&[("a.yaml", &config_map("a", "stopped"))])?;
    until_file(&site, "till", "a", "stopped").await?;

    world.fleet.redis().restart().await?;
    world.commit(&[("a.yaml", &config_map("a", "empty"))])?;
    until_file(&site, "till", "a", "empty").await?;

    world.fleet.redis().pause()?;
    world.commit(&[("a.yaml", &config_map("a", "hanging"))])?;
    until_file(&site, "till", "a", "hanging").await?;
    assert_eq!(written(&untouched), before, "an object that no commit changed was written");
    Ok(())
}

#[tokio::test]
async fn without_its_bucket_a_hub_answers_nobody_wrongly_and_commits_arrive_when_it_is_back()
-> Result<(), KitError> {
    let mut world = World::in_bucket("till", &[("a.yaml", &config_map("a", "one"))]).await?;
    let site = world.site("shop-1", Target::Directory).await?;
    let file = until_file(&site, "till", "a", "one").await?;
    world.fleet.s3().stop();
    world.commit(&[("a.yaml", &config_map("a", "two"))])?;
    // Both a hub that has been running and one that starts without a record keep the site as it is.
    world.hub.process().wait_for_line("the record does not answer", SOON).await?;
    std::fs::remove_file(&file).expect("the file can be removed");
    until_file(&site, "till", "a", "one").await?;
    let starting = world.fleet.hub("starting", Role::All)?.launch()?.output(SOON).await?;
    assert_eq!(starting.status.code(), Some(5), "{starting:#?}");
    world.fleet.s3().restart().await?;
    until_file(&site, "till", "a", "two").await.map(|_file| ())
}

#[tokio::test]
async fn a_link_that_swallows_everything_keeps_no_site_from_repairing() -> Result<(), KitError> {
    let mut world = World::on_disk("till", &[("a.yaml", &config_map("a", "one"))]).await?;
    let link = TcpProxy::start(world.hub.address()).await?;
    let mut site = world.fleet.site("shop-1", &link.address(), Target::Directory)?;
    site.start().await?;
    let file = until_file(&site, "till", "a", "one").await?;
    link.set_mode(ProxyMode::Blackhole).await?;
    world.commit(&[("a.yaml", &config_map("a", "two"))])?;
    for _ in 0..3 {
        std::fs::remove_file(&file).expect("the file can be removed");
        until_file(&site, "till", "a", "one").await?;
    }
    site.kill()?;
    std::fs::remove_file(&file).expect("the file can be removed");
    site.start().await?;
    until_file(&site, "till", "a", "one").await?;
    link.set_mode(ProxyMode::Forward).await?;
    until_file(&site, "till", "a", "two").await.map(|_file| ())
}

#[tokio::test]
async fn an_api_server_that_restarts_while_the_hub_is_gone_is_waited_for() -> Result<(), KitError> {
    let mut kubernetes = Kubernetes::start().await?;
    let mut world = World::on_disk("till", &[("a.yaml", &config_map("a", "one"))]).await?;
    let mut site = world.site("shop-1", Target::Kubernetes(kubernetes.kubeconfig())).await?;
    until_object(&kubernetes, "till", "a", "one").await?;
    world.hub.kill()?;
    kubernetes.stop_api();
    site.process().wait_for_line("target does not answer", SOON).await?;
    kubernetes.start_api().await?;
    kubernetes.kubectl(&["delete", "configmap", "a", "--namespace=till"])?;
    until_object(&kubernetes, "till", "a", "one").await?;
    site.process().wait_for_line("the target answers again", SOON).await.map(|_line| ())
}
