//! Server-side apply of one object, and namespaces that are there for others.

use serde::de::DeserializeOwned;
use serde_json::json;

use super::connection::{Connection, Request};
use super::discovery::{Discovery, GroupVersion, Resource};
use super::fault::{Complaint, Fault};
use super::locate::{group_version, unknown_kind};
use super::metadata::{Metadata, Partial};
use super::{path, usable};
use crate::object::{FIELD_MANAGER, Manifest};
use crate::target::Applied;

/// Applies one manifest, whoever else owns parts of the object.
///
/// The whole validation of the API is asked for, as kubectl does: a field that the schema does not
/// have is an error and not dropped in silence.
pub(super) async fn apply(
    connection: &Connection,
    discovery: &Discovery,
    manifest: &Manifest,
) -> Result<Applied, Complaint> {
    let at = group_version(manifest);
    let kind = manifest.key.kind.as_str();
    let found = discovery.resource(&at, kind).await;
    let found = found.map_err(|fault| fault.complaint(&format!("find out about kind {kind} of {at}")))?;
    let resource = found.ok_or_else(|| unknown_kind(kind, &at))?;
    let metadata = patch(connection, discovery, &resource, manifest).await?;
    if metadata.deletion_timestamp.is_some() {
        let waits = metadata.finalizers.join(", ");
        return Err(Complaint::worthwhile(format!(
            "it is being deleted and can be applied once that has ended (it waits for: {waits})"
        )));
    }
    let (fingerprint, stamp) = (metadata.fingerprint(), metadata.stamp());
    Ok(Applied { uid: metadata.uid, fingerprint, stamp })
}

async fn patch(
    connection: &Connection,
    discovery: &Discovery,
    resource: &Resource,
    manifest: &Manifest,
) -> Result<Metadata, Complaint> {
    let key = &manifest.key;
    let refused = |fault: Fault| {
        if fault.is(404) {
            discovery.forget(&resource.at.group);
        }
        fault.complaint(&format!("apply {resource}"))
    };
    let target = path::object(resource, resource.namespace(key.namespace.as_deref()), &key.name)
        .map_err(|bad| refused(bad.into()))?;
    let body = serde_json::to_vec(&manifest.body).expect("a JSON value has string keys only");
    let request = Request::apply(
        format!("{target}?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Strict"),
        body,
    );
    match (key.group.as_str(), key.kind.as_str()) {
        ("", "Namespace") => {
            let applied = send(connection, request.whole()).await.map_err(refused)?;
            usable::namespace(connection, &target, applied).await
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let applied = send(connection, request.whole()).await.map_err(refused)?;
            usable::definition(connection, discovery, &target, applied).await
        }
        _ => send::<Partial>(connection, request).await.map(|partial| partial.metadata).map_err(refused),
    }
}

async fn send<T: DeserializeOwned>(connection: &Connection, request: Request) -> Result<T, Fault> {
    connection.call(request).await
}

/// Makes sure that a namespace exists and is active. Our marks are not on it, so it is never deleted.
pub(super) async fn ensure_namespace(connection: &Connection, name: &str) -> Result<(), Complaint> {
    let target =
        path::object(&namespaces(), None, name).map_err(|bad| Fault::from(bad).complaint("create it"))?;
    let found = match connection.call::<usable::Namespace>(Request::get(target.clone())).await {
        Ok(namespace) => Ok(namespace),
        Err(fault) if fault.is(404) => create_namespace(connection, &target, name).await,
        Err(fault) => Err(fault.complaint("get namespaces")),
    };
    usable::namespace(connection, &target, found?).await.map(|_| ())
}

async fn create_namespace(
    connection: &Connection,
    target: &str,
    name: &str,
) -> Result<usable::Namespace, Complaint> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let body = serde_json::to_vec(&body).expect("a JSON value has string keys only");
    match connection.call(Request::create("/api/v1/namespaces".to_owned(), body)).await {
        Ok(namespace) => Ok(namespace),
        // Somebody was faster.
        Err(fault) if fault.is(409) => {
            let found = connection.call(Request::get(target.to_owned())).await;
            found.map_err(|fault| fault.complaint("get namespaces"))
        }
        Err(fault) => Err(fault.complaint("create namespaces")),
    }
}

/// Every API server has this one, and it needs no discovery.
fn namespaces() -> Resource {
    Resource {
        at: GroupVersion { group: String::new(), version: "v1".to_owned() },
        plural: "namespaces".to_owned(),
        scope: super::discovery::Scope::Cluster,
        verbs: vec![],
    }
}
