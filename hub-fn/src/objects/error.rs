//! What can go wrong between the hub and its record.

use std::error::Error;
use std::fmt;
use std::io;

use super::Key;

/// One of the five things that are done to the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`Objects::get`](super::Objects::get).
    Get,
    /// [`Objects::read`](super::Objects::read).
    Read,
    /// [`Objects::put`](super::Objects::put).
    Put,
    /// [`Objects::list`](super::Objects::list).
    List,
    /// [`Objects::delete`](super::Objects::delete).
    Delete,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::Read => "read",
            Self::Put => "put",
            Self::List => "list",
            Self::Delete => "delete",
        })
    }
}

/// An operation on the record that failed; each names the key (or, for a list, the prefix).
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The store did not answer, or not in time, or said that it is busy: nothing is known, and a
    /// write may have happened.
    #[error("the record did not answer ({operation} {key})")]
    Unreachable {
        /// What was done.
        operation: Operation,
        /// To which object, or to which prefix.
        key: String,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// An object is larger than the caller is ready to hold.
    #[error("an object of the record is too large (key {key}, {size} bytes, limit {limit})")]
    TooLarge {
        /// The object.
        key: String,
        /// The most that the caller takes, in bytes.
        limit: u64,
        /// How large it is, or how much of it was seen, in bytes.
        size: u64,
    },
    /// A range begins beyond the end of its object.
    #[error("no byte of the range is in the object (key {key}, {total} bytes)")]
    Unsatisfiable {
        /// The object.
        key: String,
        /// Its size in bytes.
        total: u64,
    },
    /// The store answered that it will not: credentials, permissions, a bucket that is not there.
    #[error("the record refused ({operation} {key})")]
    Refused {
        /// What was done.
        operation: Operation,
        /// To which object, or to which prefix.
        key: String,
        /// What it said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// What the store gave cannot be the object that was written.
    #[error("an object of the record is damaged (key {key}, {reason})")]
    Corrupt {
        /// The object.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The disk failed.
    #[error("the record's disk failed ({operation} {key})")]
    Io {
        /// What was done.
        operation: Operation,
        /// To which object, or to which prefix.
        key: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// An object is being deleted by the collection of what is unneeded, and is written again afterwards.
    #[error("an object of the record is being collected (key {key}): it can be written again in a moment")]
    Claimed {
        /// The object.
        key: String,
    },
    /// Others changed the object each time before the change could be written.
    #[error("an object of the record kept changing under the writer (key {key}, {attempts} attempts)")]
    Contended {
        /// The object.
        key: String,
        /// How often it was tried.
        attempts: u32,
    },
}

impl ObjectsError {
    /// Whether the same call may succeed in a while without anybody doing anything.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Contended { .. } | Self::Claimed { .. } => true,
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::Interrupted | io::ErrorKind::TimedOut | io::ErrorKind::StorageFull
            ),
            Self::TooLarge { .. }
            | Self::Unsatisfiable { .. }
            | Self::Refused { .. }
            | Self::Corrupt { .. } => false,
        }
    }

    pub(super) fn io(operation: Operation, key: &Key) -> impl FnOnce(io::Error) -> Self {
        let key = key.to_string();
        move |source| Self::Io { operation, key, source }
    }

    pub(super) fn corrupt(key: &Key, reason: impl Into<String>) -> Self {
        Self::Corrupt { key: key.to_string(), reason: reason.into() }
    }
}
