//! Who calls: a pass is verified once, and remembered until it expires.

use std::sync::Arc;

use farshore_shared::keys::PublicKey;
use farshore_shared::names::Name;
use farshore_shared::pass::{self, BadPass};
use farshore_shared::wire::{PASS_HEADER, Registration, UnixSeconds};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use moka::future::Cache;

use crate::view::{Freshness, Signed, View, ViewError};

/// How many passes are remembered.
const REMEMBERED: u64 = 200_000;

/// Why a caller is not let in.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// No pass was shown.
    #[error("no pass was shown: send `farshore-pass: <pass>`")]
    Missing,
    /// The pass is not accepted.
    #[error("{0}")]
    Pass(#[from] BadPass),
    /// The cluster is not enrolled.
    #[error("cluster is not enrolled ({0})")]
    Unknown(Name),
    /// The record could not be asked.
    #[error(transparent)]
    View(#[from] Arc<ViewError>),
}

/// A caller who has proven to be a cluster.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The cluster.
    pub cluster: Name,
    /// Its registration.
    pub registration: Arc<Signed<Registration>>,
    expires: UnixSeconds,
}

impl Caller {
    /// What it signs with.
    #[must_use]
    pub fn key(&self) -> &PublicKey {
        &self.registration.document.key
    }
}

/// Verifies passes.
#[derive(Debug, Clone)]
pub struct Gate {
    view: View,
    remembered: Cache<String, Caller>,
}

impl Gate {
    /// A gate over a view.
    #[must_use]
    pub fn new(view: View) -> Self {
        // A key that was replaced is believed for this long, after the view's own staleness.
        let remembered =
            Cache::builder().max_capacity(REMEMBERED).time_to_live(std::time::Duration::from_secs(60));
        Self { view, remembered: remembered.build() }
    }

    /// The caller of a request.
    ///
    /// # Errors
    /// [`Denied`].
    pub async fn admit(&self, headers: &HeaderMap, now: UnixSeconds) -> Result<Caller, Denied> {
        let own = headers.get(PASS_HEADER).and_then(|value| value.to_str().ok());
        let bearer = || headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ");
        let pass = own.or_else(bearer).ok_or(Denied::Missing)?;
        if let Some(caller) = self.remembered.get(pass).await
            && now <= caller.expires.saturating_add(pass::LEEWAY)
        {
            return Ok(caller);
        }
        let caller = self.verify(pass, now).await?;
        self.remembered.insert(pass.to_owned(), caller.clone()).await;
        Ok(caller)
    }

    async fn verify(&self, text: &str, now: UnixSeconds) -> Result<Caller, Denied> {
        let cluster = pass::claimed_cluster(text)?;
        let fleet = self.view.trust().await?.fleet;
        let known = self.view.registration(&cluster, Freshness::Recent).await?;
        let known = known.ok_or_else(|| Denied::Unknown(cluster.clone()))?;
        let pass = pass::verify(text, &known.document.key, fleet, now)?;
        Ok(Caller { cluster, registration: known, expires: pass.exp })
    }
}
