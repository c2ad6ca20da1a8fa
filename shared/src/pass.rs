//! The short-lived JWT (RFC 7519, `EdDSA` of RFC 8037) with which an agent calls the hub.
//!
//! It is signed with the site's own key and names the cluster (`sub`), the fleet (`aud`: the digest
//! of root 1) and a few minutes of validity, dated by the hub's clock.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::keys::{PublicKey, SigningKey};
use crate::names::Name;
use crate::wire::UnixSeconds;

/// How long a pass is valid, in seconds. It is not what ends a removed cluster's access: a hub looks up the
/// cluster's key at each request. Each new pass costs a signature check and some 300 bytes on the wire.
pub const LIFETIME: u64 = 3600;
/// The longest validity that a hub accepts, in seconds.
pub const LIFETIME_LIMIT: u64 = 5400;
/// How far the two clocks may differ, in seconds.
pub const LEEWAY: u64 = 60;
/// The longest pass that is looked at, in bytes.
pub const PASS_LIMIT: usize = 2048;

/// What a pass says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// The cluster.
    pub sub: Name,
    /// The fleet: the digest of root 1.
    pub aud: Digest,
    /// Issued at.
    pub iat: UnixSeconds,
    /// Not valid any more at.
    pub exp: UnixSeconds,
}

/// Why a pass is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum BadPass {
    /// More bytes than [`PASS_LIMIT`].
    #[error("pass exceeds its limit ({PASS_LIMIT} bytes)")]
    TooLong,
    /// Not a JWT, another algorithm, a wrong signature, or expired.
    #[error("verifying the pass")]
    Jwt(#[from] jsonwebtoken::errors::Error),
    /// Made for another fleet.
    #[error("pass is for another fleet")]
    Audience,
    /// Valid for longer than [`LIFETIME_LIMIT`], dated in the future, or already over.
    #[error("pass is not valid at this time (issued {issued}, expires {expires}, now {now})")]
    Time {
        /// Issued at.
        issued: UnixSeconds,
        /// Expires at.
        expires: UnixSeconds,
        /// The verifier's clock.
        now: UnixSeconds,
    },
}

/// Makes a pass.
///
/// # Panics
/// Never: an Ed25519 key signs any claims.
#[must_use]
pub fn issue(key: &SigningKey, cluster: &Name, fleet: Digest, now: UnixSeconds) -> String {
    let pass = Pass { sub: cluster.clone(), aud: fleet, iat: now, exp: now + LIFETIME };
    let signer = EncodingKey::from_ed_der(&key.to_pkcs8());
    jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), &pass, &signer)
        .expect("an Ed25519 key signs any claims")
}

/// The cluster that a pass claims to be of, before anything is verified: to find the key to verify with.
///
/// # Errors
/// [`BadPass`] for anything that is not a short JWT.
pub fn claimed_cluster(pass: &str) -> Result<Name, BadPass> {
    if pass.len() > PASS_LIMIT {
        return Err(BadPass::TooLong);
    }
    Ok(jsonwebtoken::dangerous::insecure_decode::<Pass>(pass)?.claims.sub)
}

/// Verifies a pass against the key of the cluster that it claims.
///
/// # Errors
/// [`BadPass`].
pub fn verify(pass: &str, key: &PublicKey, fleet: Digest, now: UnixSeconds) -> Result<Pass, BadPass> {
    if pass.len() > PASS_LIMIT {
        return Err(BadPass::TooLong);
    }
    let mut rules = Validation::new(Algorithm::EdDSA);
    // Time and audience are checked below, against the clock that is passed in.
    rules.validate_exp = false;
    rules.validate_aud = false;
    rules.required_spec_claims.clear();
    let verifier = DecodingKey::from_ed_components(&URL_SAFE_NO_PAD.encode(key.as_bytes()))?;
    let pass = jsonwebtoken::decode::<Pass>(pass, &verifier, &rules)?.claims;
    if pass.aud != fleet {
        return Err(BadPass::Audience);
    }
    let timely = pass.iat <= now.saturating_add(LEEWAY)
        && now <= pass.exp.saturating_add(LEEWAY)
        && pass.exp.saturating_sub(pass.iat) <= LIFETIME_LIMIT;
    if timely { Ok(pass) } else { Err(BadPass::Time { issued: pass.iat, expires: pass.exp, now }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn case() -> (SigningKey, Name, Digest, String) {
        let (key, name, fleet) =
            (SigningKey::generate(), "shop-7".parse().expect("a name"), Digest::of(b"root"));
        let pass = issue(&key, &name, fleet, NOW);
        (key, name, fleet, pass)
    }

    #[test]
    fn a_pass_is_verified_with_the_cluster_s_key() {
        let (key, name, fleet, pass) = case();
        assert_eq!(claimed_cluster(&pass).expect("a JWT"), name);
        assert_eq!(verify(&pass, key.public(), fleet, NOW).expect("valid").sub, name);
        assert!(matches!(verify(&pass, SigningKey::generate().public(), fleet, NOW), Err(BadPass::Jwt(_))));
    }

    #[test]
    fn a_pass_for_another_fleet_or_time_is_refused() {
        let (key, _, fleet, pass) = case();
        assert!(matches!(verify(&pass, key.public(), Digest::of(b"other"), NOW), Err(BadPass::Audience)));
        for now in [NOW - LEEWAY - 1, NOW + LIFETIME + LEEWAY + 1] {
            assert!(matches!(verify(&pass, key.public(), fleet, now), Err(BadPass::Time { .. })));
        }
    }

    #[test]
    fn a_pass_that_never_ends_is_refused_and_counts_nothing_over() {
        let (key, name, fleet, _) = case();
        let claims = Pass { sub: name, aud: fleet, iat: NOW, exp: u64::MAX };
        let signer = EncodingKey::from_ed_der(&key.to_pkcs8());
        let pass = jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), &claims, &signer).expect("signs");
        assert!(matches!(verify(&pass, key.public(), fleet, NOW), Err(BadPass::Time { .. })));
    }

    #[test]
    fn no_other_algorithm_is_accepted() {
        let (key, name, fleet, _) = case();
        let claims = Pass { sub: name, aud: fleet, iat: NOW, exp: NOW + 60 };
        let hmac = EncodingKey::from_secret(key.public().as_bytes());
        let forged = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &hmac).expect("signs");
        assert!(verify(&forged, key.public(), fleet, NOW).is_err());
        let body = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims).expect("json"));
        let none = format!("{}.{body}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#));
        assert!(verify(&none, key.public(), fleet, NOW).is_err());
    }
}
