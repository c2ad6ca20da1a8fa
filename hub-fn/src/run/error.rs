//! Why a hub ends, and how.

use std::path::PathBuf;

use farshore_shared::exit::Exit;

use crate::config::BadConfig;
use crate::keyring::KeyringError;
use crate::objects::{ObjectsError, ProofError};
use crate::publish::PublishError;
use crate::retention::RetentionError;
use crate::tls::TlsError;
use crate::trace::TraceError;
use crate::trust::TrustError;

/// Why a hub cannot run.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The command line.
    #[error(transparent)]
    Config(#[from] BadConfig),
    /// The data folder.
    #[error("using the data folder ({path}): {why}")]
    Data {
        /// The folder.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The object storage.
    #[error("accessing the record")]
    Objects(#[from] ObjectsError),
    /// An address of object storage or index.
    #[error("{flag}: {why}")]
    Address {
        /// The flag.
        flag: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The bucket cannot carry a record.
    #[error("proving that the object storage honours conditional writes")]
    Proof(#[from] ProofError),
    /// The keys.
    #[error("preparing the keys")]
    Keys(#[from] KeyringError),
    /// The trust root.
    #[error("establishing the trust root")]
    Trust(#[from] TrustError),
    /// TLS.
    #[error("preparing TLS")]
    Tls(#[from] TlsError),
    /// Traces.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// The listener.
    #[error("listening on {address}: is another hub running there?")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A publication.
    #[error("publishing")]
    Publish(#[from] PublishError),
    /// Collecting.
    #[error("collecting what is unneeded")]
    Collect(#[from] RetentionError),
    /// The runtime API of AWS Lambda.
    #[cfg(feature = "lambda")]
    #[error("taking events from Lambda")]
    Lambda(#[source] lambda_http::Error),
    /// A signal handler.
    #[error("waiting for signals")]
    Signals(#[source] std::io::Error),
}

impl HubError {
    /// How a program ends with it.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Config(_) | Self::Address { .. } | Self::Traces(_) => Exit::Usage,
            Self::Objects(error) | Self::Publish(PublishError::Objects(error)) if error.retryable() => {
                Exit::Unreachable
            }
            Self::Proof(ProofError::Objects(error)) | Self::Trust(TrustError::Objects(error))
                if error.retryable() =>
            {
                Exit::Unreachable
            }
            Self::Data { .. }
            | Self::Proof(_)
            | Self::Keys(_)
            | Self::Trust(_)
            | Self::Tls(_)
            | Self::Listen { .. } => Exit::BadInput,
            Self::Objects(_) | Self::Publish(_) | Self::Collect(_) | Self::Signals(_) => Exit::Fault,
            #[cfg(feature = "lambda")]
            Self::Lambda(_) => Exit::Fault,
        }
    }
}
