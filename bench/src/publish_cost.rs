//! `publish-cost`: what a change costs the record, by the size of the fleet.
//!
//! Unit: objects written, and their bytes. Fleets of 1k, 100k and 1M clusters in 1, 10 and 1,000 groups; in each:
//! a commit that changes the service of all groups, one that changes the service of one group, one that gives a
//! cluster another label, and an enrolment. Every write to the record counts, those included that lose a race.
//! The last line is about the commit to all groups at the largest fleet with 10 groups: ours is objects
//! written, theirs the groups that have the service, below which nobody can go.

use std::sync::Arc;

use farshore_hub_fn::objects::Objects;
use farshore_hub_fn::objects::counted::Counted;
use farshore_hub_fn::publish::{Publisher, Step};

use crate::error::BenchError;
use crate::hub::Place;
use crate::report::{Ratio, float};
use crate::seed::{Fleet, Recipe};

/// Objects and bytes that commits, labels and enrolments write, by the size of the fleet
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Sizes of fleets
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 100_000, 1_000_000])]
    clusters: Vec<usize>,
    /// Numbers of groups
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 1_000])]
    groups: Vec<usize>,
}

/// Measures.
///
/// # Errors
/// [`BenchError`].
pub(crate) async fn run(options: &Options) -> Result<Ratio, BenchError> {
    println!("{:>9} {:>6}  {:28} {:>7} {:>10}  what", "clusters", "groups", "change", "objects", "bytes");
    let mut last = None;
    for &clusters in &options.clusters {
        for &groups in options.groups.iter().filter(|&&groups| groups <= clusters) {
            let objects = measure(clusters, groups).await?;
            if last.is_none() || groups == 10 {
                last = Some((objects, groups));
            }
        }
    }
    let (ours, theirs) = last.ok_or_else(|| BenchError::Wrong("no fleet was asked for".to_owned()))?;
    Ok(Ratio { name: "publish-cost", ours: float(ours), theirs: float(theirs as u64) })
}

/// Returns what the commit to all groups wrote.
async fn measure(clusters: usize, groups: usize) -> Result<u64, BenchError> {
    eprintln!("publish-cost: seeding {clusters} clusters in {groups} groups");
    let place = Place::disk()?;
    let recipe = Recipe { clusters, groups, documented: &|n| n == clusters - 1 };
    let mut fleet = Fleet::seed(&place.objects().await?, &recipe).await?;
    let counted = Arc::new(Counted::new(place.objects().await?));
    let through: Arc<dyn Objects> = Arc::clone(&counted) as Arc<dyn Objects>;
    let mut publisher = fleet.publisher(&through)?;
    step(&mut publisher, Step::Sync).await?;
    let print = |change: &str| {
        let (mut objects, mut bytes, mut what) = (0, 0, Vec::new());
        for (kind, tally) in counted.take_by_kind() {
            let written = tally.puts + tally.conflicts;
            if written > 0 {
                objects += written;
                bytes += tally.bytes_put + tally.bytes_refused;
                what.push(format!("{kind} {written}"));
            }
        }
        println!("{clusters:9} {groups:6}  {change:28} {objects:7} {bytes:10}  {}", what.join(", "));
        objects
    };
    print("(nothing)");
    fleet.commit("second")?;
    step(&mut publisher, Step::Sync).await?;
    let all = print("a service of all groups");
    fleet.commit_own(0, "second")?;
    step(&mut publisher, Step::Sync).await?;
    print("a service of one group");
    fleet.relabel(clusters - 1, groups - 1)?;
    step(&mut publisher, Step::Sync).await?;
    print("a label of one cluster");
    fleet.ask_to_enrol(&place.objects().await?).await?;
    step(&mut publisher, Step::Enrolments).await?;
    print("an enrolment");
    Ok(all)
}

async fn step(publisher: &mut Publisher, step: Step) -> Result<(), BenchError> {
    loop {
        let report = publisher.step(step).await.map_err(BenchError::ours("publishing"))?;
        if !report.failed.is_empty() || !report.held.is_empty() {
            return Err(BenchError::Wrong(format!("a step of the publisher did {report:?}")));
        }
        // A large change is several steps.
        if !report.is_unfinished {
            return Ok(());
        }
    }
}
