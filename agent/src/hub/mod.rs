//! The client of a hub: one connection, kept and used again; everything that arrives is bounded.
//!
//! - [`address`]: where a hub is.
//! - [`tls`]: whom to talk TLS with.
//! - [`caller`]: the pass with which this site calls.
//! - [`body`]: bodies, bounded in bytes and in time without progress.
//! - `elsewhere`: where a hub sends a site for an artifact.
//! - [`client`]: the requests of wire version 1; how any of them goes out: `client/exchange.rs`.
//! - `answer`: what a hub answers.
//! - [`fetch`](mod@fetch): artifacts into the state folder, with resume.
//!
//! Nothing here verifies a document: see [`crate::verify`].

use std::error::Error;
use std::time::Duration;

pub mod address;
mod answer;
pub mod body;
pub mod caller;
pub mod client;
mod connection;
mod elsewhere;
pub mod fetch;
#[cfg(test)]
pub(crate) mod tests;
pub mod tls;

pub use address::HubUrl;
pub use answer::{DesiredAnswer, EnrollAnswer, Heard, Piece, WakeAnswer};
pub use body::Body;
pub use caller::Caller;
pub use client::HubClient;
pub use connection::Traffic;
pub use fetch::{FetchError, fetch};
pub use tls::Trust;

/// How long nothing may arrive, unless somebody says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Why a hub did not give what was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// It could not be reached, or the connection broke or stalled.
    #[error("reaching the hub failed ({hub})")]
    Unreachable {
        /// Which hub.
        hub: String,
        /// What happened.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// Something answered that is not the hub, such as a captive portal.
    #[error("something else answers at the hub's address ({hub}): {why}")]
    NotOurHub {
        /// Which hub was called.
        hub: String,
        /// How that was seen.
        why: String,
    },
    /// More bytes than are read.
    #[error("{what} exceeds its limit ({limit} bytes)")]
    TooLarge {
        /// What was being read.
        what: &'static str,
        /// The limit, in bytes.
        limit: usize,
    },
    /// It refuses.
    #[error("hub refuses (status {status}): {problem}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What it says.
        problem: String,
    },
    /// It asks to come back.
    #[error("hub is busy (status {status})")]
    Busy {
        /// The HTTP status.
        status: u16,
        /// After how long, where it says so. To be clamped and spread by the caller.
        retry_after: Option<Duration>,
    },
    /// The answer is the hub's and cannot be read.
    #[error("reading {what} from the hub")]
    Unreadable {
        /// What was being read.
        what: &'static str,
        /// Why not.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// This machine cannot speak to any hub like this.
    #[error("preparing to call the hub")]
    Setup {
        /// What is missing.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

impl HubError {
    fn unreachable(hub: &HubUrl, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unreachable { hub: hub.to_string(), source: source.into() }
    }

    /// Whether the same call can succeed later without anybody doing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            // A captive portal goes away, too.
            Self::Unreachable { .. } | Self::NotOurHub { .. } | Self::Busy { .. } => true,
            Self::Refused { status, .. } => *status >= 500 || matches!(status, 401 | 408),
            Self::TooLarge { .. } | Self::Unreadable { .. } | Self::Setup { .. } => false,
        }
    }
}
