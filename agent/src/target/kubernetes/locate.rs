//! Puts manifests in their places: whether a kind lives in a namespace is the API's word, or that of
//! a definition that comes along with the manifests.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::StreamExt as _;
use serde_json::Value;

use super::discovery::{Discovery, GroupVersion, Resource, Scope};
use super::fault::{Complaint, Fault};
use super::secret;
use crate::object::Manifest;
use crate::target::ObjectError;

/// How many API groups are asked for at a time.
const CONCURRENT_GROUPS: usize = 8;
/// Where objects of namespaced kinds go that name no namespace, if the service names none either.
const DEFAULT_NAMESPACE: &str = "default";

/// One answer per manifest, in order.
pub(super) async fn locate(
    discovery: &Discovery,
    manifests: Vec<Manifest>,
    default_namespace: Option<&str>,
) -> Vec<Result<Manifest, ObjectError>> {
    let definitions = Definitions::among(&manifests);
    let mut wanted: BTreeMap<GroupVersion, BTreeSet<String>> = BTreeMap::new();
    for manifest in &manifests {
        wanted.entry(group_version(manifest)).or_default().insert(manifest.key.kind.clone());
    }
    let questions: Vec<_> =
        wanted.into_iter().map(|(at, kinds)| scopes(discovery, &definitions, at, kinds)).collect();
    let answers: HashMap<(GroupVersion, String), Result<Scope, Complaint>> = futures::stream::iter(questions)
        .buffer_unordered(CONCURRENT_GROUPS)
        .flat_map(futures::stream::iter)
        .collect()
        .await;
    let namespace = default_namespace.unwrap_or(DEFAULT_NAMESPACE);
    let mut located = Vec::with_capacity(manifests.len());
    for manifest in manifests {
        let scope = answers.get(&(group_version(&manifest), manifest.key.kind.clone()));
        located.push(match scope.expect("every manifest's kind was asked for").clone() {
            Ok(scope) => Ok(in_place(manifest, scope, namespace)),
            Err(complaint) => Err(complaint.about(&manifest.key)),
        });
    }
    located
}

/// The group and version of a manifest.
pub(super) fn group_version(manifest: &Manifest) -> GroupVersion {
    GroupVersion { group: manifest.key.group.clone(), version: manifest.version.clone() }
}

/// What to say of a kind that nobody knows.
pub(super) fn unknown_kind(kind: &str, at: &GroupVersion) -> Complaint {
    let missing = if at.group.is_empty() {
        "this cluster has no such API"
    } else {
        "a CustomResourceDefinition or an API is missing"
    };
    Complaint::worthwhile(format!("kind {kind} of {at} is not known here: {missing}"))
}

fn in_place(mut manifest: Manifest, scope: Scope, default_namespace: &str) -> Manifest {
    match (scope, &manifest.key.namespace) {
        (Scope::Namespaced, Some(_)) => {}
        (Scope::Namespaced, None) => manifest.set_namespace(Some(default_namespace)),
        (Scope::Cluster, _) => manifest.set_namespace(None),
    }
    secret::settle(&mut manifest);
    manifest
}

type Answer = ((GroupVersion, String), Result<Scope, Complaint>);

/// The scopes of all kinds of one version, for one request at most.
async fn scopes(
    discovery: &Discovery,
    definitions: &Definitions,
    at: GroupVersion,
    kinds: BTreeSet<String>,
) -> Vec<Answer> {
    let remembered =
        discovery.remembered(&at).filter(|known| kinds.iter().all(|kind| known.contains_key(kind)));
    let served = match remembered {
        Some(known) => Ok(Some(known)),
        None => discovery.fetch(&at).await,
    };
    let answer = |kind: String| {
        let resource = match &served {
            Ok(kinds) => Ok(kinds.as_ref().and_then(|kinds| kinds.get(&kind))),
            Err(fault) => Err(fault),
        };
        let scope = scope(resource, definitions, &at, &kind);
        ((at.clone(), kind), scope)
    };
    kinds.into_iter().map(answer).collect()
}

fn scope(
    served: Result<Option<&Resource>, &Fault>,
    definitions: &Definitions,
    at: &GroupVersion,
    kind: &str,
) -> Result<Scope, Complaint> {
    match (served, definitions.get(&at.group, kind)) {
        (Ok(Some(resource)), _) if resource.can("patch") => Ok(resource.scope),
        (Ok(Some(_)), _) => Err(Complaint::pointless(format!(
            "objects of kind {kind} of {at} cannot be kept: they are answers, not state"
        ))),
        (_, Some(definition)) if definition.versions.contains(&at.version) => Ok(definition.scope),
        (Ok(None), Some(definition)) => Err(Complaint::pointless(format!(
            "kind {kind} has no version {} (its CustomResourceDefinition has {})",
            at.version,
            definition.versions.join(", ")
        ))),
        (Ok(None), None) => Err(unknown_kind(kind, at)),
        (Err(fault), _) => Err(fault.complaint(&format!("find out about kind {kind} of {at}"))),
    }
}

/// What the `CustomResourceDefinition`s among the manifests define.
struct Definitions(HashMap<(String, String), Definition>);

struct Definition {
    versions: Vec<String>,
    scope: Scope,
}

impl Definitions {
    fn among(manifests: &[Manifest]) -> Self {
        let definitions = manifests.iter().filter(|manifest| {
            manifest.key.kind == "CustomResourceDefinition" && manifest.key.group == "apiextensions.k8s.io"
        });
        Self(definitions.filter_map(|manifest| Self::read(&manifest.body)).collect())
    }

    /// A definition that cannot be read defines nothing here: the API will say what is wrong with it.
    fn read(body: &Value) -> Option<((String, String), Definition)> {
        let text = |pointer: &str| body.pointer(pointer)?.as_str().map(ToOwned::to_owned);
        let versions = body.pointer("/spec/versions")?.as_array()?.iter();
        let served = versions.filter(|version| version.get("served").and_then(Value::as_bool) != Some(false));
        let versions =
            served.filter_map(|version| version.get("name")?.as_str().map(ToOwned::to_owned)).collect();
        let scope = match body.pointer("/spec/scope")?.as_str()? {
            "Namespaced" => Scope::Namespaced,
            "Cluster" => Scope::Cluster,
            _ => return None,
        };
        Some(((text("/spec/group")?, text("/spec/names/kind")?), Definition { versions, scope }))
    }

    fn get(&self, group: &str, kind: &str) -> Option<&Definition> {
        self.0.get(&(group.to_owned(), kind.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Retry;
    use serde_json::json;

    fn manifest(body: Value) -> Manifest {
        Manifest::read(body, "test".into()).expect("a whole manifest")
    }

    fn definitions() -> Definitions {
        Definitions::among(&[manifest(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "tills.shop.example"},
            "spec": {"group": "shop.example", "scope": "Cluster", "names": {"kind": "Till", "plural": "tills"},
                     "versions": [{"name": "v1", "served": true}, {"name": "v1alpha1", "served": false}]}
        }))])
    }

    fn at(group: &str, version: &str) -> GroupVersion {
        GroupVersion { group: group.into(), version: version.into() }
    }

    #[test]
    fn a_kind_that_is_defined_alongside_has_the_scope_of_its_definition() {
        let found = scope(Ok(None), &definitions(), &at("shop.example", "v1"), "Till");
        assert_eq!(found, Ok(Scope::Cluster));
        let broken = Fault::Slow(std::time::Duration::from_secs(1));
        assert_eq!(
            scope(Err(&broken), &definitions(), &at("shop.example", "v1"), "Till"),
            Ok(Scope::Cluster)
        );
    }

    #[test]
    fn a_version_that_the_definition_does_not_serve_is_refused() {
        let refused =
            scope(Ok(None), &definitions(), &at("shop.example", "v1alpha1"), "Till").expect_err("not served");
        assert_eq!(
            refused.message,
            "kind Till has no version v1alpha1 (its CustomResourceDefinition has v1)"
        );
        assert_eq!(refused.retry, Retry::Pointless);
    }

    #[test]
    fn an_unknown_kind_says_what_is_missing() {
        let unknown =
            scope(Ok(None), &definitions(), &at("shop.example", "v1"), "Shelf").expect_err("unknown");
        assert_eq!(
            unknown.message,
            "kind Shelf of shop.example/v1 is not known here: a CustomResourceDefinition or an API is missing"
        );
    }

    #[test]
    fn what_the_api_serves_wins_over_a_definition() {
        let served = Resource {
            at: at("shop.example", "v1"),
            plural: "tills".into(),
            scope: Scope::Namespaced,
            verbs: vec!["patch".into()],
        };
        let found = scope(Ok(Some(&served)), &definitions(), &served.at, "Till");
        assert_eq!(found, Ok(Scope::Namespaced));
        let answer = Resource { verbs: vec!["create".into()], ..served };
        assert!(scope(Ok(Some(&answer)), &definitions(), &answer.at, "Till").is_err());
    }

    #[test]
    fn namespaces_are_filled_in_and_taken_away() {
        let body = |metadata: Value| json!({"apiVersion": "v1", "kind": "A", "metadata": metadata});
        let bare = || manifest(body(json!({"name": "a"})));
        let placed = || manifest(body(json!({"name": "a", "namespace": "shop"})));
        let namespace = |manifest: Manifest, scope| {
            let manifest = in_place(manifest, scope, "fallback");
            assert_eq!(manifest.body["metadata"]["namespace"].as_str(), manifest.key.namespace.as_deref());
            manifest.key.namespace
        };
        assert_eq!(namespace(bare(), Scope::Namespaced).as_deref(), Some("fallback"));
        assert_eq!(namespace(placed(), Scope::Namespaced).as_deref(), Some("shop"));
        assert_eq!(namespace(placed(), Scope::Cluster), None);
    }
}
