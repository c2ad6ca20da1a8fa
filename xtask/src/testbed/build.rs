//! Builds a program from its pinned module.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use super::tool::{Module, Stamp, TOOLS, Tool, module_paths};
use crate::command;
use crate::error::ChoreError;

/// `readonly`: what is not in `go.sum` is not used. `trimpath`: the same bytes in every folder. `buildvcs`: this
/// repository's commit is no part of somebody else's program.
const GO_FLAGS: &str = "-mod=readonly -trimpath -buildvcs=false";

/// How many lines of Go's output an error shows.
const SHOWN_LINES: usize = 20;

/// How often a build without a terminal says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// The hash of all that decides what is built: pins, flags and platform.
pub(super) fn hash() -> Result<String, ChoreError> {
    let mut hash = Sha256::new();
    // Each part with its length before it, so that no two lists of parts read the same.
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    for part in [std::env::consts::OS, std::env::consts::ARCH, GO_FLAGS] {
        add(part.as_bytes());
    }
    for folder in module_paths() {
        for name in ["go.mod", "go.sum"] {
            let path = folder.join(name);
            add(&std::fs::read(&path).map_err(ChoreError::io("reading a module", &path))?);
        }
    }
    for tool in &TOOLS {
        if let Some(module) = tool.origin.module() {
            add(tool.name.as_bytes());
            add(linker_flags(module, &module.version(tool.name)?).as_bytes());
        }
    }
    Ok(hex::encode(hash.finalize()))
}

/// Builds beside `target` and renames, so that an interrupted build leaves nothing that looks finished.
pub(super) fn build(tool: &Tool, module: &Module, target: &Path, number: &str) -> Result<(), ChoreError> {
    let version = module.version(tool.name)?;
    let folder = target.parent().expect("a build is in the folder of its hash");
    let fresh = tempfile::tempdir_in(folder).map_err(ChoreError::io("making a folder", folder))?;
    let built = fresh.path().join(tool.name);
    let mut command = Command::new("go");
    command
        .args(["build", "-v", "-ldflags", &linker_flags(module, &version), "-o"])
        .arg(&built)
        .arg(module.package)
        .current_dir(module.path())
        .env("GOFLAGS", GO_FLAGS)
        .env("GOWORK", "off")
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let progress = Progress::start(format!("{number}: building {} {version}", tool.name));
    let mut child = command.spawn().map_err(command::start(&command))?;
    let tail = progress.follow(child.stderr.take().expect("standard error is a pipe"));
    let status = child.wait().map_err(command::start(&command))?;
    if !status.success() {
        let output = format!(":\n{}", Vec::from(tail).join("\n"));
        return Err(ChoreError::Failed { what: command::line(&command), status, output });
    }
    std::fs::rename(&built, target).map_err(ChoreError::io("keeping a build", target))?;
    progress.finish();
    Ok(())
}

/// `-s -w`: without tables for a debugger the programs are a third smaller.
fn linker_flags(module: &Module, version: &str) -> String {
    let stamps = module.stamps.iter().map(|stamp| match stamp {
        Stamp::Version(variable) => format!(" -X {variable}={version}"),
        Stamp::Text(variable, text) => format!(" -X {variable}={text}"),
    });
    format!("-s -w{}", stamps.collect::<String>())
}

/// A line that moves on a terminal, and now and then a new line elsewhere.
struct Progress {
    title: String,
    bar: ProgressBar,
    began: Instant,
}

impl Progress {
    fn start(title: String) -> Self {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} testbed {prefix} ({elapsed}) {wide_msg:.dim}");
        bar.set_style(style.expect("the template is well formed"));
        bar.set_prefix(title.clone());
        bar.enable_steady_tick(Duration::from_millis(100));
        if bar.is_hidden() {
            eprintln!("testbed {title}");
        }
        Self { title, bar, began: Instant::now() }
    }

    /// Shows what Go prints (a line for each module it downloads and each package it compiles) and returns the end.
    fn follow(&self, output: ChildStderr) -> VecDeque<String> {
        let mut tail = VecDeque::new();
        let mut packages = 0;
        let mut spoke = Instant::now();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if !line.starts_with("go: ") {
                packages += 1;
            }
            self.bar.set_message(format!("{packages} packages, {line}"));
            if self.bar.is_hidden() && spoke.elapsed() >= HEARTBEAT {
                eprintln!("testbed {}: {packages} packages after {:.0?}", self.title, self.began.elapsed());
                spoke = Instant::now();
            }
            tail.push_back(line);
            if tail.len() > SHOWN_LINES {
                tail.pop_front();
            }
        }
        tail
    }

    fn finish(self) {
        self.bar.finish_and_clear();
        eprintln!("testbed {}: {:.0?}", self.title, self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_same_twice_and_fit_for_a_folder() {
        let hash = super::hash().expect("the pins are in the repository");
        assert_eq!(hash, super::hash().expect("the pins are in the repository"));
        assert!(hash.len() == 64 && hash.chars().all(|letter| letter.is_ascii_hexdigit()));
    }

    #[test]
    fn a_program_is_stamped_with_the_version_it_is_built_from() {
        for tool in &TOOLS {
            if let Some(module) = tool.origin.module() {
                let flags = linker_flags(module, "v9.8.7");
                assert_eq!(flags.contains("v9.8.7"), !module.stamps.is_empty(), "{}: {flags}", tool.name);
            }
        }
    }
}
