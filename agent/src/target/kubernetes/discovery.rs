//! Which kinds the API serves, asked per group and version and only for what is needed: an API whose
//! backend is broken is noticed by its own objects and by nothing else.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

use super::connection::{Connection, Request};
use super::fault::Fault;
use super::metadata::null_is_empty;
use super::path;

/// One version of an API group; the core group's name is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupVersion {
    pub(super) group: String,
    pub(super) version: String,
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        f.write_str(&self.version)
    }
}

/// Where the objects of a kind live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Each in a namespace.
    Namespaced,
    /// In the cluster itself.
    Cluster,
}

/// What the API serves under a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    /// Where.
    pub(super) at: GroupVersion,
    /// Its name in an address: `deployments`.
    pub(super) plural: String,
    /// Where its objects live.
    pub(super) scope: Scope,
    /// What can be done with it.
    pub(super) verbs: Vec<String>,
}

impl Resource {
    /// Whether the API offers this verb.
    pub(super) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|offered| offered == verb)
    }

    /// The namespace of an address: none for a kind of the whole cluster.
    pub(super) fn namespace<'a>(&self, namespace: Option<&'a str>) -> Option<&'a str> {
        match self.scope {
            Scope::Namespaced => namespace,
            Scope::Cluster => None,
        }
    }
}

/// `deployments.apps`, as the API itself names a resource in its messages.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if !self.at.group.is_empty() {
            write!(f, ".{}", self.at.group)?;
        }
        Ok(())
    }
}

/// The kinds of one version of an API group.
pub(super) type Kinds = Arc<HashMap<String, Resource>>;

/// What was learnt so far. Only what was found is remembered.
#[derive(Clone)]
pub(super) struct Discovery {
    connection: Connection,
    known: Arc<Mutex<HashMap<GroupVersion, Kinds>>>,
}

impl Discovery {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, known: Arc::default() }
    }

    /// What the API serves under this kind and version; asked again when that is not known.
    pub(super) async fn resource(&self, at: &GroupVersion, kind: &str) -> Result<Option<Resource>, Fault> {
        if let Some(resource) = self.remembered(at).and_then(|kinds| kinds.get(kind).cloned()) {
            return Ok(Some(resource));
        }
        Ok(self.fetch(at).await?.and_then(|kinds| kinds.get(kind).cloned()))
    }

    /// The same, and if that version is not served any more, under whichever version is.
    pub(super) async fn resource_in_any_version(
        &self,
        at: &GroupVersion,
        kind: &str,
    ) -> Result<Option<Resource>, Fault> {
        if let Some(resource) = self.resource(at, kind).await? {
            return Ok(Some(resource));
        }
        for other in self.versions(&at.group).await? {
            if other == at.version {
                continue;
            }
            let other = GroupVersion { group: at.group.clone(), version: other };
            if let Some(resource) = self.resource(&other, kind).await? {
                return Ok(Some(resource));
            }
        }
        Ok(None)
    }

    /// What was learnt about this version earlier.
    pub(super) fn remembered(&self, at: &GroupVersion) -> Option<Kinds> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(at).cloned()
    }

    /// Asks the API for one version's kinds; none if it does not serve that version.
    pub(super) async fn fetch(&self, at: &GroupVersion) -> Result<Option<Kinds>, Fault> {
        let answer = self.connection.call::<ResourceList>(Request::get(path::version(at)?)).await;
        let kinds = match answer {
            Ok(list) => list.kinds(at),
            Err(fault) if fault.is(404) => {
                self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(at);
                return Ok(None);
            }
            Err(fault) => return Err(fault),
        };
        let kinds = Arc::new(kinds);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(at.clone(), Arc::clone(&kinds));
        Ok(Some(kinds))
    }

    /// Forgets a group: its kinds may have changed.
    pub(super) fn forget(&self, group: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).retain(|at, _| at.group != group);
    }

    /// The versions of a group, the API's preferred one first.
    async fn versions(&self, group: &str) -> Result<Vec<String>, Fault> {
        if group.is_empty() {
            return Ok(vec!["v1".to_owned()]);
        }
        match self.connection.call::<Group>(Request::get(path::group(group)?)).await {
            Ok(group) => Ok(group.in_order()),
            Err(fault) if fault.is(404) => Ok(vec![]),
            Err(fault) => Err(fault),
        }
    }
}

/// Kubernetes API reference, `APIGroup` v1.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    #[serde(default, deserialize_with = "null_is_empty")]
    versions: Vec<Version>,
    preferred_version: Option<Version>,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: String,
}

impl Group {
    fn in_order(self) -> Vec<String> {
        let mut versions: Vec<String> =
            self.preferred_version.into_iter().chain(self.versions).map(|version| version.version).collect();
        let mut seen = std::collections::HashSet::new();
        versions.retain(|version| seen.insert(version.clone()));
        versions
    }
}

/// Kubernetes API reference, `APIResourceList` v1.
#[derive(Debug, Deserialize)]
struct ResourceList {
    #[serde(default, deserialize_with = "null_is_empty")]
    resources: Vec<ListedResource>,
}

#[derive(Debug, Deserialize)]
struct ListedResource {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default, deserialize_with = "null_is_empty")]
    verbs: Vec<String>,
}

impl ResourceList {
    fn kinds(self, at: &GroupVersion) -> HashMap<String, Resource> {
        // A name with a slash is a part of another resource: `deployments/scale`.
        let whole = self.resources.into_iter().filter(|resource| !resource.name.contains('/'));
        whole
            .map(|listed| {
                let scope = if listed.namespaced { Scope::Namespaced } else { Scope::Cluster };
                (listed.kind, Resource { at: at.clone(), plural: listed.name, scope, verbs: listed.verbs })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_of_resources_names_each_kind_once() {
        let at = GroupVersion { group: "apps".into(), version: "v1".into() };
        let list: ResourceList = serde_json::from_value(json!({"groupVersion": "apps/v1", "resources": [
            {"name": "deployments", "kind": "Deployment", "namespaced": true, "verbs": ["get", "patch"]},
            {"name": "deployments/scale", "kind": "Scale", "namespaced": true, "group": "autoscaling"},
            {"name": "deployments/status", "kind": "Deployment", "namespaced": true}]}))
        .expect("a list");
        let kinds = list.kinds(&at);
        assert_eq!(kinds.len(), 1);
        let deployment = &kinds["Deployment"];
        assert!(deployment.can("patch") && !deployment.can("list"));
        assert_eq!(deployment.to_string(), "deployments.apps");
        assert_eq!(deployment.at.to_string(), "apps/v1");
    }

    #[test]
    fn the_preferred_version_of_a_group_comes_first() {
        let group: Group = serde_json::from_value(json!({
            "versions": [{"version": "v2beta1"}, {"version": "v1"}], "preferredVersion": {"version": "v1"}
        }))
        .expect("a group");
        assert_eq!(group.in_order(), ["v1", "v2beta1"]);
    }
}
