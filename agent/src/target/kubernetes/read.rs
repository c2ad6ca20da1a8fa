//! A whole object, for whoever has to compare its fields.

use serde::Deserialize as _;
use serde_json::Value;

use super::connection::{Connection, Request};
use super::discovery::{Discovery, GroupVersion};
use super::fault::{Complaint, Fault};
use super::metadata::Metadata;
use super::path;
use crate::plan::Item;
use crate::target::Whole;

/// Reads an object in the version in which it was applied, or in whichever is served.
pub(super) async fn read(
    connection: &Connection,
    discovery: &Discovery,
    item: &Item,
) -> Result<Option<Whole>, Complaint> {
    let at = GroupVersion { group: item.key.group.clone(), version: item.version.clone() };
    let kind = item.key.kind.as_str();
    let found = discovery.resource_in_any_version(&at, kind).await;
    let found = found.map_err(|fault| fault.complaint(&format!("find out about kind {kind} of {at}")))?;
    let Some(resource) = found else { return Ok(None) };
    let refused = |fault: Fault| fault.complaint(&format!("get {resource}"));
    let target = path::object(&resource, resource.namespace(item.key.namespace.as_deref()), &item.key.name)
        .map_err(|bad| refused(bad.into()))?;
    let body: Value = match connection.call(Request::get(target)).await {
        Ok(body) => body,
        Err(fault) if fault.is(404) => return Ok(None),
        Err(fault) => return Err(refused(fault)),
    };
    let metadata = Metadata::deserialize(&body["metadata"]);
    let metadata = metadata.map_err(|error| refused(Fault::Unreadable(error)))?;
    Ok(Some(Whole { sighting: metadata.sighting(), body }))
}
