//! What a site says of itself to whoever stands there: with no hub, and with no agent that runs.
//!
//! - [`Snapshot`]: what the agent knows now; [`teller`] makes it, and a `watch` channel hands it on.
//! - [`keeper`]: the task that writes it to the state folder; [`view`]: what is read from there, and shown.
//! - [`text`]: the same for people (pure).

pub mod keeper;
pub mod teller;
pub mod text;
pub mod view;

use farshore_shared::names::Name;
use farshore_shared::wire::{DriftAction, Holds, ServiceState, ServiceStatus, SiteControls, UnixSeconds};
use serde::{Deserialize, Serialize};

use crate::footprint::InForce;

/// What the agent knows at one time. It is kept in `local/status.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The site.
    pub cluster: Name,
    /// The agent's version.
    pub agent: String,
    /// The hub that was named.
    pub hub: String,
    /// Where manifests go.
    pub target: String,
    /// Whether it answered.
    pub reached: bool,
    /// When this was so.
    pub at: UnixSeconds,
    /// Which documents are in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Holds>,
    /// Every service, by name.
    pub services: Vec<ServiceStatus>,
    /// What a person should look at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<String>,
    /// What somebody had stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controls: Option<SiteControls>,
    /// How much was asked of cluster and machine, and who said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint: Option<InForce>,
    /// The maintenance windows that the agent was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<String>,
    /// The interval at which this site polls, in seconds.
    pub poll_seconds: u64,
}

/// When the hub was heard last. It is kept in `local/contact.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Contact {
    /// When it answered last; none if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<UnixSeconds>,
    /// That it does not answer, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<Silence>,
}

/// A hub that does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Silence {
    /// Since when.
    pub since: UnixSeconds,
    /// What happened instead, the last time.
    pub why: String,
}

impl Contact {
    /// The hub answered.
    pub fn heard(&mut self, now: UnixSeconds) {
        *self = Self { last: Some(now), silent: None };
    }

    /// It did not.
    pub fn silent(&mut self, now: UnixSeconds, why: String) {
        let since = self.silent.as_ref().map_or(now, |silence| silence.since);
        self.silent = Some(Silence { since, why });
    }

    /// Whether the hub was heard within three polls and a minute, as the hub itself judges sites. What was heard in a
    /// future that a clock has left since is not: the next poll tells.
    #[must_use]
    pub fn is_fresh(&self, poll_seconds: u64, now: UnixSeconds) -> bool {
        self.last.is_some_and(|last| now.abs_diff(last) <= poll_seconds.saturating_mul(3).saturating_add(60))
    }
}

/// How a service is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// All of it is applied, and was healthy.
    Healthy,
    /// It is on its way to a revision.
    Progressing,
    /// Something must come first.
    Waiting,
    /// It is as far as somebody allows it to be.
    Held,
    /// Something failed.
    Failed,
    /// Nobody has looked.
    Unknown,
}

impl Health {
    /// The health of a service that says this of itself.
    #[must_use]
    pub fn of(status: &ServiceStatus) -> Self {
        match status.state {
            ServiceState::Applied => Self::Healthy,
            ServiceState::Waiting if status.progress.is_some() => Self::Progressing,
            ServiceState::Waiting => Self::Waiting,
            ServiceState::Held => Self::Held,
            ServiceState::Failed => Self::Failed,
        }
    }

    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Progressing => "progressing",
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// Objects of a service that differ from what was applied and stay so.
#[must_use]
pub fn standing_drift(status: &ServiceStatus) -> usize {
    status.drift.iter().filter(|drift| drift.action != DriftAction::Corrected).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_that_falls_silent_was_heard_when_it_was_and_is_silent_since_it_was_first() {
        let mut contact = Contact::default();
        assert!(!contact.is_fresh(60, 0));
        contact.heard(1000);
        contact.silent(1060, "refused".into());
        contact.silent(1120, "timed out".into());
        let silence = contact.silent.clone().expect("it is silent");
        assert_eq!((contact.last, silence.since, silence.why.as_str()), (Some(1000), 1060, "timed out"));
        assert!(contact.is_fresh(60, 1240) && !contact.is_fresh(60, 1241));
        assert!(!contact.is_fresh(60, 2_147_483_647) && !contact.is_fresh(60, 0), "the clock was set");
        contact.heard(1300);
        assert_eq!(contact.silent, None);
    }
}
