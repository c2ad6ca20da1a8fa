//! What can go wrong in the kit, said so that a failed test needs no second look.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use farshore_shared::exit::chain;

/// Why the kit could not do what a test asked.
///
/// `Debug` prints the same words as `Display`, with the causes, because `expect` and a failed test print `Debug`.
#[derive(thiserror::Error)]
pub enum KitError {
    /// A server of the testbed is not installed.
    #[error("found no {program} (looked at {looked}): run `cargo xtask testbed`", looked = paths(.looked))]
    NoServer {
        /// The program's file name.
        program: String,
        /// Where it was looked for.
        looked: Vec<PathBuf>,
    },
    /// A program of this workspace is not built.
    #[error("found no {program} ({path}): run `cargo build --workspace --bins`", path = .path.display())]
    NoBinary {
        /// The program's file name.
        program: String,
        /// Where it should be.
        path: PathBuf,
    },
    /// The operating system refused something.
    #[error("{doing} ({path})", path = .path.display())]
    Io {
        /// What the kit was doing.
        doing: &'static str,
        /// The file or program concerned.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// No port could be had.
    #[error("found no free port (tried {tried})")]
    NoPort {
        /// How many were tried.
        tried: u16,
    },
    /// A condition did not come true in time.
    #[error("waited {waited:?} for {what} (last not yet: {last})")]
    NotYet {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
        /// What the last look said.
        last: String,
    },
    /// A server ended, or did not answer in time, when it should have become ready.
    #[error("starting {what} ({state}), the end of its log:\n{log}")]
    NotReady {
        /// The server.
        what: String,
        /// How it stood.
        state: String,
        /// The last lines of its log.
        log: String,
    },
    /// A program that the kit ran to its end failed.
    #[error("running {what} ({status}):\n{output}")]
    Failed {
        /// The command line.
        what: String,
        /// Its exit status.
        status: ExitStatus,
        /// What it printed.
        output: String,
    },
    /// A server answered something else than it should.
    #[error("asking {what} ({answer:?})")]
    Answer {
        /// The server and the question.
        what: String,
        /// What it said.
        answer: String,
    },
}

impl KitError {
    /// An operating system error, to be used with `map_err`.
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}

impl fmt::Debug for KitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(self))
    }
}

fn paths(looked: &[PathBuf]) -> String {
    let names: Vec<String> = looked.iter().map(|path| path.display().to_string()).collect();
    if names.is_empty() { "no folder".to_owned() } else { names.join(", ") }
}
