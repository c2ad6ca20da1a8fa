//! `agent-memory`: what an agent has resident.
//!
//! Unit: MiB resident (`VmRSS`) of the agent's process in steady state with 1,000 `ConfigMap`s, after the pass that follows
//! the beginning of its watches. Printed beside it: the same with more objects, the most that it ever had (`VmHWM`), which
//! is during rendering and the first apply, and what of it is its own (`RssAnon`). Yardstick: one
//! `kubectl get configmaps --watch` of the same objects, once it has listed them.

use std::time::Duration;

use farshore_chaos::kit::Kubernetes;
use tokio::time::sleep;

use crate::cluster::{Cluster, watching};
use crate::cpu;
use crate::error::BenchError;
use crate::report::{Ratio, float};

/// MiB resident of an agent in steady state, beside one `kubectl get --watch`
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Objects of the service; the first number is what counts
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    objects: Vec<usize>,
    /// Seconds from applied to measured
    #[arg(long, default_value_t = 30)]
    settle: u64,
}

struct Found {
    agent: f64,
    kubectl: f64,
}

/// Measures.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn run(options: &Options) -> Result<Ratio, BenchError> {
    let mut counts = None;
    for objects in &options.objects {
        let found = measure(*objects, Duration::from_secs(options.settle)).await?;
        counts.get_or_insert(found);
    }
    let Found { agent, kubectl } =
        counts.ok_or_else(|| BenchError::Wrong("no number of objects".to_owned()))?;
    Ok(Ratio { name: "agent-memory", ours: agent, theirs: kubectl })
}

async fn measure(objects: usize, settle: Duration) -> Result<Found, BenchError> {
    eprintln!("agent-memory: {objects} objects");
    let kubernetes = Kubernetes::start().await?;
    let kubeconfig = kubernetes.kubeconfig();
    let mut cluster = Cluster::with(objects, kubernetes, kubeconfig).await?;
    let agent = cluster.agent();
    sleep(settle).await;
    let applied = cpu::memory(agent)?;
    // As after a reboot: nothing has to be rendered or applied.
    cluster.site.start().await?;
    sleep(settle).await;
    let rebooted = cpu::memory(cluster.agent())?;
    let mut kubectl = watching(&cluster.kubernetes.kubeconfig(), objects).await?;
    let theirs = cpu::memory(kubectl.id())?;
    kubectl.kill()?;
    for (what, memory) in
        [("applied", &applied), ("after a restart", &rebooted), ("kubectl get --watch", &theirs)]
    {
        println!(
            "{objects} objects, {what}: {:.2} MiB resident, {:.2} of them its own; the most was {:.2}",
            mebibytes(memory.resident),
            mebibytes(memory.own),
            mebibytes(memory.peak)
        );
    }
    Ok(Found { agent: mebibytes(applied.resident), kubectl: mebibytes(theirs.resident) })
}

fn mebibytes(bytes: u64) -> f64 {
    float(bytes) / float(1 << 20)
}
