//! Builds the programs as they are shipped.

use std::path::PathBuf;
use std::process::Command;

use clap::ValueEnum;
use sha2::{Digest, Sha256};

use crate::command;
use crate::error::ChoreError;
use crate::workspace::{Workspace, cargo};

/// Build the programs as they are shipped, into target/dist, with their digests in SHA256SUMS.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which; none means all.
    programs: Vec<Program>,
}

/// A program that is shipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Program {
    /// The command: everything.
    Farshore,
    /// The hub alone.
    FarshoreHub,
    /// The agent alone, small.
    FarshoreAgent,
}

/// What makes an agent's memory smaller: no libraries beside the program, and no list of relocations to read through at
/// its start. It stays at a random address. The libraries of other systems are linked as usual.
const SMALL: [&str; 4] = ["-C", "target-feature=+crt-static", "-C", "link-arg=-Wl,--pack-dyn-relocs=relr"];

pub(crate) fn run(options: &Options) -> Result<(), ChoreError> {
    let workspace = Workspace::read()?;
    let mut programs = match options.programs.as_slice() {
        [] => Program::value_variants().to_vec(),
        named => named.to_vec(),
    };
    programs.sort();
    programs.dedup();
    let folder = workspace.target.join("dist");
    std::fs::create_dir_all(&folder).map_err(ChoreError::io("making a folder", &folder))?;
    let mut sums = String::new();
    for program in programs {
        let built = build(&workspace, program)?;
        let shipped = folder.join(program.name());
        let bytes = std::fs::read(&built).map_err(ChoreError::io("reading a program", &built))?;
        // Copied under another name first: the program of the same name may be running.
        let copy = shipped.with_extension("new");
        std::fs::copy(&built, &copy)
            .and_then(|_bytes| std::fs::rename(&copy, &shipped))
            .map_err(ChoreError::io("copying a program", &shipped))?;
        let digest = hex::encode(Sha256::digest(&bytes));
        sums.push_str(&format!("{digest}  {}\n", program.name()));
        println!("{:14} {:6.1} MiB  {}", program.name(), mebibytes(bytes.len()), shipped.display());
    }
    let path = folder.join("SHA256SUMS");
    std::fs::write(&path, sums).map_err(ChoreError::io("writing a file", &path))
}

/// Builds a program as it is shipped, and returns where it is.
pub(crate) fn build(workspace: &Workspace, program: Program) -> Result<PathBuf, ChoreError> {
    command::run(&mut cargo_of(program))?;
    let profile = if program == Program::FarshoreAgent { "site" } else { "release" };
    Ok(workspace.target.join(profile).join(program.name()))
}

fn cargo_of(program: Program) -> Command {
    let mut build = cargo();
    match program {
        Program::Farshore => build.args(["build", "--release", "--package=farshore"]),
        Program::FarshoreHub => build.args(["build", "--release", "--package=farshore-hub-fn"]),
        Program::FarshoreAgent => build.args(["rustc", "--profile=site", "--package=farshore-agent"]),
    };
    if program == Program::FarshoreAgent && cfg!(all(target_os = "linux", target_env = "gnu")) {
        build.args(["--bin=farshore-agent", "--"]).args(SMALL);
    }
    build
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Farshore => "farshore",
            Self::FarshoreHub => "farshore-hub",
            Self::FarshoreAgent => "farshore-agent",
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "programs are far below 2^52 bytes")]
fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_alone_is_built_for_size() {
        let line = |program| command::line(&cargo_of(program));
        assert!(line(Program::FarshoreAgent).contains("--profile=site"));
        for program in [Program::Farshore, Program::FarshoreHub] {
            assert!(
                line(program).contains("--release") && !line(program).contains("static"),
                "{}",
                line(program)
            );
        }
    }
}
