//! This machine's clock, read at the edges only: what decides is told the time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::wire::UnixSeconds;

/// The time since 1970-01-01 UTC. A clock before that shows zero: such a clock is distrusted anyway.
#[must_use]
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The same in whole seconds.
#[must_use]
pub fn now() -> UnixSeconds {
    since_epoch().as_secs()
}

/// The same in whole milliseconds.
#[must_use]
pub fn now_millis() -> u64 {
    u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
}
