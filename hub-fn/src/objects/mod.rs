//! The record: a small object store with conditional writes. What is not in here does not exist.
//!
//! - [`Objects`]: the port. [`disk`], `s3` and [`memory`] implement it; [`faulty`] wraps any of them, so that a
//!   test can stop or fail any single operation, [`counted`] counts what is done, and [`measured`] times it.
//! - [`update`]: one object, read, changed and written by compare-and-swap.
//! - [`prove_conditions`]: shows at start that a store honours conditional writes.
//!
//! No layout of the record and no meaning of a body belongs here: an object is a key and bytes.
//!
//! A write that ends in [`ObjectsError::Unreachable`] or [`ObjectsError::Io`] may have happened. The caller finds out
//! by reading back; nothing here repeats a conditional write on its own, because the second attempt
//! would take the first one's success for somebody else's.

use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

pub mod counted;
pub mod disk;
mod error;
pub mod faulty;
mod key;
pub mod measured;
pub mod memory;
mod prove;
#[cfg(feature = "s3")]
pub mod s3;
mod update;

pub use error::{ObjectsError, Operation};
pub use key::{BadKey, Key};
pub use prove::{Ignored, ProofError, prove_conditions};
pub use update::{Updated, update};

/// A store of named bytes, strongly consistent: a read that starts after a write has ended sees it.
#[async_trait]
pub trait Objects: Send + Sync + Debug {
    /// An object whole, with the version that [`Condition::Matches`] compares; `None` when absent.
    ///
    /// # Errors
    /// [`ObjectsError::TooLarge`] when it has more than `limit` bytes, and whatever the store meets.
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Stored>, ObjectsError>;

    /// An object, or a range of it, as a stream that holds no more than a piece at a time; `None`
    /// when absent.
    ///
    /// The stream shows one version of the object, also when it is replaced meanwhile, or fails.
    ///
    /// # Errors
    /// [`ObjectsError::Unsatisfiable`] when the range begins beyond the end, and whatever the store
    /// meets.
    async fn read(&self, key: &Key, range: Option<ByteRange>) -> Result<Option<Content>, ObjectsError>;

    /// Writes an object whole if the condition holds; nobody ever sees half of it.
    ///
    /// When this returns [`PutOutcome::Stored`], the bytes survive a power cut. A future that is
    /// dropped may have written.
    ///
    /// # Errors
    /// Whatever the store meets; after [`ObjectsError::Unreachable`] it may have been written.
    async fn put(&self, key: &Key, bytes: Bytes, condition: Condition) -> Result<PutOutcome, ObjectsError>;

    /// At most `limit` objects whose key starts with `prefix` (not only at a `/`) and is greater
    /// than `after`, sorted by the bytes of their keys. Fewer than `limit` means that it was the
    /// last page.
    ///
    /// # Errors
    /// Whatever the store meets.
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, ObjectsError>;

    /// Deletes an object; an absent one is deleted already.
    ///
    /// # Errors
    /// Whatever the store meets.
    async fn delete(&self, key: &Key) -> Result<(), ObjectsError>;

    /// An address at which anybody may read this one object, or a range of it, for so long; none where the
    /// store has no addresses. Whether the object is there is not looked at.
    ///
    /// # Errors
    /// When the store has addresses and cannot sign this one.
    async fn presign(&self, key: &Key, ttl: Duration) -> Result<Option<String>, ObjectsError>;
}

/// What a conditional write compares: opaque, and only of use to the store that gave it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version(String);

impl Version {
    /// The text that a store knows a version by.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// That text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An object as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// All its bytes.
    pub bytes: Bytes,
    /// What to give to [`Condition::Matches`].
    pub version: Version,
}

/// When a write may happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Whatever is there.
    Always,
    /// Only if there is no such object (`If-None-Match: *`).
    Absent,
    /// Only if the object is still this version (`If-Match`); an absent one is not.
    Matches(Version),
}

/// How a write ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a write whose condition did not hold has not happened"]
pub enum PutOutcome {
    /// It is in the record, as this version.
    Stored(Version),
    /// The condition did not hold: nothing was written.
    Conflict,
}

/// One object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: Key,
    /// Its size in bytes.
    pub size: u64,
}

/// A part of an object, as the `Range` header of HTTP asks for it (RFC 9110 section 14.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// From this byte to the end.
    From(u64),
    /// From the first to the second byte, both included; a second one beyond the end is the last.
    Within(u64, u64),
    /// The last so many bytes, or all when there are fewer.
    Last(u64),
}

impl ByteRange {
    /// The range within `total` bytes, its end excluded; `None` when no byte of it is there.
    #[must_use]
    pub fn within(self, total: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::From(first) => first..total,
            Self::Within(first, last) => first..last.saturating_add(1).min(total),
            Self::Last(count) => total.saturating_sub(count)..total,
        };
        (range.start < range.end).then_some(range)
    }
}

/// The pieces of an object that is being read.
pub type Pieces = BoxStream<'static, Result<Bytes, ObjectsError>>;

/// An object, or a range of it, as it is read piece by piece.
pub struct Content {
    /// The size of the whole object in bytes.
    pub total: u64,
    /// The bytes that the stream gives, the end excluded.
    pub range: Range<u64>,
    /// The bytes; a stream that ends without an error has given all of them.
    pub stream: Pieces,
}

impl Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content")
            .field("total", &self.total)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_to_the_object_and_none_is_left_beyond_it() {
        assert_eq!(ByteRange::From(3).within(10), Some(3..10));
        assert_eq!(ByteRange::From(10).within(10), None);
        assert_eq!(ByteRange::Within(0, 0).within(10), Some(0..1));
        assert_eq!(ByteRange::Within(4, u64::MAX).within(10), Some(4..10));
        assert_eq!(ByteRange::Within(5, 4).within(10), None);
        assert_eq!(ByteRange::Last(4).within(10), Some(6..10));
        assert_eq!(ByteRange::Last(40).within(10), Some(0..10));
        assert_eq!(ByteRange::Last(0).within(10), None);
        assert_eq!(ByteRange::From(0).within(0), None);
    }
}
