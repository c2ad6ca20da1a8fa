//! Runs the tests by tier: how fast they are, and what they need.
//!
//! Which tier a file of integration tests belongs to is in its name: `contract*` and `cluster*` say so, all files of
//! `farshore-chaos` are chaos, and every other is a unit test.

use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::error::ChoreError;
use crate::workspace::{TestTarget, Workspace, cargo};
use crate::{command, testbed};

/// Run the tests of some tiers, or of all.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The tiers to run, each once, from fast to slow; none means all.
    tiers: Vec<Tier>,
}

/// A class of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Tier {
    /// In seconds, without any server.
    Unit,
    /// Against real Redis, S3 and Git.
    Contract,
    /// Against a real Kubernetes API.
    Cluster,
    /// Outages: processes killed, cables cut.
    Chaos,
}

pub(crate) fn run(options: &Options) -> Result<(), ChoreError> {
    let workspace = Workspace::read()?;
    let tiers = chosen(&options.tiers);
    if tiers.iter().any(|tier| *tier > Tier::Unit) {
        testbed::ensure(&workspace)?;
    }
    // Tests start the workspace's programs, and Cargo by itself builds only those of the tested package.
    command::run(cargo().args(["build", "--workspace", "--bins"]))?;
    let results: Vec<_> = tiers.into_iter().map(|tier| (tier, timed(tier, &workspace))).collect();
    summarise(&results)
}

fn chosen(named: &[Tier]) -> Vec<Tier> {
    let mut tiers = if named.is_empty() { Tier::value_variants().to_vec() } else { named.to_vec() };
    tiers.sort();
    tiers.dedup();
    tiers
}

type Timed = (Result<(), ChoreError>, Duration);

fn timed(tier: Tier, workspace: &Workspace) -> Timed {
    eprintln!("\ntier {}", name(tier));
    let began = Instant::now();
    let tested = test(tier, workspace);
    if let Err(error) = &tested {
        eprintln!("tier {}: {}", name(tier), error.with_causes());
    }
    (tested, began.elapsed())
}

/// Every command is for the whole workspace: for one package Cargo would choose other features of the dependencies,
/// and compile them again.
fn test(tier: Tier, workspace: &Workspace) -> Result<(), ChoreError> {
    let mut files: Vec<&str> =
        workspace.tests.iter().filter(|test| tier_of(test) == tier).map(|test| test.name.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    if tier != Tier::Unit && files.is_empty() {
        eprintln!("tier {}: it has no tests", name(tier));
        return Ok(());
    }
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--no-fail-fast"]).env("FARSHORE_TESTBED", workspace.testbed());
    if tier == Tier::Unit {
        tests.args(["--lib", "--bins"]);
    }
    tests.args(files.iter().flat_map(|file| ["--test", file]));
    let tested = command::run(&mut tests);
    if tier == Tier::Unit {
        tested.and(command::run(cargo().args(["test", "--workspace", "--doc", "--no-fail-fast"])))
    } else {
        tested
    }
}

fn tier_of(test: &TestTarget) -> Tier {
    if test.package == "farshore-chaos" {
        Tier::Chaos
    } else if test.name.starts_with("contract") {
        Tier::Contract
    } else if test.name.starts_with("cluster") {
        Tier::Cluster
    } else {
        Tier::Unit
    }
}

fn summarise(results: &[(Tier, Timed)]) -> Result<(), ChoreError> {
    println!();
    for (tier, (tested, took)) in results {
        let outcome = if tested.is_ok() { "passed" } else { "FAILED" };
        println!("tier {:8} {outcome} in {:.0} s", name(*tier), took.as_secs_f64());
    }
    let failed: Vec<String> =
        results.iter().filter(|(_, (tested, _))| tested.is_err()).map(|(tier, _)| name(*tier)).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(ChoreError::Steps { failed: failed.len(), all: results.len(), names: failed.join(", ") })
}

fn name(tier: Tier) -> String {
    format!("{tier:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_run_once_each_from_fast_to_slow() {
        assert_eq!(chosen(&[Tier::Chaos, Tier::Unit, Tier::Chaos]), [Tier::Unit, Tier::Chaos]);
        assert_eq!(chosen(&[]), [Tier::Unit, Tier::Contract, Tier::Cluster, Tier::Chaos]);
    }

    #[test]
    fn the_name_of_a_file_of_tests_tells_its_tier() {
        let tier = |package: &str, name: &str| {
            tier_of(&TestTarget { package: package.to_owned(), name: name.to_owned() })
        };
        assert_eq!(tier("farshore-hub-fn", "contract_objects"), Tier::Contract);
        assert_eq!(tier("farshore-agent", "cluster_target"), Tier::Cluster);
        assert_eq!(tier("farshore", "help"), Tier::Unit);
        assert_eq!(tier("farshore-chaos", "contract_of_the_kit"), Tier::Chaos);
    }
}
