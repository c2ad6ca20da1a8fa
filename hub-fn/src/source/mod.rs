//! Where services come from: Git repositories, each mirrored in a folder and read from there.
//!
//! - [`GitUrl`]: where a repository is, without credentials.
//! - [`Mirror`]: its copy on this disk: fetches, tells descent, opens the tree of a commit.
//! - [`Tree`]: reads the files of one commit straight from the object database; nothing is checked
//!   out.
//! - [`Limits`]: what one fetch may take. Every byte that arrives is counted.
//!
//! - [`kept`]: mirrors in the record, for replicas with an empty disk.
//!
//! All but the last blocks: call it where blocking is allowed. What a service's artifact is made of
//! is not decided here, but in [`crate::artifact`].

mod child;
mod commit;
mod error;
#[cfg(feature = "git-http")]
mod http;
pub mod kept;
mod meter;
mod mirror;
mod packs;
mod remote;
#[cfg(test)]
pub(crate) mod testing;
mod tree;
mod url;

pub use commit::{BadBranch, BadCommit, Branch, BranchName, CommitId};
pub use error::{Cause, SourceError};
pub use meter::Limits;
pub use mirror::{Descent, Mirror};
pub use tree::Tree;
pub(crate) use url::Reach;
pub use url::{BadUrl, FileSources, GitUrl, URL_LIMIT};
