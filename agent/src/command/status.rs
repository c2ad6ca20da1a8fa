//! `farshore agent status`.

use std::io::Write;

use clap::{Args, ValueEnum};
use farshore_shared::clock;
use farshore_shared::exit::Exit;

use super::{SiteError, StateArgs};
use crate::local::{text, view};

/// `farshore agent status`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArgs {
    #[command(flatten)]
    state: StateArgs,
    /// How it is written
    #[arg(long, short, env = "FARSHORE_OUTPUT", value_enum, default_value_t = Output::Text)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  farshore agent status --state /var/lib/farshore
  farshore agent status --state /var/lib/farshore -o json | jq '.services[] | select(.health != \"healthy\")'
  kubectl exec --namespace farshore deploy/farshore-agent -- farshore-agent status

Health: healthy, progressing (on its way to a revision), waiting (something must come first), held (somebody
stopped what would come next, or a removal waits), failed, unknown (no agent has told).";

/// How a status is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl StatusArgs {
    /// Shows it.
    ///
    /// # Errors
    /// [`SiteError`].
    pub fn run(&self, out: &mut dyn Write) -> Result<Exit, SiteError> {
        let view = view::of_folder(&self.state.state)?;
        match self.output {
            Output::Text => out.write_all(text::page(&view, clock::now()).as_bytes())?,
            Output::Json => {
                serde_json::to_writer_pretty(&mut *out, &view)?;
                writeln!(out)?;
            }
        }
        Ok(Exit::Ok)
    }
}
