//! Programs that are installed already, if they are of the pinned minor version.
//!
//! Another minor version would make tests depend on the machine: an older kubectl is ten times slower, another
//! kustomize renders other bytes.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::tool::{Origin, Tool, is_program};
use crate::error::ChoreError;

/// Looks under `FARSHORE_TESTBED`, under `KUBEBUILDER_ASSETS` and on `PATH`, but not among our own `links`.
pub(super) fn installed(tool: &Tool, links: &Path) -> Result<Option<PathBuf>, ChoreError> {
    let pinned = match &tool.origin {
        Origin::Module(module) => Some(module.version(tool.name)?),
        Origin::System { .. } => None,
    };
    let fits = |path: &Path| match (version(tool, path), &pinned) {
        (Some(found), Some(pinned)) => minor(&found) == minor(pinned.trim_start_matches('v')),
        (found, None) => found.is_some(),
        (None, Some(_)) => false,
    };
    let mut paths =
        folders().into_iter().filter(|folder| folder != links).map(|folder| folder.join(tool.name));
    Ok(paths.find(|path| is_program(path) && fits(path)))
}

/// The version that a program prints, as `1.2.3`.
pub(super) fn version(tool: &Tool, program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    // A kubeconfig of the user must not decide what kubectl does.
    command.args(tool.ask_version).env("KUBECONFIG", "/dev/null");
    let output = command.output().ok().filter(|output| output.status.success())?;
    first_version(&String::from_utf8_lossy(&output.stdout))
}

fn folders() -> Vec<PathBuf> {
    let one = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let chosen = one("FARSHORE_TESTBED").into_iter().chain(one("KUBEBUILDER_ASSETS"));
    // A relative folder would make a link that leads elsewhere.
    chosen.chain(std::env::split_paths(&path)).filter(|folder| folder.is_absolute()).collect()
}

fn first_version(text: &str) -> Option<String> {
    let words = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let mut versions = words.filter(|word| {
        let parts: Vec<&str> = word.split('.').collect();
        parts.len() == 3 && parts.iter().all(|part| !part.is_empty())
    });
    versions.next().map(str::to_owned)
}

fn minor(version: &str) -> Option<&str> {
    version.rsplit_once('.').map(|(minor, _patch)| minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_what_programs_print() {
        for (printed, version) in [
            ("Client Version: v1.36.3\nKustomize Version: v5.8.1", "1.36.3"),
            ("Redis server v=7.0.15 sha=00000000:0 bits=64", "7.0.15"),
            ("Version  : v1.8.0\nBuild    : norev", "1.8.0"),
            ("v3.21.4", "3.21.4"),
        ] {
            assert_eq!(first_version(printed).as_deref(), Some(version));
        }
        assert_eq!(first_version("(devel)"), None);
    }

    #[test]
    fn another_minor_version_is_another_program() {
        assert_eq!(minor("1.36.3"), minor("1.36.0"));
        assert_ne!(minor("1.36.3"), minor("1.32.3"));
    }
}
