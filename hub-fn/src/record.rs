//! The record: where everything lies in object storage, and the documents that only the hub reads.
//!
//! Nothing here does any I/O. Mutable objects are few: `fleet/head`, source heads, rosters,
//! registrations, statuses and last-seen tables; all else is written once.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::keys::KeyId;
use farshore_shared::names::{LabelKey, Labels, Name};
use farshore_shared::wire::{Artifact, Document, GroupId, Tombstone, UnixSeconds};
use serde::{Deserialize, Serialize};

use crate::declare::{FolderPath, Origin, RendererSpec, ServiceSpec, SourceSpec};
use crate::objects::Key;

/// The name of the source that is the fleet repository itself.
pub const FLEET: &str = "fleet";
/// Over how many folders rosters, registrations and statuses are spread.
const SHARDS: u16 = 1024;
/// Over how many objects the table of groups is spread.
pub const TABLE_SHARDS: usize = 16;
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

/// Where all source heads begin.
pub const SOURCES: &str = "sources/";
/// Where all registrations begin.
pub const REGISTRATIONS: &str = "registrations/";
/// Where all approvals begin.
pub const APPROVALS: &str = "approvals/";
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

/// A cluster's last status, in the envelope that it signed.
#[must_use]
pub fn status(cluster: &Name) -> Key {
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
document!(SourceHead, "source-head");
document!(Approval, "approval");

/// What is published. Signed by the director, so that the publisher may believe it when it reads it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// Given by root.
    pub epoch: u64,
    /// One counter for the fleet.
    pub sequence: u64,
    /// When it was signed.
    pub issued: UnixSeconds,
    /// The [`Intent`] behind it.
    pub intent: Digest,
    /// The shards of the [`Table`], in order.
    pub tables: Vec<Digest>,
}

/// What the publisher has decided that the fleet shall be: the last good form of every declaration,
/// and the content of every service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// The last published commit of the fleet repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// Sources, with the last published commit of each.
    pub sources: BTreeMap<Name, IntentSource>,
    /// Services.
    pub services: BTreeMap<Name, IntentService>,
    /// Labels that the fleet repository gives to clusters.
    pub clusters: BTreeMap<Name, IntentCluster>,
}

/// A source of an [`Intent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IntentSource {
    /// As declared.
    pub spec: SourceSpec,
    /// Where.
    pub origin: Origin,
    /// The last published commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// A service of an [`Intent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IntentService {
    /// As declared.
    pub spec: ServiceSpec,
    /// Where.
    pub origin: Origin,
    /// What was last made of it, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

impl IntentService {
    /// How the content that is published is rendered. New options of the same renderer need no new
    /// content, so they count at once, whatever has become of the source.
    #[must_use]
    pub fn renderer<'a>(&'a self, published: &'a Published) -> &'a RendererSpec {
        let made = &published.made;
        if made.serves(&self.spec) { &self.spec.renderer } else { &made.renderer }
    }
}

/// The content of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// Which life of the name this is: the sequence of its first publication.
    pub incarnation: u64,
    /// The commit in which the content last changed.
    pub commit: String,
    /// What the artifact was made from: the same key, the same bytes.
    pub key: Digest,
    /// The artifact.
    pub artifact: Artifact,
    /// What of the declaration the artifact was made for: it is rendered by this and by no other path,
    /// also while a new declaration cannot be followed.
    pub made: Made,
}

/// What of a declaration decides an artifact's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    /// The source.
    pub source: Name,
    /// The folder in it.
    pub path: FolderPath,
    /// The renderer.
    pub renderer: RendererSpec,
}

impl Made {
    /// What a declaration asks for.
    #[must_use]
    pub fn of(spec: &ServiceSpec) -> Self {
        Self { source: spec.source.clone(), path: spec.path.clone(), renderer: spec.renderer.clone() }
    }

    /// Whether the same content is what a declaration asks for; the renderer's options may differ.
    #[must_use]
    pub fn serves(&self, spec: &ServiceSpec) -> bool {
        self.source == spec.source
            && self.path == spec.path
            && std::mem::discriminant(&self.renderer) == std::mem::discriminant(&spec.renderer)
    }
}

/// A cluster that the fleet repository speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IntentCluster {
    /// Its labels; they win over those of the registration.
    pub labels: Labels,
    /// Where.
    pub origin: Origin,
}

/// Every group that has a body.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table(pub BTreeMap<GroupId, GroupRef>);

/// Where a group's body is, and what the publisher must know of it to decide the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupRef {
    /// The label values that its clusters share.
    pub values: BTreeMap<LabelKey, String>,
    /// The body's sequence.
    pub sequence: u64,
    /// The digest of the body's envelope.
    pub digest: Digest,
    /// The digest of what the body says, without its sequence and times.
    pub content: Digest,
    /// When the body expires.
    pub expires: UnixSeconds,
    /// The services in it, with their incarnations.
    pub services: BTreeMap<Name, u64>,
    /// The tombstones in it.
    pub tombstones: Vec<Tombstone>,
}

impl Table {
    /// In which shard a group is.
    #[must_use]
    pub fn shard_of(id: &GroupId) -> usize {
        usize::from(id.as_bytes()[0]) % TABLE_SHARDS
    }

    /// The shards, in order.
    #[must_use]
    pub fn shards(&self) -> Vec<Self> {
        let mut shards = vec![Self::default(); TABLE_SHARDS];
        for (id, group) in &self.0 {
            shards[Self::shard_of(id)].0.insert(*id, group.clone());
        }
        shards
    }
}

/// How a source is doing: what `farshore get sources` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceHead {
    /// The source's name; `fleet` is the fleet repository.
    pub source: String,
    /// Where it is.
    pub url: String,
    /// The last published commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// How it is.
    pub state: SourceState,
    /// What a person should know, and do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    /// A change that waits for an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldChange>,
    /// Services of this source that are not as declared, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<Name, String>,
    /// Given by root.
    pub epoch: u64,
    /// The sequence of the publication that it belongs to.
    pub sequence: u64,
    /// When it was signed.
    pub issued: UnixSeconds,
}

/// How a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceState {
    /// Its newest commit is published.
    Ready,
    /// Its newest commit is published as far as it can be read.
    Degraded,
    /// Its newest commit waits for an approval.
    Held,
    /// It could not be fetched.
    Failed,
}

/// A change that is published only after an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldChange {
    /// Its id: what `farshore approve` takes. It is the digest of all that follows.
    pub change: String,
    /// The source.
    pub scope: String,
    /// The last published commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The commit that waits.
    pub to: String,
    /// Why.
    pub why: HoldCause,
    /// Cluster-service pairs that it removes.
    pub removes: u64,
    /// Cluster-service pairs that there are.
    pub of: u64,
}

/// Why a change is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HoldCause {
    /// The commit does not descend from the last published one.
    NotDescending,
    /// It removes more than the budget.
    MassRemoval,
    /// Nothing is left after it: a repository that was emptied or exchanged looks like this.
    NothingLeft,
}

impl HeldChange {
    /// Describes a change; its id follows from the rest.
    #[must_use]
    pub fn new(scope: &str, from: Option<&str>, to: &str, why: HoldCause, removes: u64, of: u64) -> Self {
        let (removes_text, of_text) = (removes.to_string(), of.to_string());
        let why_text = format!("{why:?}");
        let parts = [scope, from.unwrap_or(""), to, &why_text, &removes_text, &of_text];
        let digest = Digest::of_parts(parts.iter().map(|part| part.as_bytes()));
        Self {
            change: digest.to_string()[..12].to_owned(),
            scope: scope.to_owned(),
            from: from.map(ToOwned::to_owned),
            to: to.to_owned(),
            why,
            removes,
            of,
        }
    }

    /// Whether its id is that of the change that it describes.
    #[must_use]
    pub fn is_named_rightly(&self) -> bool {
        let Self { change, scope, from, to, why, removes, of } = self;
        Self::new(scope, from.as_deref(), to, *why, *removes, *of).change == *change
    }

    /// What a person should know and do.
    #[must_use]
    pub fn explain(&self) -> String {
        let Self { change, to, removes, of, .. } = self;
        let short = &to[..to.len().min(12)];
        let before = self.from.as_deref().map_or("none", |from| &from[..from.len().min(12)]);
        let what = match self.why {
            HoldCause::NotDescending => format!(
                "commit {short} does not descend from the last published one ({before}): a force-push, or a server restored from a backup; it would remove {removes} of {of} cluster-service pairs"
            ),
            HoldCause::MassRemoval => {
                format!("commit {short} would remove {removes} of {of} cluster-service pairs")
            }
            HoldCause::NothingLeft => {
                format!(
                    "commit {short} would leave nothing: it removes {removes} of {of} cluster-service pairs"
                )
            }
        };
        format!("{what}: it is held, sites keep what they have; to let it through: farshore approve {change}")
    }
}

/// An operator's word for one held change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The whole change, so that the approval names commit, scope and count.
    pub held: HeldChange,
    /// When it was signed.
    pub issued: UnixSeconds,
}

/// The use of a join token: which key has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUse {
    /// The site's key.
    pub key: KeyId,
    /// The cluster.
    pub cluster: Name,
}

/// When clusters were last heard, by cluster.
pub type SeenTable = BTreeMap<Name, UnixSeconds>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_object_has_its_place() {
        let (digest, cluster) = (Digest::of(b"x"), "harbour".parse::<Name>().expect("a name"));
        let keys = [
            head(),
            intent(digest),
            table(digest),
            group(digest, 17),
            artifact(digest),
            source_head("podinfo"),
            roster(&cluster),
            registration(&cluster),
            status(&cluster),
            pending(digest),
            refused(digest),
            token_use(digest, 3),
            approval("0123456789ab").expect("an id is a part of a key"),
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
        rosters/0628/harbour
        registrations/0628/harbour
        status/0628/harbour
        enrolments/pending/DIGEST
        enrolments/refused/DIGEST
        enrolments/used/DIGEST/3
        approvals/0123456789ab
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

    #[test]
    fn a_held_change_is_named_by_everything_it_says() {
        let held = HeldChange::new("fleet", Some("aa"), "bb", HoldCause::MassRemoval, 11, 20);
        assert!(held.is_named_rightly());
        for other in [
            HeldChange { scope: "up".into(), ..held.clone() },
            HeldChange { from: None, ..held.clone() },
            HeldChange { to: "cc".into(), ..held.clone() },
            HeldChange { why: HoldCause::NotDescending, ..held.clone() },
            HeldChange { removes: 12, ..held.clone() },
            HeldChange { of: 21, ..held.clone() },
        ] {
            assert!(!other.is_named_rightly(), "{other:?}");
        }
    }

    #[test]
    fn the_shards_of_a_table_are_the_table() {
        let group = |n: u64| GroupRef {
            values: BTreeMap::new(),
            sequence: n,
            digest: Digest::of(b"d"),
            content: Digest::of(b"c"),
            expires: 1,
            services: BTreeMap::new(),
            tombstones: vec![],
        };
        let table = Table((0..100u64).map(|n| (Digest::of(&n.to_be_bytes()), group(n))).collect());
        let shards = table.shards();
        assert_eq!(shards.len(), TABLE_SHARDS);
        assert!(shards.iter().all(|shard| !shard.0.is_empty()));
        let again = Table(shards.into_iter().flat_map(|shard| shard.0).collect());
        assert_eq!(again, table);
    }
}
