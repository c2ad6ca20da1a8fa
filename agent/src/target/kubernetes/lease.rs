//! A Lease of `coordination.k8s.io` in a cluster. Its requests wait behind no others: who waits too long loses it.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::Kubernetes;
use super::connection::{Connection, Request};
use super::fault::Fault;
use crate::controls::window::rfc3339;
use crate::lead::{Ballot, BallotError, Claim, LeaseName, Record, Wrote};
use crate::object::FIELD_MANAGER;

/// One Lease, on the connection of a target.
#[derive(Clone)]
pub struct Lease {
    connection: Connection,
    at: LeaseName,
}

impl Kubernetes {
    /// A Lease in this cluster.
    #[must_use]
    pub fn lease(&self, at: LeaseName) -> Lease {
        Lease { connection: self.connection.clone(), at }
    }
}

/// Kubernetes API reference, `Lease` of `coordination.k8s.io/v1`, as far as it is read.
#[derive(Debug, Deserialize)]
struct Found {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    holder_identity: Option<String>,
    #[serde(default)]
    lease_duration_seconds: Option<u64>,
    #[serde(default)]
    renew_time: Option<String>,
    #[serde(default)]
    acquire_time: Option<String>,
    #[serde(default)]
    lease_transitions: Option<u64>,
}

impl Lease {
    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.at.namespace)
    }

    fn failed(&self, deed: &str, fault: &Fault) -> BallotError {
        BallotError(format!("cannot {deed} lease {}: {}", self.at, fault.in_words()))
    }
}

impl Ballot for Lease {
    async fn read(&self) -> Result<Option<Record>, BallotError> {
        let target = format!("{}/{}", self.collection(), self.at.name);
        match self.connection.call_at_once::<Found>(Request::get(target)).await {
            Ok(Found { metadata, spec }) => Ok(Some(Record {
                holder: spec.holder_identity.unwrap_or_default(),
                lasts: spec.lease_duration_seconds.unwrap_or_default(),
                renewed: spec.renew_time.unwrap_or_default(),
                acquired: spec.acquire_time.unwrap_or_default(),
                transitions: spec.lease_transitions.unwrap_or_default(),
                version: metadata.resource_version,
            })),
            Err(fault) if fault.is(404) => Ok(None),
            Err(fault) => Err(self.failed("get", &fault)),
        }
    }

    async fn write(&self, claim: &Claim) -> Result<Wrote, BallotError> {
        let body = body(&self.at, claim).to_string().into_bytes();
        let request = match &claim.of {
            None => Request::create(format!("{}?fieldManager={FIELD_MANAGER}", self.collection()), body),
            // With the version that was read, which the API compares: nobody overwrites what they have not seen.
            Some(_) => {
                let target = format!("{}/{}", self.collection(), self.at.name);
                Request::apply(format!("{target}?fieldManager={FIELD_MANAGER}&force=true"), body)
            }
        };
        match self.connection.call_at_once::<IgnoredAny>(request).await {
            Ok(_) => Ok(Wrote::Done),
            Err(fault) if fault.is(409) => Ok(Wrote::Late),
            Err(fault) => Err(self.failed("write", &fault)),
        }
    }
}

fn body(at: &LeaseName, claim: &Claim) -> Value {
    let now = rfc3339(claim.now).replace('Z', ".000000Z");
    let is_same = claim.of.as_ref().is_some_and(|record| record.holder == claim.holder);
    let before = claim.of.as_ref().map_or(0, |record| record.transitions);
    let acquired = claim.of.as_ref().filter(|record| is_same && !record.acquired.is_empty());
    let mut metadata = json!({"name": at.name, "namespace": at.namespace});
    if let Some(record) = &claim.of {
        metadata["resourceVersion"] = record.version.as_str().into();
    }
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
        "spec": {
            "holderIdentity": claim.holder,
            "leaseDurationSeconds": claim.lasts,
            "acquireTime": acquired.map_or(now.as_str(), |record| record.acquired.as_str()),
            "renewTime": now,
            "leaseTransitions": if is_same || claim.of.is_none() { before } else { before + 1 },
        },
    })
}
