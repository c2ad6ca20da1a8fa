//! The handlers: functions of a request and of what the hub has. No handler knows which door a
//! request came through.

pub mod artifact;
pub mod desired;
pub mod enroll;
pub mod health;
pub mod status;
pub mod trust;

use std::sync::Arc;

use tokio::sync::Notify;

use crate::auth::Gate;
use crate::metrics::Metrics;
use crate::seen::Seen;
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
    /// Wakes a publisher in the same process.
    pub wake: Arc<Notify>,
    /// How artifacts are sent.
    pub delivery: artifact::Delivery,
    /// The roots that were sent before.
    pub roots: trust::Roots,
}
