//! The documents and requests of wire version 1. `docs/wire.md` and the golden files fix every byte.
//!
//! Times are whole seconds since 1970-01-01 UTC, sizes are bytes. A reader ignores fields it does
//! not know unless the document's `critical` lists them.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Digest;
use crate::dsse::Envelope;
use crate::keys::{KeyId, PublicKey};
use crate::names::{Labels, Name};
pub use crate::policy::{ApplyPolicy, Conflicts, ProtectedKind, ProtectedKinds, PruneBudget};

mod controls;
mod footprint;
mod health;

pub use controls::{SiteControls, Stop, WindowState};
pub use footprint::Footprint;
pub use health::{
    Check, CheckOutcome, DEFAULT_TIMEOUT, EXPRESSION_LIMIT, FailedRevision, HealthRule, OnFailure, Progress,
    RULES_LIMIT,
};
mod drift;

pub use drift::{DriftAction, DriftException, DriftPolicy, DriftRule, ObjectDrift};

/// The most bytes that an answer to `GET /v1/desired` has after decompression.
pub const DESIRED_LIMIT: usize = 4 << 20;
/// The most bytes that a status has after decompression.
pub const STATUS_LIMIT: usize = 256 << 10;
/// The most bytes of an enrolment request, a registration, or a roster.
pub const SMALL_LIMIT: usize = 64 << 10;
/// The most bytes of one root document, in its envelope.
pub const ROOT_LIMIT: usize = 64 << 10;
/// The most bytes of an artifact as it is stored and sent.
pub const ARTIFACT_LIMIT: u64 = 256 << 20;
/// The most bytes of an artifact's tar.
pub const TAR_LIMIT: u64 = 1 << 30;

/// The response header with which a hub says that the agent holds more than the hub can see.
pub const BEHIND_HEADER: &str = "farshore-behind";
/// The response header with which a hub asks for the next poll after so many seconds.
pub const POLL_AFTER_HEADER: &str = "farshore-poll-after";

/// The request header that carries a pass. `Authorization: Bearer` is read as well; this one exists because
/// HPACK (RFC 7541) encoders never index that one, so that each poll would carry the whole pass again.
pub const PASS_HEADER: &str = "farshore-pass";
/// The request header that says what the agent holds, as `If-None-Match` does, for the same reason.
pub const HOLDS_HEADER: &str = "farshore-holds";
/// The request header with which a site that fetches an artifact says `follow`: it follows a redirect to
/// where the artifact lies, and asks again without it when it is refused there.
pub const REDIRECT_HEADER: &str = "farshore-redirect";
/// The response header that names what was sent, to whoever asked with [`HOLDS_HEADER`] or [`PASS_HEADER`];
/// others get it as `ETag`.
pub const TAG_HEADER: &str = "farshore-tag";

/// The longest time for which a hub holds `GET /v1/wake`, in seconds: below what the connection of a site may be
/// silent at the hub.
pub const WAKE_SECONDS: u64 = 240;

/// Seconds since 1970-01-01 UTC.
pub type UnixSeconds = u64;

/// What can be signed: its payload type names kind and version.
pub trait Document: Serialize + DeserializeOwned {
    /// The DSSE payload type.
    const TYPE: &'static str;

    /// Fields that a reader must understand, as the document lists them.
    fn critical(&self) -> &[String];
}

macro_rules! document {
    ($type:ty, $name:literal) => {
        impl Document for $type {
            const TYPE: &'static str = concat!("application/vnd.farshore.", $name, ".v1+json");

            fn critical(&self) -> &[String] {
                &self.critical
            }
        }
    };
}

document!(Root, "root");
document!(Group, "group");
document!(Roster, "roster");
document!(Registration, "registration");
document!(Status, "status");

/// The trust root: which keys may sign what, and where the hub is.
///
/// Follows the root role of TUF 1.0, section 4.3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Root {
    /// 1 for the first, one more for each next.
    pub version: u64,
    /// A new epoch resets all sequences.
    pub epoch: u64,
    /// When it was signed.
    pub issued: UnixSeconds,
    /// After this, no newer content is accepted under it.
    pub expires: UnixSeconds,
    /// Every key that a role names.
    pub keys: Vec<PublicKey>,
    /// Who may sign what.
    pub roles: Roles,
    /// Where the hub can be reached, best first.
    pub hubs: Vec<String>,
    /// SHA-256 of the `SubjectPublicKeyInfo` of every TLS key that a hub may show (RFC 7469, section
    /// 2.4). Empty: the site's own certificate authorities decide.
    pub tls_pins: Vec<Digest>,
    /// Fields that a reader must understand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub critical: Vec<String>,
}

/// The roles of a [`Root`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Roles {
    /// Signs the next root.
    pub root: Role,
    /// Signs groups, rosters, registrations, source heads and the head of a publication.
    pub director: Role,
    /// Signs approvals.
    pub operator: Role,
}

/// The keys of one role, and how many of them must sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Role {
    /// Ids of keys that the root lists.
    pub keys: Vec<KeyId>,
    /// How many different keys must have signed.
    pub threshold: usize,
}

/// The id of a group: the digest of the label values that its clusters share.
pub type GroupId = Digest;

/// What every cluster of one group shall run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Whom it is for.
    pub group: GroupId,
    /// Given by root.
    pub epoch: u64,
    /// Higher is newer, within one epoch.
    pub sequence: u64,
    /// When it was signed.
    pub issued: UnixSeconds,
    /// After this it is not accepted any more; what was accepted stays in force.
    pub expires: UnixSeconds,
    /// The sequence of the body before this one: its artifacts may still be fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
    /// The poll interval, in seconds.
    pub poll_seconds: u64,
    /// The services, each a [`ServiceEntry`]. They stay JSON here, so that one that a reader cannot
    /// understand blocks only itself: see [`Group::entries`].
    pub services: Vec<Value>,
    /// What has been removed, for clusters that have not heard yet.
    #[serde(default)]
    pub tombstones: Vec<Tombstone>,
    /// How much each agent may ask of its cluster and of its machine, where its roster says nothing else.
    #[serde(default, skip_serializing_if = "Footprint::is_empty")]
    pub footprint: Footprint,
    /// Fields that a reader must understand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub critical: Vec<String>,
}

/// One service in a [`Group`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceEntry {
    /// Its name, once per group.
    pub name: Name,
    /// Given when the service was first published under this name.
    pub incarnation: u64,
    /// What it was made from.
    pub revision: Revision,
    /// Its content.
    pub artifact: Artifact,
    /// The folder inside the artifact that is rendered; empty for its root.
    pub path: String,
    /// How manifests come out of the artifact.
    pub renderer: Renderer,
    /// The namespace of objects that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Services that are healthy before this one is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Name>,
    /// How much one change may remove.
    #[serde(default)]
    pub prune: PruneBudget,
    /// How objects of some kinds are judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthRule>,
    /// How long a wave may be without progress, in seconds; [`DEFAULT_TIMEOUT`] unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// What the site does when a revision is not healthy within that time.
    #[serde(default, skip_serializing_if = "OnFailure::is_default")]
    pub on_failure: OnFailure,
    /// How its objects are applied.
    #[serde(default, skip_serializing_if = "ApplyPolicy::is_default")]
    pub apply: ApplyPolicy,
    /// What is done about drift.
    #[serde(default, skip_serializing_if = "DriftRule::is_default")]
    pub drift: DriftRule,
    /// Fields that a reader must understand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub critical: Vec<String>,
}

/// Where an artifact's content came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// The source.
    pub source: Name,
    /// The Git commit, in hexadecimal.
    pub commit: String,
}

/// A deterministic tar, compressed with zstd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// SHA-256 of the compressed blob: its name.
    pub digest: Digest,
    /// Bytes of the compressed blob.
    pub size: u64,
    /// SHA-256 of the tar.
    pub tar_digest: Digest,
    /// Bytes of the tar.
    pub tar_size: u64,
}

/// How manifests come out of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Renderer {
    /// Every `.yaml`, `.yml` and `.json` file below the path, as it is.
    Raw,
    /// The same files, after minijinja.
    Template {
        /// What templates see as `values`.
        #[serde(default)]
        values: serde_json::Map<String, Value>,
    },
    /// `kustomize build`.
    Kustomize,
}

/// A signed removal: the only thing that makes a service leave a site.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tombstone {
    /// The service.
    pub service: Name,
    /// Which life of that name has ended.
    pub incarnation: u64,
}

/// A cluster's own document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Roster {
    /// Whom it is for.
    pub cluster: Name,
    /// The id of that cluster's key.
    pub key: KeyId,
    /// The group that the cluster is in.
    pub group: GroupId,
    /// The lowest group sequence that the cluster may accept.
    pub floor: u64,
    /// Given by root.
    pub epoch: u64,
    /// Higher is newer, within one epoch.
    pub sequence: u64,
    /// When it was signed.
    pub issued: UnixSeconds,
    /// After this it is not accepted any more; what was accepted stays in force.
    pub expires: UnixSeconds,
    /// The cluster's labels: templates see them.
    pub labels: Labels,
    /// What the cluster left behind when it moved between groups.
    #[serde(default)]
    pub tombstones: Vec<Tombstone>,
    /// No delay that a server asks for is longer than this, in seconds.
    pub max_delay_seconds: u64,
    /// How much its agent may ask of the cluster and of its machine; it wins over what the group says.
    #[serde(default, skip_serializing_if = "Footprint::is_empty")]
    pub footprint: Footprint,
    /// Fields that a reader must understand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub critical: Vec<String>,
}

/// That a key is a cluster's, and which labels it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registration {
    /// The cluster.
    pub cluster: Name,
    /// What it signs with.
    pub key: PublicKey,
    /// What is sealed to it: an X25519 public key in base64.
    pub sealing_key: String,
    /// Labels that the join token gave.
    pub labels: Labels,
    /// The id of the join token.
    pub token: String,
    /// Given by root.
    pub epoch: u64,
    /// Higher is newer, within one epoch.
    pub sequence: u64,
    /// When it was signed.
    pub issued: UnixSeconds,
    /// Fields that a reader must understand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub critical: Vec<String>,
}

/// The answer to `GET /v1/desired`: the documents that changed since the ETag that was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Desired {
    /// A [`Roster`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roster: Option<Envelope>,
    /// A [`Group`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Envelope>,
}

/// The body of `POST /v1/enroll`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnrollRequest {
    /// The claims of the join token, as the token has them (base64url).
    pub claims: String,
    /// The name that the site wants.
    pub cluster: Name,
    /// The site's signing key.
    pub key: PublicKey,
    /// The site's sealing key: an X25519 public key in base64.
    pub sealing_key: String,
    /// HMAC-SHA256, in hexadecimal, under the token's secret: see [`crate::token::JoinToken::prove`].
    pub proof: String,
}

/// The `200` of `POST /v1/enroll`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Enrolled {
    /// A [`Registration`].
    pub registration: Envelope,
    /// A [`Roster`].
    pub roster: Envelope,
}

/// The body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// What is wrong, in lower case, with the values concerned.
    pub error: String,
    /// The request's id, by which the hub's log knows it; only where the failure is the hub's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// The answer to `GET /v1/wake` when there is something newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Woken {
    /// The window, in milliseconds, over which those who are woken at once shall spread their polls.
    pub spread_millis: u64,
}

/// What a site says of itself, signed with its own key.
///
/// `(state_id, sequence)` numbers it: the same number twice is one report. A new `state_id` means
/// that the site's state folder began anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Who says it.
    pub cluster: Name,
    /// Random, made with the state folder.
    pub state_id: String,
    /// Counts up from 1 within one `state_id`.
    pub sequence: u64,
    /// The site's clock.
    pub at: UnixSeconds,
    /// The agent's version.
    pub agent: String,
    /// The interval at which the site polls, in seconds.
    pub poll_seconds: u64,
    /// What is accepted at the site, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Holds>,
    /// Every service of the site, by name.
    pub services: Vec<ServiceStatus>,
    /// What a person should look at, in whole sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<String>,
    /// Reports that were dropped from a full outbox since the last one that arrived.
    #[serde(default)]
    pub dropped: u64,
    /// What somebody at the site has stopped there, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controls: Option<SiteControls>,
    /// Fields that a reader must understand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub critical: Vec<String>,
}

/// Which documents a site has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holds {
    /// The epoch of both.
    pub epoch: u64,
    /// The roster's sequence.
    pub roster: u64,
    /// The group document's sequence.
    pub group: u64,
}

/// One service, as a site sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// The service.
    pub name: Name,
    /// The commit that is applied or being applied.
    pub commit: String,
    /// How far it is.
    pub state: ServiceState,
    /// Why, where there is something to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Objects that are as they should be.
    pub objects: u32,
    /// Objects that are not, the first few of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<ObjectFailure>,
    /// Drift repairs since the agent began to count.
    #[serde(default)]
    pub repairs: u64,
    /// What it waits for on its way to a revision, while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The revision that was given up here, as long as the one before it is in force instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_revision: Option<FailedRevision>,
    /// How the tests of the revision went, and its hooks that failed; the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Objects that somebody else changed lately, the newest first; the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<ObjectDrift>,
}

impl ServiceStatus {
    /// A service of which nothing more is known.
    #[must_use]
    pub fn new(name: Name, commit: &str, state: ServiceState) -> Self {
        Self {
            name,
            commit: commit.to_owned(),
            state,
            message: String::new(),
            objects: 0,
            failures: vec![],
            repairs: 0,
            progress: None,
            failed_revision: None,
            checks: vec![],
            drift: vec![],
        }
    }
}

/// How far a service is at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceState {
    /// Every object is as the accepted documents say, and was healthy when this revision came.
    Applied,
    /// Something must come first: content, a dependency, the target, the health of what is applied.
    Waiting,
    /// Applied as far as allowed: a removal is held back until a person decides, or somebody at the site has stopped
    /// what would come next.
    Held,
    /// At least one object, or the rendering, failed.
    Failed,
}

/// One object that could not be brought to its desired state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectFailure {
    /// `Kind.group namespace/name`, or the file of a document that is no manifest.
    pub object: String,
    /// What the target said.
    pub message: String,
}

/// A service entry that cannot be understood: only that service is blocked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("service entry is not understood ({name}): {why}")]
pub struct BadEntry {
    /// The service's name, as far as it can be read.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

impl Group {
    /// The services, each parsed by itself.
    #[must_use]
    pub fn entries(&self) -> Vec<Result<ServiceEntry, BadEntry>> {
        self.services.iter().map(ServiceEntry::read).collect()
    }
}

impl ServiceEntry {
    fn read(value: &Value) -> Result<Self, BadEntry> {
        let bad = |why: String| BadEntry {
            name: value.get("name").and_then(Value::as_str).unwrap_or("without a name").to_owned(),
            why,
        };
        let entry = Self::deserialize(value).map_err(|e| bad(e.to_string()))?;
        match entry.critical.first() {
            Some(field) => Err(bad(format!("it demands a field that this version does not know ({field})"))),
            None => Ok(entry),
        }
    }

    /// The entry as a [`Group`] carries it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("a service entry has string keys only")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_with_an_unknown_renderer_blocks_only_itself() {
        let good = serde_json::json!({
            "name": "a", "incarnation": 1, "revision": {"source": "s", "commit": "c"},
            "artifact": {"digest": Digest::of(b"a"), "size": 1, "tarDigest": Digest::of(b"b"), "tarSize": 1},
            "path": "", "renderer": {"kind": "raw"}, "someNewField": 1
        });
        let mut odd = good.clone();
        odd["name"] = "b".into();
        odd["renderer"]["kind"] = "wasm".into();
        let mut demanding = good.clone();
        demanding["critical"] = serde_json::json!(["someNewField"]);
        let group = Group {
            group: Digest::of(b"g"),
            epoch: 1,
            sequence: 1,
            issued: 1,
            expires: 2,
            previous: None,
            poll_seconds: 120,
            services: vec![good, odd, demanding],
            tombstones: vec![],
            footprint: Footprint::default(),
            critical: vec![],
        };
        let entries = group.entries();
        assert!(entries[0].is_ok());
        assert_eq!(entries[1].as_ref().map_err(|e| e.name.as_str()), Err("b"));
        assert!(entries[2].as_ref().is_err_and(|e| e.why.contains("someNewField")));
    }
}
