//! Reading an answer's body: bounded in bytes, and in time without progress.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::connection::Driver;
use super::{HubError, HubUrl};

/// What must arrive within the patience for it to count as progress: a trickle is a stall.
const PROGRESS: usize = 256;

/// The body of an answer, piece by piece.
#[must_use = "an answer's body has to be read"]
pub struct Body {
    hub: HubUrl,
    inner: Incoming,
    patience: Duration,
    deadline: Instant,
    arrived: usize,
    /// The body ends with its connection: that lives as long as somebody reads.
    _driver: Arc<Driver>,
}

impl Body {
    pub(super) fn new(hub: HubUrl, inner: Incoming, patience: Duration, driver: Arc<Driver>) -> Self {
        Self { hub, inner, patience, deadline: Instant::now() + patience, arrived: 0, _driver: driver }
    }

    /// The next bytes; none at the end.
    ///
    /// # Errors
    /// [`HubError::Unreachable`] when the connection breaks or nothing arrives for too long.
    pub async fn next(&mut self) -> Result<Option<Bytes>, HubError> {
        loop {
            let frame = timeout_at(self.deadline, self.inner.frame()).await.map_err(|_| {
                let why = format!("no progress within {} ms", self.patience.as_millis());
                HubError::unreachable(&self.hub, why)
            })?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|source| HubError::unreachable(&self.hub, source))?;
            // What is not data is trailers: nothing here speaks them.
            if let Ok(data) = frame.into_data() {
                self.arrived += data.len();
                if self.arrived >= PROGRESS {
                    (self.arrived, self.deadline) = (0, Instant::now() + self.patience);
                }
                if !data.is_empty() {
                    return Ok(Some(data));
                }
            }
        }
    }

    /// All of it, at most `limit` bytes.
    ///
    /// # Errors
    /// [`HubError::TooLarge`] as soon as one byte more arrives; [`HubError::Unreachable`].
    pub async fn collect(mut self, what: &'static str, limit: usize) -> Result<Vec<u8>, HubError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await? {
            if bytes.len() + piece.len() > limit {
                return Err(HubError::TooLarge { what, limit });
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}
