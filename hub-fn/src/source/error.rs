//! Why a repository could not be mirrored or read.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::{Branch, CommitId, GitUrl};
use crate::artifact::BadPath;

/// What a library had to say.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why a repository could not be mirrored or read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Nobody answered: no such host, connection refused or broken off, the server's own failure.
    #[error("reaching the Git server ({url})")]
    Unreachable {
        /// The repository.
        url: GitUrl,
        /// What was seen.
        source: Cause,
    },
    /// Nothing arrived for too long.
    #[error("waiting for the Git server: nothing arrived for {} s (of {url})", .limit.as_secs_f32())]
    Stalled {
        /// The repository.
        url: GitUrl,
        /// How long nothing may arrive.
        limit: Duration,
    },
    /// It kept arriving, but too slowly.
    #[error("fetching takes longer than its limit ({} s; of {url})", .limit.as_secs_f32())]
    Overdue {
        /// The repository.
        url: GitUrl,
        /// How long one fetch may take.
        limit: Duration,
    },
    /// There is no such repository, or not for everybody.
    #[error(
        "finding the repository ({url}; the server says {answer}: it does not exist or cannot be read anonymously)"
    )]
    NotFound {
        /// The repository.
        url: GitUrl,
        /// How the server said so.
        answer: String,
    },
    /// It has no commits.
    #[error("the repository is empty: it has no commits ({url})")]
    Empty {
        /// The repository.
        url: GitUrl,
    },
    /// It has commits, but not this branch.
    #[error("the repository has no such branch ({branch} of {url}; it has {})", shown(.available))]
    BranchMissing {
        /// The repository.
        url: GitUrl,
        /// The branch.
        branch: Branch,
        /// Some that it has.
        available: Vec<String>,
    },
    /// More bytes than one fetch may take.
    #[error("the repository sends more than its limit ({limit} bytes; of {url})")]
    TooLarge {
        /// The repository.
        url: GitUrl,
        /// How many bytes may arrive.
        limit: u64,
    },
    /// The answer was not Git's, or broke off.
    #[error("understanding the Git server's answer ({url})")]
    BadAnswer {
        /// The repository.
        url: GitUrl,
        /// What was wrong.
        source: Cause,
    },
    /// This program was built without the HTTP transport.
    #[error("Git over HTTP is not built in: only file:// works (got {url}; the feature is git-http)")]
    NoHttp {
        /// The repository.
        url: GitUrl,
    },
    /// `git` is needed to read a repository on this disk.
    #[error("starting git, which must be on PATH to read file:// repositories ({url})")]
    NoGit {
        /// The repository.
        url: GitUrl,
        /// Why it did not start.
        source: io::Error,
    },
    /// The mirror on this disk is damaged; the next fetch makes it anew.
    #[error("reading the mirror, which is damaged and made anew by the next fetch ({})", .dir.display())]
    Corrupt {
        /// The mirror's folder.
        dir: PathBuf,
        /// What was wrong.
        source: Cause,
    },
    /// The mirror does not have this commit.
    #[error("the mirror does not have this commit ({commit} in {})", .dir.display())]
    UnknownCommit {
        /// The mirror's folder.
        dir: PathBuf,
        /// The commit.
        commit: CommitId,
    },
    /// The disk refused.
    #[error("{doing} ({})", .path.display())]
    Disk {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: Cause,
    },
    /// A file's name that no site could be given.
    #[error("reading a tree (below {folder:?})")]
    BadName {
        /// The folder.
        folder: String,
        /// What is wrong with the name.
        source: BadPath,
    },
    /// More entries than may be listed.
    #[error("a folder has more files than its limit ({limit}; below {folder:?})")]
    TooMany {
        /// The folder.
        folder: String,
        /// How many may be listed.
        limit: usize,
    },
    /// A blob that is larger than it may be.
    #[error("a file is larger than its limit ({size} bytes of {limit}; blob {blob})")]
    BlobTooLarge {
        /// Its id.
        blob: String,
        /// Its bytes.
        size: u64,
        /// How many it may have.
        limit: u64,
    },
}

impl SourceError {
    /// Whether nobody answered, or too slowly: unreachable is not failed, and trying again helps.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Stalled { .. } | Self::Overdue { .. })
    }
}

fn shown(branches: &[String]) -> String {
    if branches.is_empty() { "no branches".to_owned() } else { branches.join(", ") }
}
