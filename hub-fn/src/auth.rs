//! Who calls: a pass is verified once, and remembered with its cluster until it expires.
//!
//! What is remembered is not the pass but a keyed hash of its signature, SipHash-2-4 with 128 bits under a
//! random key of this process, in the cluster's slot of the view, with the time at which the verified pass ends.
//! Nobody but the cluster can make a signature of its key, and who shows one has seen the whole pass that it
//! belongs to: other claims before it win nothing, for only the slot counts. Who has seen none would have to find
//! another text of the same hash without knowing the key, and each attempt is a request: 2^128 possible hashes leave
//! nothing to try. SipHash is made for just that, a short secret-keyed function of a short text. One pass per
//! cluster is remembered: it is bounded by who is enrolled, and goes with the key that it was verified with.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use farshore_shared::keys::{PublicKey, random_bytes};
use farshore_shared::names::Name;
use farshore_shared::pass::{self, BadPass};
use farshore_shared::wire::{PASS_HEADER, UnixSeconds};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use std::hash::Hasher as _;
use std::sync::Arc;
use std::time::Duration;

use crate::directory::{Heard, Place};
use crate::view::{Steady, View, ViewError};

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
    key: PublicKey,
}

impl Caller {
    /// What it signs with.
    #[must_use]
    pub fn key(&self) -> &PublicKey {
        &self.key
    }
}

/// What a poll shows.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// Its pass.
    pub pass: &'a [u8],
    /// What it holds.
    pub tag: &'a [u8],
    /// How often its cluster may be answered from memory within a second.
    pub most: u16,
}

/// Verifies passes.
#[derive(Debug, Clone)]
pub struct Gate {
    view: View,
    hasher: SipHasher24,
}

impl Gate {
    /// A gate over a view.
    #[must_use]
    pub fn new(view: View) -> Self {
        Self { view, hasher: SipHasher24::new_with_key(&random_bytes()) }
    }

    /// The caller of a request.
    ///
    /// # Errors
    /// [`Denied`].
    pub async fn admit(&self, headers: &HeaderMap, now: UnixSeconds) -> Result<Caller, Denied> {
        let text =
            std::str::from_utf8(shown(headers).ok_or(Denied::Missing)?).map_err(|_| Denied::Missing)?;
        // Who was removed since is not let in for a pass that was good before.
        let _ = self.view.publication(crate::view::Freshness::Recent).await?;
        let mut room = [0; CLAIM];
        if let Some(name) = claimed(text.as_bytes(), &mut room)
            && let Some(pass) = self.hash(text.as_bytes())
            && let Some(key) = self.view.remembered(Place::of(name), pass, now)
            && let Ok(cluster) = name.parse()
        {
            return Ok(Caller { cluster, key });
        }
        self.verify(text, now).await
    }

    /// How often the caller was heard, where its pass is remembered and what it holds, `tag`, is what it would be
    /// sent, as far as the view knew at most `age` ago. It never waits.
    #[must_use]
    pub fn steady(&self, shown: Shown<'_>, now: UnixSeconds, age: Duration) -> Option<Heard> {
        let Shown { pass, tag, most } = shown;
        let mut room = [0; CLAIM];
        let (name, pass) = claimed(pass, &mut room).zip(self.hash(pass))?;
        self.view.steady(Steady { place: Place::of(name), pass, tag, now, most }, age)
    }

    async fn verify(&self, text: &str, now: UnixSeconds) -> Result<Caller, Denied> {
        let cluster = pass::claimed_cluster(text)?;
        let fleet = self.view.trust().await?.fleet;
        let known = self.view.known(&cluster).await?.and_then(|known| known.key);
        let key = known.ok_or_else(|| Denied::Unknown(cluster.clone()))?;
        let pass = pass::verify(text, &key, fleet, now)?;
        if let Some(hash) = self.hash(text.as_bytes()) {
            self.view.remember(&cluster, &key, hash, pass.exp);
        }
        Ok(Caller { cluster, key })
    }

    /// Of the signature, which is what stands behind the last point.
    fn hash(&self, pass: &[u8]) -> Option<[u64; 2]> {
        let (rest, signature) = pass.split_at_checked(pass.len().checked_sub(SIGNATURE)?)?;
        if !rest.ends_with(b".") {
            return None;
        }
        let mut hasher = self.hasher;
        hasher.write(signature);
        let hash = hasher.finish128();
        Some([hash.h1, hash.h2])
    }
}

/// The pass that a request shows.
#[must_use]
pub fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let own = headers.get(PASS_HEADER).map(HeaderValue::as_bytes);
    own.or_else(|| headers.get(AUTHORIZATION)?.as_bytes().strip_prefix(b"Bearer "))
}

/// Base64 of the 64 bytes of an Ed25519 signature (RFC 8032), without padding.
const SIGNATURE: usize = 86;

/// Base64 of as much of a pass as its cluster's name may need.
const CLAIM_TEXT: usize = 100;
/// The bytes of [`CLAIM_TEXT`].
const CLAIM: usize = 75;

/// The cluster that a pass of ours claims, before anything is verified: where its hash would be
/// remembered. A pass that is written otherwise is verified each time.
fn claimed<'a>(pass: &[u8], room: &'a mut [u8; CLAIM]) -> Option<&'a str> {
    let (_, rest) = pass.split_at_checked(pass.iter().position(|byte| *byte == b'.')? + 1)?;
    let size = URL_SAFE_NO_PAD.decode_slice(rest.get(..CLAIM_TEXT)?, room).ok()?;
    let name = room.get(..size)?.strip_prefix(br#"{"sub":""#)?;
    let end = name.iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&name[..end]).ok()
}

#[cfg(test)]
mod tests {
    use farshore_shared::digest::Digest;
    use farshore_shared::keys::SigningKey;

    use super::*;

    #[test]
    fn the_cluster_of_a_pass_of_ours_is_found_without_reading_all_of_it() {
        let key = SigningKey::generate();
        for name in ["a", "harbour", "a".repeat(63).as_str()] {
            let pass = pass::issue(&key, &name.parse().expect("a name"), Digest::of(b"root"), 1_800_000_000);
            assert_eq!(claimed(pass.as_bytes(), &mut [0; CLAIM]), Some(name));
            let signature = pass.rsplit('.').next().expect("three parts");
            assert_eq!(signature.len(), SIGNATURE);
        }
        for other in ["", "a.b.c", "a.", &format!("a.{}", "!".repeat(200)), &format!("a.{}", "A".repeat(200))]
        {
            assert_eq!(claimed(other.as_bytes(), &mut [0; CLAIM]), None, "{other}");
        }
    }
}
