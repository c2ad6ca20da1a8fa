//! The commands, and which module does each.

use clap::{Parser, Subcommand};
use farshore_agent::command::SiteArgs;
use farshore_hub_fn::config::HubArgs;
use farshore_shared::exit::Exit;

use crate::adopt::AdoptArgs;
use crate::approve::ApproveArgs;
use crate::completion::CompletionArgs;
use crate::demo::DemoArgs;
use crate::diff::DiffArgs;
use crate::failure::Failure;
use crate::gc::GcArgs;
use crate::get::GetArgs;
use crate::remove::RemoveArgs;
use crate::token::TokenArgs;
use crate::trust::TrustArgs;
use crate::validate::ValidateArgs;

/// GitOps for sites that lose their link
///
/// A hub publishes what Git says, signed; an agent at each site keeps its cluster at the last state
/// that it accepted, hub or no hub.
#[derive(Parser)]
#[command(name = "farshore", version, arg_required_else_help = true, after_help = GENERAL)]
pub(crate) struct Farshore {
    #[command(subcommand)]
    command: Command,
}

const GENERAL: &str = "\
Examples:
  farshore hub --data ./hub --fleet https://git.example/fleet.git
  farshore token create --data ./hub --label tier=edge
  farshore agent --hub https://hub.example:8443 --join \"$TOKEN\" --name shop-7 \\
      --state ./state --target kubernetes
  farshore get clusters --data ./hub

Options can be given as variables: --data as FARSHORE_DATA. FARSHORE_LOG is a log filter
(warn, debug), FARSHORE_LOG_FORMAT is text or json, NO_COLOR turns colours off.

Exit codes: 0 done, 1 a fault of this program, 2 usage, 3 bad input, 4 a change waits for an
approval, 5 somebody who is needed does not answer.";

#[derive(Subcommand)]
enum Command {
    /// Show all of it on this machine: a hub, three sites, and an outage
    Demo(DemoArgs),
    /// Run a hub: publish what Git says, and answer sites
    Hub(HubArgs),
    /// Run an agent: keep a site at its last accepted state; or ask and steer the one that runs here
    Agent(Box<SiteArgs>),
    /// Make the keys and the trust root of a fleet
    Trust(TrustArgs),
    /// Make join tokens, with which sites enrol
    Token(TokenArgs),
    /// Show clusters, services or sources
    Get(GetArgs),
    /// Let a held change through
    Approve(ApproveArgs),
    /// Take a cluster out of the fleet
    Remove(RemoveArgs),
    /// Show what the agent of a site would change
    Diff(DiffArgs),
    /// Take a service's objects over from who applied them before
    Adopt(AdoptArgs),
    /// Delete what of the record nobody needs any more
    Gc(GcArgs),
    /// Check a fleet repository before it is pushed
    Validate(ValidateArgs),
    /// Print a completion script for a shell
    Completion(CompletionArgs),
}

impl Farshore {
    /// Does what the command line says.
    pub(crate) async fn run(self) -> Result<Exit, Failure> {
        match self.command {
            Command::Demo(args) => Ok(crate::demo::run(args).await?),
            Command::Hub(args) => Ok(farshore_hub_fn::run::run(args).await?),
            Command::Agent(args) => Ok(args.run().await?),
            Command::Trust(args) => args.run(),
            Command::Token(args) => args.run(),
            Command::Get(args) => args.run().await,
            Command::Approve(args) => args.run().await,
            Command::Remove(args) => args.run().await,
            Command::Diff(args) => args.run().await,
            Command::Adopt(args) => args.run().await,
            Command::Gc(args) => args.run().await,
            Command::Validate(args) => args.run(),
            Command::Completion(args) => args.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Farshore::command().debug_assert();
    }

    #[test]
    fn every_option_is_also_a_variable_of_its_name() {
        fn visit(command: &clap::Command) {
            for option in command.get_arguments().filter(|argument| argument.get_long().is_some()) {
                let long = option.get_long().unwrap_or_default();
                let variable = format!("FARSHORE_{}", long.to_uppercase().replace('-', "_"));
                let found = option.get_env().map(|name| name.to_string_lossy().into_owned());
                let is_filter = option.get_value_parser().possible_values().is_some() && long == "state";
                assert!(is_filter || found == Some(variable), "--{long} of {}", command.get_name());
            }
            command.get_subcommands().for_each(visit);
        }
        visit(&Farshore::command());
    }

    #[test]
    fn every_command_has_an_example_of_itself() {
        fn visit(command: &clap::Command, path: &str) {
            let path = format!("{path}{} ", command.get_name());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&path), "{path}has no example of itself");
            command.get_subcommands().for_each(|below| visit(below, &path));
        }
        visit(&Farshore::command(), "");
    }
}
