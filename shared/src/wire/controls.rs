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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_stopped_reads_back_and_what_is_not_takes_no_room() {
        assert_eq!(serde_json::to_value(SiteControls::default()).expect("it is written"), json!({}));
        let stop = Stop { since: 1, until: Some(2), reason: "tills are counted".into() };
        let controls = SiteControls {
            paused: Some(Stop { until: None, reason: String::new(), ..stop.clone() }),
            paused_services: BTreeMap::from([("web".parse().expect("a name"), stop.clone())]),
            hold: Some(stop),
            window: Some(WindowState { open: false, changes: Some(9) }),
        };
        let written = serde_json::to_value(&controls).expect("it is written");
        let stop = json!({"since": 1, "until": 2, "reason": "tills are counted"});
        let wanted = json!({"paused": {"since": 1}, "pausedServices": {"web": stop}, "hold": stop,
            "window": {"open": false, "changes": 9}});
        assert_eq!(written, wanted);
        assert_eq!(serde_json::from_value::<SiteControls>(written).expect("it is read"), controls);
        let newer = serde_json::from_value::<SiteControls>(json!({"frozen": true})).expect("it is read");
        assert!(newer.is_empty(), "a field from the future is ignored");
    }
}
