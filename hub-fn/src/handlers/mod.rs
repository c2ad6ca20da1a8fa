//! The handlers: functions of a request and of what the hub has. No handler knows which door a
//! request came through.

pub mod artifact;
pub mod desired;
pub mod enroll;
pub mod health;
pub mod hooks;
pub mod status;
pub mod trust;
pub mod wake;

use std::sync::Arc;

use tokio::sync::Notify;

use crate::auth::Gate;
use crate::hooks::Hooks;
use crate::index::Index;
use crate::load::Load;
use crate::metrics::Metrics;
use crate::seen::Seen;
use crate::view::View;
use crate::waiting::Waiting;

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
    /// Where news are told.
    pub index: Arc<dyn Index>,
    /// How much is taken on.
    pub load: Arc<Load>,
    /// The agents that wait for news.
    pub waiting: Arc<Waiting>,
    /// The webhooks of Git servers.
    pub hooks: Arc<Hooks>,
}
