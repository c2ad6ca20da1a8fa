//! `farshore demo`: the whole of Farshore on one machine, played and told while it happens.
//!
//! - [`story`]: the steps, each with what it does, what it waits for, and its figures.
//! - [`world`]: the folder with a fleet repository, a hub and sites; [`process`] and [`repository`] are
//!   what it is made of.
//! - [`screen`]: what a person sees.
//!
//! Nothing is pretended: hub and agents are processes of their own, started as a person would start
//! them and killed with SIGKILL, and what is told of a site is what lies in its folder.

mod process;
mod repository;
mod screen;
mod story;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use farshore_shared::exit::{Exit, chain};
use tokio::signal::unix::{Signal, SignalKind, signal};

use screen::Screen;
use world::World;

/// `farshore demo`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Play the story and exit: with 1 if any step of it did not happen
    #[arg(long, env = "FARSHORE_ONCE")]
    pub(crate) once: bool,
    /// How many sites
    #[arg(long, env = "FARSHORE_SITES", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub(crate) sites: u8,
    /// Keep the folder with everything in it at the end
    #[arg(long, env = "FARSHORE_KEEP")]
    pub(crate) keep: bool,
}

const EXAMPLES: &str = "\
Examples:
  farshore demo                   tells the story, then stays up to be tried
  farshore demo --once            tells the story and exits
  farshore demo --sites 8 --keep  with eight sites; the folder stays at the end";

/// Why the story does not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// A file or folder.
    #[error("{doing} ({})", .path.display())]
    Io {
        /// What we were doing.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// A program cannot be started.
    #[error("starting a program ({program}): is it installed?")]
    Start {
        /// The program.
        program: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A program that ends by itself did not end well.
    #[error("running a program ({command}): {said}")]
    Command {
        /// The command line, as far as it may be shown.
        command: String,
        /// What it said.
        said: String,
    },
    /// A program that should run does not.
    #[error("{name} has ended by itself ({status})")]
    Ended {
        /// Which.
        name: String,
        /// How.
        status: std::process::ExitStatus,
    },
    /// Something did not happen in time.
    #[error("waited {} s for {what}, and it did not happen; last seen: {last}", .waited.as_secs())]
    NotYet {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
        /// What there was instead.
        last: String,
    },
    /// Something happened that must not.
    #[error("{0}")]
    Wrong(String),
    /// A port, a signal handler.
    #[error("{doing}")]
    System {
        /// What we were doing.
        doing: &'static str,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
}

impl DemoError {
    /// How the program ends with it.
    pub(crate) fn exit(&self) -> Exit {
        Exit::Fault
    }
}

/// Plays the demo until its end, or until it is told to stop. Nothing is left of it afterwards, except
/// for the folder where that was asked for.
pub(crate) async fn run(args: DemoArgs) -> Result<Exit, DemoError> {
    let mut stop = Stop::listen()?;
    let mut screen = Screen::new();
    let mut world = World::make(args.sites.into(), args.keep)?;
    // Both are cut anywhere without harm: a world that is dropped ends its processes.
    let end = tokio::select! {
        outcome = play(&mut world, &mut screen) => outcome.map_or_else(End::Missed, |()| End::Told),
        () = stop.asked() => End::Stopped,
    };
    if let End::Missed(error) = &end {
        screen.miss(&chain(error), &world.logs());
    }
    if !args.once && !matches!(end, End::Stopped) {
        screen.invite(&world);
        stop.asked().await;
    }
    screen.close(args.keep.then(|| world.folder()));
    Ok(match end {
        End::Told => Exit::Ok,
        End::Stopped if !args.once => Exit::Ok,
        End::Stopped | End::Missed(_) => Exit::Fault,
    })
}

/// How the story ended.
enum End {
    /// All of it happened.
    Told,
    /// Somebody stopped it.
    Stopped,
    /// Something of it did not happen.
    Missed(DemoError),
}

/// The story.
async fn play(world: &mut World, screen: &mut Screen) -> Result<(), DemoError> {
    screen.open(world);
    story::sites_join(world, screen).await?;
    story::a_commit_arrives(world, screen).await?;
    story::the_hub_dies(world, screen).await?;
    story::drift_is_repaired_without_a_hub(world, screen).await?;
    story::a_site_boots_cold_without_a_hub(world, screen).await?;
    story::the_hub_returns(world, screen).await?;
    story::a_mass_removal_waits(world, screen).await?;
    story::steady_polls_are_small(world, screen).await?;
    screen.praise();
    Ok(())
}

/// Ctrl-C, or a polite kill.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Stop {
    fn listen() -> Result<Self, DemoError> {
        let listen =
            |kind| signal(kind).map_err(|source| DemoError::System { doing: "waiting for signals", source });
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn asked(&mut self) {
        // All are cancel-safe: a signal is kept until it is received.
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
