//! What a Git server shows to be believed, and whether it is right. Pure.
//!
//! GitHub signs the body (`X-Hub-Signature-256: sha256=<hex>`), and so does Gitea (`X-Gitea-Signature: <hex>`);
//! GitLab sends the secret itself (`X-Gitlab-Token`).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use farshore_shared::digest::{Digest, Hasher};
use http::HeaderMap;

/// The most bytes of a token.
const TOKEN_LIMIT: usize = 1024;

/// What was shown, not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// An HMAC-SHA256 of the body under the secret.
    Signature([u8; 32]),
    /// The secret itself.
    Token(Vec<u8>),
}

/// Nothing was shown that could be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoProof {
    /// No header of a kind that is known.
    #[error("webhook is not signed: send X-Hub-Signature-256 (GitHub), X-Gitea-Signature, or X-Gitlab-Token")]
    Missing,
    /// Not 64 hexadecimal digits, or a token beyond its limit.
    #[error("signature of the webhook cannot be read ({0})")]
    Unreadable(&'static str),
}

impl Proof {
    /// What the headers show. Where there are several kinds the first of GitHub's, Gitea's and GitLab's counts.
    ///
    /// # Errors
    /// [`NoProof`].
    pub fn of(headers: &HeaderMap) -> Result<Self, NoProof> {
        if let Some(value) = headers.get("x-hub-signature-256") {
            let digits = value.as_bytes().strip_prefix(b"sha256=");
            return digits.and_then(signature).ok_or(NoProof::Unreadable("X-Hub-Signature-256"));
        }
        if let Some(value) = headers.get("x-gitea-signature") {
            return signature(value.as_bytes()).ok_or(NoProof::Unreadable("X-Gitea-Signature"));
        }
        match headers.get("x-gitlab-token") {
            Some(value) if value.len() <= TOKEN_LIMIT => Ok(Self::Token(value.as_bytes().to_vec())),
            Some(_) => Err(NoProof::Unreadable("X-Gitlab-Token")),
            None => Err(NoProof::Missing),
        }
    }
}

fn signature(digits: &[u8]) -> Option<Proof> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(Proof::Signature(bytes))
}

/// Checks a proof while the body arrives, piece by piece.
pub struct Checker {
    /// None where what was shown is right whatever the body.
    signed: Option<Signed>,
    body: Hasher,
}

struct Signed {
    signature: [u8; 32],
    running: Vec<hmac::Context>,
}

impl std::fmt::Debug for Checker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checker").finish_non_exhaustive()
    }
}

impl Checker {
    /// Checks against any of these secrets; none if no body can make it right.
    #[must_use]
    pub fn new(secrets: &[Vec<u8>], proof: Proof) -> Option<Self> {
        let key = |secret: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, secret);
        let keys = secrets.iter().map(|secret| key(secret));
        let signed = match proof {
            Proof::Signature(signature) => {
                let running = keys.map(|key| hmac::Context::with_key(&key)).collect();
                Some(Signed { signature, running })
            }
            Proof::Token(token) => {
                // Compared by what it makes as a key: in constant time, whatever its length.
                let shown = hmac::sign(&key(&token), TOKEN);
                is_one_of(keys.map(|key| hmac::sign(&key, TOKEN)), shown.as_ref()).then_some(None)?
            }
        };
        Some(Self { signed, body: Hasher::default() })
    }

    /// Takes the next piece of the body.
    pub fn update(&mut self, piece: &[u8]) {
        self.body.update(piece);
        for context in self.signed.iter_mut().flat_map(|signed| &mut signed.running) {
            context.update(piece);
        }
    }

    /// The digest of the body, if the proof is right.
    #[must_use]
    pub fn finish(self) -> Option<Digest> {
        let is_right = self.signed.is_none_or(|Signed { signature, running }| {
            is_one_of(running.into_iter().map(hmac::Context::sign), &signature)
        });
        is_right.then(|| self.body.finish())
    }
}

/// All are compared, so that nobody learns which it was.
fn is_one_of(tags: impl Iterator<Item = hmac::Tag>, shown: &[u8]) -> bool {
    tags.filter(|tag| verify_slices_are_equal(tag.as_ref(), shown).is_ok()).count() > 0
}

/// What is signed to compare two keys.
const TOKEN: &[u8] = b"farshore webhook token";

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of GitHub's documentation ("Validating webhook deliveries").
    const SECRET: &[u8] = b"It's a Secret to Everybody";
    const BODY: &[u8] = b"Hello, World!";
    const SIGNATURE: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().expect("a header"))])
    }

    fn check(headers: &HeaderMap, secrets: &[&[u8]], body: &[u8]) -> bool {
        let secrets: Vec<Vec<u8>> = secrets.iter().map(|secret| secret.to_vec()).collect();
        let Some(mut checker) = Checker::new(&secrets, Proof::of(headers).expect("shown")) else {
            return false;
        };
        body.chunks(5).for_each(|piece| checker.update(piece));
        checker.finish().is_some_and(|digest| digest == Digest::of(body))
    }

    #[test]
    fn each_kind_of_git_server_is_believed_by_its_secret_alone() {
        let github = headers("x-hub-signature-256", &format!("sha256={SIGNATURE}"));
        let gitea = headers("x-gitea-signature", SIGNATURE);
        let gitlab = headers("x-gitlab-token", "It's a Secret to Everybody");
        for shown in [&github, &gitea, &gitlab] {
            assert!(check(shown, &[SECRET], BODY), "{shown:?}");
            assert!(check(shown, &[b"the next secret", SECRET], BODY), "{shown:?} while it is replaced");
            assert!(!check(shown, &[b"another secret"], BODY), "{shown:?}");
            assert!(!check(shown, &[], BODY), "{shown:?}");
        }
        for signed in [&github, &gitea] {
            assert!(!check(signed, &[SECRET], b"Hello, World?"), "another body");
        }
        let prefix = headers("x-gitlab-token", "It's a Secret to Everybod");
        assert!(!check(&prefix, &[SECRET], BODY));
        assert!(!check(&headers("x-gitlab-token", ""), &[SECRET], BODY));
    }

    #[test]
    fn what_cannot_be_checked_is_told_apart() {
        assert_eq!(Proof::of(&HeaderMap::new()), Err(NoProof::Missing));
        let sha1 = headers("x-hub-signature", "sha1=0000000000000000000000000000000000000000");
        assert_eq!(Proof::of(&sha1), Err(NoProof::Missing));
        for bad in ["", "sha256=", SIGNATURE, "sha256=zz", &format!("sha1={SIGNATURE}"), &SIGNATURE[..62]] {
            let shown = Proof::of(&headers("x-hub-signature-256", bad));
            assert_eq!(shown, Err(NoProof::Unreadable("X-Hub-Signature-256")), "{bad:?}");
        }
        let large = headers("x-gitlab-token", &"x".repeat(TOKEN_LIMIT + 1));
        assert_eq!(Proof::of(&large), Err(NoProof::Unreadable("X-Gitlab-Token")));
    }
}
