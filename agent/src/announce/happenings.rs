//! What an operator must know of the difference between two looks at a site. Pure.

use std::collections::BTreeSet;

use farshore_shared::names::Name;
use farshore_shared::wire::{DriftAction, ObjectDrift, ServiceState, ServiceStatus, SiteControls};

use super::Tone;
use crate::controls::stop::shown;
use crate::local::Snapshot;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    /// The service; none where it is the site.
    pub service: Option<Name>,
    /// One word for machines.
    pub reason: &'static str,
    /// What makes it another one of the same reason.
    pub subject: String,
    /// Whether a person should look.
    pub tone: Tone,
    /// In words.
    pub note: String,
}

/// What happened between two looks. Nothing is known before the first: then everything is new.
#[must_use]
pub fn between(before: Option<&Snapshot>, now: &Snapshot) -> Vec<Happening> {
    let mut found = vec![];
    for status in &now.services {
        let earlier =
            before.and_then(|before| before.services.iter().find(|other| other.name == status.name));
        let mut of = Of { service: &status.name, found: &mut found };
        of.revision(earlier, status);
        of.drift(earlier, status);
    }
    let is_listed = |name: &Name| now.services.iter().any(|status| status.name == *name);
    for status in before.iter().flat_map(|before| &before.services) {
        if !is_listed(&status.name) && !is_removed(status) {
            let mut of = Of { service: &status.name, found: &mut found };
            of.removed("it is no service of this site any more");
        }
    }
    let none = SiteControls::default();
    let earlier = before.and_then(|before| before.controls.as_ref()).unwrap_or(&none);
    stops(earlier, now.controls.as_ref().unwrap_or(&none), &mut found);
    found
}

/// Whether a service has just been removed, as `reconcile::removal` says it: what is applied has a commit.
#[must_use]
pub fn is_removed(status: &ServiceStatus) -> bool {
    let said = status.message == "removed" || status.message.starts_with("removed; ");
    said && status.state == ServiceState::Applied && status.commit.is_empty()
}

/// What happened to one service.
struct Of<'a> {
    service: &'a Name,
    found: &'a mut Vec<Happening>,
}

impl Of<'_> {
    fn say(&mut self, reason: &'static str, tone: Tone, subject: &str, note: String) {
        let (service, subject) = (Some(self.service.clone()), subject.to_owned());
        self.found.push(Happening { service, reason, subject, tone, note });
    }

    fn revision(&mut self, before: Option<&ServiceStatus>, now: &ServiceStatus) {
        let commit = short(&now.commit);
        let is_same = before.is_some_and(|before| before.state == now.state && before.commit == now.commit);
        let was_stopped =
            before.is_some_and(|before| before.state == ServiceState::Held && before.commit == now.commit);
        if let Some(failed) = &now.failed_revision {
            if before.and_then(|before| before.failed_revision.as_ref()) != Some(failed) {
                let note = format!(
                    "commit {} was given up ({}); commit {commit} is kept",
                    short(&failed.commit),
                    failed.why
                );
                self.say("RevisionReverted", Tone::Warning, &failed.commit, note);
            }
        } else if now.state == ServiceState::Failed && !is_same {
            self.say(
                "RevisionFailed",
                Tone::Warning,
                &now.commit,
                format!("commit {commit}: {}", now.message),
            );
        } else if now.state == ServiceState::Applied && !is_same && !was_stopped {
            if is_removed(now) {
                let kept = now.message.strip_prefix("removed; ");
                self.removed(&kept.map_or_else(
                    || "all of it was removed".to_owned(),
                    |kept| format!("it was removed; {kept}"),
                ));
            } else {
                let note = format!("commit {commit} is applied and healthy ({} objects)", now.objects);
                self.say("RevisionApplied", Tone::Normal, &now.commit, note);
            }
        }
    }

    fn removed(&mut self, note: &str) {
        self.say("ServiceRemoved", Tone::Normal, "", note.to_owned());
    }

    fn drift(&mut self, before: Option<&ServiceStatus>, now: &ServiceStatus) {
        // A counter that went back began anew.
        let counted = before.map_or(0, |before| before.repairs);
        let repaired = if now.repairs < counted { now.repairs } else { now.repairs - counted };
        if repaired > 0 {
            let newest = now.drift.iter().find(|drift| drift.action == DriftAction::Corrected);
            let newest = newest.map(|drift| format!("; the newest: {}", said(drift))).unwrap_or_default();
            self.say("DriftRepaired", Tone::Normal, "", format!("{repaired} objects were put back{newest}"));
        }
        for (action, reason, what) in [
            (DriftAction::Damped, "Fight", "it is put back ever more rarely"),
            (DriftAction::Reported, "DriftFound", "it is left so"),
        ] {
            let of = |status: &ServiceStatus| -> BTreeSet<String> {
                let found = status.drift.iter().filter(|drift| drift.action == action);
                found.map(|drift| drift.object.clone()).collect()
            };
            let known = before.map(of).unwrap_or_default();
            let new = of(now).difference(&known).count();
            let first =
                now.drift.iter().find(|drift| drift.action == action && !known.contains(&drift.object));
            if let Some(first) = first {
                let more = if new > 1 { format!(" ({new} objects)") } else { String::new() };
                self.say(reason, Tone::Warning, "", format!("{}{more}: {what}", said(first)));
            }
        }
    }
}

fn stops(before: &SiteControls, now: &SiteControls, found: &mut Vec<Happening>) {
    let mut say = |service: Option<&Name>, reason, note: String| {
        let service = service.cloned();
        found.push(Happening { service, reason, subject: String::new(), tone: Tone::Normal, note });
    };
    match (&before.paused, &now.paused) {
        (before, Some(pause)) if before.as_ref() != Some(pause) => {
            say(None, "Paused", format!("nothing is written {}", shown(pause)));
        }
        (Some(_), None) => say(None, "Resumed", "the site goes on".to_owned()),
        _ => {}
    }
    match (&before.hold, &now.hold) {
        (before, Some(hold)) if before.as_ref() != Some(hold) => {
            say(None, "Held", format!("no new revision begins {}", shown(hold)));
        }
        (Some(_), None) => say(None, "Released", "new revisions may begin".to_owned()),
        _ => {}
    }
    for (service, pause) in &now.paused_services {
        if before.paused_services.get(service) != Some(pause) {
            say(Some(service), "Paused", format!("nothing of it is written {}", shown(pause)));
        }
    }
    for service in before.paused_services.keys().filter(|service| !now.paused_services.contains_key(*service))
    {
        say(Some(service), "Resumed", "it goes on".to_owned());
    }
}

fn said(drift: &ObjectDrift) -> String {
    let who = if drift.manager.is_empty() { "somebody" } else { &drift.manager };
    let fields =
        if drift.fields.is_empty() { String::new() } else { format!(" ({})", drift.fields.join(" ")) };
    format!("{who} changed {}{fields}", drift.object)
}

fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::keeper::tests::snapshot;
    use farshore_shared::wire::{FailedRevision, Stop};

    fn with(change: impl Fn(&mut ServiceStatus)) -> Snapshot {
        let mut snapshot = snapshot();
        snapshot.services.iter_mut().for_each(change);
        snapshot
    }

    fn said(before: Option<&Snapshot>, now: &Snapshot) -> Vec<String> {
        between(before, now)
            .into_iter()
            .map(|happening| format!("{}: {}", happening.reason, happening.note))
            .collect()
    }

    fn drift(action: DriftAction) -> ObjectDrift {
        let fields = vec!["/data/x".into()];
        ObjectDrift {
            object: "ConfigMap shop/a".into(),
            manager: "kubectl-edit".into(),
            at: 1,
            fields,
            action,
        }
    }

    #[test]
    fn a_revision_is_told_of_once_when_it_is_applied_fails_or_is_given_up() {
        let (applied, none) = (snapshot(), Vec::<String>::new());
        assert_eq!(
            said(None, &applied),
            ["RevisionApplied: commit cccccccccccc is applied and healthy (3 objects)"]
        );
        assert_eq!(said(Some(&applied), &applied), none);
        let failed = with(|web| (web.state, web.message) = (ServiceState::Failed, "it is refused".into()));
        assert_eq!(said(Some(&applied), &failed), ["RevisionFailed: commit cccccccccccc: it is refused"]);
        assert_eq!(said(Some(&failed), &failed), none);
        let reverted = with(|web| {
            web.state = ServiceState::Failed;
            web.failed_revision =
                Some(FailedRevision { commit: "d".repeat(40), why: "it hangs".into(), at: 1 });
        });
        let wanted =
            ["RevisionReverted: commit dddddddddddd was given up (it hangs); commit cccccccccccc is kept"];
        assert_eq!(said(Some(&failed), &reverted), wanted);
        assert_eq!(said(Some(&reverted), &reverted), none);
        let held = with(|web| web.state = ServiceState::Held);
        assert_eq!(said(Some(&applied), &held), none, "what was stopped says so itself");
        assert_eq!(said(Some(&held), &applied), none);
    }

    #[test]
    fn a_removal_is_told_of_once_whoever_saw_it_and_whatever_is_kept() {
        let removed =
            |message: &str| with(|web| (web.commit, web.message) = (String::new(), message.to_owned()));
        let nothing = Snapshot { services: vec![], ..snapshot() };
        let all = removed("removed");
        assert_eq!(said(Some(&snapshot()), &all), ["ServiceRemoved: all of it was removed"]);
        let kept =
            removed("removed; 1 objects that left are kept; ConfigMap a: an annotation says that it stays");
        let told = said(Some(&snapshot()), &kept);
        assert!(
            told[0].starts_with("ServiceRemoved: it was removed; 1 objects that left are kept"),
            "{told:?}"
        );
        assert!(said(Some(&kept), &nothing).is_empty() && said(Some(&all), &all).is_empty());
        let unseen = ["ServiceRemoved: it is no service of this site any more"];
        assert_eq!(said(Some(&snapshot()), &nothing), unseen);
    }

    #[test]
    fn repairs_and_fights_are_told_with_who_and_what() {
        let before = snapshot();
        let repaired = with(|web| (web.repairs, web.drift) = (2, vec![drift(DriftAction::Corrected)]));
        let wanted = [
            "DriftRepaired: 2 objects were put back; the newest: kubectl-edit changed ConfigMap shop/a (/data/x)",
        ];
        assert_eq!(said(Some(&before), &repaired), wanted);
        let restarted = with(|web| web.repairs = 1);
        assert_eq!(said(Some(&repaired), &restarted), ["DriftRepaired: 1 objects were put back"]);
        let fight = with(|web| web.drift = vec![drift(DriftAction::Damped)]);
        let wanted =
            ["Fight: kubectl-edit changed ConfigMap shop/a (/data/x): it is put back ever more rarely"];
        assert_eq!(said(Some(&before), &fight), wanted);
        assert!(said(Some(&fight), &fight).is_empty());
        let left = with(|web| web.drift = vec![drift(DriftAction::Reported)]);
        assert_eq!(said(Some(&fight), &left).len(), 1);
    }

    #[test]
    fn what_is_stopped_and_goes_on_is_told_of_the_site_or_of_the_service() {
        let stop = Stop { since: 1, until: None, reason: "tills".into() };
        let paused = SiteControls { paused: Some(stop.clone()), ..SiteControls::default() };
        let services = [("web".parse().expect("a name"), stop.clone())].into();
        let held = SiteControls { hold: Some(stop), paused_services: services, ..SiteControls::default() };
        let with = |controls: &SiteControls| Snapshot { controls: Some(controls.clone()), ..snapshot() };
        let (paused, held) = (with(&paused), with(&held));
        assert_eq!(
            said(Some(&snapshot()), &paused),
            ["Paused: nothing is written until somebody resumes it (tills)"]
        );
        let reasons: Vec<_> = between(Some(&paused), &held).iter().map(|found| found.reason).collect();
        assert_eq!(reasons, ["Resumed", "Held", "Paused"]);
        let reasons: Vec<_> = between(Some(&held), &snapshot()).iter().map(|found| found.reason).collect();
        assert_eq!(reasons, ["Released", "Resumed"]);
    }
}
