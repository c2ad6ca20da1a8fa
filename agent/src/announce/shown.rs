//! The status of a `FarshoreService`. Pure.

use farshore_shared::wire::{ServiceStatus, UnixSeconds};
use serde_json::{Value, json};

use crate::controls::window::rfc3339;
use crate::local::keeper::Known;
use crate::local::{Health, Snapshot, standing_drift};

/// While the hub is heard, the time at which it was is written this often, in seconds.
const CONTACT: u64 = 3600;

/// What the hub is to a site, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// Whether it was heard within three polls and a minute.
    fresh: bool,
    /// When it was heard last: while it is, up to an hour older.
    last: Option<UnixSeconds>,
}

impl Heard {
    /// What is shown now, when this was shown before: as long as it stays, nothing is written for it.
    #[must_use]
    pub fn after(before: Option<Self>, known: &Known, snapshot: &Snapshot, now: UnixSeconds) -> Self {
        let last = known.contact.last;
        let fresh = known.contact.is_fresh(snapshot.poll_seconds, now);
        match before {
            Some(before)
                if before.fresh
                    && fresh
                    && before
                        .last
                        .is_some_and(|shown| last.is_some_and(|last| last.abs_diff(shown) < CONTACT)) =>
            {
                before
            }
            _ => Self { fresh, last },
        }
    }
}

/// What is shown of a service.
#[must_use]
pub fn status(snapshot: &Snapshot, service: &ServiceStatus, heard: Heard) -> Value {
    let commit = service.commit.as_str();
    let paused = snapshot.controls.as_ref().is_some_and(|controls| {
        controls.paused.is_some() || controls.paused_services.contains_key(&service.name)
    });
    let mut status = json!({
        "cluster": snapshot.cluster,
        "revision": commit.get(..12).unwrap_or(commit),
        "commit": commit,
        "health": Health::of(service).word(),
        "message": service.message,
        "objects": service.objects,
        "failing": service.failures.len(),
        "drift": standing_drift(service),
        "repairs": service.repairs,
        "paused": paused,
        "hub": if heard.fresh { "heard" } else { "silent" },
    });
    if let Some(failed) = &service.failed_revision {
        status["failedCommit"] = failed.commit.as_str().into();
    }
    if let Some(last) = heard.last {
        status["lastContact"] = rfc3339(last).into();
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Contact;
    use crate::local::keeper::tests::snapshot;

    fn known(last: UnixSeconds) -> Known {
        Known { snapshot: None, contact: Contact { last: Some(last), silent: None }, ..Known::default() }
    }

    #[test]
    fn a_hub_that_is_heard_is_shown_once_an_hour_and_one_that_falls_silent_with_its_last_word() {
        let snapshot = snapshot();
        let first = Heard::after(None, &known(10_000), &snapshot, 10_000);
        let soon = Heard::after(Some(first), &known(13_599), &snapshot, 13_600);
        assert_eq!(soon, first, "nothing is written for it");
        let later = Heard::after(Some(first), &known(13_600), &snapshot, 13_600);
        assert_eq!(later.last, Some(13_600));
        let silent = Heard::after(Some(first), &known(13_599), &snapshot, 20_000);
        assert_eq!((silent.fresh, silent.last), (false, Some(13_599)));
        assert_eq!(Heard::after(Some(silent), &known(13_599), &snapshot, 30_000), silent);
        let jumped = Heard::after(None, &known(2_147_483_647), &snapshot, 2_147_483_647);
        let back = Heard::after(Some(jumped), &known(13_660), &snapshot, 13_660);
        assert_eq!(back.last, Some(13_660), "a clock that was set back is followed");
    }

    #[test]
    fn a_service_is_shown_with_its_revision_health_and_drift() {
        let snapshot = snapshot();
        let heard = Heard::after(None, &known(1_800_000_000), &snapshot, 1_800_000_000);
        insta::assert_json_snapshot!(status(&snapshot, &snapshot.services[0], heard), @r#"
        {
          "cluster": "shop-7",
          "commit": "cccccccccccccccccccccccccccccccccccccccc",
          "drift": 0,
          "failing": 0,
          "health": "healthy",
          "hub": "heard",
          "lastContact": "2027-01-15T08:00:00Z",
          "message": "",
          "objects": 3,
          "paused": false,
          "repairs": 0,
          "revision": "cccccccccccc"
        }
        "#);
    }
}
