//! What sites say of themselves: from the request to the record, and what is counted of it.
//!
//! 1. [`Writer`] appends reports to the log, many in one object, before any of them is acknowledged.
//! 2. [`Compactor`] folds the log into shards, and deletes a part of the log only after all its reports are in
//!    their shards. Two at once, or one that is killed anywhere, lose nothing.
//! 3. [`Statuses`] reads shards; [`judge`] says how a cluster is; [`Summary`](crate::record::Summary) counts.
//!
//! [`shard`] and [`judge`] are pure.

mod compact;
pub mod judge;
mod read;
mod roll;
pub mod shard;
mod summary;
mod writer;

pub use compact::{CompactError, Compacted, Compactor};
pub use read::{Found, Statuses, all_reports};
pub use roll::{Roll, RollError};
pub use summary::{Counted, count};
pub use writer::{COME_BACK, NotTaken, Queued, TOGETHER, Writer};
