//! Who this site is: keys that are made here and never leave, its name, and its enrolment.

use aws_lc_rs::agreement::{PrivateKey, X25519};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::{Secret, SigningKey};
use farshore_shared::names::Name;
use farshore_shared::wire::SMALL_LIMIT;
use serde::{Deserialize, Serialize};

use super::{Found, Store, StoreError, files};
use crate::verify::Identity;

/// The most bytes of an enrolment file: two small documents in base64.
const ENROLMENT_LIMIT: u64 = 4 * SMALL_LIMIT as u64;

/// What others seal secrets to: X25519 (RFC 7748).
#[derive(Debug, Clone)]
pub struct SealingKey {
    secret: Secret,
    public: String,
}

impl SealingKey {
    /// The key of 32 secret bytes.
    ///
    /// # Panics
    /// Never: every 32 bytes are an X25519 secret (RFC 7748, section 5).
    #[must_use]
    pub fn from_secret(secret: Secret) -> Self {
        let public = PrivateKey::from_private_key(&X25519, secret.as_bytes())
            .expect("every 32 bytes are an X25519 secret")
            .compute_public_key()
            .expect("every X25519 secret has a public half");
        Self { public: STANDARD.encode(public.as_ref()), secret }
    }

    /// The public half, in base64.
    #[must_use]
    pub fn public(&self) -> &str {
        &self.public
    }

    /// The secret half.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.secret
    }
}

/// The keys of this site.
#[derive(Debug)]
pub struct Keys {
    /// The cluster's name.
    pub cluster: Name,
    /// What this site signs with.
    pub signing: SigningKey,
    /// What is sealed to it.
    pub sealing: SealingKey,
}

impl Keys {
    /// Who this site is, for [`crate::verify`].
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity { cluster: self.cluster.clone(), key: self.signing.public().id() }
    }
}

/// That this site is enrolled: with it, no join token is needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrolmentRecord {
    /// The hub with which it enrolled; the root may name others.
    pub hub: String,
    /// The fleet: SHA-256 of root 1.
    pub fleet: Digest,
    /// The cluster's name.
    pub cluster: Name,
    /// The signed registration.
    pub registration: Envelope,
}

impl Store {
    /// The keys of this site: made and synced to disk the first time, the same ever after.
    ///
    /// # Errors
    /// [`StoreError::OtherName`] for a folder of another cluster; [`StoreError::Corrupt`] for a key
    /// that cannot be read: it is never replaced silently, for the fleet knows the old one.
    pub fn keys(&self, cluster: &Name) -> Result<Keys, StoreError> {
        let name = self.dir.join("identity/name");
        match files::read(&name, 256)? {
            None => files::write(&name, format!("{cluster}\n").as_bytes())?,
            Some(held) => {
                let held = String::from_utf8_lossy(&held).trim().to_owned();
                if held != cluster.as_str() {
                    let (path, asked) = (self.dir.clone(), cluster.to_string());
                    return Err(StoreError::OtherName { path, held, asked });
                }
            }
        }
        let signing = SigningKey::from_seed(self.secret("key", "ed25519")?);
        let sealing = SealingKey::from_secret(self.secret("sealing-key", "x25519")?);
        Ok(Keys { cluster: cluster.clone(), signing, sealing })
    }

    /// The name in this folder, if it has one: the cluster that it belongs to.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it is no name.
    pub fn name(&self) -> Result<Option<Name>, StoreError> {
        let path = self.dir.join("identity/name");
        let Some(bytes) = files::read(&path, 256)? else { return Ok(None) };
        let name = String::from_utf8_lossy(&bytes).trim().parse();
        name.map(Some).map_err(|e| StoreError::Corrupt { path, why: format!("{e}") })
    }

    fn secret(&self, file: &str, kind: &'static str) -> Result<Secret, StoreError> {
        let path = self.dir.join("identity").join(file);
        let corrupt = |path, why: String| StoreError::Corrupt {
            path,
            why: format!("{why}; restore it, or remove the state folder and join with a new token"),
        };
        let Some(bytes) = files::read(&path, 1024)? else {
            if self.enrolment_path().exists() {
                return Err(corrupt(path, "it is missing though this site is enrolled".to_owned()));
            }
            let secret = Secret::random();
            files::write(&path, secret.to_file(kind).as_bytes())?;
            return Ok(secret);
        };
        Secret::from_file(&String::from_utf8_lossy(&bytes), kind).map_err(|e| corrupt(path, e.to_string()))
    }

    fn enrolment_path(&self) -> std::path::PathBuf {
        self.dir.join("identity/enrolment.json")
    }

    /// How this site is enrolled.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn enrolment(&self) -> Result<Found<EnrolmentRecord>, StoreError> {
        files::load(&self.enrolment_path(), ENROLMENT_LIMIT)
    }

    /// Remembers that this site is enrolled.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn save_enrolment(&self, record: &EnrolmentRecord) -> Result<(), StoreError> {
        files::save(&self.enrolment_path(), record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    /// RFC 7748, section 5.2: the first iteration, whose scalar and point are both 9.
    #[test]
    fn a_sealing_key_is_that_of_rfc_7748() {
        let mut secret = [0; 32];
        secret[0] = 9;
        let public = STANDARD.decode(SealingKey::from_secret(secret.into()).public()).expect("base64");
        assert_eq!(hex::encode(public), "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
    }

    #[test]
    fn a_site_that_lost_power_anywhere_finds_the_same_keys() {
        let temp = tempfile::tempdir().expect("a folder");
        let store = Store::open(temp.path()).expect("new");
        let first = store.keys(&name("shop-7")).expect("made");
        let second = store.keys(&name("shop-7")).expect("read");
        assert_eq!(first.identity(), second.identity());
        assert_eq!(first.sealing.public(), second.sealing.public());
        // The power went between the two keys: the first is kept, the second is made.
        fs::remove_file(temp.path().join("identity/sealing-key")).expect("removed");
        let third = store.keys(&name("shop-7")).expect("read and made");
        assert_eq!(first.identity(), third.identity());
        assert!(matches!(store.keys(&name("shop-8")), Err(StoreError::OtherName { .. })));
        assert_eq!(store.name().expect("read"), Some(name("shop-7")));
    }

    #[test]
    fn a_broken_key_is_never_replaced_silently() {
        let temp = tempfile::tempdir().expect("a folder");
        let store = Store::open(temp.path()).expect("new");
        store.keys(&name("shop-7")).expect("made");
        fs::write(temp.path().join("identity/key"), "").expect("written");
        assert!(matches!(store.keys(&name("shop-7")), Err(StoreError::Corrupt { .. })));
        fs::remove_file(temp.path().join("identity/key")).expect("removed");
        fs::write(temp.path().join("identity/enrolment.json"), "").expect("written");
        assert!(matches!(store.keys(&name("shop-7")), Err(StoreError::Corrupt { .. })));
        assert!(matches!(store.enrolment(), Ok(Found::Corrupt(_))));
    }
}
