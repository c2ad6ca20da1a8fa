//! What counts as progress of an object that is waited for. Pure.
//!
//! Two looks with equal [`signature`]s show no progress. Texts for people, times and restart counts are
//! left out: they change in an object that goes nowhere.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use super::{conditions, number, word};

/// Parts of the names of counters by which a controller tells how far it is.
const COUNTERS: [&str; 9] = [
    "replicas",
    "ready",
    "available",
    "scheduled",
    "succeeded",
    "failed",
    "active",
    "completed",
    "observedgeneration",
];

/// What of an object changes when it makes progress: which life it is, its generation, its phase, its
/// counts, its conditions, and the states of a Pod's containers.
#[must_use]
pub fn signature(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    word(object, "/metadata/uid").hash(&mut hasher);
    number(object, "/metadata/generation").hash(&mut hasher);
    word(object, "/status/phase").hash(&mut hasher);
    for (name, count) in counts(object) {
        (name, count).hash(&mut hasher);
    }
    let mut said: Vec<_> = conditions(object).map(|c| (c.kind, c.status, c.reason)).collect();
    said.sort_unstable();
    said.hash(&mut hasher);
    for container in containers(object) {
        container.hash(&mut hasher);
    }
    hasher.finish()
}

/// Objects have their fields in order, so that equal objects give equal signatures.
fn counts(object: &Value) -> impl Iterator<Item = (&str, i64)> {
    let fields = object.get("status").and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(name, value)| {
        let lower = name.to_ascii_lowercase();
        let counts = COUNTERS.iter().any(|counter| lower.contains(counter));
        Some((name.as_str(), value.as_i64().filter(|_| counts)?))
    })
}

/// Whether each container is ready, and what it is doing.
fn containers(object: &Value) -> impl Iterator<Item = (bool, &str, &str)> {
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let each = lists.into_iter().filter_map(|list| object.pointer(list)?.as_array()).flatten();
    each.map(|container| {
        let ready = container.get("ready").and_then(Value::as_bool).unwrap_or_default();
        let state = container.get("state").and_then(Value::as_object).and_then(|state| state.keys().next());
        (ready, state.map_or("", String::as_str), word(container, "/state/waiting/reason"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rollout(ready: i64, message: &str, restarts: i64) -> Value {
        json!({"metadata": {"uid": "1", "generation": 2, "resourceVersion": "7"},
            "status": {"readyReplicas": ready, "restartCount": restarts, "lastSeen": restarts,
                "conditions": [{"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": message}]}})
    }

    #[test]
    fn counts_conditions_and_lives_are_progress_and_texts_and_clocks_are_not() {
        let before = signature(&rollout(1, "one", 1));
        assert_eq!(before, signature(&rollout(1, "another text", 9)));
        assert_ne!(before, signature(&rollout(2, "one", 1)));
        for (pointer, value) in [
            ("/metadata/uid", json!("2")),
            ("/metadata/generation", json!(3)),
            ("/status/conditions/0/status", json!("False")),
            ("/status/conditions/0/reason", json!("NewReplicaSetAvailable")),
        ] {
            let mut object = rollout(1, "one", 1);
            *object.pointer_mut(pointer).expect("a field of it") = value;
            assert_ne!(before, signature(&object), "{pointer}");
        }
    }

    #[test]
    fn a_containers_state_is_progress_and_its_restarts_are_not() {
        let pod = |reason: &str, restarts: i64| {
            json!({"status": {"phase": "Running", "containerStatuses": [
                {"name": "web", "ready": false, "restartCount": restarts, "state": {"waiting": {"reason": reason}}}]}})
        };
        assert_eq!(signature(&pod("CrashLoopBackOff", 1)), signature(&pod("CrashLoopBackOff", 5)));
        assert_ne!(signature(&pod("CrashLoopBackOff", 1)), signature(&pod("ImagePullBackOff", 1)));
    }

    #[test]
    fn odd_objects_have_signatures() {
        for odd in [json!(null), json!([]), json!({"status": []}), json!({"status": {"conditions": {}}})] {
            assert_eq!(signature(&odd), signature(&odd));
        }
    }
}
