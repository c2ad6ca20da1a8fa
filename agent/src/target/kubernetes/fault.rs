//! What can go wrong with a request to the API, and how a person is told.

use std::error::Error;
use std::time::Duration;

use kube::core::Status;

use super::grant::Refused;
use super::path::BadSegment;
use crate::object::ObjectKey;
use crate::target::{ObjectError, Retry};

/// The most of a server's message that is passed on, in bytes: a refused definition can have thousands of causes.
const MESSAGE_LIMIT: usize = 2048;
/// The most causes of one refusal that are passed on.
const CAUSES_LIMIT: usize = 8;

/// How a request ended without a usable answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The API said no.
    #[error("refused by the API ({}): {}", .0.code, .0.message)]
    Refused(Box<Status>),
    /// The request was not answered, or could not be sent: no connection, no credentials.
    #[error("cannot reach the API")]
    Silent(#[source] Box<kube::Error>),
    /// There was no whole answer in time.
    #[error("no answer from the API within {0:?}")]
    Slow(Duration),
    /// The answer ended early, or was larger than it may be.
    #[error("cannot receive the API's answer")]
    Cut(#[source] Box<dyn Error + Send + Sync>),
    /// The answer was not what the request asks for.
    #[error("cannot read the API's answer")]
    Unreadable(#[source] serde_json::Error),
    /// The answer has more pages than anything can have.
    #[error("the API's list has no end (more than {pages} pages)")]
    Endless {
        /// How many were read.
        pages: usize,
    },
    /// There is no such address.
    #[error(transparent)]
    Address(#[from] BadSegment),
}

/// A fault in words, before it is said of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Complaint {
    /// In lower case, without the object.
    pub(super) message: String,
    /// Whether the same call may succeed at another time.
    pub(super) retry: Retry,
}

impl Complaint {
    /// A complaint that time may cure.
    pub(super) fn worthwhile(message: impl Into<String>) -> Self {
        Self { message: message.into(), retry: Retry::Worthwhile }
    }

    /// A complaint that needs somebody to change something.
    pub(super) fn pointless(message: impl Into<String>) -> Self {
        Self { message: message.into(), retry: Retry::Pointless }
    }

    /// Says it of an object.
    pub(super) fn about(self, key: &ObjectKey) -> ObjectError {
        ObjectError { key: key.clone(), message: self.message, retry: self.retry }
    }
}

impl Fault {
    /// The status of a refusal; none for everything else.
    pub(super) fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused(status) => Some(status),
            _ => None,
        }
    }

    /// Whether the API refused with this HTTP status.
    pub(super) fn is(&self, code: u16) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }

    /// The fault in words. `deed` is what was tried, as in "cannot `apply configmaps`".
    pub(super) fn complaint(&self, deed: &str) -> Complaint {
        match self {
            Self::Refused(status) => refusal(status, deed),
            Self::Address(bad) => Complaint::pointless(bad.to_string()),
            Self::Silent(_) | Self::Slow(_) | Self::Cut(_) | Self::Unreadable(_) | Self::Endless { .. } => {
                Complaint::worthwhile(format!("cannot {deed}: {}", self.in_words()))
            }
        }
    }

    /// The fault and its deepest cause. The causes between them repeat one another.
    pub(super) fn in_words(&self) -> String {
        let mut deepest: &dyn Error = self;
        while let Some(source) = deepest.source() {
            deepest = source;
        }
        let text = self.to_string();
        let cause = deepest.to_string();
        shorten(&if text == cause { text } else { format!("{text}: {cause}") })
    }
}

fn refusal(status: &Status, deed: &str) -> Complaint {
    let message = shorten(&status.message);
    match status.code {
        401 => Complaint::worthwhile(format!("cannot {deed}: the API refuses our credentials ({message})")),
        403 if has_cause(status, "NamespaceTerminating") => {
            Complaint::worthwhile(format!("cannot {deed}: the namespace is being deleted ({message})"))
        }
        403 => forbidden(&message, deed),
        400 if is_admission(&message) => Complaint::pointless(format!("refused by admission: {message}")),
        404 => not_found(status, deed),
        409 => {
            Complaint::worthwhile(format!("cannot {deed}, something else changed it meanwhile: {message}"))
        }
        413 => Complaint::pointless(format!("too large for the API: {message}")),
        422 if is_admission(&message) => Complaint::pointless(format!("refused by admission: {message}")),
        422 => Complaint::pointless(format!("invalid: {}", causes(status))),
        429 => Complaint::worthwhile(format!("cannot {deed}: the API is overloaded ({message})")),
        500.. if is_too_large(&message) => Complaint::pointless(format!("too large for the API: {message}")),
        500.. if is_not_in_schema(&message) => Complaint::pointless(format!("invalid: {message}")),
        code @ 500.. => {
            Complaint::worthwhile(format!("cannot {deed}, the API has trouble ({code}): {message}"))
        }
        code => Complaint::pointless(format!("cannot {deed} ({code}): {message}")),
    }
}

/// A quota, an admission webhook and the authorizer all say 403.
fn forbidden(message: &str, deed: &str) -> Complaint {
    if message.contains("exceeded quota") || message.contains("status unknown for quota") {
        return Complaint::worthwhile(format!(
            "cannot {deed}: a quota of the namespace does not allow it; raise it, or make room ({message})"
        ));
    }
    if is_admission(message) {
        return Complaint::pointless(format!("refused by admission: {message}"));
    }
    let complaint = format!("not allowed to {deed}: {message}");
    Complaint::pointless(match Refused::read(message) {
        Some(refused) => {
            format!("{complaint}; `kubectl apply -f -` with this grants it: {}", refused.grant())
        }
        None => complaint,
    })
}

fn is_admission(message: &str) -> bool {
    message.contains("admission webhook \"") || message.contains("ValidatingAdmissionPolicy '")
}

fn not_found(status: &Status, deed: &str) -> Complaint {
    match &status.details {
        Some(details) if details.kind == "namespaces" && details.group.is_empty() => {
            Complaint::worthwhile(format!("namespace {} does not exist", details.name))
        }
        _ => Complaint::worthwhile(format!(
            "cannot {deed}: the API does not know it ({})",
            shorten(&status.message)
        )),
    }
}

fn has_cause(status: &Status, reason: &str) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == reason)
}

/// etcd's refusal passes through the API server as an internal error.
fn is_too_large(message: &str) -> bool {
    message.contains("request is too large") || message.contains("trying to send message larger than max")
}

/// Older API servers report a field that the schema does not have as an internal error.
fn is_not_in_schema(message: &str) -> bool {
    message.contains("field not declared in schema")
        || message.contains("failed to create typed patch object")
}

/// Whether everything that was wrong is that a field cannot be changed. The API has no reason of its own for
/// that: the words are those of its validation (`apimachinery/pkg/api/validation`, `FieldImmutableErrorMsg`,
/// and what older kinds say instead).
pub(super) fn is_immutable(status: &Status) -> bool {
    let words = [
        "field is immutable",
        "is immutable after creation",
        "may not change once set",
        "cannot change roleRef",
        "updates to ",
    ];
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    let says = |message: &str| words.iter().any(|words| message.contains(words));
    status.code == 422 && !causes.is_empty() && causes.iter().all(|cause| says(&cause.message))
}

fn causes(status: &Status) -> String {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    if causes.is_empty() {
        return shorten(&status.message);
    }
    let told = causes.iter().take(CAUSES_LIMIT).map(|cause| match cause.field.as_str() {
        "" | "<nil>" | "[]" => cause.message.clone(),
        field => format!("{field}: {}", cause.message),
    });
    let mut text = told.collect::<Vec<_>>().join("; ");
    if causes.len() > CAUSES_LIMIT {
        text.push_str(&format!("; and {} more", causes.len() - CAUSES_LIMIT));
    }
    shorten(&text)
}

fn shorten(text: &str) -> String {
    if text.len() <= MESSAGE_LIMIT {
        return text.to_owned();
    }
    let end = (0..=MESSAGE_LIMIT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(status: serde_json::Value) -> Complaint {
        let status = serde_json::from_value(status).expect("a status");
        Fault::Refused(Box::new(status)).complaint("apply configmaps")
    }

    #[test]
    fn a_missing_namespace_is_named_and_worth_another_try() {
        let missing =
            told(json!({"code": 404, "reason": "NotFound", "message": "namespaces \"shop\" not found",
            "details": {"name": "shop", "kind": "namespaces"}}));
        assert_eq!(missing, Complaint::worthwhile("namespace shop does not exist"));
    }

    #[test]
    fn an_invalid_object_names_its_fields() {
        let invalid =
            told(json!({"code": 422, "reason": "Invalid", "message": "long", "details": {"causes": [
            {"reason": "FieldValueInvalid", "message": "field is immutable", "field": "spec.selector"},
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.template"}]}}));
        let text = "invalid: spec.selector: field is immutable; spec.template: Required value";
        assert_eq!(invalid, Complaint::pointless(text));
    }

    #[test]
    fn a_refusal_says_what_is_not_allowed() {
        let forbidden = told(json!({"code": 403, "reason": "Forbidden",
            "message": "User \"a\" cannot patch resource \"configmaps\""}));
        let text = "not allowed to apply configmaps: User \"a\" cannot patch resource \"configmaps\"";
        assert_eq!(forbidden, Complaint::pointless(text));
        let terminating = told(json!({"code": 403, "reason": "Forbidden", "message": "being terminated",
            "details": {"causes": [{"reason": "NamespaceTerminating", "message": "x", "field": "metadata.namespace"}]}}));
        assert_eq!(terminating.retry, Retry::Worthwhile);
    }

    #[test]
    fn a_right_that_is_missing_comes_with_what_would_grant_it() {
        let forbidden = told(json!({"code": 403, "reason": "Forbidden", "message":
            "configmaps \"a\" is forbidden: User \"b\" cannot patch resource \"configmaps\" in API group \"\" in the namespace \"shop\""}));
        assert!(
            forbidden.message.contains("grants it: {\"apiVersion\":\"v1\",\"items\":["),
            "{}",
            forbidden.message
        );
    }

    #[test]
    fn a_quota_and_an_admission_are_no_missing_right() {
        let quota = told(json!({"code": 403, "reason": "Forbidden",
            "message": "configmaps \"a\" is forbidden: exceeded quota: q, requested: configmaps=1"}));
        assert!(quota.message.contains("raise it") && quota.retry == Retry::Worthwhile, "{}", quota.message);
        for (code, message) in [
            (403, "admission webhook \"a.b\" denied the request: no"),
            (
                422,
                "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            ),
        ] {
            let refused = told(json!({"code": code, "message": message}));
            assert_eq!(refused, Complaint::pointless(format!("refused by admission: {message}")));
        }
    }

    #[test]
    fn only_what_is_wrong_for_its_immutability_alone_is_immutable() {
        let status = |messages: &[&str]| {
            let causes: Vec<_> = messages.iter().map(|message| json!({"message": message})).collect();
            let status = json!({"code": 422, "message": "long", "details": {"causes": causes}});
            is_immutable(&serde_json::from_value(status).expect("a status"))
        };
        let immutable = "Invalid value: \"b\": field is immutable";
        assert!(status(&[
            immutable,
            "Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden"
        ]));
        assert!(!status(&[immutable, "Required value"]));
        assert!(!status(&[]));
    }

    #[test]
    fn trouble_of_the_server_is_worth_another_try_and_an_object_that_is_too_large_is_not() {
        for code in [409, 429, 500, 503, 504] {
            assert_eq!(told(json!({"code": code, "message": "later"})).retry, Retry::Worthwhile, "{code}");
        }
        for (code, message) in [
            (413, "limit is 3145728"),
            (500, "etcdserver: request is too large"),
            (500, "failed to create typed patch object: .spec.x: field not declared in schema"),
            (400, "strict decoding error"),
            (405, "method not allowed"),
        ] {
            assert_eq!(told(json!({"code": code, "message": message})).retry, Retry::Pointless, "{message}");
        }
    }

    #[test]
    fn a_server_s_message_is_bounded() {
        let long = told(json!({"code": 503, "message": "ü".repeat(100_000)}));
        assert!(long.message.len() < MESSAGE_LIMIT + 100);
    }
}
