//! `farshore-agent`: the agent as a program of its own.

use std::process::ExitCode;

use clap::Parser;
use farshore_agent::config::AgentArgs;
use farshore_agent::health::rules;
use farshore_shared::exit::{Exit, chain};

/// The Farshore agent: keeps a site at its last accepted state, hub or no hub.
#[derive(Parser)]
#[command(name = "farshore-agent", version)]
struct Command {
    #[command(flatten)]
    agent: AgentArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    if rules::is_asked(std::env::args_os().nth(1).as_deref()) {
        return rules::answer();
    }
    let command = Command::parse();
    farshore_shared::logs::start();
    let exit: Exit = match farshore_agent::agent::run(command.agent).await {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("farshore-agent: {}", chain(&error));
            error.exit()
        }
    };
    exit.into()
}
