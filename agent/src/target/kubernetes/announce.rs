//! Events and `FarshoreService` statuses in a cluster.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tracing::warn;

use super::Kubernetes;
use super::connection::{Connection, Request};
use super::fault::Fault;
use super::metadata::Partial;
use crate::announce::{Board, BoardError, Event, Tone};
use crate::controls::window::rfc3339;
use crate::object::{CLUSTER_ANNOTATION, FIELD_MANAGER};

/// Where a `FarshoreService` lives.
const SERVICES: &str = "/apis/farshore.dev/v1alpha1/farshoreservices";
/// Where an Event about what is in no namespace lives: the API demands it.
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// What a cluster is told, on the connection of a target.
#[derive(Clone)]
pub struct Announcements {
    connection: Connection,
    /// The `FarshoreService` objects that are ours, and which life of each.
    ours: Arc<Mutex<HashMap<Name, String>>>,
    /// Those of another site in this cluster, which are left to it.
    others: Arc<Mutex<HashSet<Name>>>,
}

impl Kubernetes {
    /// Where the cluster is told about its services.
    #[must_use]
    pub fn announcements(&self) -> Announcements {
        Announcements { connection: self.connection.clone(), ours: Arc::default(), others: Arc::default() }
    }
}

impl Announcements {
    fn uid(&self, service: &Name) -> Option<String> {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner).get(service).cloned()
    }

    fn learn(&self, service: &Name, uid: String) {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner).insert(service.clone(), uid);
    }

    fn unlearn(&self, service: &Name) {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner).remove(service);
    }

    /// Makes the object, unless it is another site's.
    async fn make(&self, cluster: &Name, service: &Name) -> Result<(), BoardError> {
        let target = format!("{SERVICES}/{service}");
        match self.connection.call::<Partial>(Request::get_metadata(target.clone())).await {
            Ok(found) if found.metadata.is_from(cluster) => {
                self.learn(service, found.metadata.uid);
                return Ok(());
            }
            Ok(_) => {
                let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
                if others.insert(service.clone()) {
                    warn!(%service, "its farshoreservice is of another site in this cluster, and is left to it");
                }
                return Ok(());
            }
            Err(fault) if fault.is(404) => {}
            Err(fault) => return Err(refused(&fault, "get farshoreservices")),
        }
        let body = json!({
            "apiVersion": "farshore.dev/v1alpha1", "kind": "FarshoreService",
            "metadata": {"name": service, "annotations": {CLUSTER_ANNOTATION: cluster}},
        });
        let made: Result<Partial, Fault> = self.connection.call(apply(&target, &body)).await;
        match made {
            Ok(made) => {
                self.learn(service, made.metadata.uid);
                Ok(())
            }
            Err(fault) if fault.is(404) => Err(BoardError::Unwanted(
                "services are not shown in this cluster: apply deploy/kubernetes/farshoreservices.yaml"
                    .to_owned(),
            )),
            Err(fault) => Err(refused(&fault, "apply farshoreservices")),
        }
    }
}

impl Board for Announcements {
    async fn event(&self, event: &Event) -> Result<(), BoardError> {
        let uid = event.service.as_ref().and_then(|service| self.uid(service));
        let request = apply(&format!("{EVENTS}/{}", event.name), &body(event, uid));
        let written = self.connection.call::<IgnoredAny>(request).await;
        written
            .map(|_| ())
            .map_err(|fault| refused(&fault, "apply events of events.k8s.io in namespace default"))
    }

    async fn show(&self, cluster: &Name, service: &Name, status: &Value) -> Result<(), BoardError> {
        if self.uid(service).is_none() {
            self.make(cluster, service).await?;
        }
        if self.uid(service).is_none() {
            return Ok(());
        }
        let body = json!({
            "apiVersion": "farshore.dev/v1alpha1", "kind": "FarshoreService",
            "metadata": {"name": service}, "status": status,
        });
        let written =
            self.connection.call::<IgnoredAny>(apply(&format!("{SERVICES}/{service}/status"), &body)).await;
        match written {
            Ok(_) => Ok(()),
            Err(fault) => {
                // Somebody may have deleted it: the next try looks.
                self.unlearn(service);
                if fault.is(404) {
                    return Err(BoardError::Later(fault.in_words()));
                }
                Err(refused(&fault, "apply farshoreservices/status"))
            }
        }
    }

    async fn take_down(&self, cluster: &Name, service: &Name) -> Result<(), BoardError> {
        // An agent before this one may have made it, and somebody may have made it anew: the object says whose it is.
        let target = format!("{SERVICES}/{service}");
        let uid = match self.connection.call::<Partial>(Request::get_metadata(target)).await {
            Ok(found) if found.metadata.is_from(cluster) => found.metadata.uid,
            Ok(_) => return Ok(()),
            Err(fault) if fault.is(404) => {
                self.unlearn(service);
                return Ok(());
            }
            Err(fault) => return Err(refused(&fault, "get farshoreservices")),
        };
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
        let request = Request::delete(format!("{SERVICES}/{service}"), body.to_string().into_bytes());
        match self.connection.call::<IgnoredAny>(request).await {
            Ok(_) => {}
            Err(fault) if fault.is(404) => {}
            Err(fault) if fault.is(409) => return Err(BoardError::Later(fault.in_words())),
            Err(fault) => return Err(refused(&fault, "delete farshoreservices")),
        }
        self.unlearn(service);
        Ok(())
    }
}

fn apply(target: &str, body: &Value) -> Request {
    Request::apply(format!("{target}?fieldManager={FIELD_MANAGER}&force=true"), body.to_string().into_bytes())
}

/// Kubernetes API reference, `Event` of `events.k8s.io/v1`.
fn body(event: &Event, uid: Option<String>) -> Value {
    let (kind, about) = match &event.service {
        Some(service) => ("FarshoreService", service),
        None => ("FarshoreSite", &event.cluster),
    };
    let mut regarding = json!({"apiVersion": "farshore.dev/v1alpha1", "kind": kind, "name": about});
    if let Some(uid) = uid {
        regarding["uid"] = uid.into();
    }
    let mut body = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": event.name, "namespace": "default"},
        "eventTime": micro(event.first),
        "reportingController": "farshore.dev/agent",
        "reportingInstance": event.cluster,
        "action": event.reason,
        "reason": event.reason,
        "regarding": regarding,
        "note": event.note,
        "type": match event.tone { Tone::Normal => "Normal", Tone::Warning => "Warning" },
    });
    if event.count > 1 {
        body["series"] = json!({"count": event.count, "lastObservedTime": micro(event.last)});
    }
    body
}

/// The form that the API has for `MicroTime`.
fn micro(at: UnixSeconds) -> String {
    rfc3339(at).replace('Z', ".000000Z")
}

fn refused(fault: &Fault, deed: &str) -> BoardError {
    if fault.is(403) {
        return BoardError::Unwanted(format!(
            "the cluster is not told about its services: not allowed to {deed}"
        ));
    }
    let refused =
        fault.status().is_some_and(|status| (400..500).contains(&status.code) && status.code != 429);
    let why = format!("cannot {deed}: {}", fault.in_words());
    if refused { BoardError::Unwanted(why) } else { BoardError::Later(why) }
}
