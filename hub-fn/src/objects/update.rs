//! One object changed by compare-and-swap.

use std::time::Duration;

use bytes::Bytes;
use farshore_shared::retry::Schedule;

use super::{Condition, Key, Objects, ObjectsError, PutOutcome, Stored, Version};

/// With sixteen writers at once each round has a winner, so every one of them gets through.
const MOST_ATTEMPTS: u32 = 32;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How an [`update`] ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Updated {
    /// The change is in the record, as this version.
    Stored(Version),
    /// The change had nothing to write.
    Unchanged,
}

/// Reads an object (at most `limit` bytes), asks `change` for its new bytes, and writes them if
/// nobody else wrote meanwhile; otherwise begins anew, a bounded number of times.
///
/// `change` is called once for every attempt, with what is there (`None`: absent); its `None` ends
/// the update without a write. After [`ObjectsError::Unreachable`] the change may be in the record:
/// a change that must not happen twice has to be recognisable in the bytes.
///
/// # Errors
/// [`ObjectsError::Contended`] when others were faster each time, and whatever the store meets.
pub async fn update<F>(
    objects: &dyn Objects,
    key: &Key,
    limit: u64,
    mut change: F,
) -> Result<Updated, ObjectsError>
where
    F: FnMut(Option<&Stored>) -> Option<Bytes> + Send,
{
    let mut pauses = Schedule::new(FIRST_PAUSE, LONGEST_PAUSE);
    for _ in 0..MOST_ATTEMPTS {
        let held = objects.get(key, limit).await?;
        let Some(bytes) = change(held.as_ref()) else {
            return Ok(Updated::Unchanged);
        };
        let condition = held.map_or(Condition::Absent, |stored| Condition::Matches(stored.version));
        match objects.put(key, bytes, condition).await? {
            PutOutcome::Stored(version) => return Ok(Updated::Stored(version)),
            PutOutcome::Conflict => tokio::time::sleep(pauses.next_delay()).await,
        }
    }
    Err(ObjectsError::Contended { key: key.to_string(), attempts: MOST_ATTEMPTS })
}
