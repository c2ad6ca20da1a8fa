//! Where desired objects live: a Kubernetes cluster or a directory.
//!
//! A target is told what to do object by object and answers object by object. What to do is decided
//! in [`crate::plan`]; in which order is decided by the caller.
//!
//! - [`directory`]: files in a folder.
//! - `kubernetes`: a Kubernetes cluster, with the feature of that name.

mod change;
pub mod directory;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(test)]
#[expect(clippy::result_large_err, reason = "the error of the port, in helpers of a test double")]
pub(crate) mod memory;

use std::collections::BTreeSet;
use std::future::Future;

use farshore_shared::digest::Digest;
use serde_json::Value;

use crate::difference::Difference;
use crate::object::{Manifest, ObjectKey, Owner};
use crate::plan::Item;
use crate::terms::FieldMarks;

pub use change::{Change, Coverage, Kind, Sighting, Stamp, Whole};

/// The port that every target implements.
pub trait Target: Send + Sync + 'static {
    /// Whether the target answers at all. While it does not, nothing is planned: unreachable is not failed.
    fn ready(&self) -> impl Future<Output = Result<(), Unreachable>> + Send;

    /// Puts each manifest in its place: whether its kind lives in a namespace decides if the default
    /// namespace is filled in or a namespace is taken away. One answer per manifest, in order.
    ///
    /// `manifests` is everything of one service, so that a kind that one of them defines is known.
    fn locate(
        &self,
        manifests: Vec<Manifest>,
        default_namespace: Option<&str>,
    ) -> impl Future<Output = Vec<Result<Manifest, ObjectError>>> + Send;

    /// What lives under each of the items' keys now; one answer per item, in order.
    fn observe(
        &self,
        owner: &Owner,
        items: &[Item],
    ) -> impl Future<Output = Vec<Result<Live, ObjectError>>> + Send;

    /// Makes sure that a namespace exists and can be used. It is not recorded and never deleted.
    fn ensure_namespace(
        &self,
        owner: &Owner,
        name: &str,
    ) -> impl Future<Output = Result<(), ObjectError>> + Send;

    /// Brings one object to its desired state, on its [terms](crate::terms::Terms).
    ///
    /// For what others need first (a Namespace, a `CustomResourceDefinition`) it returns once that is usable.
    fn apply(
        &self,
        owner: &Owner,
        manifest: &Manifest,
    ) -> impl Future<Output = Result<Applied, ObjectError>> + Send;

    /// Deletes one listed object: only with the UID that was listed and our mark on it.
    fn delete(&self, owner: &Owner, item: &Item)
    -> impl Future<Output = Result<Deleted, ObjectError>> + Send;

    /// Whether anything can be seen of how objects are. Where it cannot, an object is healthy once it is
    /// written, and hooks are written like everything else.
    fn shows_health(&self) -> bool {
        false
    }

    /// One whole object, for a judgement of its health; none where nothing lives under its key.
    fn inspect(
        &self,
        owner: &Owner,
        key: &ObjectKey,
        version: &str,
    ) -> impl Future<Output = Result<Option<Value>, ObjectError>> + Send {
        let _ = (owner, key, version);
        async { Ok(None) }
    }

    /// The end of what a Job or a Pod printed last: more than `limit` bytes are of no use.
    fn log_tail(
        &self,
        owner: &Owner,
        key: &ObjectKey,
        limit: usize,
    ) -> impl Future<Output = Result<String, ObjectError>> + Send {
        let _ = (owner, key, limit);
        async { Ok(String::new()) }
    }

    /// Reads one object whole; none if nothing lives under its key.
    fn read(
        &self,
        owner: &Owner,
        item: &Item,
    ) -> impl Future<Output = Result<Option<Whole>, ObjectError>> + Send;

    /// Sends from now on at most so many requests at once, and in a second. A target that is asked nothing has no bounds.
    fn bound(&self, in_flight: u16, per_second: Option<u32>) {
        let _ = (in_flight, per_second);
    }

    /// Tells of changes of objects of these kinds from now on, and of no others. A kind that was not
    /// followed before begins with [`Change::Missed`].
    fn follow(&self, kinds: &BTreeSet<Kind>) {
        let _ = kinds;
    }

    /// The next changes, at least one, in the order in which they happened to each object. Cancel-safe.
    /// It waits for ever on a target that does not tell.
    fn changes(&self) -> impl Future<Output = Vec<Change>> + Send {
        std::future::pending()
    }

    /// How much of what it was asked to follow it does follow.
    fn coverage(&self) -> Coverage {
        Coverage::default()
    }

    /// What an apply of this object would change; nothing is written.
    fn preview(
        &self,
        owner: &Owner,
        manifest: &Manifest,
    ) -> impl Future<Output = Result<Preview, ObjectError>> + Send;

    /// Takes over what others have applied of an object, so that it is ours to change and to leave out.
    /// Its values stay as they are. Answers whose fields it took; in a target without owners of fields none.
    fn adopt(
        &self,
        _owner: &Owner,
        _manifest: &Manifest,
        _effect: Effect,
    ) -> impl Future<Output = Result<Vec<Taken>, ObjectError>> + Send {
        std::future::ready(Ok(vec![]))
    }
}

/// What an apply would do to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preview {
    /// It would come into being, with these fields.
    New(Difference),
    /// It would change so.
    Changed(Difference),
    /// It would stay as it is.
    Same,
    /// It would be deleted and made anew, because a field of it cannot be changed.
    Anew,
}

/// Whether something is done, or only tried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It stays.
    Lasting,
    /// The target only says how it would go.
    Rehearsed,
}

/// Whose fields of an object were taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The field manager.
    pub manager: String,
    /// How many fields.
    pub fields: usize,
}

/// What lives under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Live {
    /// Nothing.
    Absent,
    /// An object.
    Present {
        /// Which life of the name it is.
        uid: String,
        /// Changes whenever somebody changes what we own in it.
        fingerprint: Digest,
    },
}

/// What an apply left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Which life of the name it is.
    pub uid: String,
    /// What [`Target::observe`] answers as long as nobody changes what we own.
    pub fingerprint: Digest,
    /// The fields that are ours now.
    pub fields: FieldMarks,
    /// Which state of the object it left.
    pub stamp: Stamp,
}

/// How a deletion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone.
    Gone,
    /// Its deletion is under way: it waits for others to let go of it.
    Going,
    /// An annotation of it says that it stays, or a label that an agent lives in it.
    Kept,
    /// Something else lives under that key now: it is not ours, and it stays.
    NotOurs,
}

/// One object could not be handled; the others go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct ObjectError {
    /// Which object.
    pub key: ObjectKey,
    /// What the target said, in lower case, without the key.
    pub message: String,
    /// Whether it makes sense to try again without a change.
    pub retry: Retry,
}

/// Whether the same call may succeed at another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It may.
    Worthwhile,
    /// Only a change of the object or the target helps.
    Pointless,
}

/// The target does not answer.
#[derive(Debug, thiserror::Error)]
#[error("target does not answer ({target}): {message}")]
pub struct Unreachable {
    /// A URL or a path.
    pub target: String,
    /// What happened instead.
    pub message: String,
}
