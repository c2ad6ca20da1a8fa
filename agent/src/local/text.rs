//! A site for people. Pure.

use std::fmt::Write as _;

use farshore_shared::wire::{DriftAction, ObjectDrift, UnixSeconds};

use super::view::{ServiceView, View};
use crate::controls::stop::shown;
use crate::controls::window::rfc3339;

/// The whole of it.
#[must_use]
pub fn page(view: &View, now: UnixSeconds) -> String {
    let mut text = head(view, now);
    if view.services.is_empty() {
        text.push_str("\nno services\n");
    }
    for found in &view.services {
        text.push('\n');
        text.push_str(&service(found, now));
    }
    for (n, alarm) in view.alarms.iter().enumerate() {
        if n == 0 {
            text.push('\n');
        }
        line(&mut text, "alarm", alarm);
    }
    text
}

fn head(view: &View, now: UnixSeconds) -> String {
    let mut text = String::new();
    let version = view.agent.version.as_deref().unwrap_or("of an unknown version");
    let agent = match (view.agent.running, view.agent.process) {
        (true, Some(process)) => format!("agent {version} runs (process {process})"),
        (true, None) => format!("agent {version} runs"),
        (false, _) => format!("agent {version} does not run"),
    };
    line(
        &mut text,
        "site",
        &format!("{}: {agent}", view.cluster.as_ref().map_or("unknown", |name| name.as_str())),
    );
    let url = view.hub.url.as_deref().unwrap_or("unknown");
    let last = view
        .hub
        .contact
        .last
        .map_or_else(|| "never heard".to_owned(), |at| format!("heard {}", ago(at, now)));
    line(&mut text, "hub", &format!("{url}: {last}"));
    if let Some(silence) = &view.hub.contact.silent {
        line(&mut text, "", &format!("silent since {}: {}", rfc3339(silence.since), silence.why));
    }
    let target = view.target.name.as_deref().unwrap_or("unknown");
    let reached = match view.target.reached {
        Some(true) => "answers",
        Some(false) => "does not answer",
        None => "not looked at",
    };
    line(&mut text, "target", &format!("{target}: {reached}"));
    if view.reports_waiting > 0 {
        line(&mut text, "reports", &format!("{} wait for the hub", view.reports_waiting));
    }
    if let Some(at) = view.as_of {
        line(&mut text, "as of", &ago(at, now));
    }
    if let Some(footprint) = &view.footprint {
        line(&mut text, "footprint", &footprint.to_string());
    }
    controls(&mut text, view);
    text
}

fn controls(text: &mut String, view: &View) {
    let controls = &view.controls;
    if let Some(pause) = &controls.paused {
        line(text, "paused", &format!("everything, {}", shown(pause)));
    }
    for (service, pause) in &controls.paused_services {
        line(text, "paused", &format!("{service}, {}", shown(pause)));
    }
    if let Some(hold) = &controls.hold {
        line(text, "held", &format!("nothing new begins {}", shown(hold)));
    }
    if let Some(window) = controls.window {
        let changes = window.changes.map(|at| format!(" until {}", rfc3339(at))).unwrap_or_default();
        let is = if window.open { "open" } else { "closed: nothing new begins" };
        line(text, "window", &format!("{is}{changes}"));
    }
}

fn service(service: &ServiceView, now: UnixSeconds) -> String {
    let status = &service.status;
    let mut text = String::new();
    let commit =
        if status.commit.is_empty() { "nothing" } else { status.commit.get(..12).unwrap_or(&status.commit) };
    let drift = super::standing_drift(status);
    let drift = if drift == 0 { String::new() } else { format!(", {drift} differ") };
    let repairs = if status.repairs == 0 { String::new() } else { format!(", {} repairs", status.repairs) };
    let (name, health, objects) = (&status.name, service.health.word(), status.objects);
    line(&mut text, name.as_str(), &format!("{health}, {commit}, {objects} objects{drift}{repairs}"));
    if !status.message.is_empty() {
        line(&mut text, "", &status.message);
    }
    if let Some(progress) = &status.progress {
        line(
            &mut text,
            "",
            &format!("{}: {} since {}", progress.stage, progress.object, ago(progress.since, now)),
        );
    }
    if let Some(failed) = &status.failed_revision {
        let commit = failed.commit.get(..12).unwrap_or(&failed.commit);
        line(&mut text, "", &format!("gave up {commit} {}: {}", ago(failed.at, now), failed.why));
        line(&mut text, "", &format!("to try it again: farshore agent retry {name}"));
    }
    for failure in &status.failures {
        line(&mut text, "", &format!("fails: {}: {}", failure.object, failure.message));
    }
    for check in status.checks.iter().filter(|check| !check.message.is_empty()) {
        line(&mut text, "", &format!("check: {}: {}", check.object, check.message));
    }
    for found in &status.drift {
        line(&mut text, "", &drifted(found, now));
    }
    text
}

fn drifted(drift: &ObjectDrift, now: UnixSeconds) -> String {
    let who = if drift.manager.is_empty() { "somebody" } else { &drift.manager };
    let what = if drift.fields.is_empty() { "all of it".to_owned() } else { drift.fields.join(" ") };
    let done = match drift.action {
        DriftAction::Corrected => "put back",
        DriftAction::Reported => "left so",
        DriftAction::Damped => "put back ever more rarely",
    };
    format!("drift: {}: {who} changed {what} {}: {done}", drift.object, ago(drift.at, now))
}

/// A line. What came from elsewhere may hold control characters, with which a terminal can be commanded.
fn line(text: &mut String, label: &str, said: &str) {
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let written =
        if label.is_empty() { writeln!(text, "  {said}") } else { writeln!(text, "{label}: {said}") };
    written.expect("a string takes whatever is written");
}

/// How long ago a time was.
#[must_use]
pub fn ago(at: UnixSeconds, now: UnixSeconds) -> String {
    match now.saturating_sub(at) {
        _ if at > now => format!("at {}", rfc3339(at)),
        s if s < 120 => format!("{s} s ago"),
        s if s < 7200 => format!("{} min ago", s / 60),
        s if s < 172_800 => format!("{} h ago", s / 3600),
        s => format!("{} days ago", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::{InForce, Said};
    use crate::local::keeper::tests::snapshot;
    use crate::local::{Contact, Snapshot, keeper::Known, view};
    use farshore_shared::wire::{FailedRevision, Footprint, ObjectFailure, ServiceState, ServiceStatus};
    use std::sync::Arc;

    fn footprint() -> InForce {
        let fleet = Footprint { qps: Some(50), ..Footprint::default() };
        let site = Footprint { sweep_seconds: Some(1800), ..Footprint::default() };
        InForce::of(&site, Said { fleet, ..Said::default() }, std::time::Duration::from_secs(60))
    }

    #[test]
    fn a_person_sees_what_is_applied_what_is_wrong_and_what_to_do() {
        let now = 1_800_000_100;
        let failure =
            ObjectFailure { object: "ConfigMap shop/a".into(), message: "for\u{1b}[2Jbidden".into() };
        let drift = ObjectDrift {
            object: "ConfigMap shop/b".into(),
            manager: "kubectl-edit".into(),
            at: now - 30,
            fields: vec!["/data/x".into()],
            action: DriftAction::Reported,
        };
        let web = ServiceStatus {
            state: ServiceState::Failed,
            message: "1 of 3 objects failed".into(),
            failures: vec![failure],
            failed_revision: Some(FailedRevision {
                commit: "d".repeat(40),
                why: "it hangs".into(),
                at: now - 300,
            }),
            drift: vec![drift],
            ..snapshot().services[0].clone()
        };
        let snapshot = Snapshot {
            services: vec![web],
            alarms: vec!["the clock is wrong".into()],
            footprint: Some(footprint()),
            ..snapshot()
        };
        let mut contact = Contact { last: Some(now - 10_000), silent: None };
        contact.silent(now - 9_000, "no route to host".into());
        let folder = tempfile::tempdir().expect("a folder");
        let known = Known { snapshot: Some(Arc::new(snapshot)), contact, ..Known::default() };
        let mut shown = view::of_known(folder.path(), &known);
        shown.agent.process = Some(42);
        insta::assert_snapshot!(page(&shown, now), @r"
    site: shop-7: agent 0.1.0 runs (process 42)
    hub: https://hub.example:8443: heard 2 h ago
      silent since 2027-01-15T05:31:40Z: no route to host
    target: kubernetes: answers
    as of: 100 s ago
    footprint: 32 requests at once (default), 50 a second (fleet), a sweep every 30m (site), 1Gi for each process (default)

    web: failed, cccccccccccc, 3 objects, 1 differ
      1 of 3 objects failed
      gave up dddddddddddd 5 min ago: it hangs
      to try it again: farshore agent retry web
      fails: ConfigMap shop/a: for [2Jbidden
      drift: ConfigMap shop/b: kubectl-edit changed /data/x 30 s ago: left so

    alarm: the clock is wrong
    ");
    }
}
