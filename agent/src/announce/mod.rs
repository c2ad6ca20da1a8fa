//! What a cluster is told about its services: Events, and a `FarshoreService` each. Nothing depends on it.
//!
//! ```text
//! known -> happenings (pure) -> tally (pure: what is repeated is counted) -> Events
//!       -> shown (pure)      -> ledger (pure: what changed, at most so often) -> FarshoreService
//! ```
//!
//! - [`announcer`]: the task; [`Board`]: where it writes.

pub mod announcer;
pub mod happenings;
pub mod ledger;
pub mod shown;
pub mod tally;

use std::future::Future;

use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;
use serde_json::Value;

/// An Event, as often as it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its name, which is the same each time.
    pub name: String,
    /// The site.
    pub cluster: Name,
    /// The service that it is about; none where it is about the site.
    pub service: Option<Name>,
    /// One word for machines, such as `RevisionApplied`.
    pub reason: &'static str,
    /// Whether a person should look.
    pub tone: Tone,
    /// What happened.
    pub note: String,
    /// When it happened first.
    pub first: UnixSeconds,
    /// When it happened last.
    pub last: UnixSeconds,
    /// How often.
    pub count: u32,
}

/// Whether a person should look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// It is as it should be.
    Normal,
    /// It is not.
    Warning,
}

/// Why something was not told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BoardError {
    /// It is not wanted here: it makes no sense to try again soon.
    #[error("{0}")]
    Unwanted(String),
    /// It may be told later.
    #[error("{0}")]
    Later(String),
}

/// Where it is told.
pub trait Board: Send + Sync + 'static {
    /// Writes an Event, or the same one anew.
    fn event(&self, event: &Event) -> impl Future<Output = Result<(), BoardError>> + Send;

    /// Writes the status of a service.
    fn show(
        &self,
        cluster: &Name,
        service: &Name,
        status: &Value,
    ) -> impl Future<Output = Result<(), BoardError>> + Send;

    /// Takes away the status of a service that was removed.
    fn take_down(
        &self,
        cluster: &Name,
        service: &Name,
    ) -> impl Future<Output = Result<(), BoardError>> + Send;
}

/// Where nothing is told.
#[derive(Debug, Clone, Copy)]
pub struct Nowhere;

impl Board for Nowhere {
    async fn event(&self, _event: &Event) -> Result<(), BoardError> {
        Ok(())
    }

    async fn show(&self, _cluster: &Name, _service: &Name, _status: &Value) -> Result<(), BoardError> {
        Ok(())
    }

    async fn take_down(&self, _cluster: &Name, _service: &Name) -> Result<(), BoardError> {
        Ok(())
    }
}
