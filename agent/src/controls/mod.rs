//! What somebody at the site has stopped: pauses, a "not now" lock, and times at which nothing new begins.
//!
//! Everything lies in files of the state folder, or is an option: it outlives reboots and needs no hub.
//!
//! - [`files`]: those files, which a script may write as well; [`stop`]: what one of them says (pure).
//! - [`doubt`]: stops whose end the clock cannot tell (pure).
//! - [`window`]: maintenance windows (pure).
//! - [`watcher`]: the task that notices when something changes.
//!
//! What follows from it for each service is decided in [`Controls::verdict`] and done by the reconciler; the mender
//! leaves alone what is paused.

pub mod doubt;
pub mod files;
pub mod stop;
pub mod watcher;
pub mod window;

use std::collections::BTreeMap;

use farshore_shared::names::Name;
use farshore_shared::wire::{SiteControls, Stop, UnixSeconds, WindowState};

use crate::drift::LeaveAlone;
use files::Control;
use stop::{is_on, shown};
use window::{Windows, rfc3339};

/// The most services whose pauses are told to the hub.
const TOLD: usize = 100;

/// What is stopped at the site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Controls {
    /// Nothing is written.
    pub pause: Option<Stop>,
    /// The same for single services.
    pub services: BTreeMap<Name, Stop>,
    /// No new revision begins.
    pub hold: Option<Stop>,
}

/// What may be done about a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Whatever is decided.
    Free,
    /// What is in place is kept and repaired; no revision begins that has not begun, and no removal.
    NothingNew(String),
    /// Nothing is written. The text says why, as for everything here.
    HandsOff(String),
}

impl Controls {
    /// What may be done about a service at this time.
    #[must_use]
    pub fn verdict(&self, windows: &Windows, service: &Name, now: UnixSeconds) -> Verdict {
        let on = |stop: &&Stop| is_on(stop, now);
        if let Some(pause) = self.pause.as_ref().filter(on) {
            return Verdict::HandsOff(format!("paused at the site {}", shown(pause)));
        }
        if let Some(pause) = self.services.get(service).filter(on) {
            return Verdict::HandsOff(format!("paused at the site {}", shown(pause)));
        }
        if let Some(hold) = self.hold.as_ref().filter(on) {
            return Verdict::NothingNew(format!("held at the site {}", shown(hold)));
        }
        match windows.state(now) {
            Some(WindowState { open: false, changes }) => Verdict::NothingNew(match changes {
                Some(opens) => format!("outside of the site's maintenance windows until {}", rfc3339(opens)),
                None => "outside of the site's maintenance windows".to_owned(),
            }),
            Some(WindowState { open: true, .. }) | None => Verdict::Free,
        }
    }

    /// Every stop, and what sets it.
    pub fn each(&mut self) -> impl Iterator<Item = (Control, &mut Stop)> {
        let pause = self.pause.iter_mut().map(|stop| (Control::Pause, stop));
        let hold = self.hold.iter_mut().map(|stop| (Control::Hold, stop));
        let services = self.services.iter_mut();
        pause.chain(hold).chain(services.map(|(name, stop)| (Control::PauseService(name.clone()), stop)))
    }

    /// Whether nothing at all is written at this time.
    #[must_use]
    pub fn is_paused(&self, now: UnixSeconds) -> bool {
        self.pause.as_ref().is_some_and(|pause| is_on(pause, now))
    }

    /// Of which services nothing is put back at this time.
    #[must_use]
    pub fn leave_alone(&self, windows: &Windows, now: UnixSeconds) -> LeaveAlone {
        if self.is_paused(now) {
            return LeaveAlone::Everything;
        }
        let is_paused = |service: &&Name| matches!(self.verdict(windows, service, now), Verdict::HandsOff(_));
        LeaveAlone::Services(self.services.keys().filter(is_paused).cloned().collect())
    }

    /// Whether a service is paused by itself at this time.
    #[must_use]
    pub fn paused(&self, service: &Name, now: UnixSeconds) -> bool {
        self.services.get(service).is_some_and(|pause| is_on(pause, now))
    }

    /// What is stopped at this time, as it is told; none where nothing is, and nothing could be.
    #[must_use]
    pub fn told(&self, windows: &Windows, now: UnixSeconds) -> Option<SiteControls> {
        let on = |stop: &&Stop| is_on(stop, now);
        let services = self.services.iter().filter(|(_, stop)| is_on(stop, now)).take(TOLD);
        let told = SiteControls {
            paused: self.pause.as_ref().filter(on).cloned(),
            paused_services: services.map(|(name, stop)| (name.clone(), stop.clone())).collect(),
            hold: self.hold.as_ref().filter(on).cloned(),
            window: windows.state(now),
        };
        (!told.is_empty()).then_some(told)
    }

    /// When something is next stopped or free again by the time alone.
    #[must_use]
    pub fn next_change(&self, windows: &Windows, now: UnixSeconds) -> Option<UnixSeconds> {
        let stops = self.pause.iter().chain(self.services.values()).chain(&self.hold);
        let ends = stops.filter_map(|stop| stop.until).filter(|until| *until > now);
        ends.chain(windows.state(now).and_then(|state| state.changes)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn until(until: Option<u64>) -> Stop {
        Stop { since: 100, until, reason: "tills are counted".into() }
    }

    fn windows(text: &str) -> Windows {
        Windows(vec![text.parse().expect("a window")])
    }

    #[test]
    fn a_pause_stops_everything_a_hold_only_what_is_new_and_both_end_by_themselves() {
        let none = Windows::default();
        let paused = Controls { pause: Some(until(Some(200))), ..Controls::default() };
        assert!(matches!(paused.verdict(&none, &name("web"), 199), Verdict::HandsOff(why)
            if why == "paused at the site until 1970-01-01T00:03:20Z (tills are counted)"));
        assert_eq!(paused.verdict(&none, &name("web"), 200), Verdict::Free);
        let held = Controls { hold: Some(until(Some(200))), ..Controls::default() };
        assert!(matches!(held.verdict(&none, &name("web"), 199), Verdict::NothingNew(why)
            if why == "held at the site until 1970-01-01T00:03:20Z (tills are counted)"));
        assert_eq!(held.verdict(&none, &name("web"), 200), Verdict::Free);
        assert_eq!(held.next_change(&none, 150), Some(200));
        assert_eq!(held.next_change(&none, 200), None);
    }

    #[test]
    fn a_service_that_is_paused_stops_no_other() {
        let services = BTreeMap::from([(name("web"), until(None))]);
        let controls = Controls { services, ..Controls::default() };
        assert!(matches!(controls.verdict(&Windows::default(), &name("web"), 1 << 40), Verdict::HandsOff(_)));
        assert_eq!(controls.verdict(&Windows::default(), &name("db"), 150), Verdict::Free);
    }

    #[test]
    fn outside_of_its_windows_a_site_begins_nothing_new_and_says_when_it_will() {
        let controls = Controls::default();
        // 1970-01-01 was a Thursday.
        let windows = windows("Thu 02:00-05:00");
        let verdict = controls.verdict(&windows, &name("web"), 3600);
        assert_eq!(
            verdict,
            Verdict::NothingNew(
                "outside of the site's maintenance windows until 1970-01-01T02:00:00Z".into()
            )
        );
        assert_eq!(controls.verdict(&windows, &name("web"), 2 * 3600), Verdict::Free);
        assert_eq!(controls.next_change(&windows, 3600), Some(2 * 3600));
        assert_eq!(controls.told(&Windows::default(), 3600), None);
        let told = controls.told(&windows, 3600).expect("there are windows");
        assert_eq!(told.window, Some(WindowState { open: false, changes: Some(7200) }));
    }

    #[test]
    fn what_is_over_is_not_told() {
        let controls =
            Controls { pause: Some(until(Some(200))), hold: Some(until(Some(300))), ..Controls::default() };
        let told = controls.told(&Windows::default(), 250).expect("the hold is on");
        assert_eq!((told.paused, told.hold), (None, Some(until(Some(300)))));
        assert_eq!(controls.told(&Windows::default(), 300), None);
    }
}
