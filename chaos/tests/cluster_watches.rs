//! How watches go on in a real Kubernetes API that restarts, forgets or is out of reach: nothing here is seen by a sweep,
//! because there is none for an hour.

use std::path::{Path, PathBuf};
use std::time::Duration;

use farshore_chaos::kit::{ApiRequest, KitError, Kubernetes, ProxyMode, TcpProxy, wait_for};
use farshore_chaos::world::Place;
use farshore_chaos::world::declare::config_map;
use farshore_shared::wire::ServiceState;

const SOON: Duration = Duration::from_secs(60);

const ROLE: &str =
    "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: { name: watched }\nrules: []\n";
const ACCOUNT: &str = "apiVersion: v1\nkind: ServiceAccount\nmetadata: { name: a }\n";

/// A site in a cluster of its own that has three kinds in place, and watches them.
async fn watched(
    kubernetes: Kubernetes,
    name: &'static str,
    kubeconfig: &Path,
) -> Result<Place<Kubernetes>, KitError> {
    let files = ["a", "b", "c", "probe"].map(|name| (format!("{name}.yaml"), config_map(name, "1")));
    let mut files: Vec<(&str, &str)> =
        files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    files.extend([("role.yaml", ROLE), ("account.yaml", ACCOUNT)]);
    let place = Place::of(kubernetes, name, "", &files).await?;
    let place = place.option(format!("--kubeconfig={}", kubeconfig.display()));
    let place = place.option("--sweep=1h").patience(SOON).started().await?;
    place.until_state(ServiceState::Applied).await?;
    heard(&place).await?;
    Ok(place)
}

/// Returns when the agent has heard of everything that was written before: it has put back the `ConfigMap` `probe`,
/// and once more.
async fn heard(place: &Place<Kubernetes>) -> Result<(), KitError> {
    for _ in 0..2 {
        place.kubectl(&["delete", "configmap", "probe"])?;
        place.until("configmap", "probe", "{.data.value}", Some("1")).await?;
    }
    Ok(())
}

fn of_agent(mut reads: Vec<ApiRequest>) -> Vec<ApiRequest> {
    reads.retain(|read| read.user_agent.starts_with("farshore-agent/"));
    reads
}

#[tokio::test]
async fn an_api_server_that_restarts_is_asked_little_and_drift_meanwhile_is_found() -> Result<(), KitError> {
    let kubernetes = Kubernetes::start().await?;
    let kubeconfig = kubernetes.kubeconfig();
    let mut place = watched(kubernetes, "restarted", &kubeconfig).await?;
    let mark = place.kubernetes.audit_mark()?;
    for _ in 0..3 {
        place.kubernetes.restart().await?;
        place.patch("configmap", "a", r#"{"data":{"value":"theirs"}}"#)?;
        place.until("configmap", "a", "{.data.value}", Some("1")).await?;
    }
    heard(&place).await?;
    let ours = of_agent(place.kubernetes.audit_reads_since(mark)?);
    let of = |verb: &str| ours.iter().filter(|read| read.verb == verb).count();
    // Three kinds are watched. Each restart costs each of them a watch that is refused for its age, a list of one
    // object and a watch; and one look at everything, for all of them, in one list and two looks.
    let lists = of("list");
    assert!(lists <= 3 * (3 + 2 * 3), "{lists} lists: {ours:#?}");
    assert!(of("watch") <= 3 * 3 * 4, "{} watches: {ours:#?}", of("watch"));
    Ok(())
}

/// The kinds that are in place, as they are asked for in the whole cluster.
const KINDS: [&str; 3] = ["/v1/configmaps?", "/v1/serviceaccounts?", "/v1/clusterroles?"];

/// What the agent asked of a kind in the whole cluster.
fn of_kind<'a>(reads: &'a [ApiRequest], verb: &str, kind: &str) -> Vec<&'a ApiRequest> {
    let is_it = |read: &&ApiRequest| {
        read.user_agent.starts_with("farshore-agent/") && read.verb == verb && read.uri.contains(kind)
    };
    reads.iter().filter(is_it).filter(|read| !read.uri.contains("/namespaces/")).collect()
}

/// The kubeconfig of an API that is reached by this cable.
fn by_cable(kubernetes: &Kubernetes, cable: &TcpProxy) -> PathBuf {
    let path = kubernetes.kubeconfig().with_file_name("cable.kubeconfig");
    let direct = std::fs::read_to_string(kubernetes.kubeconfig()).expect("the kit has written it");
    let url = format!("https://{}", cable.address());
    std::fs::write(&path, direct.replace(&kubernetes.url(), &url)).expect("the file can be written");
    path
}

#[tokio::test]
async fn a_watch_whose_version_the_store_has_forgotten_begins_anew_and_lists_nothing_but_its_service()
-> Result<(), KitError> {
    // Each watch goes to the store itself, so that what it has forgotten is gone.
    let kubernetes = Kubernetes::start_without_cache().await?;
    let cable = TcpProxy::start(kubernetes.url().trim_start_matches("https://")).await?;
    let kubeconfig = by_cable(&kubernetes, &cable);
    let place = watched(kubernetes, "forgotten", &kubeconfig).await?;

    cable.set_mode(ProxyMode::Refuse).await?;
    let mark = place.kubernetes.audit_mark()?;
    place.patch("configmap", "a", r#"{"data":{"value":"theirs"}}"#)?;
    place.kubectl(&["delete", "configmap", "b"])?;
    place.kubectl(&["delete", "serviceaccount", "a"])?;
    place.kubectl(&["delete", "clusterrole", "watched"])?;
    place.kubernetes.compact().await?;
    cable.set_mode(ProxyMode::Forward).await?;

    place.until("configmap", "a", "{.data.value}", Some("1")).await?;
    place.until("configmap", "b", "{.data.value}", Some("1")).await?;
    place.until("serviceaccount", "a", "{.metadata.name}", Some("a")).await?;
    place.until("clusterrole", "watched", "{.metadata.name}", Some("watched")).await?;
    // Of each kind, the first watch goes on from a version that is gone, the second from that of a list of one object.
    wait_for("all watches to begin anew", SOON, async || {
        let reads = place.kubernetes.audit_reads_since(mark).map_err(|error| error.to_string())?;
        let counts =
            KINDS.map(|kind| [of_kind(&reads, "watch", kind).len(), of_kind(&reads, "list", kind).len()]);
        let is_so = counts.iter().all(|[watches, lists]| *watches >= 2 && *lists >= 1);
        if is_so { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await?;
    heard(&place).await?;
    let reads = of_agent(place.kubernetes.audit_reads_since(mark)?);
    for kind in KINDS {
        let (lists, watches) = (of_kind(&reads, "list", kind), of_kind(&reads, "watch", kind));
        assert!(watches.len() <= 4 && lists.len() <= 2, "{kind}: {reads:#?}");
        assert!(lists.iter().all(|list| list.uri.ends_with("&limit=1")), "{kind}: {reads:#?}");
    }
    // Then everything is looked at: once when the API is back, once when the watches have begun.
    let looks = reads.iter().filter(|read| read.verb == "list" && read.uri.contains("/namespaces/"));
    assert!(looks.count() <= 4, "{reads:#?}");
    assert!(reads.iter().filter(|read| read.verb == "get").count() <= 30, "{reads:#?}");
    Ok(())
}
