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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_utc() {
        assert_eq!(rfc3339(1_800_000_000).as_deref(), Some("2027-01-15T08:00:00Z"));
        assert_eq!(rfc3339(u64::MAX), None);
    }
}
