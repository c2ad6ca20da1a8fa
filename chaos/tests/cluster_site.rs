//! What somebody at the site asks and sees, against a real Kubernetes API: nothing here needs the hub, and nothing is
//! found by a sweep, because there is none for an hour.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use farshore_chaos::kit::{Finished, KitError, Kubernetes, Port, Process, wait_for};
use farshore_chaos::world::declare::config_map;
use farshore_chaos::world::{Site, Target, World};
use farshore_shared::wire::{ServiceState, ServiceStatus};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

const SOON: Duration = Duration::from_secs(60);

/// One API server for all tests of this file; each has a namespace, a fleet and a site of its own.
static SERVER: Mutex<Weak<Kubernetes>> = Mutex::const_new(Weak::new());

async fn server() -> Result<Arc<Kubernetes>, KitError> {
    let mut shared = SERVER.lock().await;
    if let Some(running) = shared.upgrade() {
        return Ok(running);
    }
    let started = Arc::new(Kubernetes::start().await?);
    *shared = Arc::downgrade(&started);
    Ok(started)
}

/// A service in place in a namespace of its own; both, and the site, have the same name.
struct Place {
    name: &'static str,
    // Ended before the hub is.
    site: Site,
    world: World,
    kubernetes: Arc<Kubernetes>,
}

impl Place {
    /// A place whose agent has not been started.
    async fn without_agent(name: &'static str, options: &[&str]) -> Result<Self, KitError> {
        let kubernetes = server().await?;
        let world = World::on_disk(name, &[("a.yaml", &config_map("a", "1"))]).await?;
        let target = Target::Kubernetes(kubernetes.kubeconfig());
        let mut site = world.fleet.site(name, &world.hub.address(), target)?.option("--sweep=1h");
        for option in options {
            site = site.option(*option);
        }
        Ok(Self { name, site, world, kubernetes })
    }

    async fn with(name: &'static str, options: &[&str]) -> Result<Self, KitError> {
        let mut place = Self::without_agent(name, options).await?;
        place.site.start().await?;
        place.until_value(Some("1")).await?;
        place.until_told("it applied", |service| service.state == ServiceState::Applied).await?;
        Ok(place)
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String, KitError> {
        self.kubernetes.kubectl(&[&["--namespace", self.name], arguments].concat())
    }

    fn spoil(&self) -> Result<String, KitError> {
        self.kubectl(&[
            "patch",
            "configmap",
            "a",
            "--type=merge",
            "--patch",
            r#"{"data":{"value":"theirs"}}"#,
        ])
    }

    fn value(&self) -> Result<Option<String>, String> {
        let get = ["get", "configmap", "a", "--ignore-not-found", "--output=jsonpath={.data.value}"];
        let found = self.kubectl(&get).map_err(|error| error.to_string())?;
        Ok((!found.is_empty()).then_some(found))
    }

    async fn until_value(&self, wanted: Option<&str>) -> Result<(), KitError> {
        wait_for(&format!("the value to be {wanted:?}"), SOON, async || match self.value()? {
            found if found.as_deref() == wanted => Ok(()),
            found => Err(format!("it is {found:?}")),
        })
        .await
    }

    /// What the hub has been told of the service.
    async fn until_told(
        &self,
        what: &str,
        is_so: impl Fn(&ServiceStatus) -> bool,
    ) -> Result<ServiceStatus, KitError> {
        wait_for(&format!("the hub to be told: {what}"), SOON, async || {
            let status = self.world.fleet.status(self.name).map_err(|error| error.to_string())?;
            let status = status.ok_or("no status has come")?;
            let service = status.services.into_iter().find(|service| service.name.as_str() == self.name);
            service.filter(|service| is_so(service)).ok_or_else(|| "it was told something else".to_owned())
        })
        .await
    }

    /// Asks at the site, with a program that has nothing but the state folder.
    async fn ask(&self, command: &[&str]) -> Result<String, KitError> {
        let state = format!("--state={}", self.site.state().display());
        let line: Vec<&str> = ["agent"].iter().chain(command).copied().chain([state.as_str()]).collect();
        let done = Process::run("farshore", line, SOON).await?;
        assert!(done.status.success(), "{command:?}: {done:?}");
        Ok(done.stdout)
    }

    async fn shown(&self) -> Result<Value, KitError> {
        let text = self.ask(&["status", "--output=json"]).await?;
        Ok(serde_json::from_str(&text).expect("it is JSON"))
    }

    /// Waits until the site shows something of itself.
    async fn until_shown(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value, KitError> {
        wait_for(&format!("the site to show {what}"), SOON, async || {
            let shown = self.shown().await.map_err(|error| error.to_string())?;
            if is_so(&shown) { Ok(shown) } else { Err(shown.to_string()) }
        })
        .await
    }
}

#[tokio::test]
async fn a_paused_site_lets_be_what_is_changed_and_puts_it_back_when_it_is_resumed_with_no_hub()
-> Result<(), KitError> {
    let mut place = Place::with("pausing", &[]).await?;
    place.world.hub.kill()?;
    let said = place.ask(&["pause", "--for=1h", "--reason=looking at the tills"]).await?;
    assert!(said.contains("the agent hears of it within seconds"), "{said}");
    let shown =
        place.until_shown("its service held", |shown| shown["services"][0]["health"] == "held").await?;
    assert_eq!(shown["controls"]["paused"]["reason"], "looking at the tills");
    let mark = place.kubernetes.audit_mark()?;
    place.spoil()?;
    // Power fails, and the agent that comes back is paused as well: it has looked when it says so of this start.
    place.site.kill()?;
    assert_eq!(place.shown().await?["agent"]["running"], false);
    place.site.start().await?;
    place.until_shown("its agent", |shown| shown["agent"]["running"] == true).await?;
    place.ask(&["hold", "--for=1h"]).await?;
    place.until_shown("the hold", |shown| shown["controls"]["hold"].is_object()).await?;
    let ours = |writes: Vec<farshore_chaos::kit::ApiRequest>| {
        writes
            .iter()
            .filter(|write| {
                write.uri.contains("/namespaces/pausing/") && write.user_agent.starts_with("farshore-agent/")
            })
            .count()
    };
    assert_eq!(ours(place.kubernetes.audit_writes_since(mark)?), 0, "a paused site writes nothing");
    assert_eq!(place.value(), Ok(Some("theirs".to_owned())));
    place.ask(&["resume"]).await?;
    place.until_value(Some("1")).await
}

#[tokio::test]
async fn a_lock_that_a_script_made_holds_new_revisions_and_no_repair_until_it_is_gone() -> Result<(), KitError>
{
    let mut place = Place::with("holding", &[]).await?;
    let controls = place.site.state().join("controls");
    std::fs::create_dir_all(&controls).expect("the folder can be made");
    std::fs::write(controls.join("hold"), "2h tills are counted\n").expect("the file can be written");
    let first = place.world.fleet.status(place.name)?.expect("it was told").services[0].commit.clone();
    place.world.commit(&[("a.yaml", &config_map("a", "2"))])?;
    let held = place.until_told("it is held", |service| service.state == ServiceState::Held).await?;
    assert!(
        held.message.contains("held at the site until") && held.message.contains("(tills are counted)"),
        "{held:?}"
    );
    assert_eq!(held.commit, first);
    let status = place.world.fleet.status(place.name)?.expect("it was told");
    let hold = status.controls.and_then(|controls| controls.hold).expect("the hub is told of the hold");
    assert_eq!(hold.until.map(|until| until - hold.since), Some(7200));
    place.spoil()?;
    place.until_value(Some("1")).await?;
    std::fs::remove_file(controls.join("hold")).expect("the file can be removed");
    place.until_value(Some("2")).await
}

#[tokio::test]
async fn a_site_shows_how_it_is_with_no_hub_and_with_no_agent() -> Result<(), KitError> {
    let mut place = Place::with("showing", &["--poll=1s"]).await?;
    let shown = place.until_shown("its service", |shown| shown["services"][0]["health"] == "healthy").await?;
    assert_eq!(shown["services"][0]["name"], "showing");
    assert_eq!((&shown["hub"]["fresh"], &shown["agent"]["running"]), (&true.into(), &true.into()));
    place.world.hub.kill()?;
    let shown = place.until_shown("a silent hub", |shown| shown["hub"]["silent"].is_object()).await?;
    assert!(shown["hub"]["last"].as_u64().is_some(), "{shown}");
    place.spoil()?;
    place.until_shown("the repair", |shown| shown["services"][0]["repairs"] == 1).await?;
    place.site.kill()?;
    let shown = place.shown().await?;
    assert_eq!(shown["agent"]["running"], false);
    assert_eq!(shown["services"][0]["health"], "healthy");
    assert_eq!(shown["services"][0]["drift"][0]["fields"][0], "/data/value");
    let text = place.ask(&["status"]).await?;
    assert!(text.contains("does not run") && text.contains("showing: healthy"), "{text}");
    assert!(text.contains("drift: ConfigMap showing/a"), "{text}");
    Ok(())
}

impl Place {
    async fn until_event(&self, reason: &str, note: &str) -> Result<(), KitError> {
        wait_for(&format!("an event {reason} with {note}"), SOON, async || {
            let list = ["get", "events.events.k8s.io", "--namespace=default", "--output=json"];
            let text = self.kubernetes.kubectl(&list).map_err(|error| error.to_string())?;
            let list: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            let events = list["items"].as_array().into_iter().flatten();
            let ours: Vec<&Value> = events.filter(|event| event["regarding"]["name"] == self.name).collect();
            let is_it = |event: &&Value| {
                event["reason"] == reason && event["note"].as_str().is_some_and(|said| said.contains(note))
            };
            if ours.iter().any(is_it) { Ok(()) } else { Err(format!("{ours:?}")) }
        })
        .await
    }

    /// Waits until nothing was written about the service for a while in which the site polls on.
    async fn until_idle(&self) -> Result<(), KitError> {
        let mut mark = self.kubernetes.audit_mark()?;
        let mut since = self.shown().await?["hub"]["last"].as_u64().unwrap_or_default();
        wait_for("12 s of polls without a write", SOON, async || {
            let shown = self.shown().await.map_err(|error| error.to_string())?;
            let heard = shown["hub"]["last"].as_u64().unwrap_or_default();
            let writes = self.kubernetes.audit_writes_since(mark).map_err(|error| error.to_string())?;
            let about = format!("farshoreservices/{}", self.name);
            let ours = writes.iter().filter(|write| write.uri.contains(&about)).count();
            if ours > 0 {
                mark = self.kubernetes.audit_mark().map_err(|error| error.to_string())?;
                since = heard;
                return Err(format!("{ours} writes"));
            }
            if heard >= since + 12 { Ok(()) } else { Err(format!("{} s", heard - since)) }
        })
        .await
    }
}

/// The definition, and the agent with its rights, that the project ships.
const DEFINITION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes/farshoreservices.yaml");
const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes/agent.yaml");

#[tokio::test]
async fn a_cluster_shows_its_services_and_is_told_what_happens_to_them_and_idle_stays_idle()
-> Result<(), KitError> {
    let kubernetes = server().await?;
    kubernetes.kubectl(&["apply", "--filename", DEFINITION])?;
    kubernetes.kubectl(&["wait", "--for=condition=Established", "crd/farshoreservices.farshore.dev"])?;
    let mut place = Place::with("announcing", &[]).await?;
    wait_for("the service to be shown", SOON, async || {
        let shown = place.kubectl(&["get", "farshoreservices", place.name, "--no-headers"]);
        let shown = shown.map_err(|error| error.to_string())?;
        if shown.contains("healthy") && shown.contains("heard") { Ok(()) } else { Err(shown) }
    })
    .await?;
    place.until_event("RevisionApplied", "is applied and healthy (1 objects)").await?;
    place.spoil()?;
    place.until_event("DriftRepaired", "kubectl-patch changed ConfigMap announcing/a (/data/value)").await?;
    place.ask(&["pause", "--for=1h", "--reason=audit"]).await?;
    place.until_event("Paused", "(audit)").await?;
    let described = place.kubectl(&["describe", "farshoreservice", place.name])?;
    assert!(described.contains("RevisionApplied") || described.contains("DriftRepaired"), "{described}");
    place.ask(&["resume"]).await?;
    place.until_event("Resumed", "the site goes on").await?;
    place.until_idle().await?;
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
    let kubernetes = Kubernetes::start().await?;
    let world = World::on_disk("untold", &[("a.yaml", &config_map("a", "1"))]).await?;
    let target = Target::Kubernetes(kubernetes.kubeconfig());
    let mut site = world.fleet.site("untold", &world.hub.address(), target)?;
    site.start().await?;
    let line = site.process().wait_for_line("services are not shown in this cluster", SOON).await?;
    assert!(line.contains("deploy/kubernetes/farshoreservices.yaml"), "{line}");
    let spoil =
        ["patch", "configmap", "a", "--namespace=untold", "--patch", r#"{"data":{"value":"theirs"}}"#];
    kubernetes.kubectl(&spoil)?;
    wait_for("the repair", SOON, async || {
        let get = ["get", "configmap", "a", "--namespace=untold", "--output=jsonpath={.data.value}"];
        let found = kubernetes.kubectl(&get).map_err(|error| error.to_string())?;
        if found == "1" { Ok(()) } else { Err(found) }
    })
    .await?;
    let said = site.process().stderr();
    assert_eq!(said.matches("services are not shown in this cluster").count(), 1, "it is said once");
    Ok(())
}

#[tokio::test]
async fn of_two_agents_of_one_site_one_works_and_the_other_takes_over_when_it_ends_or_dies()
-> Result<(), KitError> {
    let place = Place::without_agent("leading", &["--leader-elect=default/leading"]).await?;
    let mut first = place.site.launch()?;
    first.wait_for_line("this agent leads", SOON).await?;
    place.until_value(Some("1")).await?;
    let mut second = place.site.launch()?;
    second.wait_for_line("another agent leads; this one stands by", SOON).await?;
    place.spoil()?;
    place.until_value(Some("1")).await?;

    first.terminate()?;
    let ended = first.wait_with_deadline(Duration::from_secs(2)).await?;
    assert!(ended.success(), "{ended:?}");
    // The lease was given back: nobody waits for it to end.
    second.wait_for_line("this agent leads", Duration::from_secs(12)).await?;
    second.wait_for_line("enforcing what is held", SOON).await?;
    place.spoil()?;
    place.until_value(Some("1")).await?;

    let mut third = place.site.launch()?;
    third.wait_for_line("another agent leads; this one stands by", SOON).await?;
    second.kill()?;
    third.wait_for_line("this agent leads", SOON).await?;
    place.spoil()?;
    place.until_value(Some("1")).await?;

    // Somebody else has the lease, and never renews it.
    let taken = r#"{"spec":{"holderIdentity":"somebody","leaseDurationSeconds":4}}"#;
    place.kubernetes.kubectl(&[
        "patch",
        "lease",
        "leading",
        "--namespace=default",
        "--type=merge",
        "--patch",
        taken,
    ])?;
    third.wait_for_line("another agent has taken the lease", SOON).await?;
    wait_for("the agent to lead again", SOON, async || {
        let leads = third.stderr().matches("this agent leads").count();
        if leads == 2 { Ok(()) } else { Err(third.stderr()) }
    })
    .await?;
    place.spoil()?;
    place.until_value(Some("1")).await
}

#[tokio::test]
async fn an_agent_that_waits_for_the_state_folder_ends_when_it_is_told_to() -> Result<(), KitError> {
    let mut place = Place::without_agent("entering", &[]).await?;
    let mut first = place.site.launch()?;
    first.wait_for_line("held", SOON).await?;
    place.site = place.site.option("--leader-elect=default/entering");
    let mut second = place.site.launch()?;
    second.wait_for_line("this agent leads", SOON).await?;
    second.terminate()?;
    let ended = second.wait_with_deadline(Duration::from_secs(5)).await?;
    assert!(ended.success(), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn an_agent_proves_that_it_can_take_over_beside_the_one_that_works_and_says_what_is_missing()
-> Result<(), KitError> {
    let mut place = Place::with("proving", &[]).await?;
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
    assert_eq!(place.shown().await?["agent"]["running"], true, "the one that works was not disturbed");

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
    place.spoil()?;
    place.until_value(Some("1")).await?;
    assert_eq!(std::fs::read(place.site.state().join("version")).expect("it is there"), before);
    Ok(())
}

#[tokio::test]
async fn an_agent_on_another_node_than_its_state_folder_does_not_take_over() -> Result<(), KitError> {
    let place = Place::without_agent("elsewhere", &["--leader-elect=default/elsewhere"]).await?;
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
    let mut place = Place::with("paging", &[&option]).await?;
    let get = async |path: &str| -> Result<String, String> {
        let mut stream = TcpStream::connect(port.address()).await.map_err(|error| error.to_string())?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.map_err(|error| error.to_string())?;
        Ok(text)
    };
    place.world.hub.kill()?;
    place.spoil()?;
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

/// A kubeconfig with the shipped account's credentials.
fn as_account(kubernetes: &Kubernetes) -> Result<(tempfile::TempDir, PathBuf), KitError> {
    let token = kubernetes.kubectl(&["create", "token", "agent", "--namespace=farshore"])?;
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let admin = std::fs::read_to_string(kubernetes.kubeconfig()).expect("the kit has written it");
    assert!(admin.contains("kit-admin"), "{admin}");
    std::fs::write(&kubeconfig, admin.replace("kit-admin", token.trim())).expect("the file can be written");
    Ok((folder, kubeconfig))
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
    let kubernetes = server().await?;
    kubernetes.kubectl(&["apply", "--filename", DEFINITION])?;
    kubernetes.kubectl(&["wait", "--for=condition=Established", "crd/farshoreservices.farshore.dev"])?;
    ship(&kubernetes)?;
    let (_folder, kubeconfig) = as_account(&kubernetes)?;
    let world = World::on_disk("limited", &[("a.yaml", &config_map("a", "1"))]).await?;
    let site = world.fleet.site("limited", &world.hub.address(), Target::Kubernetes(kubeconfig))?;
    let mut site = site.option("--sweep=1h").option("--leader-elect=farshore/limited");
    site.start().await?;
    let shown = async |arguments: &[&str], wanted: &str| {
        wait_for(&format!("{arguments:?} to have {wanted:?}"), SOON, async || {
            let found = kubernetes.kubectl(arguments).map_err(|error| error.to_string())?;
            if found.contains(wanted) { Ok(()) } else { Err(found) }
        })
        .await
    };
    let value = [
        "get",
        "configmap",
        "a",
        "--namespace=limited",
        "--ignore-not-found",
        "--output=jsonpath={.data.value}",
    ];
    shown(&value, "1").await?;
    shown(&["get", "farshoreservice", "limited", "--ignore-not-found"], "healthy").await?;
    let events = ["get", "events", "--namespace=default", "--field-selector=involvedObject.name=limited"];
    shown(&events, "RevisionApplied").await?;
    shown(
        &["get", "lease", "limited", "--namespace=farshore", "--output=jsonpath={.spec.holderIdentity}"],
        "_",
    )
    .await?;
    let spoil =
        ["patch", "configmap", "a", "--namespace=limited", "--patch", r#"{"data":{"value":"theirs"}}"#];
    kubernetes.kubectl(&spoil)?;
    shown(&value, "1").await?;
    let said = site.process().stderr();
    assert!(!said.contains("not allowed"), "{said}");
    Ok(())
}
