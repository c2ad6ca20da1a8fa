//! `GET /v1/trust/{n}`: root document n, for anybody, kept for ever.

use std::time::Duration;

use bytes::Bytes;
use farshore_shared::wire::ROOT_LIMIT;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use moka::future::Cache;

use super::Hub;
use crate::answer::{Answer, Refusal, full};
use crate::objects::ObjectsError;
use crate::record;

/// Anybody may ask for any number: whoever asks for numbers that there are not pushes out nobody's root,
/// because few numbers are remembered, and the record is asked once for each and this long.
const ABSENT_FOR: Duration = Duration::from_secs(10);
/// A root never changes.
const PRESENT_FOR: Duration = Duration::from_secs(3600);
const MOST: u64 = 64;

/// The roots that this replica has sent, and the numbers of which it knows that there are none.
#[derive(Debug, Clone)]
pub struct Roots {
    present: Cache<u64, Bytes>,
    absent: Cache<u64, ()>,
}

impl Default for Roots {
    fn default() -> Self {
        let cache = || Cache::builder().max_capacity(MOST);
        let (present, absent) = (cache().time_to_live(PRESENT_FOR), Cache::builder().max_capacity(4096));
        Self { present: present.build(), absent: absent.time_to_live(ABSENT_FOR).build() }
    }
}

impl Roots {
    async fn get(&self, hub: &Hub, version: u64) -> Result<Option<Bytes>, ObjectsError> {
        if let Some(bytes) = self.present.get(&version).await {
            return Ok(Some(bytes));
        }
        if self.absent.contains_key(&version) {
            return Ok(None);
        }
        match hub.view.objects().get(&record::root(version), ROOT_LIMIT as u64).await? {
            Some(stored) => {
                self.present.insert(version, stored.bytes.clone()).await;
                Ok(Some(stored.bytes))
            }
            None => {
                self.absent.insert(version, ()).await;
                Ok(None)
            }
        }
    }
}

/// Sends a root document, byte for byte as it was signed: sites pin its digest.
///
/// # Errors
/// `400`, `404`.
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
