//! `farshore-hub` on a port of its own.

use std::fmt;
use std::time::Duration;

use super::{EVERY, set_option};
use crate::kit::{KitError, Port, Process};

const LISTENS_WITHIN: Duration = Duration::from_secs(30);

/// What a hub does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Serves and publishes.
    All,
    /// Answers sites.
    Serve,
    /// Publishes.
    Publish,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Serve => "serve",
            Self::Publish => "publish",
        })
    }
}

/// A hub, running or not; `Drop` kills it.
#[derive(Debug)]
pub struct Hub {
    port: Port,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    process: Option<Process>,
}

impl Hub {
    pub(super) fn new(
        role: Role,
        mut arguments: Vec<String>,
        variables: Vec<(String, String)>,
    ) -> Result<Self, KitError> {
        let port = Port::take()?;
        arguments.push(format!("--listen={}", port.address()));
        arguments.push(format!("--site-poll={EVERY}"));
        if role != Role::Serve {
            arguments.push(format!("--interval={EVERY}"));
        }
        Ok(Self { port, arguments, variables, process: None })
    }

    /// Starts it, and returns when it listens. One that runs is killed first.
    ///
    /// # Errors
    /// When it ends, or does not listen in time.
    pub async fn start(&mut self) -> Result<(), KitError> {
        self.kill()?;
        self.process = Some(self.launch()?);
        self.process().wait_for_line("listening on https://", LISTENS_WITHIN).await.map(|_line| ())
    }

    /// Starts a further process with the same options, and does not wait for anything.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn launch(&self) -> Result<Process, KitError> {
        let variables = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Process::start_with("farshore-hub", &self.arguments, variables)
    }

    /// Sets an option, given as `--name=value`, for the next start.
    #[must_use]
    pub fn option(mut self, option: impl Into<String>) -> Self {
        set_option(&mut self.arguments, option.into());
        self
    }

    /// Sets a variable for the next start.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(other, _)| other != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Kills it as a power cut would. Nothing happens when it does not run.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> Result<(), KitError> {
        match self.process.take() {
            Some(mut process) => process.kill().map(|_status| ()),
            None => Ok(()),
        }
    }

    /// The running process.
    ///
    /// # Panics
    /// When it does not run.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("the test has started this hub")
    }

    /// Where it listens, as `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        self.port.address()
    }
}
