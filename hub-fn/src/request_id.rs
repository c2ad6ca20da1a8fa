//! What one request is called, in the hub's log, in its answer, and in the logs of whoever asked.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

/// The header that carries it, in requests and in answers.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Trace Context (W3C Recommendation, 23 November 2021), section 3.2.
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
/// The longest id that is taken from a caller, in bytes.
const LONGEST: usize = 64;

/// The id of a request: printable ASCII without spaces, at most 64 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// An id that nobody has.
    ///
    /// # Panics
    /// Never: a ULID is letters and digits.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "two of them are never equal")]
    pub fn new() -> Self {
        let text = ulid::Ulid::generate().to_string();
        Self(HeaderValue::try_from(text).expect("a ULID is letters and digits"))
    }

    /// The id that the caller gave: `x-request-id`, else the trace of `traceparent`. One that is too long
    /// or has other characters than a log line should is as none.
    #[must_use]
    pub fn given(headers: &HeaderMap) -> Option<Self> {
        let own = headers.get(REQUEST_ID).filter(|value| is_id(value.as_bytes())).cloned();
        own.or_else(|| trace_of(headers.get(TRACE_PARENT)?.as_bytes())).map(Self)
    }

    /// Its text.
    ///
    /// # Panics
    /// Never: it was made of printable ASCII.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().expect("an id is printable ASCII")
    }
}

impl From<RequestId> for HeaderValue {
    fn from(id: RequestId) -> Self {
        id.0
    }
}

fn is_id(text: &[u8]) -> bool {
    let is_plain = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'=');
    (1..=LONGEST).contains(&text.len()) && text.iter().all(is_plain)
}

/// Section 3.2.2.3: 32 lower-case hexadecimal digits, not all of them zero.
fn trace_of(text: &[u8]) -> Option<HeaderValue> {
    let mut parts = text.split(|c| *c == b'-');
    let (_version, trace) = (parts.next()?, parts.next()?);
    let is_hex = |c: &u8| c.is_ascii_digit() || (b'a'..=b'f').contains(c);
    let is_trace = trace.len() == 32 && trace.iter().all(is_hex) && trace.iter().any(|c| *c != b'0');
    is_trace.then(|| HeaderValue::from_bytes(trace).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: HeaderName, value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::try_from(value).expect("a header"));
        RequestId::given(&headers).map(|id| id.as_str().to_owned())
    }

    #[test]
    fn a_caller_s_id_is_kept_and_so_is_the_trace_it_belongs_to() {
        assert_eq!(given(REQUEST_ID, "Root=1-67.a_b").as_deref(), Some("Root=1-67.a_b"));
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let parent = format!("00-{trace}-b7ad6b7169203331-01");
        assert_eq!(given(TRACE_PARENT, &parent).as_deref(), Some(trace));
    }

    #[test]
    fn what_does_not_belong_into_a_log_line_is_no_id() {
        for bad in ["", "a b", "a\"b", "a\tb", &"x".repeat(65)] {
            assert_eq!(given(REQUEST_ID, bad), None, "{bad}");
        }
        for bad in ["00", "00-0af7-b7-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
            assert_eq!(given(TRACE_PARENT, bad), None, "{bad}");
        }
        assert_ne!(RequestId::new(), RequestId::new());
    }
}
