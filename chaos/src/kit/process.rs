//! A program of this workspace, to be killed at any moment.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::leash::Leashed;
use super::{KitError, binary};

/// A running program of this workspace, such as `farshore hub`.
///
/// It sees none of the test's own `FARSHORE_` variables, works in an empty temporary folder, and its output goes to
/// files. `Drop` kills it with everything it started.
#[derive(Debug)]
pub struct Process {
    running: Leashed,
    folder: TempDir,
}

/// A program that ran to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed on standard output.
    pub stdout: String,
    /// What it printed on standard error.
    pub stderr: String,
}

impl Process {
    /// Starts a program by its name (`farshore`, `farshore-hub`, `farshore-agent`), or any other by its path.
    ///
    /// # Errors
    /// [`KitError::NoBinary`] when it is not built, [`KitError::Io`] when it cannot be started.
    pub fn start<A: AsRef<OsStr>>(
        name: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self, KitError> {
        Self::start_with(name, arguments, [])
    }

    /// Starts a program with further variables.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn start_with<'a, A: AsRef<OsStr>>(
        name: &str,
        arguments: impl IntoIterator<Item = A>,
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, KitError> {
        let folder = TempDir::new().map_err(KitError::io("making a folder", std::env::temp_dir()))?;
        let work = folder.path().join("work");
        std::fs::create_dir(&work).map_err(KitError::io("making a folder", &work))?;
        let mut command = Command::new(binary(name)?);
        command.args(arguments).current_dir(work);
        for (variable, _value) in std::env::vars_os() {
            if variable.as_encoded_bytes().starts_with(b"FARSHORE_") {
                command.env_remove(variable);
            }
        }
        command.envs(variables);
        let what = Path::new(name).file_name().unwrap_or(OsStr::new("program")).to_string_lossy();
        let running = Leashed::start(&what, &command, folder.path())?;
        Ok(Self { running, folder })
    }

    /// Runs a program to its end, whatever its exit status.
    ///
    /// # Errors
    /// As [`Process::start`], and [`KitError::NotYet`] at the deadline.
    pub async fn run<A: AsRef<OsStr>>(
        name: &str,
        arguments: impl IntoIterator<Item = A>,
        deadline: Duration,
    ) -> Result<Finished, KitError> {
        Self::start(name, arguments)?.output(deadline).await
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// The folder in which the program was started.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// What it printed on standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.running.log().stdout()
    }

    /// What it printed on standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.running.log().stderr()
    }

    /// Its exit status if it has ended.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, KitError> {
        self.running.ended()
    }

    /// Kills it and everything it started (SIGKILL), as a power cut would, and returns when it is gone.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> Result<ExitStatus, KitError> {
        self.running.kill()
    }

    /// Asks it to end (SIGTERM).
    ///
    /// # Errors
    /// When the system refuses.
    pub fn terminate(&mut self) -> Result<(), KitError> {
        self.running.signal(Signal::TERM)
    }

    /// Stops its execution (SIGSTOP): it hangs, with all its connections open.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn pause(&mut self) -> Result<(), KitError> {
        self.running.signal(Signal::STOP)
    }

    /// Lets it go on after [`Process::pause`] (SIGCONT).
    ///
    /// # Errors
    /// When the system refuses.
    pub fn resume(&mut self) -> Result<(), KitError> {
        self.running.signal(Signal::CONT)
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// [`KitError::NotYet`] at the deadline; it then still runs.
    pub async fn wait_with_deadline(&mut self, deadline: Duration) -> Result<ExitStatus, KitError> {
        self.running.wait(deadline).await
    }

    /// Waits until it ends by itself, and returns what it printed.
    ///
    /// # Errors
    /// [`KitError::NotYet`] at the deadline, when it is killed.
    pub async fn output(mut self, deadline: Duration) -> Result<Finished, KitError> {
        let status = self.wait_with_deadline(deadline).await?;
        Ok(Finished { status, stdout: self.stdout(), stderr: self.stderr() })
    }

    /// Waits until a line of its output, standard or error, contains `fragment`, and returns that line.
    ///
    /// # Errors
    /// [`KitError::NotReady`], with the end of its output, at the deadline or when it ends first.
    pub async fn wait_for_line(&mut self, fragment: &str, deadline: Duration) -> Result<String, KitError> {
        let log = self.running.log();
        let waited = self.running.until_ready(deadline, async || {
            log.line_with(fragment).map(|_line| ()).ok_or_else(|| format!("no line with {fragment:?}"))
        });
        let waited = waited.await;
        // Looked at again, because a program that ended may have printed the line last.
        match (log.line_with(fragment), waited) {
            (Some(line), _) => Ok(line),
            (None, Err(error)) => Err(error),
            (None, Ok(())) => {
                Err(KitError::Answer { what: "a log".to_owned(), answer: "it shrank".to_owned() })
            }
        }
    }
}
