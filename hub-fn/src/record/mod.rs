//! The record: where everything lies in object storage, and the documents that only the hub reads.
//!
//! Nothing here does any I/O. Mutable objects are few: `fleet/head`, source heads, rosters,
//! registrations, the shards of statuses and last-seen tables; all else is written once.

mod directory;
mod intent;
mod removal;
mod source;
mod status;
mod table;

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::keys::KeyId;
use farshore_shared::names::Name;
use farshore_shared::wire::{Document, GroupId, UnixSeconds};
use serde::{Deserialize, Serialize};

use crate::objects::Key;

pub use directory::{
    DirectoryHead, Entry, LOG_LIMIT, LogPart, MANIFEST_LIMIT, Manifest, RosterRef, SHARD_LIMIT, ShardPart,
    ShardRef,
};
pub use intent::{Head, Intent, IntentCluster, IntentDefaults, IntentService, IntentSource, Made, Published};
pub use removal::Removal;
pub use source::{Approval, HeldChange, HoldCause, SourceHead, SourceState};
pub use status::{
    ClusterState, Counts, Facts, LEAVES, OLD_STATUSES, Place, Report, SPLIT_AT, STATUS_LOG, STATUS_LOG_LIMIT,
    STATUS_SHARD_LIMIT, SUMMARY_LIMIT, StatusLog, Summary, shard_of, status_damaged, status_log,
    status_place, status_summary,
};
pub use table::{Buried, GroupRef, TABLE_SHARDS, Table};

/// The name of the source that is the fleet repository itself.
pub const FLEET: &str = "fleet";
/// Over how many folders rosters, registrations and statuses are spread.
pub const SHARDS: u16 = 1024;
/// Over how many objects last-seen times are spread.
pub const SEEN_SHARDS: u16 = 16;

fn key(text: String) -> Key {
    Key::new(text).expect("names, digests and numbers make good keys")
}

fn shard(cluster: &Name, shards: u16) -> u16 {
    let digest = Digest::of(cluster.as_str().as_bytes());
    u16::from_be_bytes([digest.as_bytes()[0], digest.as_bytes()[1]]) % shards
}

/// The one pointer of a publication: a [`Head`].
#[must_use]
pub fn head() -> Key {
    key("fleet/head".into())
}

/// An [`Intent`], by its digest.
#[must_use]
pub fn intent(digest: Digest) -> Key {
    key(format!("fleet/intents/{digest}"))
}

/// One shard of the [`Table`], by its digest.
#[must_use]
pub fn table(digest: Digest) -> Key {
    key(format!("fleet/tables/{digest}"))
}

/// The body of a group document.
#[must_use]
pub fn group(id: GroupId, sequence: u64) -> Key {
    key(format!("groups/{id}/{sequence}"))
}

/// An artifact, by the digest of its compressed blob.
#[must_use]
pub fn artifact(digest: Digest) -> Key {
    key(format!("artifacts/sha256/{digest}"))
}

/// A [`SourceHead`].
#[must_use]
pub fn source_head(source: &str) -> Key {
    key(format!("sources/{source}/head"))
}

/// Which packs the mirror of a source has, in the record.
#[must_use]
pub fn mirror_head(source: &str) -> Key {
    key(format!("{MIRRORS}{source}/head"))
}

/// One pack of the mirror of a source, by the digest of its bytes.
#[must_use]
pub fn mirror_pack(source: &str, digest: Digest) -> Key {
    key(format!("{MIRRORS}{source}/{digest}.pack"))
}

/// A Git server says that a source has something new; written where there is no index to tell it by.
#[must_use]
pub fn hook(source: &str) -> Key {
    key(format!("{HOOKS}{source}"))
}

/// Where all mirrors begin.
pub const MIRRORS: &str = "mirrors/";
/// Where the words of Git servers wait for the publisher.
pub const HOOKS: &str = "hooks/";
/// Where all source heads begin.
pub const SOURCES: &str = "sources/";
/// Where all registrations begin.
pub const REGISTRATIONS: &str = "registrations/";
/// Where all approvals begin.
pub const APPROVALS: &str = "approvals/";
/// Where all removals begin.
pub const REMOVALS: &str = "removals/";
/// Where requests to enrol wait for the publisher.
pub const PENDING: &str = "enrolments/pending/";

/// A cluster's roster.
#[must_use]
pub fn roster(cluster: &Name) -> Key {
    key(format!("rosters/{:04}/{cluster}", shard(cluster, SHARDS)))
}

/// A cluster's registration.
#[must_use]
pub fn registration(cluster: &Name) -> Key {
    key(format!("registrations/{:04}/{cluster}", shard(cluster, SHARDS)))
}

/// The one pointer of the directory: a [`DirectoryHead`].
#[must_use]
pub fn directory_head() -> Key {
    key("index/head".into())
}

/// A [`Manifest`], by its digest.
#[must_use]
pub fn directory_manifest(digest: Digest) -> Key {
    key(format!("index/manifests/{digest}"))
}

/// One shard of the directory, compressed, by the digest of its compressed bytes.
#[must_use]
pub fn directory_shard(shard: u16, digest: Digest) -> Key {
    key(format!("index/{shard:04}/{digest}"))
}

/// One part of the directory's log.
#[must_use]
pub fn directory_log(position: u64) -> Key {
    key(format!("index/log/{position:020}"))
}

/// In which shard of the directory a cluster is.
#[must_use]
pub fn directory_shard_of(cluster: &Name) -> u16 {
    shard(cluster, SHARDS)
}

/// A cluster's last status, in the envelope that it signed, as hubs kept it before there was a log. It is
/// folded into the shards and deleted.
#[must_use]
pub fn old_status(cluster: &Name) -> Key {
    key(format!("status/{:04}/{cluster}", shard(cluster, SHARDS)))
}

/// A request to enrol that waits for the publisher.
#[must_use]
pub fn pending(request: Digest) -> Key {
    key(format!("{PENDING}{request}"))
}

/// Why a request to enrol was refused.
#[must_use]
pub fn refused(request: Digest) -> Key {
    key(format!("enrolments/refused/{request}"))
}

/// The `n`-th use of a join token: whoever creates it has that use.
#[must_use]
pub fn token_use(token: Digest, n: u32) -> Key {
    key(format!("enrolments/used/{token}/{n}"))
}

/// An operator's [`Approval`].
#[must_use]
pub fn approval(change: &str) -> Option<Key> {
    Key::new(format!("{APPROVALS}{change}")).ok()
}

/// An operator's [`Removal`] of a cluster.
#[must_use]
pub fn removal(cluster: &Name) -> Key {
    key(format!("{REMOVALS}{cluster}"))
}

/// When clusters were last heard.
#[must_use]
pub fn seen(shard: u16) -> Key {
    key(format!("seen/{shard:02}"))
}

/// In which of the last-seen tables a cluster is.
#[must_use]
pub fn seen_shard(cluster: &Name) -> u16 {
    shard(cluster, SEEN_SHARDS)
}

/// A root document, in its envelope.
#[must_use]
pub fn root(version: u64) -> Key {
    key(format!("trust/roots/{version}"))
}

macro_rules! document {
    ($type:ty, $name:literal) => {
        impl Document for $type {
            const TYPE: &'static str = concat!("application/vnd.farshore.", $name, ".v1+json");

            fn critical(&self) -> &[String] {
                &[]
            }
        }
    };
}

document!(Head, "head");
document!(DirectoryHead, "directory-head");
document!(LogPart, "directory-log");
document!(SourceHead, "source-head");
document!(Approval, "approval");
document!(Removal, "removal");

/// The use of a join token: which key has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUse {
    /// The site's key.
    pub key: KeyId,
    /// The cluster.
    pub cluster: Name,
}

/// That a Git server told of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pushed {
    /// When it was last told.
    pub at: UnixSeconds,
}

/// When clusters were last heard, by cluster.
pub type SeenTable = BTreeMap<Name, UnixSeconds>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "one line for each kind of object, twice")]
    fn every_kind_of_object_has_its_place() {
        let (digest, cluster) = (Digest::of(b"x"), "harbour".parse::<Name>().expect("a name"));
        let keys = [
            head(),
            intent(digest),
            table(digest),
            group(digest, 17),
            artifact(digest),
            source_head("podinfo"),
            mirror_head("podinfo"),
            mirror_pack("podinfo", digest),
            hook("podinfo"),
            roster(&cluster),
            registration(&cluster),
            directory_head(),
            directory_manifest(digest),
            directory_shard(directory_shard_of(&cluster), digest),
            directory_log(18),
            old_status(&cluster),
            pending(digest),
            refused(digest),
            token_use(digest, 3),
            approval("0123456789ab").expect("an id is a part of a key"),
            removal(&cluster),
            seen(7),
            root(1),
        ];
        let listed = keys.map(|key| key.to_string()).join("\n").replace(&digest.to_string(), "DIGEST");
        insta::assert_snapshot!(listed, @r"
        fleet/head
        fleet/intents/DIGEST
        fleet/tables/DIGEST
        groups/DIGEST/17
        artifacts/sha256/DIGEST
        sources/podinfo/head
        mirrors/podinfo/head
        mirrors/podinfo/DIGEST.pack
        hooks/podinfo
        rosters/0628/harbour
        registrations/0628/harbour
        index/head
        index/manifests/DIGEST
        index/0628/DIGEST
        index/log/00000000000000000018
        status/0628/harbour
        enrolments/pending/DIGEST
        enrolments/refused/DIGEST
        enrolments/used/DIGEST/3
        approvals/0123456789ab
        removals/harbour
        seen/07
        trust/roots/1
        ");
    }

    #[test]
    fn an_approval_s_name_may_come_from_a_stranger_and_leads_nowhere_else() {
        for bad in ["../fleet/head", "a b", "/", "a/../../b", ""] {
            assert_eq!(approval(bad), None, "{bad:?}");
        }
    }
}
