//! Why a chore failed.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why a chore failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChoreError {
    #[error("{doing} ({path})", path = .path.display())]
    Io { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error("starting {program} (is it installed?)")]
    Start { program: String, source: std::io::Error },
    #[error("running {what} ({status}){output}")]
    Failed { what: String, status: ExitStatus, output: String },
    #[error("reading what cargo metadata says of the workspace")]
    Metadata(#[source] serde_json::Error),
    #[error("reading {program}'s version in {path} (no line requires {module})", path = .path.display())]
    Pin { program: &'static str, path: PathBuf, module: &'static str },
    #[error("finding the user's cache folder (neither XDG_CACHE_HOME nor HOME is set)")]
    NoCacheFolder,
    #[error("found no {program}: install your system's package {package} and try again")]
    NoSystemProgram { program: &'static str, package: &'static str },
    #[error("there is no bench {asked:?}: there are {known}")]
    NoBench { asked: String, known: String },
    #[error("{failed} of {all} steps failed: {names}")]
    Steps { failed: usize, all: usize, names: String },
    #[error("the small agent links what it must not ({found})")]
    AgentLinks { found: String },
}

impl ChoreError {
    /// An operating system error, to be used with `map_err`.
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }

    /// The error and its causes in one line.
    pub(crate) fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}
