//! What somebody at the site has stopped there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::UnixSeconds;
use crate::names::Name;

/// What somebody at the site has stopped there, as it is now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SiteControls {
    /// Nothing is written at all: no revision, no repair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Stop>,
    /// The same for single services; the first few.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paused_services: BTreeMap<Name, Stop>,
    /// No new revision begins; what is in place is repaired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Stop>,
    /// Whether new revisions may begin at this time, where that is not always so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowState>,
}

/// Since when, until when and why something is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stop {
    /// Since when, by the site's clock.
    pub since: UnixSeconds,
    /// Until when; until somebody ends it where this is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixSeconds>,
    /// Why, in the words of whoever did it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The maintenance windows of a site, as they are now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowState {
    /// Whether new revisions may begin.
    pub open: bool,
    /// When that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<UnixSeconds>,
}

impl SiteControls {
    /// Whether nothing is stopped, and nothing could be.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
