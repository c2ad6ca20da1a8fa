//! Builds the programs as they are shipped.
//!
//! - [`layout`]: which functions of the agent lie together.
//! - [`mod@learn`]: watches an agent to know which of them run.

mod layout;
mod learn;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use sha2::{Digest, Sha256};

use crate::error::ChoreError;
use crate::workspace::{Workspace, cargo, root};
use crate::{command, testbed};

/// Build the programs as they are shipped, into target/dist, with their digests in SHA256SUMS.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which; none means all.
    programs: Vec<Program>,
    /// Watch an agent at work first, and write which of its functions run into agent/hot.txt; takes valgrind and minutes.
    #[arg(long)]
    learn: bool,
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

/// Whether the linker is lld, as Rust has it there, and understands what the agent is linked with.
const IS_LLD: bool = cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"));

/// What makes an agent's memory smaller: no libraries beside the program, and no list of relocations to read through at
/// its start. It stays at a random address. On other systems it is linked as usual.
const SMALL: [&str; 4] = ["-C", "target-feature=+crt-static", "-C", "link-arg=-Wl,--pack-dyn-relocs=relr"];

/// At least two: one to know the functions, one to put them in order. Their names do not depend on the order.
const LINKS: usize = 3;

pub(crate) fn run(options: &Options) -> Result<(), ChoreError> {
    let workspace = Workspace::read()?;
    if options.learn {
        learn(&workspace)?;
    }
    let mut programs = match options.programs.as_slice() {
        [] => Program::value_variants().to_vec(),
        named => named.to_vec(),
    };
    programs.sort();
    programs.dedup();
    let folder = folder(&workspace)?;
    for program in programs {
        let built = build(&workspace, program)?;
        // Under another name first: the program of the same name may be running.
        let (shipped, new) = (folder.join(program.name()), folder.join(format!("{}.new", program.name())));
        if program == Program::FarshoreAgent && IS_LLD {
            command::run(Command::new("strip").arg("-o").arg(&new).arg(&built))?;
        } else {
            fs::copy(&built, &new).map_err(ChoreError::io("copying a program", &built))?;
        }
        let bytes = new.metadata().map_err(ChoreError::io("looking at a program", &new))?.len();
        fs::rename(&new, &shipped).map_err(ChoreError::io("renaming a program", &new))?;
        println!("{:14} {:6.1} MiB  {}", program.name(), mebibytes(bytes), shipped.display());
    }
    sum(&folder)
}

/// Writes the digests of all that lie there, also of those that were built before, for `sha256sum --check`.
fn sum(folder: &Path) -> Result<(), ChoreError> {
    let mut sums = String::new();
    for program in Program::value_variants() {
        let path = folder.join(program.name());
        if path.is_file() {
            let bytes = fs::read(&path).map_err(ChoreError::io("reading a program", &path))?;
            sums.push_str(&format!("{}  {}\n", hex::encode(Sha256::digest(&bytes)), program.name()));
        }
    }
    write(&folder.join("SHA256SUMS"), &sums)
}

/// Builds a program as it is shipped, but for its table of symbols, and returns where it is.
pub(crate) fn build(workspace: &Workspace, program: Program) -> Result<PathBuf, ChoreError> {
    let built = |profile: &str| workspace.target.join(profile).join(program.name());
    match program {
        Program::FarshoreAgent => {
            agent(workspace, &built("site"))?;
            Ok(built("site"))
        }
        Program::Farshore | Program::FarshoreHub => {
            command::run(cargo().args(["build", "--release", "--bin", program.name()]))?;
            Ok(built("release"))
        }
    }
}

/// Links the agent again until its functions are in the order that they are to have; once, where they were before.
fn agent(workspace: &Workspace, program: &Path) -> Result<(), ChoreError> {
    if !IS_LLD {
        return command::run(&mut linked(None));
    }
    let hot = read(&hot_list())?;
    let orders = folder(workspace)?.join("orders");
    fs::create_dir_all(&orders).map_err(ChoreError::io("making a folder", &orders))?;
    let last = orders.join("last");
    let mut order = fs::read_to_string(&last).ok().map(PathBuf::from).filter(|order| order.is_file());
    for _link in 0..LINKS {
        command::run(&mut linked(order.as_deref()))?;
        let wanted = layout::order(&layout::functions(program)?, &hot);
        // Cargo does not look into the file: another name makes it link again.
        let path = orders.join(hex::encode(&Sha256::digest(&wanted)[..8]));
        if wanted.is_empty() || order.as_ref() == Some(&path) {
            return Ok(());
        }
        write(&path, &wanted)?;
        write(&last, &path.to_string_lossy())?;
        order = Some(path);
    }
    Ok(())
}

fn linked(order: Option<&Path>) -> Command {
    let mut link = cargo();
    link.args(["rustc", "--profile=site", "--package=farshore-agent", "--bin=farshore-agent"]);
    if IS_LLD {
        link.arg("--").args(SMALL);
    }
    if let Some(order) = order {
        let option =
            format!("link-arg=-Wl,--no-warn-symbol-ordering,--symbol-ordering-file={}", order.display());
        link.args(["-C", &option]);
    }
    link
}

fn learn(workspace: &Workspace) -> Result<(), ChoreError> {
    testbed::ensure(workspace)?;
    for program in ["farshore-hub", "farshore-bench"] {
        command::run(cargo().args(["build", "--release", "--bin", program]))?;
    }
    let agent = build(workspace, Program::FarshoreAgent)?;
    let hot = learn::hot(workspace, &agent, &workspace.target.join("release/farshore-bench"))?;
    write(&hot_list(), &hot)
}

fn hot_list() -> PathBuf {
    root().join("agent/hot.txt")
}

fn folder(workspace: &Workspace) -> Result<PathBuf, ChoreError> {
    let folder = workspace.target.join("dist");
    fs::create_dir_all(&folder).map_err(ChoreError::io("making a folder", &folder))?;
    Ok(folder)
}

fn read(path: &Path) -> Result<String, ChoreError> {
    fs::read_to_string(path).map_err(ChoreError::io("reading a file", path))
}

fn write(path: &Path, text: &str) -> Result<(), ChoreError> {
    fs::write(path, text).map_err(ChoreError::io("writing a file", path))
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
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_order_is_another_link() {
        let line = |order: Option<&str>| command::line(&linked(order.map(Path::new)));
        assert!(line(None).contains("--profile=site"));
        assert_ne!(line(Some("a")), line(Some("b")));
        assert!(line(Some("a")).contains("--symbol-ordering-file=a"));
    }

    #[test]
    fn what_runs_at_a_site_is_listed_once_each_by_a_name_that_outlives_a_build() {
        let hot = read(&hot_list()).expect("the list is there");
        let names: Vec<&str> = hot.lines().collect();
        assert!(names.is_sorted_by(|a, b| a < b), "it is sorted, each name once");
        assert!(names.iter().all(|name| layout::key(name) == *name), "without hashes");
    }
}
