//! `drift`: from a foreign write to the object put back.
//!
//! Unit: seconds, at p99, over single changes and changes of many objects at once. The agent has its defaults and
//! 1,000 `ConfigMap`s in a real Kubernetes API; somebody else changes an owned field of each object once, so that no
//! change looks like a fight. What happens is seen by a plain watch of its own: a repair counts from before the foreign
//! write is sent to when the watch tells that the value is back. Yardstick, from the same changes: from before the
//! write is sent to when that watch tells of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use farshore_chaos::kit::Kubernetes;
use futures::future::try_join_all;

use crate::cluster::{Client, Cluster, SIGNED, Watch, object, path};
use crate::error::BenchError;
use crate::report::Ratio;

/// Seconds at p99 from a foreign write to the object put back, beside a plain watch's own delay
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Objects of the service
    #[arg(long, default_value_t = 1000)]
    objects: usize,
    /// Single changes
    #[arg(long, default_value_t = 100)]
    runs: usize,
    /// Times that many objects are changed at once
    #[arg(long, default_value_t = 5)]
    bursts: usize,
    /// How many at once
    #[arg(long, default_value_t = 100)]
    burst: usize,
}

/// Connections over which objects are changed at once.
const CONNECTIONS: usize = 10;
/// Longer, and something is wrong.
const WITHIN: Duration = Duration::from_secs(60);

/// The times of some changes, in seconds.
#[derive(Debug, Default)]
struct Times {
    repaired: Vec<f64>,
    seen: Vec<f64>,
}

/// Measures.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn run(options: &Options) -> Result<Ratio, BenchError> {
    let needed = 1 + options.runs + options.bursts * options.burst;
    if options.objects < needed {
        return Err(BenchError::Wrong(format!(
            "each object is changed once: that takes {needed} objects, not {}",
            options.objects
        )));
    }
    let kubernetes = Kubernetes::start().await?;
    let kubeconfig = kubernetes.kubeconfig();
    let cluster = Cluster::with(options.objects, kubernetes, kubeconfig).await?;
    let mut bench = Bench::begin(&cluster).await?;
    // The watches of the agent have begun once it has put back what was changed.
    bench.change(0..1).await?;
    let (mut single, mut many) = (Times::default(), Times::default());
    for number in 1..=options.runs {
        single.add(bench.change(number..number + 1).await?);
    }
    for burst in 0..options.bursts {
        let first = 1 + options.runs + burst * options.burst;
        many.add(bench.change(first..first + options.burst).await?);
        eprintln!("drift: burst {} of {}", burst + 1, options.bursts);
    }
    println!("{} objects in place", options.objects);
    single.print("one at a time");
    many.print(&format!("{} at once", options.burst));
    single.add(many);
    Ok(Ratio {
        name: "drift",
        ours: quantile(&mut single.repaired, 0.99),
        theirs: quantile(&mut single.seen, 0.99),
    })
}

/// Whoever changes objects, and whoever watches.
struct Bench {
    clients: Vec<Client>,
    watch: Watch,
}

impl Bench {
    async fn begin(cluster: &Cluster) -> Result<Self, BenchError> {
        let address = cluster.address();
        let clients = try_join_all((0..CONNECTIONS).map(|_| Client::connect(&address))).await?;
        Ok(Self { clients, watch: Watch::begin(&address, &path("v1", "configmaps")).await? })
    }

    /// Changes these objects at once, and returns when all are put back.
    async fn change(&mut self, numbers: std::ops::Range<usize>) -> Result<Times, BenchError> {
        let Self { clients, watch } = self;
        let count = numbers.len();
        let mut shares: Vec<Vec<String>> = vec![vec![]; clients.len()];
        for (place, number) in numbers.enumerate() {
            shares[place % CONNECTIONS].push(object(number));
        }
        let changing = try_join_all(clients.iter_mut().zip(shares).map(async |(client, names)| {
            let mut sent = vec![];
            for name in names {
                let at = Instant::now();
                client.change(&name, "theirs").await?;
                sent.push((name, at));
            }
            Ok::<_, BenchError>(sent)
        }));
        let watching = tokio::time::timeout(WITHIN, back(watch, count));
        let (sent, watched) = tokio::join!(changing, watching);
        let waited = |_elapsed| BenchError::Wrong(format!("an object was not put back within {WITHIN:?}"));
        let (seen, repaired) = watched.map_err(waited)??;
        let mut times = Times::default();
        for (name, at) in sent?.into_iter().flatten() {
            let since = |found: &BTreeMap<String, Instant>| {
                found.get(&name).map_or(f64::NAN, |found| found.duration_since(at).as_secs_f64())
            };
            times.seen.push(since(&seen));
            times.repaired.push(since(&repaired));
        }
        Ok(times)
    }
}

type Moments = BTreeMap<String, Instant>;

/// Watches until so many objects were changed and put back.
async fn back(watch: &mut Watch, count: usize) -> Result<(Moments, Moments), BenchError> {
    let (mut seen, mut repaired) = (Moments::new(), Moments::new());
    while repaired.len() < count {
        let event = watch.next().await?;
        if event.value != SIGNED {
            seen.entry(event.name).or_insert(event.at);
        } else if seen.contains_key(&event.name) {
            repaired.entry(event.name).or_insert(event.at);
        }
    }
    Ok((seen, repaired))
}

impl Times {
    fn add(&mut self, other: Self) {
        self.repaired.extend(other.repaired);
        self.seen.extend(other.seen);
    }

    fn print(&mut self, what: &str) {
        let Self { repaired, seen } = self;
        println!(
            "{what}: put back p50 {:.4} s, p99 {:.4} s, max {:.4} s; seen by a watch p50 {:.4} s, p99 {:.4} s",
            quantile(repaired, 0.5),
            quantile(repaired, 0.99),
            quantile(repaired, 1.0),
            quantile(seen, 0.5),
            quantile(seen, 0.99)
        );
    }
}

/// The smallest value that so great a share of all does not exceed. 0 of none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a place among some thousand values"
)]
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = (share * values.len() as f64).ceil() as usize;
    values.get(place.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (share, value) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0)] {
            assert!((quantile(&mut values, share) - value).abs() < 1e-9, "{share}");
        }
        assert!(quantile(&mut [], 0.5).abs() < 1e-9);
    }
}
