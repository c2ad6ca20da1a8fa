//! The hub's routes as an AWS Lambda function: behind a function URL, or an HTTP API of API Gateway
//! (payload format 2.0).
//!
//! A function is frozen between two events: nothing runs then, no connection is held, and whatever a
//! clock should have started is late. So nothing here waits for a time, and `GET /v1/wake`, which holds
//! a request until there is news, says that it cannot be had.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use lambda_http::Body as EventBody;
use tracing::warn;

use crate::answer::{self, Refusal};
use crate::handlers::Hub;
use crate::request_id::{REQUEST_ID, RequestId};
use crate::routes::{self, Door};

/// The variable by which Lambda tells a program where its events are.
pub const RUNTIME_API: &str = "AWS_LAMBDA_RUNTIME_API";
/// The most bytes of a body in an answer. Lambda takes answers of 6 MB (6,291,556 bytes, see its
/// quotas), in which bytes are base64: four for three; the rest is room for headers.
pub const BODY_LIMIT: usize = 4_600_000;
/// When a site asks again for what this door cannot give.
const LATER: Duration = Duration::from_secs(3600);

/// Whether this program was started by Lambda.
#[must_use]
pub fn is_here() -> bool {
    std::env::var_os(RUNTIME_API).is_some()
}

/// Answers one event.
///
/// # Panics
/// Never: a refusal is in memory and small.
pub async fn answer(hub: &Hub, request: lambda_http::Request) -> Response<EventBody> {
    let id = RequestId::given(request.headers());
    let answered = if request.uri().path() == "/v1/wake" {
        let message = "a function cannot hold a request until there is news: poll";
        Err(Refusal::of(StatusCode::NOT_IMPLEMENTED, message))
    } else {
        whole(routes::answer(hub, Door::Public, request).await).await
    };
    match answered {
        Ok(response) => response,
        Err(refusal) => {
            let id = id.unwrap_or_else(RequestId::new);
            warn!(id = id.as_str(), error = %refusal.chain(), "request cannot be answered by a function");
            let mut response = answer::dated(refusal.asked_as(&id).into_response());
            response.headers_mut().insert(REQUEST_ID, id.into());
            whole(response).await.expect("a refusal is in memory and small")
        }
    }
}

/// An answer whose bytes are all here.
async fn whole(response: Response<answer::Body>) -> Result<Response<EventBody>, Refusal> {
    let (head, body) = response.into_parts();
    let promised = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if promised.is_some_and(|bytes: usize| bytes > BODY_LIMIT) {
        return Err(too_large(promised));
    }
    let bytes = Limited::new(body, BODY_LIMIT).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return too_large(None);
        }
        Refusal::unavailable(Arc::from(error))
    })?;
    let body = event_body(&head.headers, bytes.to_bytes());
    Ok(Response::from_parts(head, body))
}

fn too_large(bytes: Option<usize>) -> Refusal {
    let size = bytes.map_or_else(String::new, |bytes| format!("{bytes} bytes, "));
    let message = format!(
        "answer is too large for a function ({size}limit {BODY_LIMIT} bytes): let sites fetch artifacts from the bucket itself, or through a hub that is a server"
    );
    Refusal::later(message, LATER)
}

/// Text as it is, so that a person can read an answer in a console; everything else as base64.
fn event_body(headers: &HeaderMap, bytes: Bytes) -> EventBody {
    if bytes.is_empty() {
        return EventBody::Empty;
    }
    let is_text = !headers.contains_key(CONTENT_ENCODING)
        && headers
            .get(CONTENT_TYPE)
            .map(HeaderValue::as_bytes)
            .is_some_and(|kind| kind.starts_with(b"application/json") || kind.starts_with(b"text/"));
    if !is_text {
        return EventBody::Binary(bytes.into());
    }
    match String::from_utf8(bytes.into()) {
        Ok(text) => EventBody::Text(text),
        Err(bytes) => EventBody::Binary(bytes.into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_lambda_would_drop_is_refused_with_its_size_and_the_limit() {
        let mut promised = Response::new(answer::full(vec![0; 8]));
        promised.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(BODY_LIMIT + 1));
        for response in [promised, Response::new(answer::full(vec![0; BODY_LIMIT + 1]))] {
            let refusal = whole(response).await.expect_err("too large");
            assert!(refusal.chain().contains("limit 4600000 bytes"), "{}", refusal.chain());
        }
        let fits = whole(Response::new(answer::full(vec![0; BODY_LIMIT]))).await.expect("it fits");
        assert!(matches!(fits.body(), EventBody::Binary(bytes) if bytes.len() == BODY_LIMIT));
        // Base64, and the rest of the event around it.
        assert!(BODY_LIMIT.div_ceil(3) * 4 + (64 << 10) < 6_291_556);
    }

    #[tokio::test]
    async fn json_is_sent_as_text_and_what_is_compressed_is_not() {
        let json = || answer::json(StatusCode::OK, &serde_json::json!({}));
        let plain = whole(json()).await.expect("small");
        assert!(matches!(plain.body(), EventBody::Text(text) if text == "{}"));
        let mut packed = json();
        packed.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("zstd"));
        assert!(matches!(whole(packed).await.expect("small").body(), EventBody::Binary(_)));
        let nothing = whole(answer::empty(StatusCode::NOT_MODIFIED)).await.expect("small");
        assert!(matches!(nothing.body(), EventBody::Empty));
    }
}
