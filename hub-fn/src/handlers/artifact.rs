//! `GET /v1/artifacts/{digest}`: bytes, whole or from an offset, only for clusters that may have them.
//!
//! Artifacts queue: so many are sent at once, a few of them to one cluster, and who waits too long is told to come
//! back, so that large bodies leave room for everything else. One that nobody reads on is given up
//! ([`crate::answer::keeping`]); an agent goes on where it was cut. A site that says so ([`REDIRECT_HEADER`]) is sent to the bucket
//! instead, where the hub is told to (`--redirect-artifacts`) and the record can sign addresses.

use std::time::Duration;

use farshore_shared::clock::now;
use farshore_shared::digest::Digest;
use farshore_shared::wire::REDIRECT_HEADER;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LOCATION, RANGE,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};

use tracing::debug;

use super::Hub;
use crate::answer::{Answer, Refusal, empty, keeping, streamed};
use crate::load::Class;
use crate::objects::{ByteRange, ObjectsError};
use crate::record;
use crate::view::Freshness;

/// How long a signed address is good for: the start of a download, not its end.
pub const SIGNED_FOR: Duration = Duration::from_secs(900);

/// Whether sites may be sent to the bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Redirects {
    /// Artifacts are streamed through the hub.
    #[default]
    Never,
    /// Sites that follow are sent to the bucket.
    Allowed,
}

/// Sends an artifact.
///
/// # Errors
/// `401`, `404` for what the cluster's documents do not name, `410` for what they name and the record
/// does not have any more, `416`, `429` when the cluster fetches too many at once, `503` when all do.
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
    if let Some(elsewhere) = redirected(hub, digest, request.headers()).await? {
        return Ok(elsewhere);
    }
    let own = hub.load.one_of_few(&caller.cluster)?;
    let place = hub.load.enter(Class::Artifact).await?;
    let sent = send(hub, digest, request.headers()).await?;
    Ok(keeping(sent, (own, place), hub.load.stalled()))
}

/// Sends it through this replica.
async fn send(hub: &Hub, digest: Digest, headers: &HeaderMap) -> Answer {
    let range = wanted(headers);
    let content = match hub.view.objects().read(&record::artifact(digest), range).await {
        Ok(content) => content,
        Err(ObjectsError::Unsatisfiable { total, .. }) => return Ok(unsatisfiable(total)),
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

fn unsatisfiable(total: u64) -> Response<crate::answer::Body> {
    let message = format!("range begins behind the end of the artifact ({total} bytes)");
    let mut response = Refusal::of(StatusCode::RANGE_NOT_SATISFIABLE, message).into_response();
    // RFC 9110, section 14.4: the length lets the caller ask better.
    let text = format!("bytes */{total}");
    let value = HeaderValue::try_from(text).expect("numbers are printable ASCII");
    response.headers_mut().insert(CONTENT_RANGE, value);
    response
}

/// The bucket's own address of an artifact, for a site that follows there. Whether it is there is for the
/// bucket to say: a site that is refused asks here again, without following.
async fn redirected(
    hub: &Hub,
    digest: Digest,
    headers: &HeaderMap,
) -> Result<Option<Response<crate::answer::Body>>, Refusal> {
    let follows = headers.get(REDIRECT_HEADER).is_some_and(|value| value == "follow");
    if !follows || hub.redirects == Redirects::Never {
        return Ok(None);
    }
    let signed = match hub.view.objects().presign(&record::artifact(digest), SIGNED_FOR).await {
        Ok(signed) => signed,
        Err(error) => {
            debug!(%digest, %error, "no address is signed: the artifact is streamed");
            None
        }
    };
    let Some(address) = signed.and_then(|address| HeaderValue::try_from(address).ok()) else {
        return Ok(None);
    };
    let mut response = empty(StatusCode::TEMPORARY_REDIRECT);
    response.headers_mut().insert(LOCATION, address);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(Some(response))
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
