//! Where a hub sends a site for an artifact: an address in a bucket, good for a while, for this one object.
//!
//! Nothing that says who this site is goes there; the bytes are verified by digest, as always.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, RANGE, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;

use super::connection::{Connection, Counter, Driver};
use super::{HubError, HubUrl, Trust};

/// The longest address that is followed.
const LIMIT: usize = 8 << 10;

/// An answer from elsewhere, and what keeps its connection open.
pub(super) struct Elsewhere {
    /// Where it came from.
    pub(super) place: HubUrl,
    /// The answer, whatever its status.
    pub(super) response: Response<Incoming>,
    /// Its connection.
    pub(super) driver: Arc<Driver>,
}

/// Asks an address that a hub has named, from an offset on, without a pass.
///
/// # Errors
/// [`HubError`]. An address that is not `https://` is followed on this very machine only.
pub(super) async fn ask(
    address: &str,
    offset: u64,
    counter: &Arc<Counter>,
    patience: Duration,
) -> Result<Elsewhere, HubError> {
    let strange = |why: &str| HubError::NotOurHub { hub: shown(address), why: why.to_owned() };
    if address.len() > LIMIT {
        return Err(strange("the address of an artifact is too long"));
    }
    let uri: Uri = address.parse().map_err(|_| strange("it is no address"))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(strange("it is no whole address"));
    };
    let place: HubUrl =
        format!("{scheme}://{authority}").parse().map_err(|_| strange("it is not encrypted"))?;
    let tls = if place.secure { Some(Trust::System.config()?) } else { None };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder().uri(path).header(ACCEPT, "*/*").header(USER_AGENT, "farshore-agent");
    if offset > 0 {
        request = request.header(RANGE, format!("bytes={offset}-"));
    }
    let request =
        request.body(Full::new(Bytes::new())).map_err(|source| HubError::Setup { source: source.into() })?;
    let mut connection = Connection::open(&place, tls.as_ref(), counter, patience).await?;
    let response = connection.send(&place, request, patience).await?;
    let driver = connection.driver();
    Ok(Elsewhere { place, response, driver })
}

/// Without its query, which is as good as a key for a while.
fn shown(address: &str) -> String {
    address.split('?').next().unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_is_not_encrypted_or_none_at_all_is_not_followed_and_no_signature_is_shown() {
        let refused = async |address: &str| {
            let asked = ask(address, 0, &Arc::default(), Duration::from_secs(1)).await;
            asked.err().map(|error| error.to_string()).expect("it is refused")
        };
        for bad in ["", "/relative", "ftp://bucket/x", "http://bucket.example/x?X-Amz-Signature=secret"] {
            let error = refused(bad).await;
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(refused(&format!("https://bucket/{}", "x".repeat(LIMIT))).await.contains("too long"));
    }
}
