//! What differs between a manifest and the live object, field by field. Pure.
//!
//! Only what the manifest says is looked at: what others have put beside it is nobody's drift.

use serde_json::{Map, Value};

use super::fields::{FieldSet, Identity, escaped};
use super::quantity;

/// The most differences of one object that are listed.
pub const DIFFERENCES_LIMIT: usize = 256;
/// Fields of the object itself that its API sets, or that make it what it is.
const ROOT: [&str; 3] = ["apiVersion", "kind", "status"];
/// The same of its metadata.
const METADATA: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
];
/// What tells the items of lists apart in Kubernetes, for when nobody owns any of them.
const USUAL_KEYS: [&[&str]; 9] = [
    &["name"],
    &["containerPort", "protocol"],
    &["port", "protocol"],
    &["mountPath"],
    &["devicePath"],
    &["ip"],
    &["topologyKey", "whenUnsatisfiable"],
    &["type"],
    &["key"],
];

/// One field of a manifest that is not as it was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where it stands in the manifest: a JSON pointer.
    pub pointer: String,
    /// Whether it has another value, or is gone.
    pub value: Same,
    /// Whether it is still ours.
    pub owner: Same,
}

/// Whether something is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Same {
    /// It is.
    Yes,
    /// It is not.
    No,
}

impl Same {
    fn when(same: bool) -> Self {
        if same { Self::Yes } else { Self::No }
    }
}

/// The fields of a manifest that have another value in the live object, or are not ours any more.
///
/// `ours` is what we own of it, per version of its API.
#[must_use]
pub fn compare(manifest: &Value, live: &Value, ours: &[FieldSet]) -> Vec<Difference> {
    let mut walk = Walk { found: vec![] };
    let empty = Map::new();
    let (manifest, fields) = (manifest.as_object().unwrap_or(&empty), live.as_object().unwrap_or(&empty));
    for (name, value) in manifest.iter().filter(|(name, _)| !ROOT.contains(&name.as_str())) {
        let live = fields.get(name);
        let owned = Owned::field(&Owned::Sets(ours.iter().collect()), name);
        if name == "metadata" {
            let said = value.as_object().unwrap_or(&empty).iter();
            for (name, value) in said.filter(|(name, _)| !METADATA.contains(&name.as_str())) {
                let at = format!("/metadata/{}", escaped(name));
                walk.value(&at, value, live.and_then(|live| live.get(name)), &owned.field(name));
            }
        } else {
            walk.value(&format!("/{}", escaped(name)), value, live, &owned);
        }
    }
    walk.found
}

/// How much of what is below a place is ours.
#[derive(Debug, Clone)]
enum Owned<'a> {
    /// All of it.
    Whole,
    /// What these sets have, of which there is one at least.
    Sets(Vec<&'a FieldSet>),
    /// Nothing.
    Nothing,
}

impl<'a> Owned<'a> {
    fn of(sets: Vec<&'a FieldSet>) -> Self {
        match sets {
            sets if sets.is_empty() => Self::Nothing,
            sets if sets.iter().any(|set| set.is_whole()) => Self::Whole,
            sets => Self::Sets(sets),
        }
    }

    fn field(&self, name: &str) -> Self {
        match self {
            Self::Whole => Self::Whole,
            Self::Nothing => Self::Nothing,
            Self::Sets(sets) => Self::of(sets.iter().filter_map(|set| set.field(name)).collect()),
        }
    }

    fn item(&self, index: usize, item: &Value) -> (Option<Identity>, Self) {
        let Self::Sets(sets) = self else { return (None, self.clone()) };
        let found: Vec<_> = sets.iter().filter_map(|set| set.item(index, item)).collect();
        let identity = found.first().map(|(identity, _)| identity.clone());
        (identity, Self::of(found.into_iter().map(|(_, set)| set).collect()))
    }

    fn keys(&self) -> Option<Vec<String>> {
        let Self::Sets(sets) = self else { return None };
        sets.iter().find_map(|set| set.keys())
    }

    fn has_items(&self) -> bool {
        matches!(self, Self::Sets(sets) if sets.iter().any(|set| set.has_items()))
    }

    fn is_any(&self) -> bool {
        !matches!(self, Self::Nothing)
    }
}

struct Walk {
    found: Vec<Difference>,
}

impl Walk {
    fn value(&mut self, at: &str, said: &Value, live: Option<&Value>, owned: &Owned<'_>) {
        match (said, live) {
            // It is taken as if it were not there.
            (Value::Null, _) => {}
            (Value::Object(said), Some(Value::Object(live))) if !said.is_empty() => {
                for (name, value) in said {
                    let below = format!("{at}/{}", escaped(name));
                    self.value(&below, value, live.get(name), &owned.field(name));
                }
            }
            (Value::Array(said), Some(Value::Array(live))) if !said.is_empty() => {
                self.list(at, said, live, owned)
            }
            // The API drops what is empty, and fills it in.
            (Value::Object(said), _) if said.is_empty() => self.leaf(at, live.is_some(), owned),
            (Value::Array(said), live) if said.is_empty() => {
                let is_empty = live.and_then(Value::as_array).is_none_or(Vec::is_empty);
                self.leaf(at, is_empty, owned);
            }
            (said, live) => self.leaf(at, live.is_some_and(|live| equal(at, said, live)), owned),
        }
    }

    fn leaf(&mut self, at: &str, same: bool, owned: &Owned<'_>) {
        if (same && owned.is_any()) || self.found.len() >= DIFFERENCES_LIMIT {
            return;
        }
        let (value, owner) = (Same::when(same), Same::when(owned.is_any()));
        self.found.push(Difference { pointer: at.to_owned(), value, owner });
    }

    fn list(&mut self, at: &str, said: &[Value], live: &[Value], owned: &Owned<'_>) {
        let by_keys =
            owned.keys().or_else(|| (!matches!(owned, Owned::Whole)).then(|| usual_keys(said)).flatten());
        if by_keys.is_none() && !owned.has_items() && said.len() != live.len() {
            // A list that has one owner is one value.
            self.leaf(at, false, owned);
            return;
        }
        for (index, item) in said.iter().enumerate() {
            let (identity, below) = owned.item(index, item);
            let found = match (&identity, &by_keys) {
                (Some(identity), _) => identity.find(live),
                (None, Some(keys)) => live.iter().find(|live| shares(keys, item, live)),
                (None, None) if item.is_object() || !owned.has_items() => live.get(index),
                (None, None) => live.iter().find(|live| *live == item),
            };
            self.value(&format!("{at}/{index}"), item, found, &below);
        }
    }
}

/// Whether two items have the same values in these fields. What a manifest leaves out is filled in.
fn shares(keys: &[String], said: &Value, live: &Value) -> bool {
    let mut known = keys.iter().filter_map(|key| Some((key, said.get(key)?))).peekable();
    known.peek().is_some() && known.all(|(key, value)| live.get(key) == Some(value))
}

/// The fields that tell these items apart, as they usually do.
fn usual_keys(items: &[Value]) -> Option<Vec<String>> {
    let tell_apart = |keys: &&[&str]| {
        let (first, rest) = (keys[0], &keys[1..]);
        let mut seen = std::collections::BTreeSet::new();
        items.iter().all(|item| {
            let Some(value) = item.get(first) else { return false };
            let rest = rest.iter().map(|key| item.get(*key).map(ToString::to_string)).collect::<Vec<_>>();
            seen.insert((value.to_string(), rest))
        })
    };
    let keys = USUAL_KEYS.into_iter().find(tell_apart)?;
    Some(keys.iter().map(|key| (*key).to_owned()).collect())
}

/// Whether two values mean the same to the API at this place.
fn equal(at: &str, said: &Value, live: &Value) -> bool {
    if said == live {
        return true;
    }
    match (said, live) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Number(number), Value::String(text)) | (Value::String(text), Value::Number(number)) => {
            let number = number.to_string();
            number == *text || quantity::is_at(at) && same_amount(&number, text)
        }
        (Value::String(a), Value::String(b)) => quantity::is_at(at) && same_amount(a, b),
        (Value::Object(said), Value::Object(live)) => {
            said.iter().all(|(name, value)| live.get(name).is_some_and(|live| equal(at, value, live)))
        }
        _ => false,
    }
}

fn same_amount(a: &str, b: &str) -> bool {
    let a = quantity::read(a);
    a.is_some() && a == quantity::read(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(value: Value) -> FieldSet {
        serde_json::from_value(value).expect("a set of fields")
    }

    fn pointers(differences: &[Difference]) -> Vec<(&str, Same, Same)> {
        differences.iter().map(|found| (found.pointer.as_str(), found.value, found.owner)).collect()
    }

    fn deployment(replicas: u32, image: &str, cpu: &Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"farshore.dev/service": "web"}, "creationTimestamp": null},
            "spec": {"replicas": replicas, "strategy": {}, "template": {"spec": {"containers": [
                {"name": "web", "image": image, "ports": [{"containerPort": 80}], "args": ["a", "b"],
                 "resources": {"limits": {"cpu": cpu}}}]}}}, "status": {}})
    }

    fn ours() -> FieldSet {
        set(json!({"f:metadata": {"f:labels": {"f:farshore.dev/service": {}}},
            "f:spec": {"f:replicas": {}, "f:strategy": {}, "f:template": {"f:spec": {"f:containers": {
                "k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                    "f:resources": {"f:limits": {"f:cpu": {}}}}}}}}}))
    }

    /// The same with what an API server and others put beside it.
    fn lived(mut body: Value) -> Value {
        body["metadata"]["uid"] = "1".into();
        body["metadata"]["annotations"] = json!({"theirs": "1"});
        body["spec"]["strategy"] = json!({"type": "RollingUpdate"});
        let containers = &mut body["spec"]["template"]["spec"]["containers"];
        containers[0]["ports"][0]["protocol"] = "TCP".into();
        containers[0]["terminationMessagePath"] = "/dev/log".into();
        let sidecar = json!({"name": "sidecar", "image": "theirs"});
        containers.as_array_mut().expect("a list").insert(0, sidecar);
        body
    }

    #[test]
    fn what_the_api_and_others_put_beside_it_is_no_difference() {
        for (said, shown) in [(json!("1"), json!("1")), (json!(1), json!("1")), (json!("1000m"), json!("1"))]
        {
            let live = lived(deployment(2, "web:1", &shown));
            assert_eq!(compare(&deployment(2, "web:1", &said), &live, &[ours()]), []);
        }
    }

    #[test]
    fn a_field_that_somebody_took_over_is_named_whether_it_has_another_value_or_not() {
        let mut fields = ours();
        let said = deployment(2, "web:1", &json!("1"));
        let live = lived(deployment(7, "web:2", &json!("2")));
        let found = compare(&said, &live, std::slice::from_ref(&fields));
        let image = "/spec/template/spec/containers/0/image";
        let cpu = "/spec/template/spec/containers/0/resources/limits/cpu";
        assert_eq!(
            pointers(&found),
            [
                ("/spec/replicas", Same::No, Same::Yes),
                (image, Same::No, Same::Yes),
                (cpu, Same::No, Same::Yes)
            ]
        );
        fields = set(json!({"f:metadata": {"f:labels": {"f:farshore.dev/service": {}}}}));
        let found = compare(&said, &lived(said.clone()), &[fields]);
        assert!(found.iter().all(|found| found.value == Same::Yes && found.owner == Same::No), "{found:?}");
        assert!(
            found
                .iter()
                .any(|found| found.pointer == "/spec/template/spec/containers/0/ports/0/containerPort")
        );
    }

    #[test]
    fn what_is_gone_is_named_once() {
        let said = deployment(2, "web:1", &json!("1"));
        let mut live = lived(said.clone());
        live["spec"]["template"]["spec"]["containers"].as_array_mut().expect("a list").pop();
        live["metadata"]["labels"] = json!({});
        let fields = set(json!({"f:spec": {"f:replicas": {}, "f:strategy": {}}}));
        let found = compare(&said, &live, &[fields]);
        assert_eq!(
            pointers(&found),
            [
                ("/metadata/labels/farshore.dev~1service", Same::No, Same::No),
                ("/spec/template/spec/containers/0", Same::No, Same::No)
            ]
        );
    }

    #[test]
    fn a_list_with_one_owner_is_compared_in_its_order() {
        let fields = set(json!({"f:args": {}}));
        let said = json!({"args": ["a", "b"]});
        assert_eq!(compare(&said, &json!({"args": ["a", "b"]}), std::slice::from_ref(&fields)), []);
        let found = compare(&said, &json!({"args": ["b", "a"]}), std::slice::from_ref(&fields));
        assert_eq!(found.len(), 2);
        let found = compare(&said, &json!({"args": ["a"]}), &[fields]);
        assert_eq!(pointers(&found), [("/args", Same::No, Same::Yes)]);
    }

    #[test]
    fn values_of_a_set_are_found_wherever_they_stand() {
        let fields = set(json!({"f:finalizers": {"v:\"a\"": {}, "v:\"b\"": {}}}));
        let said = json!({"finalizers": ["a", "b"]});
        assert_eq!(
            compare(&said, &json!({"finalizers": ["x", "b", "a"]}), std::slice::from_ref(&fields)),
            []
        );
        let found = compare(&said, &json!({"finalizers": ["a"]}), &[fields]);
        assert_eq!(pointers(&found), [("/finalizers/1", Same::No, Same::Yes)]);
    }

    #[test]
    fn texts_that_look_like_amounts_stay_texts_where_no_amount_belongs() {
        let fields = set(json!({"f:data": {"f:a": {}}}));
        let found = compare(&json!({"data": {"a": "1000m"}}), &json!({"data": {"a": "1"}}), &[fields]);
        assert_eq!(pointers(&found), [("/data/a", Same::No, Same::Yes)]);
    }

    #[test]
    fn several_versions_of_the_api_may_share_what_we_own() {
        let sets = [set(json!({"f:data": {"f:a": {}}})), set(json!({"f:data": {"f:b": {}}}))];
        let body = json!({"data": {"a": "1", "b": "2"}});
        assert_eq!(compare(&body, &body, &sets), []);
    }

    #[test]
    fn a_thousand_differences_are_not_listed() {
        let data: Map<String, Value> = (0..1000).map(|n| (format!("k{n}"), "1".into())).collect();
        let found = compare(&json!({"data": data}), &json!({"data": {"x": "1"}}), &[]);
        assert_eq!(found.len(), DIFFERENCES_LIMIT);
    }
}
