//! Whether what a hub offers is believed. Pure: no clock, no I/O; the caller says what time it is.
//!
//! - [`root`]: the chain of trust roots.
//! - [`clock`]: how far the site's clock is believed.
//! - [`desired`](mod@desired): rosters and group documents, against what the site has seen before.
//! - [`enrolment`]: the answer to an enrolment.
//!
//! The order of documents is (epoch, sequence). What was once accepted is never refused again: expiry
//! stops new content only (invariant 4 of `ARCHITECTURE.md`).

use std::fmt;

use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Refused, Signers};
use farshore_shared::keys::KeyId;
use farshore_shared::names::Name;
use farshore_shared::wire::{Document, GroupId, Root, UnixSeconds};

pub mod clock;
pub mod desired;
pub mod enrolment;
pub mod root;

pub use clock::Clock;
pub use desired::{Accepted, Change, Documents, Envelopes, Held, Mark, Marks, desired};
pub use enrolment::enrolled;
pub use root::{first_root, next_root};

/// Who this site is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's name.
    pub cluster: Name,
    /// The id of the key that was made here.
    pub key: KeyId,
}

/// The kinds of documents that a site verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A trust root.
    Root,
    /// A cluster's own document.
    Roster,
    /// A group's document.
    Group,
    /// That a key is a cluster's.
    Registration,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "root",
            Self::Roster => "roster",
            Self::Group => "group document",
            Self::Registration => "registration",
        })
    }
}

/// Why a document is not believed. What the site holds stays in force.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Not signed by enough of the right keys.
    #[error("{kind} is refused: its signatures are not enough")]
    Signature {
        /// Of what.
        kind: Kind,
        /// What is wrong with them.
        #[source]
        source: Refused,
    },
    /// It says to be something else.
    #[error("{kind} is refused: it has another type")]
    WrongType {
        /// What was looked for.
        kind: Kind,
        /// Which type was found.
        #[source]
        source: Refused,
    },
    /// More bytes than are looked at.
    #[error("{kind} is refused: it is too large ({size} of {limit} bytes)")]
    TooLarge {
        /// Of what.
        kind: Kind,
        /// Its size, in bytes.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// It demands a field that this version does not know.
    #[error(
        "{kind} is refused: it demands a field that this version does not know ({field}); upgrade the agent"
    )]
    Critical {
        /// Of what.
        kind: Kind,
        /// The field.
        field: String,
    },
    /// The envelope, or what was signed, cannot be read.
    #[error("{kind} is refused: it cannot be read")]
    Unreadable {
        /// Of what.
        kind: Kind,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Addressed to another cluster.
    #[error("{kind} is refused: it is for another cluster (for {offered}, this is {ours})")]
    WrongCluster {
        /// Of what.
        kind: Kind,
        /// This cluster.
        ours: Name,
        /// The cluster that it names.
        offered: Name,
    },
    /// Addressed to another key.
    #[error("{kind} is refused: it names another key of this cluster (named {offered}, ours is {ours})")]
    WrongKey {
        /// Of what.
        kind: Kind,
        /// What this site has: the short id of a signing key, or a sealing key.
        ours: String,
        /// What it names.
        offered: String,
    },
    /// A group document of another group than the roster's.
    #[error("group document is refused: it is another group's (of {offered:?}, the roster says {roster:?})")]
    WrongGroup {
        /// The roster's group.
        roster: GroupId,
        /// The document's group.
        offered: GroupId,
    },
    /// Older than something that was accepted.
    #[error("{kind} is refused: it goes back (sequence {offered}, accepted before: {held})")]
    RolledBack {
        /// Of what.
        kind: Kind,
        /// The highest sequence that was accepted.
        held: u64,
        /// The sequence offered.
        offered: u64,
    },
    /// Older than the roster allows.
    #[error("group document is refused: it is below the roster's floor (sequence {offered}, floor {floor})")]
    BelowFloor {
        /// The lowest sequence that the roster allows.
        floor: u64,
        /// The sequence offered.
        offered: u64,
    },
    /// Two different documents with one number.
    #[error("{kind} is refused: another one with its number was accepted before (sequence {sequence})")]
    Equivocation {
        /// Of what.
        kind: Kind,
        /// The sequence of both.
        sequence: u64,
    },
    /// Of an epoch that is over.
    #[error("{kind} is refused: its epoch is over (epoch {offered}, the root has {root})")]
    OldEpoch {
        /// Of what.
        kind: Kind,
        /// The epoch offered.
        offered: u64,
        /// The root's epoch.
        root: u64,
    },
    /// Of an epoch that the root held here does not know: a newer root may.
    #[error("{kind} is refused: its epoch has not begun (epoch {offered}, the root has {root})")]
    NewEpoch {
        /// Of what.
        kind: Kind,
        /// The epoch offered.
        offered: u64,
        /// The root's epoch.
        root: u64,
    },
    /// Its time is over.
    #[error("{kind} is refused: it has expired (expired at {expired}, now {now}, in seconds since 1970)")]
    Expired {
        /// Of what.
        kind: Kind,
        /// When it expired.
        expired: UnixSeconds,
        /// The site's clock.
        now: UnixSeconds,
    },
    /// Roster and group document do not belong to one epoch.
    #[error("documents are refused: they are of different epochs (roster {roster}, group document {group})")]
    Mixed {
        /// The roster's epoch.
        roster: u64,
        /// The group document's epoch.
        group: u64,
    },
    /// Two entries for one service.
    #[error("group document is refused: it has two entries for one service ({service})")]
    DuplicateService {
        /// The service.
        service: String,
    },
    /// Neither document was in the answer.
    #[error("answer is refused: it has neither a roster nor a group document")]
    NothingOffered,
    /// One document was not offered and is not held either.
    #[error("nothing can be accepted: no {kind} was offered, and none is held")]
    Incomplete {
        /// What is missing.
        kind: Kind,
    },
    /// Not the root that the join token names.
    #[error(
        "root is refused: it is not the one that the join token names (digest {got}, the token has {expected})"
    )]
    WrongRoot {
        /// The digest in the token.
        expected: Digest,
        /// The digest of what was offered.
        got: Digest,
    },
    /// A root out of its turn.
    #[error("root is refused: it has the wrong version (version {offered}, the next is {expected})")]
    RootVersion {
        /// The version whose turn it is.
        expected: u64,
        /// The version offered.
        offered: u64,
    },
    /// A root that nobody could use.
    #[error("root is refused: {why}")]
    RootShape {
        /// What is wrong with it.
        why: String,
    },
}

/// Opens an envelope and names what is wrong by kind.
fn open<T: Document>(
    kind: Kind,
    envelope: &Envelope,
    signers: &Signers<'_>,
    limit: usize,
) -> Result<T, Refusal> {
    envelope.open(signers, limit).map_err(|refused| match refused {
        Refused::Type { .. } => Refusal::WrongType { kind, source: refused },
        Refused::TooLarge { size, limit } => Refusal::TooLarge { kind, size, limit },
        Refused::Critical(field) => Refusal::Critical { kind, field },
        Refused::Signatures { .. } => Refusal::Signature { kind, source: refused },
        Refused::Encoding(_) | Refused::Payload(_) => Refusal::Unreadable { kind, source: refused.into() },
    })
}

/// The keys that sign for the director.
fn director(root: &Root) -> Signers<'_> {
    Signers::of(root, &root.roles.director)
}

#[cfg(test)]
mod attacks;
#[cfg(test)]
pub(crate) mod kit;
