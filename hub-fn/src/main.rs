//! `farshore-hub`: the hub as a program of its own.

use std::process::ExitCode;

use clap::Parser;
use farshore_hub_fn::config::HubArgs;
use farshore_shared::exit::{Exit, chain};

/// The Farshore hub: publishes signed desired state and answers sites.
#[derive(Parser)]
#[command(name = "farshore-hub", version)]
struct Command {
    #[command(flatten)]
    hub: HubArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    let command = Command::parse();
    farshore_shared::logs::start();
    let exit: Exit = match farshore_hub_fn::run::run(command.hub).await {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("farshore-hub: {}", chain(&error));
            error.exit()
        }
    };
    exit.into()
}
