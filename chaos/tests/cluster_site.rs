//! What somebody at the site asks and sees, against a real Kubernetes API: nothing here needs the hub, and nothing is
//! found by a sweep, because there is none for an hour.

use std::borrow::Borrow;
use std::time::Duration;

use farshore_chaos::kit::{Finished, KitError, Kubernetes, Port, Process, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Place, SharedCluster};
use farshore_shared::wire::ServiceState;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_secs(60);

/// For all tests of this file but one; each has a namespace, a fleet and a site of its own.
static CLUSTER: SharedCluster = SharedCluster::new();

/// A place with one `ConfigMap` whose agent has not been started.
async fn without_agent<K: Borrow<Kubernetes>>(
    kubernetes: K,
    name: &'static str,
    options: &[&str],
) -> Result<Place<K>, KitError> {
    let place = Place::of(kubernetes, name, "", &[("a.yaml", &config_map("a", "1"))]).await?;
    let place = place.option("--sweep=1h").patience(SOON);
    Ok(options.iter().fold(place, |place, option| place.option(*option)))
}

/// A place with one `ConfigMap` that is applied.
async fn in_place(name: &'static str, options: &[&str]) -> Result<Place, KitError> {
    let place = without_agent(CLUSTER.get().await?, name, options).await?.started().await?;
    until_value(&place, Some("1")).await?;
    place.until_state(ServiceState::Applied).await?;
    Ok(place)
}

fn spoil<K: Borrow<Kubernetes>>(place: &Place<K>) -> Result<String, KitError> {
    place.patch("configmap", "a", r#"{"data":{"value":"theirs"}}"#)
}

async fn until_value<K: Borrow<Kubernetes>>(place: &Place<K>, wanted: Option<&str>) -> Result<(), KitError> {
    place.until("configmap", "a", "{.data.value}", wanted).await
}

/// Asks at the site, with a program that has nothing but the state folder.
async fn ask(place: &Place, command: &[&str]) -> Result<String, KitError> {
    let state = format!("--state={}", place.site.state().display());
    let line: Vec<&str> = ["agent"].iter().chain(command).copied().chain([state.as_str()]).collect();
    let done = Process::run("farshore", line, SOON).await?;
    assert!(done.status.success(), "{command:?}: {done:?}");
    Ok(done.stdout)
}

async fn view(place: &Place) -> Result<Value, KitError> {
    let text = ask(place, &["status", "--output=json"]).await?;
    Ok(serde_json::from_str(&text).expect("it is JSON"))
}

/// Waits until the site shows something of itself.
async fn until_shown(place: &Place, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value, KitError> {
    wait_for(&format!("the site to show {what}"), SOON, async || {
        let shown = view(place).await.map_err(|error| error.to_string())?;
        if is_so(&shown) { Ok(shown) } else { Err(shown.to_string()) }
    })
    .await
}

#[tokio::test]
async fn a_paused_site_lets_be_what_is_changed_and_puts_it_back_when_it_is_resumed_with_no_hub()
-> Result<(), KitError> {
    let mut place = in_place("pausing", &[]).await?;
    place.world.hub.kill()?;
    let said = ask(&place, &["pause", "--for=1h", "--reason=looking at the tills"]).await?;
    assert!(said.contains("the agent hears of it within seconds"), "{said}");
    let shown =
        until_shown(&place, "its service held", |shown| shown["services"][0]["health"] == "held").await?;
    assert_eq!(shown["controls"]["paused"]["reason"], "looking at the tills");
    let mark = place.kubernetes.audit_mark()?;
    spoil(&place)?;
    // Power fails, and the agent that comes back is paused as well: it has looked when it says so of this start.
    place.site.kill()?;
    assert_eq!(view(&place).await?["agent"]["running"], false);
    place.site.start().await?;
    until_shown(&place, "its agent", |shown| shown["agent"]["running"] == true).await?;
    ask(&place, &["hold", "--for=1h"]).await?;
    until_shown(&place, "the hold", |shown| shown["controls"]["hold"].is_object()).await?;
    let ours = |writes: Vec<farshore_chaos::kit::ApiRequest>| {
        writes
            .iter()
            .filter(|write| {
                write.uri.contains("/namespaces/pausing/") && write.user_agent.starts_with("farshore-agent/")
            })
            .count()
    };
    assert_eq!(ours(place.kubernetes.audit_writes_since(mark)?), 0, "a paused site writes nothing");
    assert_eq!(place.look("configmap", "a", "{.data.value}"), Ok(Some("theirs".to_owned())));
    ask(&place, &["resume"]).await?;
    until_value(&place, Some("1")).await
}

#[tokio::test]
async fn a_lock_that_a_script_made_holds_new_revisions_and_no_repair_until_it_is_gone() -> Result<(), KitError>
{
    let mut place = in_place("holding", &[]).await?;
    let controls = place.site.state().join("controls");
    std::fs::create_dir_all(&controls).expect("the folder can be made");
    std::fs::write(controls.join("hold"), "2h tills are counted\n").expect("the file can be written");
    let first = place.world.fleet.status(place.name)?.expect("it was told").services[0].commit.clone();
    place.world.commit(&[("a.yaml", &config_map("a", "2"))])?;
    let held = place.until_service("it is held", |service| service.state == ServiceState::Held).await?;
    assert!(
        held.message.contains("held at the site until") && held.message.contains("(tills are counted)"),
        "{held:?}"
    );
    assert_eq!(held.commit, first);
    let status = place.world.fleet.status(place.name)?.expect("it was told");
    let hold = status.controls.and_then(|controls| controls.hold).expect("the hub is told of the hold");
    assert_eq!(hold.until.map(|until| until - hold.since), Some(7200));
    spoil(&place)?;
    until_value(&place, Some("1")).await?;
    std::fs::remove_file(controls.join("hold")).expect("the file can be removed");
    until_value(&place, Some("2")).await
}

#[tokio::test]
async fn a_site_shows_how_it_is_with_no_hub_and_with_no_agent() -> Result<(), KitError> {
    let mut place = in_place("showing", &["--poll=1s"]).await?;
    let shown =
        until_shown(&place, "its service", |shown| shown["services"][0]["health"] == "healthy").await?;
    assert_eq!(shown["services"][0]["name"], "showing");
    assert_eq!((&shown["hub"]["fresh"], &shown["agent"]["running"]), (&true.into(), &true.into()));
    place.world.hub.kill()?;
    let shown = until_shown(&place, "a silent hub", |shown| shown["hub"]["silent"].is_object()).await?;
    assert!(shown["hub"]["last"].as_u64().is_some(), "{shown}");
    spoil(&place)?;
    until_shown(&place, "the repair", |shown| shown["services"][0]["repairs"] == 1).await?;
    place.site.kill()?;
    let shown = view(&place).await?;
    assert_eq!(shown["agent"]["running"], false);
    assert_eq!(shown["services"][0]["health"], "healthy");
    assert_eq!(shown["services"][0]["drift"][0]["fields"][0], "/data/value");
    let text = ask(&place, &["status"]).await?;
    assert!(text.contains("does not run") && text.contains("showing: healthy"), "{text}");
    assert!(text.contains("drift: ConfigMap showing/a"), "{text}");
    Ok(())
}

async fn until_event(place: &Place, reason: &str, note: &str) -> Result<(), KitError> {
    wait_for(&format!("an event {reason} with {note}"), SOON, async || {
        let list = ["get", "events.events.k8s.io", "--namespace=default", "--output=json"];
        let text = place.kubernetes.kubectl(&list).map_err(|error| error.to_string())?;
        let list: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let events = list["items"].as_array().into_iter().flatten();
        let ours: Vec<&Value> = events.filter(|event| event["regarding"]["name"] == place.name).collect();
        let is_it = |event: &&Value| {
            event["reason"] == reason && event["note"].as_str().is_some_and(|said| said.contains(note))
        };
        if ours.iter().any(is_it) { Ok(()) } else { Err(format!("{ours:?}")) }
    })
    .await
}

/// Waits until nothing was written about the service for a while in which the site polls on.
async fn until_idle(place: &Place) -> Result<(), KitError> {
    let mut mark = place.kubernetes.audit_mark()?;
    let mut since = view(place).await?["hub"]["last"].as_u64().unwrap_or_default();
    wait_for("12 s of polls without a write", SOON, async || {
        let shown = view(place).await.map_err(|error| error.to_string())?;
        let heard = shown["hub"]["last"].as_u64().unwrap_or_default();
        let writes = place.kubernetes.audit_writes_since(mark).map_err(|error| error.to_string())?;
        let about = format!("farshoreservices/{}", place.name);
        let ours = writes.iter().filter(|write| write.uri.contains(&about)).count();
        if ours > 0 {
            mark = place.kubernetes.audit_mark().map_err(|error| error.to_string())?;
            since = heard;
            return Err(format!("{ours} writes"));
        }
        if heard >= since + 12 { Ok(()) } else { Err(format!("{} s", heard - since)) }
    })
    .await
}

/// The definition, and the agent with its rights, that the project ships.
const DEFINITION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes/farshoreservices.yaml");
const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes/agent.yaml");

#[tokio::test]
async fn a_cluster_shows_its_services_and_is_told_what_happens_to_them_and_idle_stays_idle()
-> Result<(), KitError> {
    let kubernetes = CLUSTER.get().await?;
    kubernetes.kubectl(&["apply", "--filename", DEFINITION])?;
    kubernetes.kubectl(&["wait", "--for=condition=Established", "crd/farshoreservices.farshore.dev"])?;
    let mut place = in_place("announcing", &[]).await?;
    wait_for("the service to be shown", SOON, async || {
        let shown = place.kubectl(&["get", "farshoreservices", place.name, "--no-headers"]);
        let shown = shown.map_err(|error| error.to_string())?;
        if shown.contains("healthy") && shown.contains("heard") { Ok(()) } else { Err(shown) }
    })
    .await?;
    until_event(&place, "RevisionApplied", "is applied and healthy (1 objects)").await?;
    spoil(&place)?;
    until_event(&place, "DriftRepaired", "kubectl-patch changed ConfigMap announcing/a (/data/value)")
        .await?;
    ask(&place, &["pause", "--for=1h", "--reason=audit"]).await?;
    until_event(&place, "Paused", "(audit)").await?;
    let described = place.kubectl(&["describe", "farshoreservice", place.name])?;
    assert!(described.contains("RevisionApplied") || described.contains("DriftRepaired"), "{described}");
    ask(&place, &["resume"]).await?;
    until_event(&place, "Resumed", "the site goes on").await?;
    until_idle(&place).await?;
    place.world.hub.kill()?;
    wait_for("the silent hub to be shown", Duration::from_secs(120), async || {
        let shown = place.kubectl(&["get", "farshoreservices", place.name, "--output=jsonpath={.status}"]);
        let shown = shown.map_err(|error| error.to_string())?;
        if shown.contains(r#""hub":"silent""#) && shown.contains("lastContact") { Ok(()) } else { Err(shown) }
    })
    .await
}

#[tokio::test]
async fn a_cluster_that_may_not_be_told_is_repaired_all_the_same() -> Result<(), KitError> {
    // Without the definition, which another test adds to the cluster of all.
    let place = without_agent(Kubernetes::start().await?, "untold", &[]).await?;
    let mut place = place.option("--sweep=1s").started().await?;
    let line = place.site.process().wait_for_line("services are not shown in this cluster", SOON).await?;
    assert!(line.contains("deploy/kubernetes/farshoreservices.yaml"), "{line}");
    spoil(&place)?;
    until_value(&place, Some("1")).await?;
    let said = place.site.process().stderr();
    assert_eq!(said.matches("services are not shown in this cluster").count(), 1, "it is said once");
    Ok(())
}

#[tokio::test]
async fn an_agent_proves_that_it_can_take_over_beside_the_one_that_works_and_says_what_is_missing()
-> Result<(), KitError> {
    let mut place = in_place("proving", &[]).await?;
    let before = std::fs::read(place.site.state().join("version")).expect("the folder has a version");
    let prove = async |place: &Place, options: &[&str]| -> Result<Finished, KitError> {
        place.site.launch_with(&[&["preflight"], options].concat())?.output(SOON).await
    };
    let proven = prove(&place, &[]).await?;
    assert_eq!(proven.status.code(), Some(0), "{proven:?}");
    for said in
        ["ok      state folder", "ok      target", "ok      hub: its documents are believed (1 services)"]
    {
        assert!(proven.stdout.contains(said), "{said}: {}", proven.stdout);
    }
    assert_eq!(view(&place).await?["agent"]["running"], true, "the one that works was not disturbed");

    // With the options that it is given: it reads the list of accounts, and looks at the lease.
    let accounts = place.site.state().with_file_name("accounts.yaml");
    std::fs::write(&accounts, "accounts: [{service: '*', acount: shop/a}]").expect("the file can be written");
    let mistyped = prove(&place, &[&format!("--accounts={}", accounts.display())]).await?;
    assert_eq!(mistyped.status.code(), Some(3), "{mistyped:?}");
    assert!(mistyped.stdout.contains("failed  target: the list of accounts"), "{}", mistyped.stdout);
    assert!(mistyped.stdout.contains("acount"), "{}", mistyped.stdout);
    let electing = prove(&place, &["--leader-elect=proving/agent"]).await?;
    assert_eq!(electing.status.code(), Some(0), "{electing:?}");
    assert!(electing.stdout.contains("lease proving/agent is not there yet"), "{}", electing.stdout);

    place.world.hub.kill()?;
    for options in [&[] as &[&str], &["--unless-alone"]] {
        let unheard = prove(&place, options).await?;
        assert_eq!(unheard.status.code(), Some(5), "the one that works goes on: {unheard:?}");
        assert!(unheard.stdout.contains("failed  hub: "), "{}", unheard.stdout);
        assert!(unheard.stdout.contains("ok      target"), "{}", unheard.stdout);
    }

    std::fs::write(place.site.state().join("version"), "9\n").expect("the file can be written");
    let older = prove(&place, &[]).await?;
    assert_eq!(older.status.code(), Some(3), "{older:?}");
    assert!(
        older.stdout.contains("failed  state folder: state folder is of a newer version"),
        "{}",
        older.stdout
    );

    // Gone back by one version: what the next one wrote is read, and what is in place is kept.
    place.site.kill()?;
    std::fs::write(place.site.state().join("version"), "2\n").expect("the file can be written");
    let booting = prove(&place, &["--unless-alone"]).await?;
    assert_eq!(booting.status.code(), Some(0), "a site that boots without its hub: {booting:?}");
    assert!(booting.stdout.contains("warned  hub: "), "{}", booting.stdout);
    place.site.start().await?;
    spoil(&place)?;
    until_value(&place, Some("1")).await?;
    assert_eq!(std::fs::read(place.site.state().join("version")).expect("it is there"), before);
    Ok(())
}

#[tokio::test]
async fn an_agent_on_another_node_than_its_state_folder_does_not_take_over() -> Result<(), KitError> {
    let place =
        without_agent(CLUSTER.get().await?, "elsewhere", &["--leader-elect=default/elsewhere"]).await?;
    let prove = async || place.site.launch_with(&["preflight", "--unless-alone"])?.output(SOON).await;
    let new = prove().await?;
    assert_eq!(new.status.code(), Some(0), "{new:?}");
    let lease = r#"{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "elsewhere", "namespace": "default"}, "spec": {"holderIdentity": "node-1"}}"#;
    place.kubernetes.kubectl_with_input(&["apply", "--filename=-"], lease)?;
    let elsewhere = prove().await?;
    assert_eq!(elsewhere.status.code(), Some(3), "{elsewhere:?}");
    let said = "failed  target: lease default/elsewhere is there, so an agent of this site has worked";
    assert!(elsewhere.stdout.contains(said), "{}", elsewhere.stdout);
    Ok(())
}

#[tokio::test]
async fn a_page_on_the_site_s_own_machine_shows_how_it_is_with_no_hub() -> Result<(), KitError> {
    let port = Port::take()?;
    let option = format!("--status-address={}", port.address());
    let mut place = in_place("paging", &[&option]).await?;
    let get = async |path: &str| -> Result<String, String> {
        let mut stream = TcpStream::connect(port.address()).await.map_err(|error| error.to_string())?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.map_err(|error| error.to_string())?;
        Ok(text)
    };
    place.world.hub.kill()?;
    spoil(&place)?;
    wait_for("the repair on the page", SOON, async || {
        let shown = get("/metrics").await?;
        if shown.contains("farshore_agent_repairs_total 1\n") { Ok(()) } else { Err(shown) }
    })
    .await?;
    for (path, said) in [
        ("/", "paging: healthy"),
        ("/status.json", "\"manager\": \"kubectl-patch\""),
        ("/healthz", "ok"),
        ("/readyz", "ok"),
        ("/metrics", "farshore_agent_target_reached 1"),
    ] {
        let answer = get(path).await.expect("the page answers");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(said), "{path}: {answer}");
    }
    Ok(())
}

/// The shipped agent with its account, which may also write what the services of a test have.
fn ship(kubernetes: &Kubernetes) -> Result<(), KitError> {
    kubernetes.kubectl(&["apply", "--filename", AGENT])?;
    let deployment = ["get", "deployment", "farshore-agent", "--namespace=farshore", "--output=json"];
    let deployment: Value = serde_json::from_str(&kubernetes.kubectl(&deployment)?).expect("JSON");
    let node = &deployment["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/hostname"];
    assert!(node.is_string(), "its folder is on a node: {deployment}");
    let verbs = "--verb=get,list,watch,create,patch,delete";
    kubernetes.kubectl(&[
        "create",
        "clusterrole",
        "config-maps",
        verbs,
        "--resource=configmaps,namespaces",
    ])?;
    let account = "--serviceaccount=farshore:agent";
    kubernetes.kubectl(&[
        "create",
        "clusterrolebinding",
        "config-maps",
        "--clusterrole=config-maps",
        account,
    ])?;
    Ok(())
}

#[tokio::test]
async fn with_no_more_rights_than_the_shipped_role_and_its_services_need_an_agent_works_and_tells()
-> Result<(), KitError> {
    let kubernetes = CLUSTER.get().await?;
    kubernetes.kubectl(&["apply", "--filename", DEFINITION])?;
    kubernetes.kubectl(&["wait", "--for=condition=Established", "crd/farshoreservices.farshore.dev"])?;
    ship(&kubernetes)?;
    let kubeconfig = kubernetes.kubeconfig_of("farshore", "agent")?;
    let options = [&*format!("--kubeconfig={}", kubeconfig.display()), "--leader-elect=farshore/limited"];
    let place = without_agent(kubernetes, "limited", &options).await?;
    let mut place = place.started().await?;
    let shown = async |arguments: &[&str], wanted: &str| {
        wait_for(&format!("{arguments:?} to have {wanted:?}"), SOON, async || {
            let found = place.kubernetes.kubectl(arguments).map_err(|error| error.to_string())?;
            if found.contains(wanted) { Ok(()) } else { Err(found) }
        })
        .await
    };
    until_value(&place, Some("1")).await?;
    shown(&["get", "farshoreservice", "limited", "--ignore-not-found"], "healthy").await?;
    let events = ["get", "events", "--namespace=default", "--field-selector=involvedObject.name=limited"];
    shown(&events, "RevisionApplied").await?;
    shown(
        &["get", "lease", "limited", "--namespace=farshore", "--output=jsonpath={.spec.holderIdentity}"],
        "_",
    )
    .await?;
    spoil(&place)?;
    until_value(&place, Some("1")).await?;
    let said = place.site.process().stderr();
    assert!(!said.contains("not allowed"), "{said}");
    Ok(())
}
