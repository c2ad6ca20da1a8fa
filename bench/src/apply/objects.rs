//! What is applied: objects of a service's namespace, as a person would write them.

use serde_json::{Value, json};

use crate::cluster::{self, object};

/// A kind: its version, its name, and its name in paths.
type Kind = (&'static str, &'static str, &'static str);

const CONFIG_MAP: Kind = ("v1", "ConfigMap", "configmaps");
const SECRET: Kind = ("v1", "Secret", "secrets");
const SERVICE: Kind = ("v1", "Service", "services");
const ACCOUNT: Kind = ("v1", "ServiceAccount", "serviceaccounts");
const DEPLOYMENT: Kind = ("apps/v1", "Deployment", "deployments");
const ROLE: Kind = ("rbac.authorization.k8s.io/v1", "Role", "roles");
const BINDING: Kind = ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings");
const POLICY: Kind = ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies");
const BUDGET: Kind = ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets");
const INGRESS: Kind = ("networking.k8s.io/v1", "Ingress", "ingresses");

/// One of each for an application, as charts have them.
const APPLICATION: [Kind; 10] =
    [CONFIG_MAP, SECRET, SERVICE, ACCOUNT, DEPLOYMENT, ROLE, BINDING, POLICY, BUDGET, INGRESS];

/// Which objects there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mix {
    /// `ConfigMap`s and nothing else.
    ConfigMaps,
    /// Applications of ten objects of ten kinds.
    Applications,
}

/// An object, and where it lies.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object {
    /// The path of its kind.
    pub(super) kind: String,
    /// Its own path.
    pub(super) path: String,
    /// Its manifest.
    pub(super) manifest: Value,
}

impl Mix {
    /// Its name, as it is printed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ConfigMaps => "ConfigMaps",
            Self::Applications => "applications of ten kinds",
        }
    }

    /// The paths of its kinds.
    pub(super) fn kinds(self) -> Vec<String> {
        let kinds: &[Kind] = match self {
            Self::ConfigMaps => &[CONFIG_MAP],
            Self::Applications => &APPLICATION,
        };
        kinds.iter().map(|(version, _kind, plural)| cluster::path(version, plural)).collect()
    }

    /// So many objects, whose values are these.
    pub(super) fn objects(self, count: usize, value: &str) -> Vec<Object> {
        (0..count)
            .map(|number| match self {
                Self::ConfigMaps => made(CONFIG_MAP, &object(number), value),
                Self::Applications => {
                    let kind = APPLICATION[number % APPLICATION.len()];
                    made(kind, &object(number / APPLICATION.len()), value)
                }
            })
            .collect()
    }
}

fn made(kind: Kind, name: &str, value: &str) -> Object {
    let (version, word, plural) = kind;
    let mut manifest = json!({
        "apiVersion": version,
        "kind": word,
        "metadata": { "name": name, "labels": { "app.kubernetes.io/name": name } },
    });
    if let (Some(manifest), Value::Object(more)) = (manifest.as_object_mut(), content(kind, name, value)) {
        manifest.extend(more);
    }
    let kind = cluster::path(version, plural);
    Object { path: format!("{kind}/{name}"), kind, manifest }
}

fn content(kind: Kind, name: &str, value: &str) -> Value {
    let labels = json!({ "app.kubernetes.io/name": name });
    let selector = json!({ "matchLabels": labels });
    match kind {
        CONFIG_MAP => json!({ "data": { "value": value } }),
        SECRET => json!({ "type": "Opaque", "stringData": { "value": value } }),
        SERVICE => json!({ "spec": {
            "selector": labels, "ports": [{ "name": "http", "port": 80, "targetPort": "http" }],
        } }),
        ACCOUNT => json!({ "automountServiceAccountToken": false }),
        DEPLOYMENT => json!({ "spec": {
            "replicas": 1,
            "selector": selector,
            "template": {
                "metadata": { "labels": labels },
                "spec": { "serviceAccountName": name, "containers": [container(name, value)] },
            },
        } }),
        ROLE => json!({ "rules": [
            { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"] },
        ] }),
        BINDING => json!({
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name }],
        }),
        POLICY => json!({ "spec": {
            "podSelector": selector,
            "policyTypes": ["Ingress"],
            "ingress": [{ "ports": [{ "port": 8080, "protocol": "TCP" }] }],
        } }),
        BUDGET => json!({ "spec": { "minAvailable": 1, "selector": selector } }),
        _ => json!({ "spec": { "rules": [{
            "host": format!("{name}.example"),
            "http": { "paths": [{
                "path": "/",
                "pathType": "Prefix",
                "backend": { "service": { "name": name, "port": { "name": "http" } } },
            }] },
        }] } }),
    }
}

fn container(name: &str, value: &str) -> Value {
    json!({
        "name": "app",
        "image": format!("registry.example/{name}:1.0"),
        "env": [{ "name": "VALUE", "value": value }],
        "ports": [{ "name": "http", "containerPort": 8080 }],
        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" }, "limits": { "memory": "64Mi" } },
        "readinessProbe": { "httpGet": { "path": "/healthz", "port": "http" } },
    })
}

/// The manifests as one YAML stream, which JSON documents are.
pub(super) fn text(objects: &[Object]) -> String {
    objects.iter().map(|object| format!("---\n{}\n", object.manifest)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_object_has_a_place_of_its_own_under_one_of_the_kinds() {
        for mix in [Mix::ConfigMaps, Mix::Applications] {
            let objects = mix.objects(100, "a");
            let paths: BTreeSet<&str> = objects.iter().map(|object| object.path.as_str()).collect();
            assert_eq!(paths.len(), 100);
            let kinds: BTreeSet<String> = objects.iter().map(|object| object.kind.clone()).collect();
            assert_eq!(kinds, mix.kinds().into_iter().collect());
        }
    }
}
