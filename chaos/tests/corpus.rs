//! Real repositories reach a real Kubernetes API, and reconciling them again writes nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use farshore_chaos::kit::{ApiRequest, GitHttp, GitRepo, KitError, Kubernetes, wait_for};
use farshore_chaos::world::{Fleet, Repository, Role, Site, Target, declare};
use farshore_shared::wire::{ServiceState, ServiceStatus, Status};

const SITE: &str = "corpus-1";
/// 136 objects with CRDs of a megabyte, on two cores that the API server shares.
const APPLIED_WITHIN: Duration = Duration::from_secs(180);
const SOON: Duration = Duration::from_secs(60);

/// A folder of the corpus as a service.
struct Case {
    service: &'static str,
    folder: &'static str,
    renderer: &'static str,
    /// Objects that its manifests describe.
    objects: u32,
    /// One of them: the arguments of `kubectl get`.
    sample: [&'static str; 3],
}

const CASES: [Case; 3] = [
    Case {
        service: "podinfo",
        folder: "podinfo/kustomize",
        renderer: "kustomize",
        objects: 3,
        sample: ["deployment", "podinfo", "podinfo"],
    },
    Case {
        service: "guestbook",
        folder: "argocd-example-apps/guestbook",
        renderer: "raw",
        objects: 2,
        sample: ["deployment", "guestbook-ui", "guestbook"],
    },
    Case {
        service: "kube-prometheus",
        folder: "kube-prometheus/manifests",
        renderer: "raw",
        objects: 131,
        sample: ["prometheusrules.monitoring.coreos.com", "prometheus-k8s-prometheus-rules", "monitoring"],
    },
];

/// Where the corpus is; none, with a word on standard error, on a machine that does not have it.
fn corpus() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("skipped: the corpus is not here ({})", path.display());
    None
}

async fn served(folder: &Path, to: &str) -> Result<(GitHttp, GitRepo), KitError> {
    let mut repo = GitRepo::new()?;
    repo.import(folder, to)?;
    repo.commit("as released")?;
    Ok((GitHttp::start(&repo).await?, repo))
}

/// Whether all objects of a service are written. There are no controllers here that would make them healthy.
fn is_written(service: &ServiceStatus) -> bool {
    let case = CASES.iter().find(|case| case.service == service.name.as_str());
    let is_whole = case.is_none_or(|case| case.objects == service.objects) && service.failures.is_empty();
    is_whole && (service.state == ServiceState::Applied || service.progress.is_some())
}

/// Waits until every service is written, and returns the status that says so.
async fn until_applied(fleet: &Fleet, services: usize) -> Result<Status, KitError> {
    wait_for("every service to be applied", APPLIED_WITHIN, async || {
        let status = fleet.status(SITE).map_err(|error| error.to_string())?.ok_or("no status has come")?;
        if status.services.len() == services && status.services.iter().all(is_written) {
            return Ok(status);
        }
        Err(format!("{:#?}, {:?}", status.services, status.alarms))
    })
    .await
}

/// What the agent wrote: everybody else here is kubectl or the API server.
fn by_agent(writes: Vec<ApiRequest>) -> Vec<ApiRequest> {
    writes.into_iter().filter(|write| !write.user_agent.starts_with("kubectl/")).collect()
}

/// Returns after the site has looked at everything again, at least twice: a `ConfigMap` was put back twice.
async fn two_sweeps(kubernetes: &Kubernetes) -> Result<(), KitError> {
    for _ in 0..2 {
        kubernetes.kubectl(&["delete", "configmap", "probe", "--namespace=probe"])?;
        wait_for("the probe to return", SOON, async || {
            let probe = kubernetes.kubectl(&["get", "configmap", "probe", "--namespace=probe"]);
            probe.map(|_there| ()).map_err(|error| error.to_string())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_corpus_reaches_a_cluster_and_a_second_reconcile_writes_nothing() -> Result<(), KitError> {
    let Some(corpus) = corpus() else { return Ok(()) };
    let mut kubernetes = Kubernetes::start().await?;
    let probe = Repository::of(&[("probe/probe.yaml", &declare::config_map("probe", "1"))]).await?;
    let mut text = declare::source("probe", &probe.url()) + "---\n";
    text += &declare::service("probe", "probe", "probe", "raw");
    let mut repositories = Vec::new();
    for case in &CASES {
        let served = served(&corpus.join(case.folder), case.folder).await?;
        text += &format!("---\n{}---\n", declare::source(case.service, &served.0.url()));
        text += &declare::service(case.service, case.service, case.folder, case.renderer);
        repositories.push(served);
    }
    let declared = Repository::of(&[("fleet.yaml", &text)]).await?;
    let fleet = Fleet::in_bucket(&declared.url()).await?;
    let mut hub = fleet.hub("hub", Role::All)?;
    hub.start().await?;
    let mut site = fleet.site(SITE, &hub.address(), Target::Kubernetes(kubernetes.kubeconfig()))?;
    site.start().await?;
    let began = std::time::Instant::now();
    let status = until_applied(&fleet, CASES.len() + 1).await?;
    println!("applied after {:.1} s", began.elapsed().as_secs_f64());
    all_are_there(&kubernetes, &status)?;
    nothing_is_written_again(&kubernetes).await?;
    restarts_write_nothing(&mut kubernetes, &mut site).await
}

fn all_are_there(kubernetes: &Kubernetes, status: &Status) -> Result<(), KitError> {
    for case in &CASES {
        let service = status.services.iter().find(|service| service.name.as_str() == case.service);
        let service = service.expect("every service is in the status");
        println!("{}: {} objects", case.service, service.objects);
        assert_eq!(service.objects, case.objects, "{service:?}");
        let [kind, name, namespace] = case.sample;
        kubernetes.kubectl(&["get", kind, name, &format!("--namespace={namespace}")])?;
    }
    Ok(())
}

async fn nothing_is_written_again(kubernetes: &Kubernetes) -> Result<(), KitError> {
    let mark = kubernetes.audit_mark()?;
    two_sweeps(kubernetes).await?;
    let writes = by_agent(kubernetes.audit_writes_since(mark)?);
    let others: BTreeSet<&str> = writes
        .iter()
        .filter(|write| !write.uri.contains("/configmaps/probe"))
        .map(|w| w.uri.as_str())
        .collect();
    assert!(others.is_empty(), "written again: {others:?}");
    assert_eq!(writes.len(), 2, "the probe, twice: {writes:?}");
    Ok(())
}

async fn restarts_write_nothing(kubernetes: &mut Kubernetes, site: &mut Site) -> Result<(), KitError> {
    let mark = kubernetes.audit_mark()?;
    site.kill()?;
    kubernetes.restart().await?;
    site.start().await?;
    two_sweeps(kubernetes).await?;
    let writes = by_agent(kubernetes.audit_writes_since(mark)?);
    assert_eq!(writes.len(), 2, "only the probe, twice: {writes:?}");
    Ok(())
}
