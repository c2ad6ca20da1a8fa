//! Join tokens: `fs1.<claims>.<secret>.<sha256 of root 1>`.
//!
//! The secret is an HMAC of the claims under the token key, so that nothing is stored to check it.
//! A site sends the claims and a proof made with the secret ([`JoinToken::prove`]), never the secret itself; only the
//! publisher, which holds the token key, can check it.

use std::str::FromStr;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::keys::{PublicKey, Secret};
use crate::names::{Labels, Name};
use crate::wire::{EnrollRequest, UnixSeconds};

const PREFIX: &str = "fs1";
/// The longest token that is read, in bytes.
const TOKEN_LIMIT: usize = 16 << 10;

/// What a token allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Claims {
    /// Random; uses are counted under it.
    pub id: String,
    /// The labels that a cluster enrolled with it has.
    #[serde(default)]
    pub labels: Labels,
    /// After this it enrols nobody new.
    pub expires: UnixSeconds,
    /// How many clusters it may enrol.
    pub uses: u32,
    /// The only cluster that may use it, where one is named; that cluster's key is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Name>,
}

/// A join token.
#[derive(Debug, Clone)]
pub struct JoinToken {
    /// The claims as the token has them.
    pub claims_text: String,
    /// The same, read.
    pub claims: Claims,
    secret: Secret,
    /// SHA-256 of root 1, in its envelope, as the hub serves it.
    pub root: Digest,
}

/// Why a text is not a join token. Nothing of the token is repeated.
#[derive(Debug, thiserror::Error)]
pub enum BadToken {
    /// Not four parts, or too long.
    #[error("a join token has the form fs1.<claims>.<secret>.<root>: this one {0}")]
    Form(&'static str),
    /// The claims cannot be read.
    #[error("reading the claims of the join token")]
    Claims(#[source] serde_json::Error),
}

impl JoinToken {
    /// Makes a token.
    ///
    /// # Panics
    /// Never: claims have string keys only.
    #[must_use]
    pub fn issue(claims: Claims, token_key: &Secret, root: Digest) -> Self {
        let json = serde_json::to_vec(&claims).expect("claims have string keys only");
        let claims_text = URL_SAFE_NO_PAD.encode(json);
        let secret = secret_of(&claims_text, token_key);
        Self { claims_text, claims, secret, root }
    }

    /// The proof that goes with an enrolment request for these keys.
    #[must_use]
    pub fn prove(&self, cluster: &Name, key: &PublicKey, sealing_key: &str) -> String {
        proof(&self.secret, &self.claims_text, cluster, key, sealing_key)
    }

    /// The token as text.
    #[must_use]
    pub fn expose(&self) -> String {
        let secret = URL_SAFE_NO_PAD.encode(self.secret.as_bytes());
        format!("{PREFIX}.{}.{secret}.{}", self.claims_text, self.root)
    }
}

impl FromStr for JoinToken {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        if text.len() > TOKEN_LIMIT {
            return Err(BadToken::Form("is longer than any token"));
        }
        let parts: Vec<&str> = text.trim().split('.').collect();
        let [prefix, claims_text, secret, root] = parts[..] else {
            return Err(BadToken::Form("does not have four parts: it may have been cut"));
        };
        if prefix != PREFIX {
            return Err(BadToken::Form("does not begin with fs1"));
        }
        let secret = URL_SAFE_NO_PAD.decode(secret).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let secret = secret.ok_or(BadToken::Form("has a broken secret: it may have been cut"))?;
        let root =
            root.parse().map_err(|_| BadToken::Form("has a broken root digest: it may have been cut"))?;
        let claims = read_claims(claims_text)?;
        Ok(Self { claims_text: claims_text.to_owned(), claims, secret: secret.into(), root })
    }
}

/// Reads the claims of a token, which are not yet proven to be anybody's.
///
/// # Errors
/// [`BadToken`].
pub fn read_claims(claims_text: &str) -> Result<Claims, BadToken> {
    let json = URL_SAFE_NO_PAD.decode(claims_text).map_err(|_| BadToken::Form("has broken claims"))?;
    serde_json::from_slice(&json).map_err(BadToken::Claims)
}

fn secret_of(claims_text: &str, token_key: &Secret) -> Secret {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token_key.as_bytes());
    let tag = hmac::sign(&key, format!("farshore join token\n{claims_text}").as_bytes());
    let bytes: [u8; 32] = tag.as_ref().try_into().expect("HMAC-SHA256 has 32 bytes");
    bytes.into()
}

fn proof(secret: &Secret, claims_text: &str, cluster: &Name, key: &PublicKey, sealing_key: &str) -> String {
    let parts = [claims_text.as_bytes(), cluster.as_str().as_bytes(), key.as_bytes(), sealing_key.as_bytes()];
    let message = Digest::of_parts(parts);
    hex::encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), message.as_bytes()))
}

/// Whether a request was made with the token that has its claims, by constant-time comparison.
#[must_use]
pub fn is_proven(token_key: &Secret, request: &EnrollRequest) -> bool {
    let EnrollRequest { claims, cluster, key, sealing_key, proof: shown } = request;
    let expected = proof(&secret_of(claims, token_key), claims, cluster, key, sealing_key);
    aws_lc_rs::constant_time::verify_slices_are_equal(expected.as_bytes(), shown.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SigningKey;

    fn token(key: &Secret) -> JoinToken {
        let claims = Claims {
            id: "t1".into(),
            labels: Labels::new(),
            expires: 1_800_000_000,
            uses: 1,
            replaces: None,
        };
        JoinToken::issue(claims, key, Digest::of(b"root"))
    }

    #[test]
    fn a_token_reads_back_and_proves_itself() {
        let key = Secret::random();
        let read: JoinToken = token(&key).expose().parse().expect("a whole token");
        let (site, cluster) = (SigningKey::generate(), "shop-7".parse().expect("a name"));
        let request = EnrollRequest {
            claims: read.claims_text.clone(),
            proof: read.prove(&cluster, site.public(), "sealing"),
            cluster,
            key: site.public().clone(),
            sealing_key: "sealing".into(),
        };
        assert!(is_proven(&key, &request));
        assert!(!is_proven(&Secret::random(), &request));
        let other = EnrollRequest { cluster: "shop-8".parse().expect("a name"), ..request };
        assert!(!is_proven(&key, &other));
    }

    #[test]
    fn a_token_cut_anywhere_is_refused_without_being_repeated() {
        let text = token(&Secret::random()).expose();
        for end in 0..text.len() {
            let Err(refused) = text[..end].parse::<JoinToken>() else { panic!("cut at {end} was accepted") };
            assert!(end < 12 || !refused.to_string().contains(&text[..end]));
        }
    }
}
