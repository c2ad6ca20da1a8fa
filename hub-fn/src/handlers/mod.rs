//! The handlers: functions of a request and of what the hub has. No handler knows which door a
//! request came through.

pub mod artifact;
pub mod desired;
pub mod enroll;
pub mod health;
pub mod hooks;
pub mod operators;
pub mod status;
pub mod trust;
pub mod wake;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use artifact::Redirects;

use crate::auth::Gate;
use crate::hooks::Hooks;
use crate::index::Index;
use crate::load::{self, Load};
use crate::metrics::Metrics;
use crate::seen::Seen;
use crate::status::{Statuses, TOGETHER, Writer};
use crate::view::View;
use crate::waiting::{Waiting, WakeLimits};

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
    /// Where news are told.
    pub index: Arc<dyn Index>,
    /// How much is taken on.
    pub load: Arc<Load>,
    /// The agents that wait for news.
    pub waiting: Arc<Waiting>,
    /// The webhooks of Git servers.
    pub hooks: Arc<Hooks>,
    /// Whether sites may be sent to the bucket.
    pub redirects: Redirects,
    /// The roots that were sent before.
    pub roots: trust::Roots,
}

/// What a hub takes on. The default is right for one of a modest size.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Requests.
    pub load: load::Limits,
    /// Agents that wait for news.
    pub wake: WakeLimits,
    /// The folder of webhook secrets.
    pub hooks: Option<PathBuf>,
    /// Whether sites may be sent to the bucket.
    pub redirects: Redirects,
    /// How long a report waits for others that share its PUT.
    pub gather: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let (load, wake) = (load::Limits::default(), WakeLimits::default());
        Self { load, wake, hooks: None, redirects: Redirects::default(), gather: TOGETHER }
    }
}

impl Hub {
    /// A hub over a view. Its writer of reports is a task: this is called within a runtime.
    #[must_use]
    pub fn new(view: View, index: Arc<dyn Index>, settings: Settings) -> Self {
        Self {
            statuses: Statuses::new(&view, Arc::clone(&index)),
            gate: Gate::new(view.clone()),
            reports: Writer::start(Arc::clone(view.objects()), settings.gather),
            view,
            seen: Arc::default(),
            metrics: Arc::default(),
            wake: Arc::default(),
            index,
            load: Arc::new(Load::new(settings.load)),
            waiting: Arc::new(Waiting::new(settings.wake)),
            hooks: Arc::new(Hooks::new(settings.hooks)),
            redirects: settings.redirects,
            roots: trust::Roots::default(),
        }
    }
}
