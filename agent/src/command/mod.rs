//! What a person or a script asks at the site: `farshore agent status`, `pause`, `resume`, `hold`, `retry`, and the same
//! of `farshore-agent`.
//!
//! Each reads or writes files of the state folder, and needs neither a hub nor an agent that runs.
//!
//! - [`preflight`]: proves that an agent would work here.
//! - [`status`]: shows how the site is; [`steer`]: stops things, and lets them go on.

#[cfg(test)]
mod documents;
pub mod preflight;
pub mod status;
pub mod steer;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use farshore_shared::exit::Exit;
use farshore_shared::names::Name;

use crate::agent::{self, AgentError};
use crate::config::AgentArgs;
use crate::store::{Store, StoreError};
use preflight::PreflightArgs;
use status::StatusArgs;
use steer::{HoldArgs, PauseArgs, ResumeArgs, RetryArgs};

/// `farshore agent` and `farshore-agent`: runs the agent, or does one of its commands.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SiteArgs {
    #[command(subcommand)]
    command: Option<SiteCommand>,
    #[command(flatten)]
    agent: Option<AgentArgs>,
}

/// What is asked at the site.
#[derive(Debug, Subcommand)]
pub enum SiteCommand {
    /// Show how this site is: from its state folder, with no hub and also while no agent runs
    Status(StatusArgs),
    /// Write nothing more: no new revision, no repair
    Pause(PauseArgs),
    /// Let go on what was paused
    Resume(ResumeArgs),
    /// Not now: let no new revision begin for a while; what is in place is kept and repaired
    Hold(HoldArgs),
    /// Try a revision again that was given up, or whose hooks or tests failed
    Retry(RetryArgs),
    /// Prove that an agent with these options would work here, before it takes over
    Preflight(Box<PreflightArgs>),
}

/// Which site.
#[derive(Debug, Args)]
pub struct StateArgs {
    /// Folder for what this site keeps
    #[arg(long, env = "FARSHORE_STATE", value_name = "DIR")]
    pub state: PathBuf,
}

/// Why a command for the site was not done.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The state folder.
    #[error("using the state folder")]
    Store(#[from] StoreError),
    /// A service that is not here.
    #[error("there is no such service at this site ({service}; there are: {})", known.join(", "))]
    NoService {
        /// What was named.
        service: Name,
        /// What there is.
        known: Vec<String>,
    },
    /// A time that is over.
    #[error("the time is over already ({0})")]
    Over(String),
    /// A time that nothing here can tell.
    #[error("the clock of this site is wrong ({0}): set it, or say for how long (--for)")]
    Clock(String),
    /// Standard output.
    #[error("writing to standard output")]
    Output(#[from] io::Error),
    /// What is shown cannot be written as JSON.
    #[error("writing JSON")]
    Json(#[from] serde_json::Error),
}

impl SiteError {
    /// How a program ends with it.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Store(_) | Self::NoService { .. } | Self::Over(_) | Self::Clock(_) => Exit::BadInput,
            // Whoever read our output has enough of it.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
            Self::Output(_) | Self::Json(_) => Exit::Fault,
        }
    }
}

impl SiteArgs {
    /// Does what the command line says.
    ///
    /// # Errors
    /// [`AgentError`], whose [`AgentError::exit`] says how the program ends.
    pub async fn run(self) -> Result<Exit, AgentError> {
        match (self.command, self.agent) {
            (Some(command), _) => Ok(command.run().await?),
            (None, Some(agent)) => agent::run(agent).await,
            // The options of an agent are demanded where no command is given.
            (None, None) => Ok(Exit::Usage),
        }
    }
}

impl SiteCommand {
    async fn run(self) -> Result<Exit, SiteError> {
        let out = &mut io::stdout();
        match self {
            Self::Status(args) => args.run(out),
            Self::Pause(args) => args.run(out),
            Self::Resume(args) => args.run(out),
            Self::Hold(args) => args.run(out),
            Self::Retry(args) => args.run(out),
            Self::Preflight(args) => args.run(out).await,
        }
    }
}

/// Says when the agent hears of something.
fn heard(out: &mut dyn Write, state: &Path) -> Result<(), SiteError> {
    let when = match Store::is_in_use(state) {
        Some(_) => "the agent hears of it within seconds",
        None => "no agent runs here: it counts from its next start on",
    };
    writeln!(out, "{when}")?;
    Ok(())
}

/// Refuses a service that is neither in place nor told of at this site.
fn known_service(state: &Path, service: &Name) -> Result<(), SiteError> {
    let view = crate::local::view::of_folder(state)?;
    let known: Vec<String> = view.services.iter().map(|found| found.status.name.to_string()).collect();
    match known.iter().any(|name| name == service.as_str()) {
        true => Ok(()),
        false => Err(SiteError::NoService { service: service.clone(), known }),
    }
}
