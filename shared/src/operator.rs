//! What an operator asks of a hub: each request is signed by itself, so that no secret is ever sent.
//!
//! The header [`OPERATOR_HEADER`] carries an envelope of an [`Ask`] in base64url. It names the method, path
//! and query, the digest of the body and the time. Asking twice has no effect that asking once has not, so
//! that a replay within [`WINDOW`] is harmless; the nonce tells two requests of one second apart in logs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::dsse::{Envelope, Refused, Signers};
use crate::keys::{KeyId, SigningKey, random_bytes};
use crate::wire::{Document, UnixSeconds};

/// The request header of an operator.
pub const OPERATOR_HEADER: &str = "farshore-operator";
/// The most bytes of the header.
pub const OPERATOR_LIMIT: usize = 8 << 10;
/// How far the clocks of operator and hub may differ, in seconds.
pub const WINDOW: u64 = 300;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ask {
    /// `GET` or `POST`.
    pub method: String,
    /// Path and query, byte for byte as they are sent.
    pub target: String,
    /// SHA-256 of the body before any content-encoding; of nothing, where there is none.
    pub body: Digest,
    /// When it was signed.
    pub issued: UnixSeconds,
    /// Random.
    pub nonce: String,
    /// Fields that a reader must understand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub critical: Vec<String>,
}

impl Document for Ask {
    const TYPE: &'static str = "application/vnd.farshore.operator-request.v1+json";

    fn critical(&self) -> &[String] {
        &self.critical
    }
}

/// Why a request is not an operator's.
#[derive(Debug, thiserror::Error)]
pub enum BadAsk {
    /// More bytes than [`OPERATOR_LIMIT`].
    #[error("{OPERATOR_HEADER} exceeds its limit ({OPERATOR_LIMIT} bytes)")]
    TooLong,
    /// Not an envelope in base64url.
    #[error("{OPERATOR_HEADER} is not an envelope in base64url")]
    Form,
    /// Signed by somebody else.
    #[error("key is not an operator of this fleet (key {signed}; root names {named})")]
    Foreign {
        /// Ids of the keys that have signed.
        signed: String,
        /// Ids of the keys that the root names.
        named: String,
    },
    /// Not signed as it should be.
    #[error("{OPERATOR_HEADER} is refused: {0}")]
    Refused(Refused),
    /// Signed for something else.
    #[error("{OPERATOR_HEADER} was signed for another {what} ({signed}; this one is {sent})")]
    Other {
        /// What differs.
        what: &'static str,
        /// As it was signed.
        signed: String,
        /// As it was sent.
        sent: String,
    },
    /// Too old, or from the future.
    #[error(
        "{OPERATOR_HEADER} is not of this time (signed at {issued}, the hub's clock says {now}, they may differ by {WINDOW} s): set the clock"
    )]
    Time {
        /// As it was signed.
        issued: UnixSeconds,
        /// The hub's clock.
        now: UnixSeconds,
    },
}

impl Ask {
    /// A request for now.
    #[must_use]
    pub fn new(method: &str, target: &str, body: &[u8], now: UnixSeconds) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            body: Digest::of(body),
            issued: now,
            nonce: URL_SAFE_NO_PAD.encode(random_bytes::<12>()),
            critical: vec![],
        }
    }

    /// The header of this request.
    #[must_use]
    pub fn header(&self, key: &SigningKey) -> String {
        URL_SAFE_NO_PAD.encode(Envelope::seal(self, &[key]).to_bytes())
    }

    /// Verifies a header against the request that it came with, and the hub's clock.
    ///
    /// `named` are the ids of the keys whose signatures count, for the error only.
    ///
    /// # Errors
    /// [`BadAsk`].
    pub fn verify(
        header: &str,
        signers: &Signers<'_>,
        named: &[KeyId],
        sent: &Sent<'_>,
        now: UnixSeconds,
    ) -> Result<Self, BadAsk> {
        if header.len() > OPERATOR_LIMIT {
            return Err(BadAsk::TooLong);
        }
        let bytes = URL_SAFE_NO_PAD.decode(header).map_err(|_not_base64| BadAsk::Form)?;
        let envelope: Envelope = serde_json::from_slice(&bytes).map_err(|_not_json| BadAsk::Form)?;
        let ask: Self = envelope.open(signers, OPERATOR_LIMIT).map_err(|refused| {
            let signed: Vec<KeyId> = envelope.signatures.iter().map(|signature| signature.keyid).collect();
            match refused {
                Refused::Signatures { .. } if !signed.iter().any(|id| named.contains(id)) => {
                    BadAsk::Foreign { signed: listed(&signed), named: listed(named) }
                }
                refused => BadAsk::Refused(refused),
            }
        })?;
        let other = |what, signed: &str, sent: &str| {
            let cut = |text: &str| text.chars().take(200).collect();
            Err(BadAsk::Other { what, signed: cut(signed), sent: cut(sent) })
        };
        if ask.method != sent.method {
            return other("method", &ask.method, sent.method);
        }
        if ask.target != sent.target {
            return other("path", &ask.target, sent.target);
        }
        let body = Digest::of(sent.body);
        if ask.body != body {
            return other("body", &ask.body.to_string(), &body.to_string());
        }
        if now.abs_diff(ask.issued) > WINDOW {
            return Err(BadAsk::Time { issued: ask.issued, now });
        }
        Ok(ask)
    }
}

/// A request as it arrived.
#[derive(Debug, Clone, Copy)]
pub struct Sent<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The body, before any content-encoding.
    pub body: &'a [u8],
}

fn listed(keys: &[KeyId]) -> String {
    let texts: Vec<String> = keys.iter().take(8).map(ToString::to_string).collect();
    if texts.is_empty() { "none".into() } else { texts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const SENT: Sent<'_> = Sent { method: "POST", target: "/v1/approvals?x=1", body: b"body" };

    fn verify(header: &str, key: &SigningKey, sent: &Sent<'_>, now: u64) -> Result<Ask, BadAsk> {
        let named = [key.public().id()];
        Ask::verify(header, &Signers::one(key.public()), &named, sent, now)
    }

    #[test]
    fn a_request_is_verified_with_all_that_it_says() {
        let key = SigningKey::generate();
        let header = Ask::new(SENT.method, SENT.target, SENT.body, NOW).header(&key);
        assert!(header.len() < OPERATOR_LIMIT / 4, "{}", header.len());
        for now in [NOW - WINDOW, NOW, NOW + WINDOW] {
            assert!(verify(&header, &key, &SENT, now).is_ok());
        }
        for now in [NOW - WINDOW - 1, NOW + WINDOW + 1] {
            assert!(matches!(verify(&header, &key, &SENT, now), Err(BadAsk::Time { .. })));
        }
        for sent in [
            Sent { method: "GET", ..SENT },
            Sent { target: "/v1/approvals", ..SENT },
            Sent { body: b"", ..SENT },
        ] {
            let refused = verify(&header, &key, &sent, NOW);
            assert!(matches!(refused, Err(BadAsk::Other { .. })), "{refused:?}");
        }
    }

    #[test]
    fn a_stranger_s_key_is_named_beside_ours() {
        let (ours, other) = (SigningKey::generate(), SigningKey::generate());
        let header = Ask::new(SENT.method, SENT.target, SENT.body, NOW).header(&other);
        let refused = verify(&header, &ours, &SENT, NOW).expect_err("a stranger").to_string();
        for key in [&ours, &other] {
            assert!(refused.contains(&key.public().id().to_string()), "{refused}");
        }
    }

    #[test]
    fn what_is_no_header_of_ours_is_refused_and_never_large() {
        let key = SigningKey::generate();
        let long = "a".repeat(OPERATOR_LIMIT + 1);
        assert!(matches!(verify(&long, &key, &SENT, NOW), Err(BadAsk::TooLong)));
        for bad in ["", "!", "e30", "AAAA"] {
            assert!(matches!(verify(bad, &key, &SENT, NOW), Err(BadAsk::Form)), "{bad:?}");
        }
    }
}
