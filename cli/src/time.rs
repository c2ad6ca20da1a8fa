//! The clock, and times as people read them.

use std::time::{SystemTime, UNIX_EPOCH};

use farshore_shared::wire::UnixSeconds;
use jiff::Timestamp;

/// A clock that cannot be right.
#[derive(Debug, thiserror::Error)]
#[error("the clock of this machine is before 1970: set it")]
pub(crate) struct ClockError;

/// The time.
///
/// # Errors
/// [`ClockError`].
pub(crate) fn now() -> Result<UnixSeconds, ClockError> {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_secs()).map_err(|_before| ClockError)
}

/// A time as RFC 3339 has it, in UTC; none for a time beyond the year 9999.
pub(crate) fn rfc3339(at: UnixSeconds) -> Option<String> {
    let timestamp = i64::try_from(at).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    timestamp.map(|timestamp| timestamp.to_string())
}

/// How long ago a time was, in its largest whole unit.
pub(crate) fn age(at: UnixSeconds, now: UnixSeconds) -> String {
    match now.saturating_sub(at) {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7200 => format!("{}m", s / 60),
        s @ 7200..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_utc() {
        assert_eq!(rfc3339(1_800_000_000).as_deref(), Some("2027-01-15T08:00:00Z"));
        assert_eq!(rfc3339(u64::MAX), None);
    }

    #[test]
    fn an_age_is_short_and_never_negative() {
        let ages = [0, 119, 120, 7199, 7200, 172_800].map(|seconds| age(1_000_000 - seconds, 1_000_000));
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h", "2d"]);
        assert_eq!(age(2_000_000, 1_000_000), "0s");
    }
}
