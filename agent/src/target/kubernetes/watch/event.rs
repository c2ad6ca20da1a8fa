//! One line of a watch. Pure.
//!
//! Kubernetes API concepts, "Efficient detection of changes"; API reference, `WatchEvent` v1.

use serde::Deserialize;

use super::super::metadata::{Metadata, null_is_empty};
use crate::object::ObjectKey;
use crate::target::{Change, Kind};

/// What a line says.
#[derive(Debug)]
pub(super) enum Said {
    /// An object changed; and the version from which the watch goes on after it.
    Change(Change, String),
    /// Nothing happened up to this version.
    Bookmark(String),
    /// The version from which the watch goes on is too old: what happened since is not known.
    Expired,
    /// The API ends the watch, and says why.
    Failed(String),
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    event: String,
    object: Object,
}

/// An object's metadata, or a `Status`.
#[derive(Deserialize)]
struct Object {
    #[serde(default, deserialize_with = "null_is_empty")]
    metadata: Metadata,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// Reads a line of a watch of this kind.
pub(super) fn read(line: &[u8], kind: &Kind) -> Result<Said, serde_json::Error> {
    let Line { event, object } = serde_json::from_slice(line)?;
    let Object { metadata, code, reason, message } = object;
    let version = metadata.resource_version.clone();
    Ok(match event.as_str() {
        "ADDED" | "MODIFIED" => {
            let key = key(&metadata, kind);
            Said::Change(Change::Seen { key, sighting: metadata.sighting() }, version)
        }
        "DELETED" => {
            let (key, stamp) = (key(&metadata, kind), metadata.stamp());
            Said::Change(Change::Lost { key, version: stamp.version }, version)
        }
        "BOOKMARK" => Said::Bookmark(version),
        _ if code == 410 || reason == "Expired" || reason == "Gone" => Said::Expired,
        _ => Said::Failed(format!("the API ended the watch ({event}, {code}): {message}")),
    })
}

fn key(metadata: &Metadata, kind: &Kind) -> ObjectKey {
    let Kind { group, kind, .. } = kind.clone();
    ObjectKey { group, kind, namespace: metadata.namespace.clone(), name: metadata.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn said(line: &Value) -> Said {
        let kind = Kind { group: String::new(), version: "v1".into(), kind: "ConfigMap".into() };
        read(line.to_string().as_bytes(), &kind).expect("a line")
    }

    fn object() -> Value {
        json!({"kind": "PartialObjectMetadata", "metadata": {"name": "a", "namespace": "shop", "uid": "1",
            "resourceVersion": "17", "managedFields": null}})
    }

    #[test]
    fn a_line_tells_of_a_change_or_of_none() {
        let Said::Change(Change::Seen { key, sighting }, version) =
            said(&json!({"type": "MODIFIED", "object": object()}))
        else {
            panic!("an object was seen")
        };
        assert_eq!(
            (key.to_string().as_str(), sighting.stamp.version, version.as_str()),
            ("ConfigMap shop/a", 17, "17")
        );
        let lost = said(&json!({"type": "DELETED", "object": object()}));
        assert!(matches!(lost, Said::Change(Change::Lost { version: 17, .. }, _)), "{lost:?}");
        let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "20", "creationTimestamp": null}}});
        assert!(matches!(said(&bookmark), Said::Bookmark(version) if version == "20"));
    }

    #[test]
    fn a_version_that_is_too_old_is_told_apart_from_other_ends() {
        let error = |code: u16, reason: &str| {
            said(
                &json!({"type": "ERROR", "object": {"kind": "Status", "metadata": {}, "code": code, "reason": reason,
                "message": "too old resource version: 1 (7)"}}),
            )
        };
        assert!(matches!(error(410, "Expired"), Said::Expired));
        assert!(matches!(error(410, ""), Said::Expired));
        let Said::Failed(why) = error(500, "InternalError") else { panic!("it failed") };
        assert!(why.contains("500") && why.contains("too old"), "{why}");
    }

    #[test]
    fn what_is_no_event_is_an_error() {
        let kind = Kind { group: String::new(), version: "v1".into(), kind: "ConfigMap".into() };
        for line in ["", "{", "<html>", "{\"type\": \"ADDED\"}", "{\"type\": 1, \"object\": {}}"] {
            assert!(read(line.as_bytes(), &kind).is_err(), "{line}");
        }
    }
}
