//! Where things are, and what there is to test.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::command;
use crate::error::ChoreError;

/// What `cargo metadata` says of the workspace, as far as chores ask.
pub(crate) struct Workspace {
    /// The folder of builds.
    pub(crate) target: PathBuf,
    /// All integration tests.
    pub(crate) tests: Vec<TestTarget>,
}

/// One file of integration tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestTarget {
    pub(crate) package: String,
    pub(crate) name: String,
}

impl Workspace {
    pub(crate) fn read() -> Result<Self, ChoreError> {
        let mut command = cargo();
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        let text = command::output(&mut command)?;
        let metadata: Value = serde_json::from_str(&text).map_err(ChoreError::Metadata)?;
        let target = PathBuf::from(metadata["target_directory"].as_str().unwrap_or("target"));
        Ok(Self { target, tests: tests(&metadata) })
    }

    /// Where the testbed's programs are linked for this clone, and where the test kit looks for them.
    pub(crate) fn testbed(&self) -> PathBuf {
        self.target.join("testbed")
    }
}

/// The folder with the workspace's `Cargo.toml`.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is a folder of the workspace")
}

/// What clones share: `$XDG_CACHE_HOME/farshore`, by default `~/.cache/farshore`.
pub(crate) fn cache() -> Result<PathBuf, ChoreError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    Ok(cache.ok_or(ChoreError::NoCacheFolder)?.join("farshore"))
}

/// The same cargo that runs this chore, in the root of the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

fn tests(metadata: &Value) -> Vec<TestTarget> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let mut tests = Vec::new();
    for package in list(&metadata["packages"]) {
        for target in list(&package["targets"]) {
            if list(&target["kind"]).iter().any(|kind| kind == "test") {
                tests.push(TestTarget { package: text(&package["name"]), name: text(&target["name"]) });
            }
        }
    }
    tests
}
