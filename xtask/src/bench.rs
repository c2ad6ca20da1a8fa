//! Measures one thing beside its yardstick, in the same run.
//!
//! `farshore-bench` does it; this builds it and the programs that it measures as they are shipped, and provides what it
//! runs against. Progress is on standard error, and the last line of standard output is `NAME ratio=R ours=X theirs=Y`.

use std::process::Command;

use crate::error::ChoreError;
use crate::workspace::{Workspace, cargo};
use crate::{command, dist, testbed};

/// Measure one thing beside its yardstick: NAME --help says what can be chosen.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Only print the benches: name, unit, yardstick.
    #[arg(long)]
    list: bool,
    /// The bench, and its own options.
    #[arg(value_name = "NAME [OPTIONS]", trailing_var_arg = true, allow_hyphen_values = true)]
    bench: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask bench --list
  cargo xtask bench hub-poll
  cargo xtask bench hub-poll --clusters 1000 --seconds 3
  cargo xtask bench hub-fleet --clusters 100000 --replicas 3 --kill-every 5 --flush-redis --bucket-errors --commit";

/// A bench as it is listed.
struct Bench {
    name: &'static str,
    unit: &'static str,
    yardstick: &'static str,
    /// Whether nginx is the yardstick.
    needs_nginx: bool,
}

const fn bench(name: &'static str, unit: &'static str, yardstick: &'static str) -> Bench {
    Bench { name, unit, yardstick, needs_nginx: false }
}

const fn with_nginx(bench: Bench) -> Bench {
    Bench { needs_nginx: true, ..bench }
}

const BENCHES: [Bench; 11] = [
    with_nginx(bench("hub-poll", "requests per CPU second of the server", "nginx return 304, one worker")),
    bench("hub-fleet", "clusters held at their poll interval", "the clusters asked for"),
    bench("poll-bytes", "bytes of TLS records a steady poll", "curl --http2"),
    bench("git-sync", "seconds from fetch to digest of a commit", "git fetch && git archive | sha256sum"),
    bench("publish-cost", "objects written by a commit", "the groups that have the service"),
    bench("commit-to-site", "seconds at p50 from push to applied", "git fetch"),
    bench("apply", "objects a second of a first apply", "kubectl apply --server-side"),
    bench("drift", "seconds at p99 from a foreign write to put back", "a plain watch's own delay"),
    bench("agent-memory", "MiB resident of an agent in steady state", "kubectl get --watch"),
    bench("idle-cost", "bytes an hour between an idle agent and its API", "kubectl get --watch"),
    with_nginx(bench("cold-start", "milliseconds to the first correct answer", "nginx return 304")),
];

pub(crate) fn run(options: &Options) -> Result<(), ChoreError> {
    if options.list {
        for Bench { name, unit, yardstick, .. } in &BENCHES {
            println!("{name:16} {unit:48} {yardstick}");
        }
        return Ok(());
    }
    let bench = find(options.bench.first().map(String::as_str))?;
    let workspace = Workspace::read()?;
    testbed::ensure(&workspace)?;
    if bench.needs_nginx {
        testbed::system_program("nginx", "nginx")?;
    }
    let programs = ["farshore-hub", "farshore-bench"];
    command::run(
        cargo().args(["build", "--release"]).args(programs.iter().flat_map(|name| ["--bin", name])),
    )?;
    let agent = dist::build(&workspace, dist::Program::FarshoreAgent)?;
    let mut measuring = Command::new(workspace.target.join("release/farshore-bench"));
    measuring.args(&options.bench).env("FARSHORE_TESTBED", workspace.testbed()).env("FARSHORE_AGENT", agent);
    command::run(&mut measuring)
}

fn find(name: Option<&str>) -> Result<&'static Bench, ChoreError> {
    let found = BENCHES.iter().find(|bench| Some(bench.name) == name);
    found.ok_or_else(|| {
        let known: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        ChoreError::NoBench { asked: name.unwrap_or_default().to_owned(), known: known.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_is_found_by_its_name_and_others_are_told_the_names() {
        assert!(find(Some("hub-poll")).is_ok_and(|bench| bench.needs_nginx));
        let error = find(Some("hub")).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("\"hub\"") && error.contains("git-sync"), "{error}");
        assert!(find(None).is_err());
    }
}
