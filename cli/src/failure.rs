//! Why a command could not be done, and how the program then ends.

use std::io;

use farshore_agent::agent::AgentError;
use farshore_agent::foresight::ForesightError;
use farshore_hub_fn::declare::FolderError;
use farshore_hub_fn::keyring::KeyringError;
use farshore_hub_fn::retention::RetentionError;
use farshore_hub_fn::run::HubError;
use farshore_hub_fn::tls::TlsError;
use farshore_shared::exit::{Exit, chain};

use crate::approve::ApproveError;
use crate::demo::DemoError;
use crate::gc::GcError;
use crate::record::RecordError;
use crate::remote::RemoteError;
use crate::time::ClockError;

/// A command that was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The demo.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// The hub.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A site, looked at.
    #[error(transparent)]
    Foresight(#[from] ForesightError),
    /// The record beside a hub.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A hub that was asked.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The keys.
    #[error(transparent)]
    Keys(#[from] KeyringError),
    /// A certificate to be pinned.
    #[error(transparent)]
    Certificate(#[from] TlsError),
    /// An approval.
    #[error(transparent)]
    Approve(#[from] ApproveError),
    /// What a collection was told.
    #[error(transparent)]
    Gc(#[from] GcError),
    /// A collection.
    #[error(transparent)]
    Retention(#[from] RetentionError),
    /// A folder to be validated.
    #[error("reading the fleet repository")]
    Folder(#[from] FolderError),
    /// The clock.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// Standard output.
    #[error("writing to standard output")]
    Output(#[from] io::Error),
}

impl Failure {
    /// How the program ends with it.
    fn exit(&self) -> Exit {
        match self {
            Self::Demo(error) => error.exit(),
            Self::Hub(error) => error.exit(),
            Self::Agent(error) => error.exit(),
            Self::Foresight(ForesightError::Unreachable(_)) => Exit::Unreachable,
            Self::Foresight(_) => Exit::BadInput,
            Self::Record(error) => error.exit(),
            Self::Remote(error) => error.exit(),
            Self::Approve(error) => error.exit(),
            Self::Keys(_) | Self::Certificate(_) | Self::Folder(_) => Exit::BadInput,
            Self::Gc(_) => Exit::Usage,
            Self::Retention(RetentionError::Objects(error)) if error.retryable() => Exit::Unreachable,
            Self::Retention(RetentionError::Contended(_) | RetentionError::TooLate(_)) => Exit::Unreachable,
            Self::Retention(_) => Exit::BadInput,
            Self::Clock(_) | Self::Output(_) => Exit::Fault,
        }
    }

    /// Says it once, on standard error, and how to end.
    pub(crate) fn tell(&self) -> Exit {
        match self {
            // Whoever read our output has enough of it: `farshore get clusters | head`.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
            failure => {
                anstream::eprintln!("farshore: {}", chain(failure));
                failure.exit()
            }
        }
    }
}
