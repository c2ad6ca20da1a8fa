//! Deletion of one object: only in the life of the name that was listed, and only with our marks on it.

use farshore_shared::wire::UnixSeconds;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::connection::{Connection, Request};
use super::discovery::{Discovery, GroupVersion, Resource};
use super::fault::Complaint;
use super::metadata::{Metadata, Partial};
use super::observe::look;
use super::path;
use crate::object::Owner;
use crate::plan::Item;
use crate::target::Deleted;

/// How long a deletion may take before somebody has to look why it does not end.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

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
    if live.is_kept() || is_home(item, &live) {
        return Ok(Deleted::Kept);
    }
    if live.deletion_timestamp.is_some() {
        return going(&live, connection.answered());
    }
    remove(connection, &resource, item, &live.uid).await
}

/// Whether it is the namespace of an agent, as its label in the cluster says: with it would go who deletes it. It
/// stays, whatever kinds a document names.
fn is_home(item: &Item, live: &Metadata) -> bool {
    item.key.group.is_empty() && item.key.kind == "Namespace" && live.is_of_the_agent()
}

/// A deletion that does not end is told, with who has to let go. Both times are by the API's clock: the site's may be
/// years off.
fn going(live: &Metadata, now: Option<UnixSeconds>) -> Result<Deleted, Complaint> {
    let asked = live.deletion_timestamp.as_deref().and_then(|asked| asked.parse::<Timestamp>().ok());
    let now = now.and_then(|now| Timestamp::from_second(i64::try_from(now).ok()?).ok());
    let since =
        asked.zip(now).map(|(asked, now)| now.duration_since(asked)).filter(|since| *since > PATIENCE);
    let Some(since) = since else { return Ok(Deleted::Going) };
    let waits = match live.finalizers.as_slice() {
        [] => "it has no finalizers: look at its events".to_owned(),
        finalizers => format!("it waits for its finalizers ({})", finalizers.join(", ")),
    };
    Err(Complaint::worthwhile(format!(
        "its deletion was asked for {} s ago and does not end: {waits}",
        since.as_secs()
    )))
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
        // What has to wait for others is answered as it is, anything else with a status.
        Ok(answer) => Ok(match serde_json::from_slice::<Partial>(&answer) {
            Ok(Partial { metadata }) if metadata.deletion_timestamp.is_some() => Deleted::Going,
            Ok(_) | Err(_) => Deleted::Gone,
        }),
        Err(fault) if fault.is(404) => Ok(Deleted::Gone),
        // Another life of the name, or a deletion that is under way, or a passing conflict.
        Err(fault) if fault.is(409) => match see(connection, resource, item).await? {
            None => Ok(Deleted::Gone),
            Some(live) if live.uid != uid => Ok(Deleted::NotOurs),
            Some(live) if live.deletion_timestamp.is_some() => Ok(Deleted::Going),
            Some(_) => Err(fault.complaint(&deed)),
        },
        Err(fault) => Err(fault.complaint(&deed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{CLUSTER_ANNOTATION, Manifest, SERVICE_LABEL};

    #[test]
    fn only_the_listed_life_with_our_marks_is_ours() {
        let owner =
            Owner { cluster: "shop-7".parse().expect("a name"), service: "web".parse().expect("a name") };
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let manifest = Manifest::read(body, "test".into()).expect("a manifest");
        let item = |uid: Option<&str>| Item { uid: uid.map(Into::into), ..Item::new(&manifest) };
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

    #[test]
    fn a_deletion_that_does_not_end_is_told_with_what_it_waits_for() {
        let live: Metadata = serde_json::from_value(json!({
            "deletionTimestamp": "2026-11-21T09:00:00Z", "finalizers": ["example.com/hold"]
        }))
        .expect("metadata");
        let at = |text: &str| {
            let at: Timestamp = text.parse().expect("a time");
            u64::try_from(at.as_second()).ok()
        };
        assert_eq!(going(&live, None), Ok(Deleted::Going), "an API that says no time");
        assert_eq!(going(&live, at("2026-11-21T09:00:59Z")), Ok(Deleted::Going));
        let told = going(&live, at("2026-11-21T09:02:00Z")).expect_err("it takes too long");
        assert!(
            told.message.contains("120 s ago") && told.message.contains("(example.com/hold)"),
            "{told:?}"
        );
    }
}
