//! What a file says that stops something: `[WHEN] [REASON]`. Pure.
//!
//! `WHEN` is a time (`2026-11-21T18:00:00Z`), a duration from when the file was written (`2h`), or `-` for no end.
//! Anything else is part of the reason: whoever wrote the file meant to stop something, and did.

use farshore_shared::duration::HumanDuration;
use farshore_shared::wire::{Stop, UnixSeconds};
use jiff::Timestamp;

use super::window::rfc3339;

/// The most characters of a reason.
pub const REASON_LIMIT: usize = 200;

/// How long a stop is on whose file does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsaid {
    /// Until somebody ends it.
    ForEver,
    /// So many seconds, also where the file says that it has no end.
    For(u64),
}

/// What a file says that was written at this time.
#[must_use]
pub fn read(text: &str, written: UnixSeconds, unsaid: Unsaid) -> Stop {
    let text = text.trim();
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let without_end = match unsaid {
        Unsaid::ForEver => None,
        Unsaid::For(seconds) => Some(written.saturating_add(seconds)),
    };
    let (until, reason) = if first == "-" {
        (without_end, rest)
    } else if let Some(until) = end(first, written) {
        (Some(until), rest)
    } else {
        (without_end, text)
    };
    let reason = reason.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(REASON_LIMIT);
    Stop { since: written, until, reason: reason.collect() }
}

/// The time that a text names, from another time on.
#[must_use]
pub fn end(text: &str, from: UnixSeconds) -> Option<UnixSeconds> {
    if let Ok(duration) = text.parse::<HumanDuration>() {
        return Some(from.saturating_add(duration.0.as_secs()));
    }
    let at: Timestamp = text.parse().ok()?;
    // Before 1970 is over as well.
    Some(u64::try_from(at.as_second()).unwrap_or_default())
}

/// The text of a file.
#[must_use]
pub fn write(until: Option<UnixSeconds>, reason: &str) -> String {
    let until = until.map_or_else(|| "-".to_owned(), rfc3339);
    format!("{until} {reason}").trim_end().to_owned() + "\n"
}

/// Whether something is stopped at this time.
#[must_use]
pub fn is_on(stop: &Stop, now: UnixSeconds) -> bool {
    stop.until.is_none_or(|until| now < until)
}

/// A stop in words: `until 2026-11-21T18:00:00Z (tills are counted)`.
#[must_use]
pub fn shown(stop: &Stop) -> String {
    let until = stop
        .until
        .map_or_else(|| "until somebody resumes it".to_owned(), |at| format!("until {}", rfc3339(at)));
    if stop.reason.is_empty() { until } else { format!("{until} ({})", stop.reason) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn an_end_is_a_time_or_a_duration_from_when_the_file_was_written() {
        for (text, until, reason) in [
            ("2h tills are counted\n", Some(NOW + 7200), "tills are counted"),
            ("2027-01-15T09:00:00Z", Some(NOW + 3600), ""),
            ("2027-01-15T10:00:00+01:00  audit", Some(NOW + 3600), "audit"),
            ("1960-01-01T00:00:00Z over", Some(0), "over"),
            ("- by hand", None, "by hand"),
            ("", None, ""),
            ("tills are counted", None, "tills are counted"),
            ("18446744073709551615s", Some(u64::MAX), ""),
        ] {
            let stop = read(text, NOW, Unsaid::ForEver);
            assert_eq!((stop.until, stop.reason.as_str(), stop.since), (until, reason, NOW), "{text:?}");
        }
    }

    #[test]
    fn what_may_not_last_for_ever_does_not() {
        for text in ["", "- x", "not now"] {
            assert_eq!(read(text, NOW, Unsaid::For(60)).until, Some(NOW + 60), "{text:?}");
        }
    }

    #[test]
    fn what_is_written_reads_back_and_a_reason_commands_no_terminal() {
        for until in [None, Some(NOW + 60)] {
            let stop = read(&write(until, "tills are counted"), NOW, Unsaid::ForEver);
            assert_eq!((stop.until, stop.reason.as_str()), (until, "tills are counted"));
        }
        let odd = read(&format!("1h a\u{1b}[2Jb{}", "x".repeat(500)), NOW, Unsaid::ForEver);
        assert!(odd.reason.starts_with("a [2Jb") && odd.reason.chars().count() == REASON_LIMIT);
    }
}
