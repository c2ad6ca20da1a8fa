//! `cargo xtask`: the project's chores.
//!
//! - [`testbed`]: provides the servers and programs that tests run against.
//! - [`mod@test`]: runs the tests by tier.
//! - [`mod@bench`]: measures one thing beside its yardstick.
//! - [`dist`]: builds the programs as they are shipped.
//! - [`cost`]: what a fleet costs on AWS.
//! - [`lint`]: formatting, lints, documentation, licences, and what may be linked.
//!
//! [`command`] runs other programs, [`workspace`] knows where things are, [`error`] says what went wrong.

mod bench;
mod command;
mod cost;
mod dist;
mod error;
mod lint;
mod test;
mod testbed;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// The project's chores.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Chore {
    Testbed(testbed::Options),
    Test(test::Options),
    Lint(lint::Options),
    Bench(bench::Options),
    Dist(dist::Options),
    Cost(cost::Options),
}

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::Testbed(options) => testbed::run(&options),
        Chore::Test(options) => test::run(&options),
        Chore::Lint(options) => lint::run(&options),
        Chore::Bench(options) => bench::run(&options),
        Chore::Dist(options) => dist::run(&options),
        Chore::Cost(options) => {
            cost::run(&options);
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error.with_causes());
            ExitCode::FAILURE
        }
    }
}
