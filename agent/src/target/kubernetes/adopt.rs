//! Taking an object over from whoever applied it before: its fields become ours, with the values that they
//! have, so that what is left out later goes.
//!
//! The entries of the other managers in `metadata.managedFields` become one of ours, by a JSON patch that
//! holds only for the version of the object that was read. Kubernetes documentation, "Server-Side Apply",
//! "Upgrading from client-side apply to server-side apply"; client-go, `util/csaupgrade`. Nothing else of the
//! object changes, so nothing restarts.

use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::{Connection, Request};
use super::discovery::Resource;
use super::fault::{Complaint, Fault};
use super::{fields, path};
use crate::object::{FIELD_MANAGER, Manifest};
use crate::target::{Effect, Taken};

/// Who applies whole objects: the managers of kubectl, Helm, Argo CD and Flux, and the one that stands for
/// everything from before the first apply. Whoever edits or scales is none of them.
const MANAGERS: [&str; 11] = [
    "kubectl-client-side-apply",
    "kubectl",
    "kubectl-create",
    "kubectl-replace",
    "helm",
    "Helm",
    "argocd-controller",
    "argocd-application-controller",
    "kustomize-controller",
    "helm-controller",
    "before-first-apply",
];
/// How often an object is read again that somebody changed meanwhile.
const TRIES: usize = 5;

/// Whether an object is taken over from this manager.
pub(super) fn is_adoptable(manager: &str) -> bool {
    MANAGERS.contains(&manager)
}

#[derive(Deserialize)]
struct Object {
    metadata: Owners,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owners {
    resource_version: String,
    #[serde(default)]
    managed_fields: Option<Vec<Value>>,
}

/// Takes an object over, if it is there and somebody else has applied it.
pub(super) async fn adopt(
    connection: &Connection,
    resource: &Resource,
    manifest: &Manifest,
    effect: Effect,
) -> Result<Vec<Taken>, Complaint> {
    let key = &manifest.key;
    let target = path::object(resource, resource.namespace(key.namespace.as_deref()), &key.name)
        .map_err(|bad| Complaint::pointless(bad.to_string()))?;
    let mut tries = 0;
    loop {
        let read = connection.call::<Object>(Request::get_metadata(target.clone())).await;
        let owners = match read {
            Ok(object) => object.metadata,
            Err(fault) if fault.is(404) => return Ok(vec![]),
            Err(fault) => return Err(fault.complaint(&format!("get {resource}"))),
        };
        let at = manifest.api_version();
        let Some((entries, taken)) = succeed(owners.managed_fields.unwrap_or_default(), &at) else {
            return Ok(vec![]);
        };
        match rewrite(connection, &target, &owners.resource_version, entries, effect).await {
            Ok(()) => return Ok(taken),
            Err(fault) if fault.is(409) && tries < TRIES => tries += 1,
            Err(fault) => return Err(fault.complaint(&format!("take over {resource}"))),
        }
    }
}

async fn rewrite(
    connection: &Connection,
    target: &str,
    version: &str,
    entries: Vec<Value>,
    effect: Effect,
) -> Result<(), Fault> {
    let patch = json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]);
    let body = serde_json::to_vec(&patch).expect("a JSON value has string keys only");
    let rehearsed = if effect == Effect::Rehearsed { "&dryRun=All" } else { "" };
    let target = format!("{target}?fieldManager={FIELD_MANAGER}{rehearsed}");
    connection.raw(Request::json_patch(target, body)).await.map(|_| ())
}

/// The entries with ours in the place of theirs; none when nobody is to be succeeded.
///
/// Fields of another version of the API cannot be put beside those of this one: as in `csaupgrade`, such an
/// entry goes, and its fields are nobody's.
fn succeed(entries: Vec<Value>, api_version: &str) -> Option<(Vec<Value>, Vec<Taken>)> {
    let text = |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let whole = |entry: &Value| text(entry, "subresource").is_empty();
    let is_theirs = |entry: &Value| whole(entry) && is_adoptable(&text(entry, "manager"));
    let is_ours = |entry: &Value| {
        whole(entry) && text(entry, "manager") == FIELD_MANAGER && text(entry, "operation") == "Apply"
    };
    let (theirs, mut kept): (Vec<Value>, Vec<Value>) = entries.into_iter().partition(is_theirs);
    if theirs.is_empty() {
        return None;
    }
    let mut ours = kept.iter().position(is_ours).map_or_else(
        || {
            json!({"manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": api_version,
                "fieldsType": "FieldsV1", "fieldsV1": {}})
        },
        |at| kept.remove(at),
    );
    let version = text(&ours, "apiVersion");
    let mut taken = Vec::new();
    for entry in theirs {
        let set = entry.get("fieldsV1").cloned().unwrap_or_default();
        taken.push(Taken { manager: text(&entry, "manager"), fields: fields::count(&set) });
        if text(&entry, "apiVersion") == version {
            fields::unite(&mut ours["fieldsV1"], &set);
        }
    }
    kept.push(ours);
    Some((kept, taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, set: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1", "fieldsV1": set, "time": "2026-11-21T09:00:00Z"})
    }

    #[test]
    fn who_applied_before_is_succeeded_and_whoever_else_writes_is_left() {
        let mut status = entry("kubectl", "Update", &json!({"f:status": {}}));
        status["subresource"] = "status".into();
        let edited = entry("kubectl-edit", "Update", &json!({"f:spec": {"f:x": {}}}));
        let entries = vec![
            entry("helm", "Update", &json!({"f:spec": {"f:a": {}}})),
            entry("kubectl", "Apply", &json!({"f:spec": {"f:b": {}}})),
            edited.clone(),
            status.clone(),
        ];
        let (entries, taken) = succeed(entries, "apps/v1").expect("two are succeeded");
        let told = |manager: &str| Taken { manager: manager.into(), fields: 1 };
        assert_eq!(taken, [told("helm"), told("kubectl")]);
        let [first, second, ours] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!((first, second), (&edited, &status));
        assert_eq!(ours["fieldsV1"], json!({"f:spec": {"f:a": {}, "f:b": {}}}));
        assert_eq!((&ours["manager"], &ours["operation"]), (&json!("farshore"), &json!("Apply")));
        assert_eq!(succeed(entries, "apps/v1"), None, "there is nothing left to take");
    }

    #[test]
    fn what_we_own_already_stays_ours() {
        let entries = vec![
            entry("farshore", "Apply", &json!({"f:data": {"f:a": {}}})),
            entry("kustomize-controller", "Apply", &json!({"f:data": {"f:a": {}, "f:b": {}}})),
        ];
        let (entries, _) = succeed(entries, "apps/v1").expect("one is succeeded");
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0]["fieldsV1"], json!({"f:data": {"f:a": {}, "f:b": {}}}));
    }

    #[test]
    fn fields_of_another_version_become_nobody_s() {
        let mut old = entry("helm", "Update", &json!({"f:old": {}}));
        old["apiVersion"] = "apps/v1beta1".into();
        let (entries, taken) = succeed(vec![old], "apps/v1").expect("it is succeeded");
        assert_eq!((entries[0]["fieldsV1"].clone(), taken.len()), (json!({}), 1));
    }
}
