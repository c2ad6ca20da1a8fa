//! The handlers: functions of a request and of what the hub has. No handler knows which door a
//! request came through.

pub mod artifact;
pub mod desired;
pub mod enroll;
pub mod health;
pub mod operators;
pub mod status;
pub mod trust;

use std::sync::Arc;

use tokio::sync::Notify;

use crate::auth::Gate;
use crate::metrics::Metrics;
use crate::seen::Seen;
use crate::status::{Statuses, Writer};
use crate::view::View;

/// What every handler is given.
#[derive(Debug, Clone)]
pub struct Hub {
    /// What this replica remembers.
    pub view: View,
    /// Who may come in.
    pub gate: Gate,
    /// When clusters were last heard.
    pub seen: Arc<Seen>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Appends what sites say of themselves.
    pub reports: Writer,
    /// Reads what sites have said.
    pub statuses: Statuses,
    /// Wakes a publisher in the same process.
    pub wake: Arc<Notify>,
}
