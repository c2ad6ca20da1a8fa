//! `idle-cost`: what an agent costs the API of its cluster while nothing happens.
//!
//! Unit: bytes of TLS records an hour between agent and API, both ways, with 1,000 `ConfigMap`s in place and the agent's
//! defaults. Printed beside it: requests an hour, by verb, from the API server's audit log, and CPU seconds an hour of the
//! agent. What is counted begins after the look at everything that follows the beginning of the watches, and goes on for
//! more than one sweep; all figures are scaled to an hour. Yardstick: one `kubectl get configmaps --watch` of the same
//! objects, over the same time, after its list.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use farshore_chaos::kit::{Kubernetes, TcpProxy};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::cluster::{Cluster, address, kubeconfig_by, watching};
use crate::cpu;
use crate::error::BenchError;
use crate::report::{Ratio, float};

/// Bytes an hour between an idle agent and the API of its cluster, beside one `kubectl get --watch`
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Objects of the service
    #[arg(long, default_value_t = 1000)]
    objects: usize,
    /// Seconds that are counted; the agent looks at everything about every ten minutes
    #[arg(long, default_value_t = 1300)]
    seconds: u64,
    /// Seconds from applied to the first that counts
    #[arg(long, default_value_t = 30)]
    settle: u64,
}

/// Measures.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn run(options: &Options) -> Result<Ratio, BenchError> {
    let kubernetes = Kubernetes::start().await?;
    let folder = TempDir::new().map_err(BenchError::io("making a folder"))?;
    let (ours, theirs) = (cable(&kubernetes).await?, cable(&kubernetes).await?);
    let kubeconfig = kubeconfig_by(&kubernetes, &ours.address(), folder.path())?;
    let mut cluster = Cluster::with(options.objects, kubernetes, kubeconfig).await?;
    let other = TempDir::new().map_err(BenchError::io("making a folder"))?;
    let kubeconfig = kubeconfig_by(&cluster.kubernetes, &theirs.address(), other.path())?;
    let mut kubectl = watching(&kubeconfig, options.objects).await?;
    sleep(Duration::from_secs(options.settle)).await;
    let (agent, mark, began) = (cluster.agent(), cluster.kubernetes.audit_mark()?, Instant::now());
    let before = (bytes(&ours), bytes(&theirs), cpu::seconds(agent)?, cpu::seconds(kubectl.id())?);
    for left in (0..options.seconds).rev().step_by(60) {
        sleep(Duration::from_secs(left.min(60))).await;
        eprintln!("idle-cost: {left} s left");
    }
    let hours = began.elapsed().as_secs_f64() / 3600.0;
    let after = (bytes(&ours), bytes(&theirs), cpu::seconds(agent)?, cpu::seconds(kubectl.id())?);
    kubectl.kill()?;
    let requests = cluster.asked(mark)?;
    let mut verbs: BTreeMap<&str, u64> = BTreeMap::new();
    for request in &requests {
        *verbs.entry(&request.verb).or_default() += 1;
    }
    println!("{} objects, counted for {:.0} s, an hour has:", options.objects, hours * 3600.0);
    for (verb, count) in &verbs {
        println!("  {:.1} requests {verb}", float(*count) / hours);
    }
    println!(
        "  {:.3} CPU seconds; kubectl {:.3}",
        (after.2 - before.2) / hours,
        (after.3 - before.3) / hours
    );
    let (ours, theirs) = (float(after.0 - before.0) / hours, float(after.1 - before.1) / hours);
    println!("  {ours:.0} bytes; kubectl {theirs:.0}");
    Ok(Ratio { name: "idle-cost", ours, theirs })
}

async fn cable(kubernetes: &Kubernetes) -> Result<TcpProxy, BenchError> {
    Ok(TcpProxy::start(address(kubernetes)).await?)
}

fn bytes(cable: &TcpProxy) -> u64 {
    cable.bytes_to_server() + cable.bytes_to_client()
}
