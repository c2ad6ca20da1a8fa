//! An object that cannot become what it shall be, because a field of it cannot change: deleted and made
//! anew where that was asked for, and else left alone with a word on how to ask.

use std::time::Duration;

use farshore_shared::retry::Schedule;
use serde_json::json;
use tokio::time::Instant;

use super::connection::{Connection, Request};
use super::discovery::Resource;
use super::fault::{Complaint, Fault, is_immutable};
use super::metadata::Metadata;
use super::observe::look;
use super::path;
use crate::object::{Manifest, Owner};
use farshore_shared::wire::ProtectedKind;

/// Whether an apply failed for nothing but fields that cannot change.
pub(super) fn is_needed(fault: &Fault) -> bool {
    fault.status().is_some_and(is_immutable)
}

/// Says that it was not asked for, and how to ask.
pub(super) fn how_to_ask(fault: &Fault, manifest: &Manifest, deed: &str) -> Complaint {
    let Complaint { message, .. } = fault.complaint(deed);
    let named = match ProtectedKind::of(&manifest.key.group, &manifest.key.kind) {
        Some(kind) => format!(" and {kind} in spec.prune.kinds of the service"),
        None => String::new(),
    };
    Complaint::pointless(format!(
        "{message}; it would have to be deleted and made anew: ask for that with farshore.dev/recreate: \"true\"{named}"
    ))
}

/// What would have to go, if anything is there: it is proven like what is deleted for good (`delete.rs`).
pub(super) async fn in_the_way(
    connection: &Connection,
    resource: &Resource,
    owner: &Owner,
    manifest: &Manifest,
) -> Result<Option<Metadata>, Complaint> {
    let key = &manifest.key;
    let live = look(connection, resource, key.namespace.as_deref(), &key.name).await;
    let live = live.map_err(|fault| fault.complaint(&format!("get {resource}")))?;
    match live.as_ref().map_or(Ok(()), |live| may_go(live, owner, manifest.terms.listed.as_deref())) {
        Ok(()) => Ok(live),
        Err(why) => {
            Err(Complaint::pointless(format!("it would have to be deleted and made anew, and {why}")))
        }
    }
}

/// A name of which no life is listed was never confirmed, or its list was lost: then the marks alone decide.
fn may_go(live: &Metadata, owner: &Owner, listed: Option<&str>) -> Result<(), String> {
    if !live.is_marked(owner) {
        return Err("it does not carry our mark for this service: delete it by hand".to_owned());
    }
    if let Some(listed) = listed.filter(|listed| *listed != live.uid) {
        let uid = &live.uid;
        return Err(format!("it is not what was applied (UID {uid}, listed {listed}): delete it by hand"));
    }
    if live.is_kept() {
        return Err("an annotation of it says that it stays: take that away, or delete it by hand".to_owned());
    }
    Ok(())
}

/// Deletes an object of ours, and returns when it is gone.
///
/// Its UID is a precondition. If the power goes now, it is made anew by the next pass: it stays listed.
pub(super) async fn make_room(
    connection: &Connection,
    resource: &Resource,
    owner: &Owner,
    manifest: &Manifest,
) -> Result<(), Complaint> {
    let key = &manifest.key;
    let namespace = key.namespace.as_deref();
    let get = format!("get {resource}");
    let see = async || look(connection, resource, namespace, &key.name).await;
    let Some(live) = in_the_way(connection, resource, owner, manifest).await? else { return Ok(()) };
    let target = path::object(resource, resource.namespace(namespace), &key.name)
        .map_err(|bad| Complaint::pointless(bad.to_string()))?;
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        "preconditions": {"uid": live.uid}});
    let body = serde_json::to_vec(&options).expect("a JSON value has string keys only");
    match connection.raw(Request::delete(target, body)).await {
        Ok(_) => {}
        Err(fault) if fault.is(404) => return Ok(()),
        Err(fault) => return Err(fault.complaint(&format!("delete {resource}"))),
    }
    let mut schedule = Schedule::new(Duration::from_millis(30), Duration::from_secs(1));
    let ends = Instant::now() + connection.options().usable;
    loop {
        let waits = match see().await.map_err(|fault| fault.complaint(&get))? {
            None => return Ok(()),
            Some(next) if next.uid != live.uid => return Ok(()),
            Some(same) => same.finalizers.join(", "),
        };
        let next = Instant::now() + schedule.next_delay();
        if next > ends {
            return Err(Complaint::worthwhile(format!(
                "deleted, to be made anew, and not gone yet (it waits for: {waits})"
            )));
        }
        tokio::time::sleep_until(next).await;
    }
}
