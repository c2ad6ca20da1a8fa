//! `GET /v1/trust/{n}`: root document n, for anybody, kept for ever.

use std::time::Duration;

use bytes::Bytes;
use farshore_shared::wire::ROOT_LIMIT;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use moka::future::Cache;

use super::Hub;
use crate::answer::{Answer, Refusal, full};
use crate::record;
use crate::view::ViewError;

/// A root never changes.
const PRESENT_FOR: Duration = Duration::from_secs(3600);
const ROOTS_LIMIT: u64 = 64;

/// The roots that this replica has sent.
#[derive(Debug, Clone)]
pub struct Roots(Cache<u64, Bytes>);

impl Default for Roots {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(ROOTS_LIMIT).time_to_live(PRESENT_FOR).build())
    }
}

impl Roots {
    /// A root of the chain. Anybody may ask for any number: which ones there are is known here already, and the
    /// record is asked for no other, and once for each.
    async fn get(&self, hub: &Hub, version: u64) -> Result<Option<Bytes>, Refusal> {
        if let Some(bytes) = self.0.get(&version).await {
            return Ok(Some(bytes));
        }
        if !(1..=hub.view.trust().await?.root.version).contains(&version) {
            return Ok(None);
        }
        let load = async {
            let stored = hub.view.objects().get(&record::root(version), ROOT_LIMIT as u64).await?;
            stored.map(|stored| stored.bytes).ok_or_else(|| ViewError::Damaged(record::root(version)))
        };
        Ok(Some(self.0.try_get_with(version, load).await?))
    }
}

/// Sends a root document, byte for byte as it was signed: sites pin its digest.
///
/// # Errors
/// `400`, `404`, `503` while it is not known which roots there are.
pub async fn get(hub: &Hub, version: &str) -> Answer {
    let bad = |_| Refusal::of(StatusCode::BAD_REQUEST, "a root document is named by its number");
    let version: u64 = version.parse().map_err(bad)?;
    let bytes = hub.roots.get(hub, version).await?;
    let bytes =
        bytes.ok_or_else(|| Refusal::of(StatusCode::NOT_FOUND, format!("there is no root {version}")))?;
    let mut response = Response::new(full(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Ok(response)
}
