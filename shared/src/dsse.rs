//! The envelope of every signed document: DSSE 1.0 (`secure-systems-lab/dsse`, `protocol.md`).
//!
//! The payload is verified before it is parsed, and it is bounded before it is verified.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::keys::{KeyId, PublicKey, SigningKey};
use crate::wire::{Document, Role, Root};

/// The most signatures that are looked at.
pub const SIGNATURES_LIMIT: usize = 16;

/// A signed document, not yet verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// Names kind and version of the payload.
    pub payload_type: String,
    /// The document, in base64.
    pub payload: String,
    /// Who signed it.
    pub signatures: Vec<Signature>,
}

/// One signature of an [`Envelope`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// Whose.
    pub keyid: KeyId,
    /// The signature, in base64.
    pub sig: String,
}

/// Why an envelope is not believed.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It says to be something else.
    #[error("payload type is {got:?}, not {expected:?}")]
    Type {
        /// The type that was looked for.
        expected: &'static str,
        /// The type in the envelope.
        got: String,
    },
    /// Too large to look at.
    #[error("envelope exceeds its limit ({size} of {limit} bytes)")]
    TooLarge {
        /// Bytes of the payload.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The base64 is broken.
    #[error("envelope is not valid base64")]
    Encoding(#[source] base64::DecodeError),
    /// Not enough of the right keys signed it.
    #[error("{valid} of {threshold} required signatures are valid")]
    Signatures {
        /// Different keys of the role with a valid signature.
        valid: usize,
        /// How many are needed.
        threshold: usize,
    },
    /// The signed payload is not the document.
    #[error("reading the signed payload")]
    Payload(#[source] serde_json::Error),
    /// The document demands a field that is not known here.
    #[error("document demands a field that this version does not know ({0})")]
    Critical(String),
}

/// Pre-authentication encoding (DSSE protocol, "PAE"): what is really signed.
fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut out = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    out.extend_from_slice(payload);
    out
}

impl Envelope {
    /// Signs a document with each of the keys.
    ///
    /// # Panics
    /// Never: documents have string keys only.
    #[must_use]
    pub fn seal<T: Document>(document: &T, keys: &[&SigningKey]) -> Self {
        let payload = serde_json::to_vec(document).expect("a document has string keys only");
        let message = pae(T::TYPE, &payload);
        let sign = |key: &&SigningKey| Signature {
            keyid: key.public().id(),
            sig: STANDARD.encode(key.sign(&message)),
        };
        Self {
            payload_type: T::TYPE.to_owned(),
            payload: STANDARD.encode(&payload),
            signatures: keys.iter().map(sign).collect(),
        }
    }

    /// Verifies, then parses.
    ///
    /// # Errors
    /// [`Refused`], which names what is wrong.
    pub fn open<T: Document>(&self, signers: &Signers<'_>, limit: usize) -> Result<T, Refused> {
        if self.payload_type != T::TYPE {
            let got = self.payload_type.chars().take(120).collect();
            return Err(Refused::Type { expected: T::TYPE, got });
        }
        if self.payload.len() / 4 * 3 > limit {
            return Err(Refused::TooLarge { size: self.payload.len() / 4 * 3, limit });
        }
        let payload = STANDARD.decode(&self.payload).map_err(Refused::Encoding)?;
        let valid = self.valid_signatures(signers, &pae(&self.payload_type, &payload));
        if valid < signers.threshold.max(1) {
            return Err(Refused::Signatures { valid, threshold: signers.threshold.max(1) });
        }
        let document: T = serde_json::from_slice(&payload).map_err(Refused::Payload)?;
        match document.critical().first() {
            Some(field) => Err(Refused::Critical(field.clone())),
            None => Ok(document),
        }
    }

    /// Opens a root that is signed by a threshold of its own root keys: the one document whose signers
    /// stand in its payload, so that it is parsed before it is verified, within the same limit.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn open_self_signed(&self, limit: usize) -> Result<Root, Refused> {
        if self.payload.len() / 4 * 3 > limit {
            return Err(Refused::TooLarge { size: self.payload.len() / 4 * 3, limit });
        }
        let payload = STANDARD.decode(&self.payload).map_err(Refused::Encoding)?;
        let claimed: Root = serde_json::from_slice(&payload).map_err(Refused::Payload)?;
        self.open(&Signers::of(&claimed, &claimed.roles.root), limit)
    }

    /// The payload, its signature not looked at: for whoever sorts what somebody else has verified. None
    /// beyond the limit, and for what is not base64.
    #[must_use]
    pub fn peek(&self, limit: usize) -> Option<Vec<u8>> {
        if self.payload.len() / 4 * 3 > limit {
            return None;
        }
        STANDARD.decode(&self.payload).ok()
    }

    /// Counts keys, not signatures: one key that signs twice counts once (TUF 1.0, section 5.3.4).
    fn valid_signatures(&self, signers: &Signers<'_>, message: &[u8]) -> usize {
        let mut counted: Vec<KeyId> = Vec::new();
        for signature in self.signatures.iter().take(SIGNATURES_LIMIT) {
            let Some(key) = signers.keys.iter().find(|key| key.id() == signature.keyid) else { continue };
            let Ok(bytes) = STANDARD.decode(&signature.sig) else { continue };
            if !counted.contains(&signature.keyid) && key.verifies(message, &bytes) {
                counted.push(signature.keyid);
            }
        }
        counted.len()
    }

    /// The bytes as they are stored and sent.
    ///
    /// # Panics
    /// Never: an envelope has string keys only.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an envelope has string keys only")
    }

    /// The digest of [`Envelope::to_bytes`].
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.to_bytes())
    }
}

/// The keys whose signatures count, and how many must.
#[derive(Debug, Clone)]
pub struct Signers<'a> {
    keys: Vec<&'a PublicKey>,
    threshold: usize,
}

impl<'a> Signers<'a> {
    /// One key is enough.
    #[must_use]
    pub fn one(key: &'a PublicKey) -> Self {
        Self { keys: vec![key], threshold: 1 }
    }

    /// The keys of one role of a root.
    #[must_use]
    pub fn of(root: &'a Root, role: &Role) -> Self {
        let keys = root.keys.iter().filter(|key| role.keys.contains(&key.id())).collect();
        Self { keys, threshold: role.threshold }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Note {
        text: String,
        #[serde(default)]
        critical: Vec<String>,
    }

    impl Document for Note {
        const TYPE: &'static str = "application/vnd.farshore.note.v1+json";

        fn critical(&self) -> &[String] {
            &self.critical
        }
    }

    fn note(text: &str) -> Note {
        Note { text: text.into(), critical: vec![] }
    }

    #[test]
    fn the_pre_authentication_encoding_is_the_specification_s() {
        assert_eq!(
            pae("http://example.com/HelloWorld", b"hello world"),
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        );
    }

    #[test]
    fn a_sealed_document_opens_under_its_key_only() {
        let (key, other) = (SigningKey::generate(), SigningKey::generate());
        let envelope = Envelope::seal(&note("hello"), &[&key]);
        assert_eq!(
            envelope.open::<Note>(&Signers::one(key.public()), 100).expect("signed by key"),
            note("hello")
        );
        let refused = envelope.open::<Note>(&Signers::one(other.public()), 100);
        assert!(matches!(refused, Err(Refused::Signatures { valid: 0, threshold: 1 })));
    }

    #[test]
    fn one_key_that_signs_twice_counts_once() {
        let (a, b) = (SigningKey::generate(), SigningKey::generate());
        let signers = Signers { keys: vec![a.public(), b.public()], threshold: 2 };
        let twice = Envelope::seal(&note("x"), &[&a, &a]);
        assert!(matches!(
            twice.open::<Note>(&signers, 100),
            Err(Refused::Signatures { valid: 1, threshold: 2 })
        ));
        assert!(Envelope::seal(&note("x"), &[&a, &b]).open::<Note>(&signers, 100).is_ok());
    }

    #[test]
    fn a_changed_payload_or_type_is_refused() {
        let key = SigningKey::generate();
        let mut envelope = Envelope::seal(&note("hello"), &[&key]);
        envelope.payload = STANDARD.encode(r#"{"text":"hullo"}"#);
        assert!(matches!(
            envelope.open::<Note>(&Signers::one(key.public()), 100),
            Err(Refused::Signatures { .. })
        ));
        let mut envelope = Envelope::seal(&note("hello"), &[&key]);
        envelope.payload_type = "application/json".into();
        assert!(matches!(envelope.open::<Note>(&Signers::one(key.public()), 100), Err(Refused::Type { .. })));
    }

    #[test]
    fn an_oversized_payload_is_refused_before_it_is_decoded() {
        let key = SigningKey::generate();
        let mut envelope = Envelope::seal(&note("hello"), &[&key]);
        envelope.payload = "!".repeat(400);
        assert!(matches!(
            envelope.open::<Note>(&Signers::one(key.public()), 100),
            Err(Refused::TooLarge { .. })
        ));
    }

    #[test]
    fn a_critical_field_that_is_not_known_is_named() {
        let key = SigningKey::generate();
        let demanding = Note { text: String::new(), critical: vec!["canary".into()] };
        let refused = Envelope::seal(&demanding, &[&key]).open::<Note>(&Signers::one(key.public()), 100);
        assert!(matches!(refused, Err(Refused::Critical(field)) if field == "canary"));
    }
}
