//! The directory of clusters in the record: head, manifest, shards, log; and a replica's memory of it.
//!
//! What it means is said in [`crate::record::DirectoryHead`]'s module. Nothing is believed for where it
//! lies: the head and each part of the log are signed by the director, all else is named by its digest.
//!
//! - [`Reader`], [`write_snapshot`]: the objects.
//! - `slots` (*pure*), `memory`, `follow`: what a replica keeps of it, bounded, and how it stays fresh.

mod follow;
mod memory;
mod read;
mod slots;
mod write;

pub use follow::Moved;
pub(crate) use follow::{Progress, Reach};
pub use memory::Counts;
pub(crate) use memory::{Directory, Shelves};

pub use read::{DirectoryError, Part, Reader, encode_manifest, encode_shard};
pub use slots::Heard;
pub(crate) use slots::{Known, Place, Remembered, RosterMark, Short, epoch};
pub use write::{Standing, write_shards, write_snapshot};
