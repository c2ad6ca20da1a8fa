//! `GET /v1/artifacts/{digest}`: bytes, whole or from an offset, only for clusters that may have them.

use farshore_shared::clock::now;
use farshore_shared::digest::Digest;
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, RANGE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};

use super::Hub;
use crate::answer::{Answer, Refusal, streamed};
use crate::objects::{ByteRange, ObjectsError};
use crate::record;
use crate::view::Freshness;

/// Sends an artifact.
///
/// # Errors
/// `401`, `404` for what the cluster's documents do not name, `410` for what they name and the record
/// does not have any more, `416`.
pub async fn get<B>(hub: &Hub, digest: &str, request: &Request<B>) -> Answer {
    let caller = hub.gate.admit(request.headers(), now()).await?;
    let digest: Digest =
        digest.parse().map_err(|error| Refusal::of(StatusCode::BAD_REQUEST, format!("{error}")))?;
    let mut may = hub.view.artifacts_of(&caller.cluster, Freshness::Recent).await?.contains(&digest);
    if !may {
        may = hub.view.artifacts_of(&caller.cluster, Freshness::Now).await?.contains(&digest);
    }
    if !may {
        return Err(Refusal::of(
            StatusCode::NOT_FOUND,
            format!("no document of this cluster names the artifact ({digest})"),
        ));
    }
    let range = wanted(request.headers());
    let content = match hub.view.objects().read(&record::artifact(digest), range).await {
        Ok(content) => content,
        Err(ObjectsError::Unsatisfiable { total, .. }) => {
            let message = format!("range begins behind the end of the artifact ({total} bytes)");
            let mut response = Refusal::of(StatusCode::RANGE_NOT_SATISFIABLE, message).into_response();
            // RFC 9110, section 14.4: the length lets the caller ask better.
            let text = format!("bytes */{total}");
            let value = HeaderValue::try_from(text).expect("numbers are printable ASCII");
            response.headers_mut().insert(CONTENT_RANGE, value);
            return Ok(response);
        }
        Err(error) => return Err(error.into()),
    };
    let gone = || Refusal::of(StatusCode::GONE, format!("artifact was superseded and collected ({digest})"));
    let content = content.ok_or_else(gone)?;
    let (start, end, total) = (content.range.start, content.range.end, content.total);
    let mut response = Response::new(streamed(content));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/zstd"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(end - start));
    headers
        .insert(ETAG, HeaderValue::try_from(format!("\"{digest}\"")).expect("a digest is printable ASCII"));
    if range.is_some() {
        let text = format!("bytes {start}-{}/{total}", end.saturating_sub(1));
        headers.insert(CONTENT_RANGE, HeaderValue::try_from(text).expect("numbers are printable ASCII"));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// One range of RFC 9110, section 14.1.2. Several at once, or another unit, are ignored, as the RFC
/// allows.
fn wanted(headers: &HeaderMap) -> Option<ByteRange> {
    let text = headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?;
    match text.split_once('-')? {
        ("", count) => Some(ByteRange::Last(count.parse().ok()?)),
        (first, "") => Some(ByteRange::From(first.parse().ok()?)),
        (first, last) => {
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some(ByteRange::Within(first, last))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_understood_and_any_other_ignored() {
        let range = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, HeaderValue::try_from(text).expect("ASCII"));
            wanted(&headers)
        };
        assert_eq!(range("bytes=5-"), Some(ByteRange::From(5)));
        assert_eq!(range("bytes=5-9"), Some(ByteRange::Within(5, 9)));
        assert_eq!(range("bytes=-5"), Some(ByteRange::Last(5)));
        for ignored in ["bytes=9-5", "bytes=0-1,3-4", "lines=1-2", "bytes=a-", "bytes=-"] {
            assert_eq!(range(ignored), None, "{ignored}");
        }
    }
}
