//! `farshore-agent`: the agent as a program of its own.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use farshore_agent::command::SiteArgs;
use farshore_agent::health::rules;
use farshore_shared::exit::{Exit, chain};
use tokio::runtime::Builder;

/// Rendering and a first apply take several times what an agent at rest has, and it is at rest for months: what is freed
/// goes back to the system at once (`JEMALLOC_SYS_WITH_MALLOC_CONF` in `.cargo/config.toml`), where the C library keeps it.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Threads for what waits: an agent is idle nearly always, and each thread costs memory.
const WORKERS: usize = 2;
/// Threads for what blocks on the disk.
const BLOCKING: usize = 8;
/// How long what blocks is waited for at the end. It may be cut anywhere: what it writes is whole or invisible.
const ENDING: Duration = Duration::from_millis(500);

/// The Farshore agent: keeps a site at its last accepted state, hub or no hub.
#[derive(Parser)]
#[command(name = "farshore-agent", version)]
struct Command {
    #[command(flatten)]
    site: SiteArgs,
}

fn main() -> ExitCode {
    if rules::is_asked(std::env::args_os().nth(1).as_deref()) {
        return rules::answer();
    }
    let command = Command::parse();
    farshore_shared::logs::start();
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("farshore-agent: cannot start its threads: {error}");
            return Exit::Fault.into();
        }
    };
    let ended = runtime.block_on(command.site.run());
    runtime.shutdown_timeout(ENDING);
    let exit: Exit = match ended {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("farshore-agent: {}", chain(&error));
            error.exit()
        }
    };
    exit.into()
}
