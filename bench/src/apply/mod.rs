//! `apply`: how fast manifests become objects.
//!
//! Unit: objects a second of a first apply, median of the rounds, from the start of a process to the moment at which a
//! plain watch has told of the last object. Ours: the agent, started as after a reboot, with a state folder that holds
//! an accepted revision of which nothing has been applied; starting, verifying, rendering and writing its inventory
//! are counted. Yardstick: `kubectl apply --server-side` of the same manifests, of the API server's own version. The
//! ceiling of the API server is printed beside it: the same manifests, made ready before, as raw requests over 16
//! and 32 connections. All three take turns on the same API server, whose objects are deleted in between.
//!
//! Printed as well: the requests and the time of a revision that changes nothing and of one that changes one object; and
//! the first apply of applications of ten kinds. The last line is about `ConfigMap`s.

mod objects;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use farshore_chaos::kit::{Finished, Kubernetes, Process, program, wait_for};
use farshore_chaos::world::World;
use futures::future::try_join_all;
use tempfile::TempDir;
use tokio::time::timeout;

use self::objects::{Mix, Object, text};
use crate::cluster::{Client, Cluster, NAME, Watch, address, kubeconfig_by};
use crate::error::BenchError;
use crate::report::{Ratio, float, median};

/// Objects a second of a first apply, beside kubectl and raw requests
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Objects of the service
    #[arg(long, default_value_t = 1000)]
    objects: usize,
    /// Rounds, of which the median counts
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// Nobody listens there.
const NOWHERE: &str = "127.0.0.1:1";
/// Longer, and something is wrong.
const WITHIN: Duration = Duration::from_secs(300);
/// Connections of the raw requests.
const WIDTHS: [usize; 2] = [16, 32];
/// The file of the first object, which is the one that changes, and that of the others.
const FILES: [&str; 2] = ["first.yaml", "others.yaml"];

/// Measures.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn run(options: &Options) -> Result<Ratio, BenchError> {
    let mut counts = None;
    for mix in [Mix::ConfigMaps, Mix::Applications] {
        let found = measure(mix, options).await?;
        counts.get_or_insert(found);
    }
    counts.ok_or_else(|| BenchError::Wrong("nothing was measured".to_owned()))
}

/// Seconds of the rounds.
#[derive(Default)]
struct Times {
    agent: Vec<f64>,
    kubectl: Vec<f64>,
    raw: [Vec<f64>; WIDTHS.len()],
}

async fn measure(mix: Mix, options: &Options) -> Result<Ratio, BenchError> {
    let mut bench = Bench::prepare(mix, options.objects).await?;
    let mut times = Times::default();
    for round in 1..=options.runs {
        times.kubectl.push(bench.by_kubectl().await?);
        for (width, times) in WIDTHS.into_iter().zip(&mut times.raw) {
            times.push(bench.by_raw_requests(width).await?);
        }
        times.agent.push(bench.by_the_agent().await?);
        eprintln!("apply: {}, round {round} of {}", mix.name(), options.runs);
    }
    let rate = |times: &[f64]| float(options.objects as u64) / median(times);
    let (ours, theirs) = (rate(&times.agent), rate(&times.kubectl));
    println!("{} objects, {}; objects a second:", options.objects, mix.name());
    println!("  agent {ours:.0}, kubectl {theirs:.0}: {:.2} times as many", ours / theirs);
    for (width, times) in WIDTHS.into_iter().zip(&times.raw) {
        let raw = rate(times);
        println!("  raw requests over {width} connections {raw:.0}: the agent has {:.2} of it", ours / raw);
    }
    // Deployments never become healthy where nothing runs, so that no revision of them is ever done.
    if mix == Mix::ConfigMaps {
        bench.again().await?;
    }
    Ok(Ratio { name: "apply", ours, theirs })
}

struct Bench {
    mix: Mix,
    objects: Vec<Object>,
    /// The manifests as files, for kubectl.
    manifests: TempDir,
    cluster: Cluster,
    /// The state folder of an agent that has accepted everything and applied nothing.
    accepted: TempDir,
}

impl Bench {
    async fn prepare(mix: Mix, count: usize) -> Result<Self, BenchError> {
        let objects = mix.objects(count, "as signed");
        let kubernetes = Kubernetes::start().await?;
        kubernetes.kubectl(&["create", "namespace", NAME])?;
        let [first, others] = texts(&objects);
        let world = World::on_disk(NAME, &[(FILES[0], &first), (FILES[1], &others)]).await?;
        let nowhere = TempDir::new().map_err(BenchError::io("making a folder"))?;
        let kubeconfig = kubeconfig_by(&kubernetes, NOWHERE, nowhere.path())?;
        let mut cluster = Cluster::of(world, kubernetes, kubeconfig)?;
        cluster.site.start().await?;
        until_tried(&cluster).await?;
        cluster.site.kill()?;
        let accepted = cluster.site.back_up()?;
        let kubeconfig = cluster.kubernetes.kubeconfig();
        cluster.site = cluster.site.option(format!("--kubeconfig={}", kubeconfig.display()));
        Ok(Self { mix, manifests: written(&objects)?, objects, cluster, accepted })
    }

    /// Seconds of `kubectl apply` of everything.
    async fn by_kubectl(&mut self) -> Result<f64, BenchError> {
        self.clear()?;
        let (kubectl, arguments) = self.kubectl_apply()?;
        let seen = self.seen().await?;
        let began = Instant::now();
        let (finished, last) = tokio::join!(Process::run(&kubectl, &arguments, WITHIN), seen.last());
        ended(&finished?)?;
        Ok(last?.duration_since(began).as_secs_f64())
    }

    /// Seconds of raw requests over so many connections, which are there before.
    async fn by_raw_requests(&mut self, width: usize) -> Result<f64, BenchError> {
        self.clear()?;
        let address = self.cluster.address();
        let mut clients = try_join_all((0..width).map(|_| Client::connect(&address))).await?;
        let mut shares: Vec<Vec<(String, String)>> = vec![vec![]; width];
        for (place, object) in self.objects.iter().enumerate() {
            shares[place % width].push((object.path.clone(), object.manifest.to_string()));
        }
        let seen = self.seen().await?;
        let began = Instant::now();
        let applying = try_join_all(clients.iter_mut().zip(shares).map(async |(client, share)| {
            for (path, manifest) in share {
                client.apply(&path, &manifest).await?;
            }
            Ok::<_, BenchError>(())
        }));
        let (applied, last) = tokio::join!(applying, seen.last());
        applied?;
        Ok(last?.duration_since(began).as_secs_f64())
    }

    /// Seconds of an agent that has everything still to apply.
    async fn by_the_agent(&mut self) -> Result<f64, BenchError> {
        self.cluster.site.kill()?;
        self.clear()?;
        self.cluster.site.restore(&self.accepted)?;
        let seen = self.seen().await?;
        let began = Instant::now();
        let (started, last) = tokio::join!(self.cluster.site.start(), seen.last());
        started?;
        Ok(last?.duration_since(began).as_secs_f64())
    }

    /// What a revision costs that changes nothing, and one that changes an object.
    async fn again(&mut self) -> Result<(), BenchError> {
        let changed = self.mix.objects(1, "changed");
        let [_first, others] = texts(&self.objects);
        let unchanged = format!("# nothing but this comment\n{others}");
        self.commit(FILES[1], &unchanged, "unchanged").await?;
        let (kubectl, arguments) = self.kubectl_apply()?;
        let began = Instant::now();
        ended(&Process::run(&kubectl, &arguments, WITHIN).await?)?;
        println!("  unchanged: kubectl took {:.3} s", began.elapsed().as_secs_f64());
        self.commit(FILES[0], &text(&changed), "one changed").await
    }

    /// Commits a file of the service, waits until the site has told that it has that revision, and prints what the agent
    /// asked the API for meanwhile.
    async fn commit(&mut self, file: &str, content: &str, what: &str) -> Result<(), BenchError> {
        // What follows the last apply is over when the agent asks for nothing any more.
        let mut mark = self.cluster.kubernetes.audit_mark()?;
        loop {
            tokio::time::sleep(Duration::from_secs(3)).await;
            if self.cluster.asked(mark)?.is_empty() {
                break;
            }
            mark = self.cluster.kubernetes.audit_mark()?;
        }
        let began = Instant::now();
        let revision = self.cluster.world.commit(&[(file, content)])?;
        self.cluster.until_revision(&revision, WITHIN).await?;
        let took = began.elapsed().as_secs_f64();
        let asked = self.cluster.asked(mark)?;
        println!(
            "  {what}: the agent sent {} requests, reported {took:.3} s after the commit: {}",
            asked.len(),
            asked.iter().map(|one| format!("{} {}", one.verb, one.uri)).collect::<Vec<_>>().join(", ")
        );
        Ok(())
    }

    fn kubectl_apply(&self) -> Result<(String, Vec<String>), BenchError> {
        let arguments = vec![
            "apply".to_owned(),
            "--server-side".to_owned(),
            "--force-conflicts".to_owned(),
            format!("--namespace={NAME}"),
            format!("--kubeconfig={}", self.cluster.kubernetes.kubeconfig().display()),
            format!("--filename={}", self.manifests.path().display()),
        ];
        Ok((program("kubectl")?.display().to_string(), arguments))
    }

    /// Watches that have seen nothing yet.
    async fn seen(&self) -> Result<Seen, BenchError> {
        let address = address(&self.cluster.kubernetes);
        let kinds = self.mix.kinds();
        let each = self.objects.len() / kinds.len();
        let watches = try_join_all(kinds.iter().map(|kind| Watch::begin(&address, kind))).await?;
        Ok(Seen { watches, each })
    }

    fn clear(&self) -> Result<(), BenchError> {
        for kind in self.mix.kinds() {
            self.cluster.kubernetes.kubectl(&["delete", "--raw", &kind])?;
        }
        Ok(())
    }
}

/// One watch of each kind, and how many objects each is to tell of.
struct Seen {
    watches: Vec<Watch>,
    each: usize,
}

impl Seen {
    /// When the last object was heard of.
    async fn last(self) -> Result<Instant, BenchError> {
        let each = self.each;
        let watching = try_join_all(self.watches.into_iter().map(async |mut watch| {
            let mut names = BTreeSet::new();
            loop {
                let event = watch.next().await?;
                names.insert(event.name);
                if names.len() == each {
                    return Ok::<_, BenchError>(event.at);
                }
            }
        }));
        let waited = |_elapsed| BenchError::Wrong(format!("not all objects were there within {WITHIN:?}"));
        let moments = timeout(WITHIN, watching).await.map_err(waited)??;
        Ok(moments.into_iter().max().unwrap_or_else(Instant::now))
    }
}

/// The manifests as files.
fn written(objects: &[Object]) -> Result<TempDir, BenchError> {
    let folder = TempDir::new().map_err(BenchError::io("making a folder"))?;
    for (file, text) in FILES.into_iter().zip(texts(objects)) {
        std::fs::write(folder.path().join(file), text).map_err(BenchError::io("writing manifests"))?;
    }
    Ok(folder)
}

fn texts(objects: &[Object]) -> [String; 2] {
    let (first, others) = objects.split_at(1.min(objects.len()));
    [text(first), text(others)]
}

/// Returns when the site has told that its service cannot be applied, for which it must have accepted it.
async fn until_tried(cluster: &Cluster) -> Result<(), BenchError> {
    wait_for("the agent to find no API", WITHIN, async || {
        let status = cluster.world.fleet.status(NAME).map_err(|error| error.to_string())?;
        match status.and_then(|status| status.services.into_iter().next()) {
            Some(service) if !service.message.is_empty() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    Ok(())
}

fn ended(finished: &Finished) -> Result<(), BenchError> {
    if finished.status.success() {
        return Ok(());
    }
    Err(BenchError::Failed { program: "kubectl".to_owned(), said: finished.stderr.clone() })
}
