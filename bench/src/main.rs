//! Measuring programs: `cargo xtask bench NAME` builds this program, the hub and the agent for release and
//! runs one of them. Progress goes to standard error; the last line of standard output is
//! `NAME ratio=R ours=X theirs=Y`, with R = X / Y. It fails only when it could not measure.
//!
//! | bench | unit of X and Y | yardstick, in the same run | in |
//! |---|---|---|---|
//! | `hub-poll` | requests per CPU second of the server, authenticated 304s | nginx `return 304`, one worker, same client, same headers | [`hub_poll`] |
//! | `poll-bytes` | bytes of TLS records a steady poll, both ways | the same polls by `curl --http2` with standard headers | [`poll_bytes`] |
//! | `hub-fleet` | clusters held at their interval | the clusters asked for | [`fleet`] |
//! | `cold-start` | milliseconds from process start to first correct answer | nginx | [`cold_start`] |
//! | `git-sync` | seconds from fetch to digest of a new commit | `git fetch && git archive \| sha256sum` | [`git_sync`] |
//! | `publish-cost` | objects written by a commit of one service | the groups that have the service | [`publish_cost`] |
//! | `commit-to-site` | seconds at p50 from push to applied | `git fetch` of the same commit | [`commit_to_site`] |
//! | `apply` | objects a second of a first apply | `kubectl apply --server-side`; raw requests are printed | [`apply`] |
//! | `drift` | seconds at p99 from a foreign write to the object put back | a plain watch's own delay | [`drift`] |
//! | `agent-memory` | MiB resident of an agent in steady state | one `kubectl get --watch` | [`agent_memory`] |
//! | `idle-cost` | bytes an hour between an idle agent and its API | one `kubectl get --watch` | [`idle_cost`] |
//!
//! What they share: [`seed`] puts a fleet into a record, [`hub`] runs hubs over it, [`nginx`] is a yardstick,
//! [`cluster`] is a Kubernetes API with a site, [`load`] sends requests, [`cpu`] reads what processes used, [`report`] is what is printed.
//!
//! No bench is tuned to its figure: what is sent is what an agent sends.

mod agent_memory;
mod apply;
mod cluster;
mod cold_start;
mod commit_to_site;
mod cpu;
mod drift;
mod error;
mod fleet;
mod git_sync;
mod hub;
mod hub_poll;
mod idle_cost;
mod load;
mod nginx;
mod poll_bytes;
mod publish_cost;
mod report;
mod seed;

use std::process::ExitCode;

use clap::Parser;
use farshore_shared::exit::chain;

use crate::error::BenchError;
use crate::report::Ratio;

/// Measures Farshore beside a yardstick.
#[derive(Parser)]
#[command(name = "farshore-bench", bin_name = "cargo xtask bench", version)]
enum Bench {
    HubPoll(hub_poll::Options),
    PollBytes(poll_bytes::Options),
    HubFleet(fleet::Options),
    ColdStart(cold_start::Options),
    GitSync(git_sync::Options),
    PublishCost(publish_cost::Options),
    CommitToSite(commit_to_site::Options),
    Apply(apply::Options),
    Drift(drift::Options),
    AgentMemory(agent_memory::Options),
    IdleCost(idle_cost::Options),
    /// One measurement of git-sync, in a process of its own
    #[command(hide = true)]
    GitSyncOnce(git_sync::Once),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let bench = Bench::parse();
    match run(bench).await {
        Ok(Some(ratio)) => {
            println!("{ratio}");
            ExitCode::SUCCESS
        }
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farshore-bench: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

async fn run(bench: Bench) -> Result<Option<Ratio>, BenchError> {
    match bench {
        Bench::HubPoll(options) => hub_poll::run(&options).await.map(Some),
        Bench::PollBytes(options) => poll_bytes::run(&options).await.map(Some),
        Bench::HubFleet(options) => fleet::run(options).await.map(Some),
        Bench::ColdStart(options) => cold_start::run(&options).await.map(Some),
        Bench::GitSync(options) => git_sync::run(&options).await.map(Some),
        Bench::PublishCost(options) => publish_cost::run(&options).await.map(Some),
        Bench::CommitToSite(options) => commit_to_site::run(&options).await.map(Some),
        Bench::Apply(options) => apply::run(&options).await.map(Some),
        Bench::Drift(options) => drift::run(&options).await.map(Some),
        Bench::AgentMemory(options) => agent_memory::run(&options).await.map(Some),
        Bench::IdleCost(options) => idle_cost::run(&options).await.map(Some),
        Bench::GitSyncOnce(once) => git_sync::once(&once).map(|()| None),
    }
}
