//! What would grant a right that the API refuses: one line of YAML for `kubectl apply -f -`, for exactly
//! the verb and the resource that were refused.
//!
//! Each grant is a role of its own, so that the next one does not take this one away.

use serde_json::{Value, json};

use crate::accounts::Account;

/// A right that was refused, as the API says it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused<'a> {
    user: &'a str,
    verb: &'a str,
    resource: &'a str,
    group: &'a str,
    /// None for the whole cluster.
    namespace: Option<&'a str>,
    /// The object, where the message begins with it.
    name: Option<&'a str>,
}

impl<'a> Refused<'a> {
    /// Reads the message of a `403` of the API's authorizer.
    ///
    /// `apiserver/pkg/endpoints/handlers/responsewriters`, `forbiddenMessage`, as Kubernetes 1.36 has it.
    pub(super) fn read(message: &'a str) -> Option<Self> {
        let (object, said) = message.split_once("User \"")?;
        let (user, said) = said.split_once("\" cannot ")?;
        let (verb, said) = said.split_once(" resource \"")?;
        let (resource, said) = said.split_once("\" in API group \"")?;
        let (group, said) = said.split_once('"')?;
        let place = said.strip_prefix(" in the namespace \"");
        let namespace = place.and_then(|place| place.split_once('"')).map(|(namespace, _)| namespace);
        let is_cluster = said.starts_with(" at the cluster scope");
        let word = |text: &str| !text.is_empty() && !text.contains([' ', '"']);
        if !word(verb) || !word(resource) || !(is_cluster || namespace.is_some()) {
            return None;
        }
        let name = object.split('"').nth(1).filter(|name| !name.is_empty());
        Some(Self { user, verb, resource, group, namespace, name })
    }

    /// YAML that grants it, in one line.
    pub(super) fn grant(&self) -> String {
        if self.group.is_empty()
            && self.resource == "serviceaccounts"
            && self.verb == "impersonate"
            && let (Some(namespace), Some(name)) = (self.namespace, self.name)
            && let Some(account) = Account::of_user(&format!("system:serviceaccount:{namespace}:{name}"))
        {
            return to_act_as(&account, self.user);
        }
        let whole = match self.group {
            "" => self.resource.to_owned(),
            group => format!("{}.{group}", self.resource),
        };
        let who = self.user.trim_start_matches("system:serviceaccount:").replace(':', "-");
        let name = format!("farshore:{who}:{}:{whole}", self.verb);
        let rule = json!({"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb]});
        list(&bound(&name, self.namespace, &rule, self.user))
    }
}

/// YAML that lets a user act as an account, and see that it is there.
///
/// A role in the account's own namespace that names it: a cluster-wide one would name the accounts of that
/// name in every namespace.
pub(super) fn to_act_as(account: &Account, user: &str) -> String {
    let rule = json!({"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [account.name()],
        "verbs": ["get", "impersonate"]});
    let name = format!("farshore:act-as:{}", account.name());
    list(&bound(&name, Some(account.namespace()), &rule, user))
}

/// YAML of an account.
pub(super) fn an_account(account: &Account) -> String {
    let metadata = json!({"name": account.name(), "namespace": account.namespace()});
    list(&[json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})])
}

const GROUP: &str = "rbac.authorization.k8s.io";

fn bound(name: &str, namespace: Option<&str>, rule: &Value, user: &str) -> [Value; 2] {
    let (role, binding) = match namespace {
        Some(_) => ("Role", "RoleBinding"),
        None => ("ClusterRole", "ClusterRoleBinding"),
    };
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    let version = format!("{GROUP}/v1");
    let subject = match Account::of_user(user) {
        Some(account) => {
            json!({"kind": "ServiceAccount", "name": account.name(), "namespace": account.namespace()})
        }
        None => json!({"kind": "User", "apiGroup": GROUP, "name": user}),
    };
    [
        json!({"apiVersion": version, "kind": role, "metadata": metadata, "rules": [rule]}),
        json!({"apiVersion": version, "kind": binding, "metadata": metadata, "subjects": [subject],
            "roleRef": {"apiGroup": GROUP, "kind": role, "name": name}}),
    ]
}

/// JSON is YAML, and stays in one line of a log.
fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = "system:serviceaccount:shop:deployer";

    fn granted(message: &str) -> Vec<Value> {
        let refused = Refused::read(message).expect("it is a refusal");
        let list: Value = serde_json::from_str(&refused.grant()).expect("JSON");
        list["items"].as_array().expect("a list").clone()
    }

    #[test]
    fn exactly_the_refused_verb_and_resource_are_granted_where_they_were_refused() {
        let message = format!(
            "deployments.apps \"web\" is forbidden: User \"{USER}\" cannot patch resource \"deployments\" in API group \"apps\" in the namespace \"shop\""
        );
        let [role, binding] = &granted(&message)[..] else { panic!("two objects") };
        assert_eq!(
            (role["kind"].as_str(), role["metadata"]["namespace"].as_str()),
            (Some("Role"), Some("shop"))
        );
        let rules = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["patch"]}]);
        assert_eq!(role["rules"], rules);
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        let subject = json!({"kind": "ServiceAccount", "name": "deployer", "namespace": "shop"});
        assert_eq!(binding["subjects"], json!([subject]));
        let other = granted(&message.replace("patch", "create"));
        assert_ne!(other[0]["metadata"]["name"], role["metadata"]["name"], "one does not replace the other");
    }

    #[test]
    fn what_belongs_to_the_cluster_is_granted_in_the_cluster() {
        let message = "namespaces is forbidden: User \"admin\" cannot list resource \"namespaces\" in API group \"\" at the cluster scope";
        let granted = granted(message);
        assert_eq!(granted[0]["kind"], "ClusterRole");
        assert_eq!(granted[1]["subjects"][0]["kind"], "User");
    }

    #[test]
    fn to_act_as_an_account_names_that_account_alone() {
        let message = "serviceaccounts \"deployer\" is forbidden: User \"system:serviceaccount:farshore:agent\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"shop\"";
        let granted = granted(message);
        let rules = json!([{"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["deployer"],
            "verbs": ["get", "impersonate"]}]);
        assert_eq!(granted[0]["rules"], rules);
        assert_eq!(
            (&granted[0]["kind"], &granted[0]["metadata"]["namespace"]),
            (&json!("Role"), &json!("shop"))
        );
    }

    #[test]
    fn what_is_no_missing_right_has_no_grant() {
        for message in [
            "User \"a\" cannot patch resource \"configmaps\"",
            "admission webhook \"a\" denied the request",
            "User \"a\" cannot get path \"/readyz\"",
            "pods \"a\" is forbidden: exceeded quota: q",
            "",
        ] {
            assert_eq!(Refused::read(message), None, "{message}");
        }
    }
}
