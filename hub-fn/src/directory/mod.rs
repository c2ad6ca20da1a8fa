//! The directory of clusters, read from the record: head, manifest, shards, log.
//!
//! What it means is said in [`crate::record::DirectoryHead`]'s module. Nothing is believed for where it
//! lies: the head and each part of the log are signed by the director, all else is named by its digest.

mod read;

pub use read::{DirectoryError, Reader, encode_manifest, encode_shard};
