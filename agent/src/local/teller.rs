//! Where what the agent knows comes together, for whoever shows it at the site.

use std::sync::Arc;

use farshore_shared::clock;
use farshore_shared::names::Name;
use tokio::sync::watch;

use super::keeper::Known;
use super::{Contact, Snapshot};
use crate::reconcile::Pass;

/// What does not change while an agent runs.
#[derive(Debug, Clone)]
pub struct About {
    /// The site.
    pub cluster: Name,
    /// The hub that was named.
    pub hub: String,
    /// Where manifests go.
    pub target: String,
    /// The maintenance windows.
    pub windows: Vec<String>,
}

/// Hands on what is known, when it changed.
#[derive(Debug)]
pub struct Teller {
    about: About,
    known: watch::Sender<Known>,
}

impl Teller {
    /// A teller that knows nothing yet, but when the hub was heard before.
    #[must_use]
    pub fn new(about: About, contact: Contact) -> Self {
        let (known, _) = watch::channel(Known { contact, ..Known::default() });
        Self { about, known }
    }

    /// Somebody who shows it.
    #[must_use]
    pub fn listener(&self) -> watch::Receiver<Known> {
        self.known.subscribe()
    }

    /// Another agent of this site works, and this one waits; or it works itself.
    pub fn stands_by(&self, standby: bool) {
        self.known.send_modify(|known| known.standby = standby);
    }

    /// The hub answered.
    pub fn heard(&self) {
        self.known.send_modify(|known| known.contact.heard(clock::now()));
    }

    /// It did not.
    pub fn silent(&self, why: String) {
        self.known.send_modify(|known| known.contact.silent(clock::now(), why));
    }

    /// What was found at the site.
    pub fn found(&self, pass: &Pass, alarms: &[String], poll_seconds: u64) {
        let About { cluster, hub, target, windows } = self.about.clone();
        let snapshot = Snapshot {
            cluster,
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            hub,
            target,
            reached: pass.reached,
            at: clock::now(),
            holds: pass.holds,
            services: pass.services.clone(),
            alarms: alarms.iter().chain(&pass.alarms).cloned().collect(),
            controls: pass.controls.clone(),
            footprint: pass.footprint,
            windows,
            poll_seconds,
        };
        self.known.send_modify(|known| known.snapshot = Some(Arc::new(snapshot)));
    }
}
