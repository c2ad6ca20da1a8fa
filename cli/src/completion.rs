//! `farshore completion`: a script that completes this command in a shell.

use std::io::Write as _;

use clap::{Args, CommandFactory as _, ValueEnum};
use farshore_shared::exit::Exit;

use crate::command::Farshore;
use crate::failure::Failure;

/// `farshore completion`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  source <(farshore completion bash)
  farshore completion zsh > ~/.zfunc/_farshore
  farshore completion fish > ~/.config/fish/completions/farshore.fish";

/// The shells that are known.
#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl CompletionArgs {
    /// Prints the script.
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        let shell = match self.shell {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Zsh => clap_complete::Shell::Zsh,
            Shell::Fish => clap_complete::Shell::Fish,
        };
        // Made whole first: the generator panics on a pipe that was closed.
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Farshore::command(), "farshore", &mut script);
        std::io::stdout().write_all(&script)?;
        Ok(Exit::Ok)
    }
}
