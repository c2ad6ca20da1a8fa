//! The `farshore` command: both sides of Farshore, and what an operator does.
//!
//! [`command`] is the table of contents; each command is a module of its own that reads its part of
//! the command line, does one thing, and ends in a [`failure::Failure`] or an exit code.
//!
//! - [`demo`]: all of it on one machine, played and told.
//! - `hub`, `agent`: the two sides, which live in crates of their own.
//! - [`trust`], [`token`]: what a fleet begins with.
//! - [`get`], [`approve`], [`remove`]: what a hub knows, read and answered: from its record ([`record`]), or by asking it
//!   ([`remote`]).
//! - [`diff`], [`adopt`]: a site beside its agent ([`site`]): what would change, and what others applied.
//! - [`gc`]: what of the record nobody needs any more.
//! - [`validate`]: a fleet repository before it is pushed.
//! - [`table`], [`time`]: how things are shown to people.

mod adopt;
mod approve;
mod command;
mod completion;
mod demo;
mod diff;
mod failure;
mod gc;
mod get;
mod record;
mod remote;
mod remove;
mod site;
mod table;
mod time;
mod token;
mod trust;
mod validate;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use farshore_agent::health::rules;
use farshore_shared::exit::Exit;

/// How long what blocks on a disk is waited for when a command has ended: an agent ends within two seconds.
const ENDING: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    // The agent evaluates rules of health in a process of its own: this program again.
    if rules::is_asked(std::env::args_os().nth(1).as_deref()) {
        return rules::answer();
    }
    let farshore = command::Farshore::parse();
    farshore_shared::logs::start();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("farshore: cannot start its threads: {error}");
            return Exit::Fault.into();
        }
    };
    let exit = runtime.block_on(farshore.run()).unwrap_or_else(|failure| failure.tell());
    runtime.shutdown_timeout(ENDING);
    exit.into()
}
