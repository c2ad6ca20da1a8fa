//! Addresses within the Kubernetes API. Names come from documents: none of them may leave its place
//! in a path or a query.

use std::fmt::Write as _;

use super::discovery::{GroupVersion, Resource};

/// Why an object has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part} cannot be part of an address in the API (got {text:?})")]
pub(super) struct BadSegment {
    part: &'static str,
    text: String,
}

/// The address of a version of an API: `/api/v1`, `/apis/apps/v1`.
pub(super) fn version(at: &GroupVersion) -> Result<String, BadSegment> {
    let version = segment("the version of the API", &at.version)?;
    if at.group.is_empty() {
        return Ok(format!("/api/{version}"));
    }
    Ok(format!("{}/{version}", group(&at.group)?))
}

/// The address of an API group: `/apis/apps`. The core group has none.
pub(super) fn group(group: &str) -> Result<String, BadSegment> {
    Ok(format!("/apis/{}", segment("the API group", group)?))
}

/// The address of all objects of a resource, in one namespace or everywhere.
pub(super) fn collection(resource: &Resource, namespace: Option<&str>) -> Result<String, BadSegment> {
    let mut path = version(&resource.at)?;
    if let Some(namespace) = namespace {
        let namespace = segment("the namespace", namespace)?;
        write!(path, "/namespaces/{namespace}").expect("a string takes whatever is written");
    }
    let plural = segment("the resource", &resource.plural)?;
    write!(path, "/{plural}").expect("a string takes whatever is written");
    Ok(path)
}

/// The address of one object.
pub(super) fn object(resource: &Resource, namespace: Option<&str>, name: &str) -> Result<String, BadSegment> {
    Ok(format!("{}/{}", collection(resource, namespace)?, segment("the name", name)?))
}

/// A text as the value of a query parameter.
pub(super) fn query(text: &str) -> String {
    encode(text)
}

/// The rule of Kubernetes' `IsValidPathSegmentName`; whatever else a URL gives a meaning is encoded.
fn segment(part: &'static str, text: &str) -> Result<String, BadSegment> {
    if text.is_empty() || text == "." || text == ".." || text.contains(['/', '%']) {
        return Err(BadSegment { part, text: text.chars().take(100).collect() });
    }
    Ok(encode(text))
}

/// RFC 3986 section 2.1, with the unreserved characters of section 2.3 and the colon left as they are.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                encoded.push(char::from(byte));
            }
            other => write!(encoded, "%{other:02X}").expect("a string takes whatever is written"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::super::discovery::Scope;
    use super::*;

    fn resource(group: &str, plural: &str) -> Resource {
        let at = GroupVersion { group: group.into(), version: "v1".into() };
        Resource { at, plural: plural.into(), scope: Scope::Namespaced, verbs: vec![] }
    }

    #[test]
    fn every_kind_of_object_has_its_address() {
        let address =
            |group, plural, namespace, name| object(&resource(group, plural), namespace, name).expect("fine");
        assert_eq!(address("", "pods", Some("shop"), "web"), "/api/v1/namespaces/shop/pods/web");
        assert_eq!(address("", "namespaces", None, "shop"), "/api/v1/namespaces/shop");
        assert_eq!(
            address("rbac.authorization.k8s.io", "clusterroles", None, "system:a b"),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%20b"
        );
    }

    #[test]
    fn no_name_leaves_its_place() {
        for name in ["", ".", "..", "a/../b", "a%2Fb"] {
            let refused =
                object(&resource("apps", "deployments"), Some("shop"), name).expect_err("not a segment");
            assert!(refused.to_string().starts_with("the name cannot be part of an address"), "{refused}");
            assert!(collection(&resource("apps", "deployments"), Some(name)).is_err());
            assert!(version(&GroupVersion { group: "apps".into(), version: name.into() }).is_err());
        }
        let odd = object(&resource("", "pods"), Some("shop"), "a?b#c&d").expect("encoded");
        assert_eq!(odd, "/api/v1/namespaces/shop/pods/a%3Fb%23c%26d");
        assert_eq!(query("farshore.dev/service=web"), "farshore.dev%2Fservice%3Dweb");
    }
}
