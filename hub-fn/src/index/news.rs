//! What hub processes tell each other at once, so that nobody waits for the next look.
//!
//! Whoever hears it looks into the record: news are never believed, and losing them costs latency only.

use farshore_shared::names::Name;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

/// Something happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum News {
    /// `fleet/head` moved to this sequence.
    Head {
        /// The publication's.
        sequence: u64,
    },
    /// The directory's log reached this position.
    Directory {
        /// The last part's.
        position: u64,
    },
    /// A Git server says that a source has a new commit; `None` is the fleet repository.
    Pushed {
        /// The source.
        source: Option<Name>,
    },
    /// Requests wait for the publisher: to enrol, to approve, to remove.
    Requests,
    /// Some news may not have been heard: look at everything. Never told, only heard.
    Missed,
}

/// News as they come.
pub type NewsStream = BoxStream<'static, News>;
