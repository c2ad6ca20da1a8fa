//! Maintenance windows: at which times of the week new revisions may begin. Pure, but for the time zones, which are
//! read from the system when a window is.

use std::fmt;
use std::str::FromStr;

use farshore_shared::wire::{UnixSeconds, WindowState};
use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan as _};

/// A time as RFC 3339 has it, in UTC. One beyond the year 9999 is `the end of time`.
#[must_use]
pub fn rfc3339(at: UnixSeconds) -> String {
    let timestamp = i64::try_from(at).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    timestamp.map_or_else(|| "the end of time".to_owned(), |timestamp| timestamp.to_string())
}

/// The windows of a site; none: new revisions may always begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Windows(pub Vec<Window>);

/// A window: on some days of the week from one time to another, such as `Mon-Fri 02:00-05:00 Europe/Berlin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    text: String,
    days: Vec<Weekday>,
    from: Time,
    /// How long it is open by the clock on the wall, in minutes.
    minutes: i64,
    zone: TimeZone,
}

/// A text that is not a window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a window is [DAYS] HH:MM-HH:MM [ZONE], such as `Mon-Fri 02:00-05:00 Europe/Berlin` (got {text:?}: {why})"
)]
pub struct BadWindow {
    text: String,
    why: String,
}

impl FromStr for Window {
    type Err = BadWindow;

    fn from_str(text: &str) -> Result<Self, BadWindow> {
        let bad = |why: String| BadWindow { text: text.chars().take(80).collect(), why };
        let words: Vec<&str> = text.split_whitespace().collect();
        let at = words
            .iter()
            .position(|word| word.contains(':') && word.starts_with(|c: char| c.is_ascii_digit()));
        let at = at.ok_or_else(|| bad("it has no times".to_owned()))?;
        let (before, after) = (&words[..at], &words[at + 1..]);
        let days = days(&before.join(",")).map_err(&bad)?;
        let (from, to) = words[at].split_once('-').ok_or_else(|| bad("it has no end".to_owned()))?;
        let (from, to) = (minute(from).map_err(&bad)?, minute(to).map_err(&bad)?);
        if from == 24 * 60 {
            return Err(bad("a day begins at 00:00".to_owned()));
        }
        // What ends before it begins ends on the day after.
        let minutes = if to > from { to - from } else { to + 24 * 60 - from };
        let zone = match after {
            [] => TimeZone::UTC,
            [name] => zone(name).map_err(&bad)?,
            [..] => return Err(bad("there is something after the time zone".to_owned())),
        };
        let (hour, rest) = (from / 60, from % 60);
        let whole = |number: i64| i8::try_from(number).unwrap_or_default();
        Ok(Self {
            text: words.join(" "),
            days,
            from: Time::constant(whole(hour), whole(rest), 0, 0),
            minutes,
            zone,
        })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

const DAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

fn days(text: &str) -> Result<Vec<Weekday>, String> {
    if text.is_empty() || text.eq_ignore_ascii_case("daily") {
        return Ok(DAYS.map(|(_, day)| day).to_vec());
    }
    let place = |name: &str| {
        let place = DAYS.iter().position(|(day, _)| name.eq_ignore_ascii_case(day));
        place.ok_or_else(|| format!("a day is one of Mon Tue Wed Thu Fri Sat Sun, not {name:?}"))
    };
    let mut days = vec![];
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (place(first)?, place(last)?);
        // Fri-Mon goes over the end of the week.
        let count = (last + DAYS.len() - first) % DAYS.len();
        days.extend((0..=count).map(|n| DAYS[(first + n) % DAYS.len()].1));
    }
    Ok(days)
}

/// A time of the day in minutes, up to 24:00.
fn minute(text: &str) -> Result<i64, String> {
    let number = |text: &str| match text.len() {
        2 if text.bytes().all(|b| b.is_ascii_digit()) => text.parse::<i64>().ok(),
        _ => None,
    };
    let read = text.split_once(':').and_then(|(hour, minute)| Some((number(hour)?, number(minute)?)));
    match read {
        Some((hour, minute)) if minute < 60 && (hour < 24 || (hour, minute) == (24, 0)) => {
            Ok(hour * 60 + minute)
        }
        _ => Err(format!("a time is between 00:00 and 24:00, not {text:?}")),
    }
}

fn zone(name: &str) -> Result<TimeZone, String> {
    if let Some(offset) =
        name.strip_prefix('+').map(|rest| (1, rest)).or_else(|| name.strip_prefix('-').map(|rest| (-1, rest)))
    {
        let (sign, rest) = offset;
        let minutes = minute(rest)?;
        let seconds = i32::try_from(sign * minutes * 60).unwrap_or_default();
        let offset = jiff::tz::Offset::from_seconds(seconds).map_err(|error| error.to_string())?;
        return Ok(TimeZone::fixed(offset));
    }
    TimeZone::get(name).map_err(|_unknown| {
        format!("this machine does not know the time zone {name:?}: install tzdata, or use UTC or +02:00")
    })
}

impl Window {
    /// When it is open that begins on this day, as seconds; none where it is not one of its days.
    fn on(&self, day: Date) -> Option<(i64, i64)> {
        if !self.days.contains(&day.weekday()) {
            return None;
        }
        let begins = day.to_datetime(self.from);
        let ends = begins.checked_add(self.minutes.minutes()).ok()?;
        // A time that the clocks skip or have twice: what follows the gap, the first of both.
        let second =
            |at: jiff::civil::DateTime| Some(at.to_zoned(self.zone.clone()).ok()?.timestamp().as_second());
        Some((second(begins)?, second(ends)?)).filter(|(begins, ends)| begins < ends)
    }

    /// All that begin on a day from the one before this time to the one a week after it.
    fn around(&self, now: Timestamp) -> Vec<(i64, i64)> {
        let today = now.to_zoned(self.zone.clone()).date();
        let day = |n: i64| today.checked_add(Span::new().days(n)).ok().and_then(|day| self.on(day));
        (-1..=8).filter_map(day).collect()
    }
}

impl Windows {
    /// Whether one is open, and when that changes; none where there are no windows.
    #[must_use]
    pub fn state(&self, now: UnixSeconds) -> Option<WindowState> {
        if self.0.is_empty() {
            return None;
        }
        // A clock that shows no time that there is opens nothing.
        let closed = WindowState { open: false, changes: None };
        let Ok(second) = i64::try_from(now) else { return Some(closed) };
        let Ok(at) = Timestamp::from_second(second) else { return Some(closed) };
        let mut times: Vec<(i64, i64)> = self.0.iter().flat_map(|window| window.around(at)).collect();
        times.sort_unstable();
        let mut open_until = None;
        for (begins, ends) in &times {
            // Windows that meet are one.
            let reached = open_until.unwrap_or(second);
            if *begins <= reached && *ends > reached {
                open_until = Some(*ends);
            }
        }
        let changes =
            open_until.or_else(|| times.iter().map(|(begins, _)| *begins).find(|begins| *begins > second));
        let changes = changes.and_then(|at| u64::try_from(at).ok());
        Some(WindowState { open: open_until.is_some(), changes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> UnixSeconds {
        let at: Timestamp = text.parse().expect("a time");
        at.as_second().try_into().expect("after 1970")
    }

    fn windows(texts: &[&str]) -> Windows {
        Windows(texts.iter().map(|text| text.parse().expect("a window")).collect())
    }

    /// Whether it is open at a time, and when that changes.
    fn seen(windows: &Windows, now: &str) -> (bool, String) {
        let state = windows.state(at(now)).expect("there are windows");
        (state.open, state.changes.map(rfc3339).unwrap_or_default())
    }

    #[test]
    fn a_window_is_open_on_its_days_from_its_beginning_to_before_its_end() {
        let nights = windows(&["Mon-Wed,Sat 02:00-05:00"]);
        // 2026-11-21 is a Saturday.
        for (now, open, changes) in [
            ("2026-11-21T01:59:59Z", false, "2026-11-21T02:00:00Z"),
            ("2026-11-21T02:00:00Z", true, "2026-11-21T05:00:00Z"),
            ("2026-11-21T05:00:00Z", false, "2026-11-23T02:00:00Z"),
            ("2026-11-25T06:00:00Z", false, "2026-11-28T02:00:00Z"),
        ] {
            assert_eq!(seen(&nights, now), (open, changes.to_owned()), "{now}");
        }
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_on_which_it_begins() {
        let late = windows(&["Fri 22:00-04:00"]);
        assert_eq!(seen(&late, "2026-11-21T03:59:00Z"), (true, "2026-11-21T04:00:00Z".to_owned()));
        assert_eq!(seen(&late, "2026-11-20T03:00:00Z"), (false, "2026-11-20T22:00:00Z".to_owned()));
        assert!(seen(&windows(&["00:00-24:00"]), "2026-11-21T12:00:00Z").0);
    }

    #[test]
    fn windows_that_meet_are_one() {
        let met = windows(&["Sat 04:00-06:00", "Sat 02:00-05:00", "Sun 02:00-03:00"]);
        assert_eq!(seen(&met, "2026-11-21T02:30:00Z"), (true, "2026-11-21T06:00:00Z".to_owned()));
    }

    #[test]
    fn a_window_follows_the_clocks_of_its_zone_also_when_they_are_changed() {
        let berlin = windows(&["daily 02:00-05:00 Europe/Berlin"]);
        assert_eq!(seen(&berlin, "2026-07-01T00:00:00Z"), (true, "2026-07-01T03:00:00Z".to_owned()));
        assert_eq!(seen(&berlin, "2026-12-01T00:00:00Z"), (false, "2026-12-01T01:00:00Z".to_owned()));
        // On 2026-03-29 the clocks go from 02:00 to 03:00.
        assert_eq!(seen(&berlin, "2026-03-29T00:59:00Z"), (false, "2026-03-29T01:00:00Z".to_owned()));
        assert_eq!(seen(&berlin, "2026-03-29T01:00:00Z"), (true, "2026-03-29T03:00:00Z".to_owned()));
        let fixed = windows(&["02:00-05:00 -03:30"]);
        assert_eq!(seen(&fixed, "2026-12-01T05:29:00Z"), (false, "2026-12-01T05:30:00Z".to_owned()));
    }

    #[test]
    fn what_is_no_window_is_refused_and_says_why() {
        for (text, why) in [
            ("", "it has no times"),
            ("Mon", "it has no times"),
            ("02:00", "it has no end"),
            ("02:00-25:00", "between 00:00 and 24:00"),
            ("2:00-5:00", "between 00:00 and 24:00"),
            ("24:00-05:00", "a day begins at 00:00"),
            ("Mo 02:00-05:00", "a day is one of"),
            ("02:00-05:00 Europe/Atlantis", "does not know the time zone"),
            ("02:00-05:00 UTC x", "after the time zone"),
        ] {
            let refused = text.parse::<Window>().expect_err(text).to_string();
            assert!(refused.contains(why), "{text:?}: {refused}");
        }
        let state = windows(&["02:00-05:00"]).state(u64::MAX);
        assert_eq!(state, Some(WindowState { open: false, changes: None }), "no such time");
    }
}
