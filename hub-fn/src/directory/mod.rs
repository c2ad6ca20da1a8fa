//! The directory of clusters in the record: head, manifest, shards, log; and a replica's memory of it.
//!
//! What it means is said in [`crate::record::DirectoryHead`]'s module. Nothing is believed for where it
//! lies: the head and each part of the log are signed by the director, all else is named by its digest.

mod read;
mod write;

pub use read::{DirectoryError, Reader, encode_manifest, encode_shard};
pub use write::{Standing, write_shards, write_snapshot};
