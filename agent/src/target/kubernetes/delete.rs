//! Deletion of one object: only in the life of the name that was listed, and only with our marks on it.

use serde_json::json;

use super::connection::{Connection, Request};
use super::discovery::{Discovery, GroupVersion, Resource};
use super::fault::Complaint;
use super::metadata::Metadata;
use super::observe::look;
use super::path;
use crate::object::Owner;
use crate::plan::Item;
use crate::target::Deleted;

/// Deletes one listed object; what depends on it goes in the background.
pub(super) async fn delete(
    connection: &Connection,
    discovery: &Discovery,
    owner: &Owner,
    item: &Item,
) -> Result<Deleted, Complaint> {
    let at = GroupVersion { group: item.key.group.clone(), version: item.version.clone() };
    let kind = item.key.kind.as_str();
    let found = discovery.resource_in_any_version(&at, kind).await;
    let found = found.map_err(|fault| fault.complaint(&format!("find out about kind {kind} of {at}")))?;
    // With the definition of its kind the object went too.
    let Some(resource) = found else { return Ok(Deleted::Gone) };
    let live = match see(connection, &resource, item).await? {
        None => return Ok(Deleted::Gone),
        Some(live) => live,
    };
    if !is_ours(&live, owner, item) {
        return Ok(Deleted::NotOurs);
    }
    if live.deletion_timestamp.is_some() {
        return Ok(Deleted::Gone);
    }
    remove(connection, &resource, item, &live.uid).await
}

/// An item whose first apply was never confirmed has no UID: then the marks alone decide.
fn is_ours(live: &Metadata, owner: &Owner, item: &Item) -> bool {
    item.uid.as_ref().is_none_or(|uid| *uid == live.uid) && live.is_marked(owner)
}

async fn see(
    connection: &Connection,
    resource: &Resource,
    item: &Item,
) -> Result<Option<Metadata>, Complaint> {
    let seen = look(connection, resource, item.key.namespace.as_deref(), &item.key.name).await;
    seen.map_err(|fault| fault.complaint(&format!("get {resource}")))
}

async fn remove(
    connection: &Connection,
    resource: &Resource,
    item: &Item,
    uid: &str,
) -> Result<Deleted, Complaint> {
    let deed = format!("delete {resource}");
    let target = path::object(resource, resource.namespace(item.key.namespace.as_deref()), &item.key.name)
        .map_err(|bad| Complaint::pointless(bad.to_string()))?;
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        "preconditions": {"uid": uid}});
    let body = serde_json::to_vec(&options).expect("a JSON value has string keys only");
    match connection.raw(Request::delete(target, body)).await {
        Ok(_) => Ok(Deleted::Gone),
        Err(fault) if fault.is(404) => Ok(Deleted::Gone),
        // Another life of the name, or a deletion that is under way, or a passing conflict.
        Err(fault) if fault.is(409) => match see(connection, resource, item).await? {
            None => Ok(Deleted::Gone),
            Some(live) if live.uid != uid => Ok(Deleted::NotOurs),
            Some(live) if live.deletion_timestamp.is_some() => Ok(Deleted::Gone),
            Some(_) => Err(fault.complaint(&deed)),
        },
        Err(fault) => Err(fault.complaint(&deed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{CLUSTER_ANNOTATION, ObjectKey, SERVICE_LABEL};

    #[test]
    fn only_the_listed_life_with_our_marks_is_ours() {
        let owner =
            Owner { cluster: "shop-7".parse().expect("a name"), service: "web".parse().expect("a name") };
        let key =
            ObjectKey { group: String::new(), kind: "ConfigMap".into(), namespace: None, name: "a".into() };
        let item = |uid: Option<&str>| Item {
            key: key.clone(),
            version: "v1".into(),
            uid: uid.map(Into::into),
            applied: None,
            fingerprint: None,
            revision: None,
            proven: false,
        };
        let marked: Metadata = serde_json::from_value(json!({
            "uid": "1", "labels": {SERVICE_LABEL: "web"}, "annotations": {CLUSTER_ANNOTATION: "shop-7"}
        }))
        .expect("metadata");
        let unmarked: Metadata = serde_json::from_value(json!({"uid": "1"})).expect("metadata");
        assert!(is_ours(&marked, &owner, &item(Some("1"))));
        assert!(is_ours(&marked, &owner, &item(None)));
        assert!(!is_ours(&marked, &owner, &item(Some("2"))));
        assert!(!is_ours(&unmarked, &owner, &item(Some("1"))));
        assert!(!is_ours(&unmarked, &owner, &item(None)));
    }
}
