//! Formatting, lints, documentation, licences, and what may be linked.

use std::path::PathBuf;
use std::process::Command;

use crate::command;
use crate::error::ChoreError;
use crate::workspace::{cache, cargo};

/// Check formatting, lints, documentation, licences, and what the small agent links.
#[derive(clap::Args)]
pub(crate) struct Options {}

/// The version by which `deny.toml` is written.
const CARGO_DENY: &str = "0.20.2";

/// A site has little memory, and every linked crate costs some of it: these belong to the hub.
const NOT_IN_THE_AGENT: [&str; 5] = ["gix", "redis", "aws-sdk-s3", "lambda_http", "opentelemetry"];

type Step = (&'static str, fn() -> Result<(), ChoreError>);

/// The cheap ones first; all run, so that one run shows everything there is to mend.
const STEPS: [Step; 6] = [
    ("formatting", || command::run(cargo().args(["fmt", "--all", "--check"]))),
    ("what the agent links", agent_links),
    ("lints", || {
        command::run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
    }),
    ("documentation", || {
        command::run(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"))
    }),
    ("bans, licences and sources", || {
        deny(&["check", "--hide-inclusion-graph", "bans", "licenses", "sources"])
    }),
    ("advisories", advisories),
];

pub(crate) fn run(_options: &Options) -> Result<(), ChoreError> {
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        eprintln!("\nlint: {name}");
        if let Err(error) = step() {
            eprintln!("lint: {name}: {}", error.with_causes());
            failed.push(name);
        }
    }
    if failed.is_empty() {
        eprintln!("\nlint: all {} steps passed", STEPS.len());
        return Ok(());
    }
    Err(ChoreError::Steps { failed: failed.len(), all: STEPS.len(), names: failed.join(", ") })
}

fn agent_links() -> Result<(), ChoreError> {
    let mut tree = cargo();
    tree.args(["tree", "--package", "farshore-agent", "--edges", "normal", "--prefix", "none"]);
    let found = forbidden(&command::output(&mut tree)?);
    if found.is_empty() { Ok(()) } else { Err(ChoreError::AgentLinks { found: found.join(", ") }) }
}

fn forbidden(tree: &str) -> Vec<&'static str> {
    let links = |name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    NOT_IN_THE_AGENT.into_iter().filter(|name| links(name)).collect()
}

/// The database of advisories comes from the network. Without it the rest of the lint must still work, and say so.
fn advisories() -> Result<(), ChoreError> {
    let fetched = command::output(cargo_deny()?.args(["fetch", "db"]));
    if let Err(error) = fetched {
        eprintln!(
            "lint: advisories were NOT checked, because their database cannot be had: {}",
            error.with_causes()
        );
        return Ok(());
    }
    deny(&["check", "--disable-fetch", "advisories"])
}

fn deny(arguments: &[&str]) -> Result<(), ChoreError> {
    command::run(cargo_deny()?.args(arguments))
}

/// Compiled once, which takes minutes, and kept for all clones.
fn cargo_deny() -> Result<Command, ChoreError> {
    let folder: PathBuf = cache()?.join("tools").join(format!("cargo-deny-{CARGO_DENY}"));
    let program = folder.join("bin").join("cargo-deny");
    if !program.is_file() {
        let mut install = cargo();
        install.args(["install", "--locked", "--version", CARGO_DENY, "cargo-deny", "--root"]).arg(&folder);
        command::run(&mut install)?;
    }
    let mut command = Command::new(program);
    command.current_dir(crate::workspace::root());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_crate_is_found_by_its_whole_name() {
        let tree = "farshore-agent v0.1.0 (/src)\ngix v0.90.0\nredis-protocol v1.0.0\n";
        assert_eq!(forbidden(tree), ["gix"]);
    }
}
