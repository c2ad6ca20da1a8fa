//! Whole objects, for a judgement of their health, and the end of what a Job or a Pod printed.

use serde::Deserialize;
use serde_json::Value;

use super::connection::{Connection, Request};
use super::discovery::{Discovery, GroupVersion, Resource, Scope};
use super::fault::{Complaint, Fault};
use super::metadata::null_is_empty;
use super::path;
use crate::object::ObjectKey;

/// The most bytes of a whole object: the API server takes no larger ones.
const OBJECT_LIMIT: usize = 4 << 20;
/// The most bytes of a list of a Job's Pods.
const PODS_LIMIT: usize = 8 << 20;
/// How many lines of a log are asked for; what is told of them is less.
const LINES: usize = 50;
/// The most bytes of a log that are read for that.
const LOG_READ: usize = 256 << 10;

/// One object; none if nothing lives there.
pub(super) async fn object(
    connection: &Connection,
    discovery: &Discovery,
    key: &ObjectKey,
    version: &str,
) -> Result<Option<Value>, Complaint> {
    let at = GroupVersion { group: key.group.clone(), version: version.to_owned() };
    let kind = key.kind.as_str();
    let found = discovery.resource_in_any_version(&at, kind).await;
    let found = found.map_err(|fault| fault.complaint(&format!("find out about kind {kind} of {at}")))?;
    let Some(resource) = found else { return Ok(None) };
    let refused = |fault: Fault| fault.complaint(&format!("get {resource}"));
    let target = path::object(&resource, resource.namespace(key.namespace.as_deref()), &key.name)
        .map_err(|bad| refused(bad.into()))?;
    match connection.call::<Value>(Request::get(target).at_most(OBJECT_LIMIT)).await {
        Ok(object) => Ok(Some(object)),
        Err(fault) if fault.is(404) => Ok(None),
        Err(fault) => Err(refused(fault)),
    }
}

/// The last lines of a Pod, or of the newest Pod of a Job.
pub(super) async fn log_tail(connection: &Connection, key: &ObjectKey) -> Result<String, Complaint> {
    let namespace = key.namespace.as_deref();
    let pod = match (key.group.as_str(), key.kind.as_str()) {
        ("", "Pod") => Some(key.name.clone()),
        _ => newest_pod(connection, namespace, &key.name).await?,
    };
    let Some(pod) = pod else { return Err(Complaint::worthwhile("it has no Pod any more")) };
    let target = path::object(&pods(), namespace, &pod)
        .map_err(|bad| Fault::from(bad).complaint("get the log of a Pod"))?;
    let target = format!("{target}/log?tailLines={LINES}&limitBytes={LOG_READ}");
    let read = connection.raw(Request::get(target).at_most(LOG_READ + 1024)).await;
    let bytes = read.map_err(|fault| fault.complaint("get pods/log"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn newest_pod(
    connection: &Connection,
    namespace: Option<&str>,
    job: &str,
) -> Result<Option<String>, Complaint> {
    let refused = |fault: Fault| fault.complaint("list pods");
    let collection = path::collection(&pods(), namespace).map_err(|bad| refused(bad.into()))?;
    let selector = path::query(&format!("batch.kubernetes.io/job-name={job}"));
    let request = Request::list_metadata(format!("{collection}?limit=100&labelSelector={selector}"));
    let list: Pods = connection.call(request.at_most(PODS_LIMIT)).await.map_err(refused)?;
    let newest = list.items.into_iter().max_by(|a, b| a.metadata.age().cmp(&b.metadata.age()));
    Ok(newest.map(|pod| pod.metadata.name))
}

/// Every API server has this one, and it needs no discovery.
fn pods() -> Resource {
    Resource {
        at: GroupVersion { group: String::new(), version: "v1".to_owned() },
        plural: "pods".to_owned(),
        scope: Scope::Namespaced,
        verbs: vec![],
    }
}

#[derive(Debug, Deserialize)]
struct Pods {
    #[serde(default, deserialize_with = "null_is_empty")]
    items: Vec<Pod>,
}

#[derive(Debug, Deserialize)]
struct Pod {
    metadata: PodMetadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMetadata {
    name: String,
    #[serde(default)]
    creation_timestamp: String,
}

impl PodMetadata {
    /// Later is greater: times of the API are written so that they sort.
    fn age(&self) -> (&str, &str) {
        (&self.creation_timestamp, &self.name)
    }
}
