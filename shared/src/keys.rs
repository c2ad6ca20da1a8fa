//! Ed25519 keys: what a key id is, how a key file looks, and nothing about who may sign what.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// The id of a key: SHA-256 of its 32 public bytes.
pub type KeyId = Digest;

/// Why a text or bytes are not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// Not the base64 of 32 bytes.
    #[error("an Ed25519 public key is 32 bytes in base64")]
    Public,
    /// The scheme is not known here.
    #[error("key scheme is not known (got {0:?}; known: ed25519)")]
    Scheme(String),
    /// Not what [`SigningKey::to_file`] writes.
    #[error("a key file holds one line 'farshore-{expected} <64 hexadecimal digits>'")]
    File {
        /// The kind of key that was looked for.
        expected: &'static str,
    },
}

/// A public key, which names its scheme: `{"scheme": "ed25519", "public": base64}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "KeyText", into = "KeyText")]
pub struct PublicKey([u8; 32]);

#[derive(Serialize, Deserialize)]
struct KeyText {
    scheme: String,
    public: String,
}

impl PublicKey {
    /// The key's id.
    #[must_use]
    pub fn id(&self) -> KeyId {
        Digest::of(&self.0)
    }

    /// The 32 bytes of RFC 8032, section 5.1.5.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether this key made that signature over those bytes.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, signature).is_ok()
    }
}

impl From<[u8; 32]> for PublicKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl TryFrom<KeyText> for PublicKey {
    type Error = BadKey;

    fn try_from(text: KeyText) -> Result<Self, BadKey> {
        if text.scheme != "ed25519" {
            return Err(BadKey::Scheme(text.scheme));
        }
        let bytes = STANDARD.decode(text.public).map_err(|_| BadKey::Public)?;
        Ok(Self(bytes.try_into().map_err(|_| BadKey::Public)?))
    }
}

impl From<PublicKey> for KeyText {
    fn from(key: PublicKey) -> Self {
        Self { scheme: "ed25519".into(), public: STANDARD.encode(key.0) }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519:{}", self.id().short())
    }
}

/// A key that signs. It prints only its id.
pub struct SigningKey {
    seed: Secret,
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl SigningKey {
    /// A new key from the system's random numbers.
    ///
    /// # Panics
    /// When the operating system has no random numbers.
    #[must_use]
    pub fn generate() -> Self {
        Self::from_seed(Secret::random())
    }

    /// The key of a seed (RFC 8032, section 5.1.5).
    ///
    /// # Panics
    /// Never: every 32 bytes are a seed.
    #[must_use]
    pub fn from_seed(seed: Secret) -> Self {
        let pair =
            Ed25519KeyPair::from_seed_unchecked(seed.as_bytes()).expect("every 32 bytes are an Ed25519 seed");
        let public = pair.public_key().as_ref().try_into().expect("an Ed25519 public key has 32 bytes");
        Self { seed, pair, public: PublicKey(public) }
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The 64 bytes of the signature.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }

    /// PKCS #8 (RFC 8410), for libraries that want it.
    ///
    /// # Panics
    /// Never: an Ed25519 pair always has this form.
    #[must_use]
    pub fn to_pkcs8(&self) -> Vec<u8> {
        self.pair.to_pkcs8().expect("an Ed25519 pair has a PKCS #8 form").as_ref().to_vec()
    }

    /// The text of a key file.
    #[must_use]
    pub fn to_file(&self) -> String {
        self.seed.to_file("ed25519")
    }

    /// Reads the text of a key file.
    ///
    /// # Errors
    /// [`BadKey::File`].
    pub fn from_file(text: &str) -> Result<Self, BadKey> {
        Ok(Self::from_seed(Secret::from_file(text, "ed25519")?))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signing key of {:?}", self.public)
    }
}

/// 32 secret bytes. It prints nothing of itself.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// New ones from the system's random numbers.
    ///
    /// # Panics
    /// When the operating system has no random numbers.
    #[must_use]
    pub fn random() -> Self {
        Self(random_bytes())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The text of a file that holds this secret as a key of that kind.
    #[must_use]
    pub fn to_file(&self, kind: &str) -> String {
        format!("farshore-{kind} {}\n", hex::encode(self.0))
    }

    /// Reads what [`Secret::to_file`] wrote.
    ///
    /// # Errors
    /// [`BadKey::File`].
    pub fn from_file(text: &str, kind: &'static str) -> Result<Self, BadKey> {
        let bad = BadKey::File { expected: kind };
        let digits = text.trim_end().strip_prefix("farshore-").and_then(|t| t.strip_prefix(kind));
        let digits = digits.and_then(|t| t.strip_prefix(' ')).ok_or_else(|| bad.clone())?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| bad)?;
        Ok(Self(bytes))
    }
}

impl From<[u8; 32]> for Secret {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("secret")
    }
}

/// Random bytes from the operating system.
///
/// # Panics
/// When the operating system has none: nothing here can be done safely then.
#[must_use]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    use aws_lc_rs::rand::SecureRandom as _;
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the operating system has random numbers");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, section 7.1, test 2.
    #[test]
    fn signatures_are_those_of_rfc_8032() {
        let seed: [u8; 32] = hex::decode("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
            .expect("hex")
            .try_into()
            .expect("32 bytes");
        let key = SigningKey::from_seed(seed.into());
        let signature = key.sign(&[0x72]);
        assert_eq!(
            hex::encode(&signature),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        );
        assert!(key.public().verifies(&[0x72], &signature));
        assert!(!key.public().verifies(&[0x73], &signature));
    }

    #[test]
    fn a_key_file_reads_back_and_a_cut_one_does_not() {
        let key = SigningKey::generate();
        let text = key.to_file();
        assert_eq!(SigningKey::from_file(&text).expect("whole").public(), key.public());
        assert_eq!(
            SigningKey::from_file(&text[..40]).map(|k| k.public().clone()),
            Err(BadKey::File { expected: "ed25519" })
        );
        assert!(!format!("{key:?}").contains(&hex::encode(key.seed.as_bytes())));
    }
}
