//! Stops whose end the site's clock cannot tell. Pure: it is told the time.
//!
//! A stop ends by the site's clock, which may have been wrong when the stop was written, or be wrong now. Such a stop is
//! on for its own length from when that was noticed. So none lasts for years because a clock came back from 2038, and
//! none ends because a clock went there.

use std::collections::BTreeMap;
use std::time::Duration;

use farshore_shared::duration::HumanDuration;
use farshore_shared::wire::{SiteControls, Stop, UnixSeconds};

use super::Controls;
use super::files::Control;
use super::window::rfc3339;
use crate::moment::{APART, Moment};
use crate::verify::Clock;
use crate::verify::clock::{EARLIEST, SKEW, Trust};

/// How long a stop lasts whose end this clock cannot tell; none of any other.
#[must_use]
pub fn length(stop: &Stop, now: UnixSeconds, bound: UnixSeconds) -> Option<Duration> {
    let until = stop.until?;
    let length = until.checked_sub(stop.since).filter(|length| *length > 0)?;
    let is_ahead = |now| matches!(Clock { now }.trust(bound), Trust::Ahead { .. });
    // One of both clocks is wrong: that of now, or that of then.
    let from_later = stop.since > now.saturating_add(SKEW);
    // Its end was counted from 1970.
    let from_before_all = until < EARLIEST && now >= EARLIEST;
    // It would be over, but for documents that say when about it is.
    let over_too_soon = until <= now && until > bound.max(EARLIEST) && is_ahead(now) && !is_ahead(stop.since);
    (from_later || from_before_all || over_too_soon).then(|| Duration::from_secs(length))
}

/// Whether documents that are newer than its end tell that a stop is over, whatever the clock says.
#[must_use]
fn is_over(stop: &Stop, bound: UnixSeconds) -> bool {
    stop.since >= EARLIEST && stop.until.is_some_and(|until| stop.since <= until && until <= bound)
}

/// Ends a stop that is over.
fn end(stop: &mut Stop, now: UnixSeconds) {
    stop.until = stop.until.map(|until| until.min(now));
}

/// A stop whose end is known from here on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Which.
    pub control: Control,
    /// As its file has it.
    pub was: Stop,
    /// When it ends, by a clock that is right.
    pub until: UnixSeconds,
}

/// The stops of which that is so.
#[derive(Debug, Default)]
pub struct Doubts {
    known: BTreeMap<Control, Doubt>,
}

#[derive(Debug)]
struct Doubt {
    /// As its file has it.
    stop: Stop,
    /// When it is over, by the clock that nobody sets.
    ends: Duration,
    /// The same by the site's clock, as it was told.
    until: UnixSeconds,
    /// Whether its file says that by now.
    is_written: bool,
}

impl Doubts {
    /// What is to be written down, so that it is the same after a reboot: whatever the clock can tell by now.
    #[must_use]
    pub fn settled(&self, now: UnixSeconds, bound: UnixSeconds) -> Vec<Settled> {
        if (Clock { now }).trust(bound) != Trust::Good {
            return vec![];
        }
        let known = self.known.iter().filter(|(_, doubt)| !doubt.is_written);
        known
            .map(|(control, doubt)| Settled {
                control: control.clone(),
                was: doubt.stop.clone(),
                until: doubt.until,
            })
            .collect()
    }

    /// Gives every stop whose end the clock cannot tell an end that it can. Tells of those that are on.
    pub fn settle(&mut self, controls: &mut Controls, at: Moment, bound: UnixSeconds) -> Vec<String> {
        let mut before = std::mem::take(&mut self.known);
        let mut alarms = vec![];
        for (control, stop) in controls.each() {
            if is_over(stop, bound) {
                end(stop, at.wall);
                continue;
            }
            let known = before.remove(&control);
            let Some(length) = length(stop, at.wall, bound) else {
                // It was written down: it is told of until it is over.
                if let Some(known) =
                    known.filter(|known| stop.until == Some(known.until) && known.until > at.wall)
                {
                    alarms.push(alarm(&control, &known.stop));
                    self.known.insert(control, Doubt { is_written: true, ..known });
                }
                continue;
            };
            let known = known.filter(|known| known.stop == *stop);
            let ends = known.as_ref().map_or(at.steady.saturating_add(length), |known| known.ends);
            let left = ends.saturating_sub(at.steady).as_secs();
            let until = at.wall.saturating_add(left);
            // What was told stays as it was told, unless the clock was set meanwhile.
            let told =
                known.map(|known| known.until).filter(|told| left > 0 && told.abs_diff(until) <= APART);
            let until = told.unwrap_or(until);
            if left > 0 {
                alarms.push(alarm(&control, stop));
            }
            let raw = std::mem::replace(stop, Stop { until: Some(until), ..stop.clone() });
            self.known.insert(control, Doubt { stop: raw, ends, until, is_written: false });
        }
        alarms
    }
}

fn alarm(control: &Control, stop: &Stop) -> String {
    let length = Duration::from_secs(stop.until.unwrap_or_default().saturating_sub(stop.since));
    let what = match control {
        Control::Pause => "the pause".to_owned(),
        Control::PauseService(service) => format!("the pause of {service}"),
        Control::Hold => "the hold".to_owned(),
    };
    let (since, until) = (rfc3339(stop.since), stop.until.map(rfc3339).unwrap_or_default());
    format!(
        "the clock of this site cannot tell when {what} ends (set {since}, until {until}): it lasts {} from when that was noticed",
        HumanDuration(length)
    )
}

/// Shows stops whose end the clock cannot tell as the agent has told of them: it has counted.
pub fn as_told(controls: &mut Controls, told: &SiteControls, now: UnixSeconds, bound: UnixSeconds) {
    for (_, stop) in controls.each() {
        if is_over(stop, bound) {
            end(stop, now);
        }
    }
    let is_doubtful = |stop: &Stop| length(stop, now, bound).is_some();
    if controls.pause.as_ref().is_some_and(is_doubtful) {
        controls.pause.clone_from(&told.paused);
    }
    if controls.hold.as_ref().is_some_and(is_doubtful) {
        controls.hold.clone_from(&told.hold);
    }
    controls.services.retain(|name, stop| {
        if is_doubtful(stop) {
            let Some(told) = told.paused_services.get(name) else { return false };
            stop.clone_from(told);
        }
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controls::stop::is_on;
    use farshore_shared::names::Name;

    const NOW: u64 = 1_800_000_000;
    const IN_2038: u64 = 2_147_483_647;
    const HOUR: u64 = 3600;

    fn held(since: u64, until: u64) -> Controls {
        let hold = Stop { since, until: Some(until), reason: "tills are counted".into() };
        Controls { hold: Some(hold), ..Controls::default() }
    }

    /// Whether a hold is on at each of these times (clock, seconds that have really passed), and how often that is an alarm.
    fn course(hold: &Controls, times: &[(u64, u64)]) -> (Vec<bool>, usize) {
        let (mut doubts, mut alarms) = (Doubts::default(), 0);
        let is_on = times.iter().map(|(wall, steady)| {
            let mut controls = hold.clone();
            let at = Moment { wall: *wall, steady: Duration::from_secs(*steady) };
            alarms += doubts.settle(&mut controls, at, NOW - HOUR).len();
            is_on(&controls.hold.expect("it is there"), *wall)
        });
        (is_on.collect(), alarms)
    }

    #[test]
    fn a_clock_that_is_right_is_believed() {
        let hold = held(NOW, NOW + 4 * HOUR);
        let times = [(NOW, 0), (NOW + 4 * HOUR - 1, 9), (NOW + 4 * HOUR, 10), (NOW + 365 * 24 * HOUR, 11)];
        assert_eq!(course(&hold, &times), (vec![true, true, false, false], 0));
        assert_eq!(length(&Stop { until: None, ..hold.hold.expect("there") }, 0, NOW), None);
        let over = held(NOW, 0).hold.expect("there");
        assert_eq!(length(&over, IN_2038, NOW), None, "what was over when it was written stays so");
    }

    #[test]
    fn a_hold_that_was_set_in_2038_does_not_last_for_years_once_the_clock_is_right() {
        let hold = held(IN_2038, IN_2038 + 4 * HOUR);
        let times = [
            (IN_2038 + 60, 0),
            (NOW, 60),
            (NOW + 4 * HOUR - 1, 4 * HOUR + 59),
            (NOW + 4 * HOUR, 4 * HOUR + 60),
        ];
        assert_eq!(course(&hold, &times), (vec![true, true, true, false], 2));
    }

    #[test]
    fn a_hold_that_was_set_in_1970_does_not_end_when_the_clock_is_set_right() {
        let hold = held(600, 600 + 4 * HOUR);
        let times =
            [(601, 0), (NOW, 60), (NOW + 4 * HOUR - 1, 4 * HOUR + 59), (NOW + 4 * HOUR, 4 * HOUR + 60)];
        assert_eq!(course(&hold, &times), (vec![true, true, true, false], 2));
        let by_name = held(600, NOW + 4 * HOUR);
        let times = [(601, 0), (NOW, 60), (NOW + 4 * HOUR, 4 * HOUR + 60)];
        assert_eq!(
            course(&by_name, &times),
            (vec![true, true, false], 0),
            "an end that was named is its end"
        );
    }

    #[test]
    fn a_hold_outlasts_a_clock_that_goes_to_2038_and_back_and_ends_where_the_clock_stays_there() {
        let hold = held(NOW, NOW + 4 * HOUR);
        let there_and_back = [(NOW + 60, 60), (IN_2038, 120), (NOW + 180, 180), (NOW + 4 * HOUR, 4 * HOUR)];
        assert_eq!(course(&hold, &there_and_back), (vec![true, true, true, false], 1));
        let stays =
            [(IN_2038, 60), (IN_2038 + 4 * HOUR - 1, 4 * HOUR + 59), (IN_2038 + 4 * HOUR, 4 * HOUR + 60)];
        assert_eq!(course(&hold, &stays), (vec![true, true, false], 2));
        let set_there = held(IN_2038, IN_2038 + HOUR);
        assert_eq!(course(&set_there, &[(IN_2038 + 1, 1), (IN_2038 + HOUR, HOUR)]), (vec![true, false], 0));
        let long_over = held(NOW - 9 * HOUR, NOW - 5 * HOUR);
        assert_eq!(course(&long_over, &[(IN_2038, 1)]), (vec![false], 0), "documents are newer than its end");
    }

    #[test]
    fn a_hold_that_is_over_by_what_documents_say_stays_over_where_the_clock_falls_back() {
        let hold = held(NOW - 9 * HOUR, NOW - 5 * HOUR);
        for wall in [30, NOW - 8 * HOUR, NOW] {
            assert_eq!(course(&hold, &[(wall, 1)]), (vec![false], 0), "at {wall}");
        }
        let mut shown = hold.clone();
        as_told(&mut shown, &SiteControls::default(), 30, NOW - HOUR);
        assert!(!is_on(&shown.hold.expect("it is there"), 30));
    }

    #[test]
    fn what_is_counted_is_written_down_once_the_clock_can_tell_and_told_until_it_is_over() {
        for (since, until) in [(600, 600 + HOUR), (IN_2038, IN_2038 + HOUR)] {
            let (mut doubts, hold) = (Doubts::default(), held(since, until));
            let settle = |doubts: &mut Doubts, mut controls: Controls, wall, steady| {
                let at = Moment { wall, steady: Duration::from_secs(steady) };
                let alarms = doubts.settle(&mut controls, at, NOW - HOUR);
                (controls, alarms.len(), doubts.settled(wall, NOW - HOUR))
            };
            let (_, _, not_yet) = settle(&mut doubts, hold.clone(), 700, 10);
            assert_eq!(not_yet, [], "this clock cannot tell");
            let (_, alarms, settled) = settle(&mut doubts, hold.clone(), NOW, 20);
            let [Settled { control, was, until }] = &settled[..] else { panic!("one: {settled:?}") };
            assert_eq!((control, Some(was), alarms), (&Control::Hold, hold.hold.as_ref(), 1));
            assert!(*until > NOW && *until <= NOW + HOUR, "{until}");
            // Its file has the time of its writing now.
            let written = held(NOW, *until);
            assert_eq!(settle(&mut doubts, written.clone(), NOW + 1, 21), (written.clone(), 1, vec![]));
            // The agent was started anew.
            let mut anew = Doubts::default();
            let (controls, alarms, settled) = settle(&mut anew, written.clone(), NOW + 2 * HOUR, 1);
            assert_eq!(
                (is_on(&controls.hold.expect("there"), NOW + 2 * HOUR), alarms, settled),
                (false, 0, vec![])
            );
            assert_eq!(settle(&mut doubts, written, NOW + 2 * HOUR, 2 * HOUR).1, 0, "it is over");
        }
    }

    #[test]
    fn a_hold_ends_also_where_the_clock_falls_back_to_1970_and_stays_there() {
        let hold = held(NOW, NOW + 4 * HOUR);
        let times = [(NOW + 60, 60), (0, 120), (4 * HOUR - 1, 4 * HOUR + 119), (4 * HOUR, 4 * HOUR + 120)];
        assert_eq!(course(&hold, &times), (vec![true, true, true, false], 2));
    }

    #[test]
    fn what_was_told_of_a_stop_stays_while_nobody_sets_the_clock() {
        let (mut doubts, hold) = (Doubts::default(), held(IN_2038, IN_2038 + HOUR));
        let until = |doubts: &mut Doubts, wall, millis| {
            let mut controls = hold.clone();
            doubts.settle(&mut controls, Moment { wall, steady: Duration::from_millis(millis) }, NOW);
            controls.hold.expect("there").until
        };
        let first = until(&mut doubts, NOW, 500);
        assert_eq!(first, Some(NOW + HOUR));
        assert_eq!(until(&mut doubts, NOW + 600, 601_499), first);
        assert_eq!(until(&mut doubts, NOW + 7200, 602_000), Some(NOW + 7200 + HOUR - 602), "it was set");
    }

    #[test]
    fn who_looks_is_shown_what_the_agent_counts() {
        let paused = held(IN_2038, IN_2038 + HOUR).hold;
        let services = [("web", paused.clone()), ("db", paused.clone())];
        let services =
            services.into_iter().map(|(name, stop)| (name.parse().expect("a name"), stop.expect("there")));
        let mut controls = Controls { pause: paused.clone(), hold: paused, services: services.collect() };
        let mut counted = controls.clone();
        Doubts::default().settle(&mut counted, Moment { wall: NOW, steady: Duration::ZERO }, NOW);
        counted.services.remove(&"db".parse::<Name>().expect("a name"));
        let told = SiteControls {
            paused: counted.pause.clone(),
            paused_services: counted.services.clone(),
            ..SiteControls::default()
        };
        as_told(&mut controls, &told, NOW, NOW);
        assert_eq!(controls, Controls { hold: None, ..counted });
    }
}
