//! The keys of a fleet as files in one folder, and the first root that names them.
//!
//! `root.key`, `director.key`, `operator.key` (Ed25519), `token.key` (HMAC) and `root.1.json` (root 1
//! in its envelope). Only the publisher and the operator's commands read them; serving never does.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::{BadKey, Secret, SigningKey};
use farshore_shared::wire::{Role, Roles, Root, UnixSeconds};

const ROOT_FILE: &str = "root.1.json";
/// Ten years: root 1 of a hub that is complete by itself has nobody who would sign the next.
const ROOT_LIFE: u64 = 10 * 365 * 86_400;

/// The folder of keys.
#[derive(Debug, Clone)]
pub struct Keyring {
    folder: PathBuf,
}

/// What a publisher needs of the keys.
#[derive(Debug)]
pub struct PublisherKeys {
    /// Signs all documents.
    pub director: SigningKey,
    /// Checks join tokens.
    pub token: Secret,
}

/// What goes into root 1 beside the keys.
#[derive(Debug, Clone, Default)]
pub struct RootOptions {
    /// Where the hub can be reached.
    pub hubs: Vec<String>,
    /// SHA-256 of the `SubjectPublicKeyInfo` of TLS keys that a hub may show.
    pub tls_pins: Vec<Digest>,
}

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// There is something already.
    #[error("folder for keys is not empty, and keys are never overwritten ({0})")]
    Exists(PathBuf),
    /// A file is not there.
    #[error(
        "key file is missing ({path}): make keys with `farshore trust init --keys DIR`, or start a hub once"
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("accessing key file ({path})")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error("reading key file ({path})")]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: BadKey,
    },
}

impl Keyring {
    /// The keys in that folder, whether or not there are any.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Whether there are keys.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.folder.join(ROOT_FILE).exists()
    }

    /// Makes all keys and root 1, and returns root 1 as it is served.
    ///
    /// # Errors
    /// [`KeyringError::Exists`] if the folder is not empty; [`KeyringError::Io`].
    pub fn init(&self, options: RootOptions, now: UnixSeconds) -> Result<Vec<u8>, KeyringError> {
        let io = |source| KeyringError::Io { path: self.folder.clone(), source };
        let parent = self.folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(io)?;
        let (root, director, operator) =
            (SigningKey::generate(), SigningKey::generate(), SigningKey::generate());
        let role = |key: &SigningKey| Role { keys: vec![key.public().id()], threshold: 1 };
        let document = Root {
            version: 1,
            epoch: 1,
            issued: now,
            expires: now + ROOT_LIFE,
            keys: [&root, &director, &operator].map(|key| key.public().clone()).to_vec(),
            roles: Roles { root: role(&root), director: role(&director), operator: role(&operator) },
            hubs: options.hubs,
            tls_pins: options.tls_pins,
            critical: vec![],
        };
        let envelope = Envelope::seal(&document, &[&root]).to_bytes();
        // All or none: the keys are made in a folder beside, which then takes the name.
        let made = tempfile::Builder::new().prefix(".keys-").tempdir_in(parent).map_err(io)?;
        let write = |file: &str, bytes: &[u8]| write_private(&made.path().join(file), bytes);
        write("root.key", root.to_file().as_bytes())?;
        write("director.key", director.to_file().as_bytes())?;
        write("operator.key", operator.to_file().as_bytes())?;
        write("token.key", Secret::random().to_file("token").as_bytes())?;
        write(ROOT_FILE, &envelope)?;
        fs::rename(made.path(), &self.folder).map_err(|source| match source.kind() {
            ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                KeyringError::Exists(self.folder.clone())
            }
            _ => io(source),
        })?;
        fs::File::open(parent).and_then(|folder| folder.sync_all()).map_err(io)?;
        Ok(envelope)
    }

    /// Root 1, as it is served.
    ///
    /// # Errors
    /// [`KeyringError`].
    pub fn root(&self) -> Result<Vec<u8>, KeyringError> {
        self.read(ROOT_FILE).map(String::into_bytes)
    }

    /// The keys of a publisher.
    ///
    /// # Errors
    /// [`KeyringError`], naming the file.
    pub fn publisher(&self) -> Result<PublisherKeys, KeyringError> {
        Ok(PublisherKeys { director: self.signing_key("director.key")?, token: self.token()? })
    }

    /// The key that makes join tokens.
    ///
    /// # Errors
    /// [`KeyringError`], naming the file.
    pub fn token(&self) -> Result<Secret, KeyringError> {
        let text = self.read("token.key")?;
        Secret::from_file(&text, "token").map_err(|source| self.content("token.key", source))
    }

    /// The key that signs approvals.
    ///
    /// # Errors
    /// [`KeyringError`], naming the file.
    pub fn operator(&self) -> Result<SigningKey, KeyringError> {
        self.signing_key("operator.key")
    }

    fn signing_key(&self, file: &str) -> Result<SigningKey, KeyringError> {
        SigningKey::from_file(&self.read(file)?).map_err(|source| self.content(file, source))
    }

    fn content(&self, file: &str, source: BadKey) -> KeyringError {
        KeyringError::Content { path: self.folder.join(file), source }
    }

    fn read(&self, file: &str) -> Result<String, KeyringError> {
        let path = self.folder.join(file);
        fs::read_to_string(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => KeyringError::Missing { path },
            _ => KeyringError::Io { path, source },
        })
    }
}

fn write_private(path: &Path, bytes: &[u8]) -> Result<(), KeyringError> {
    let write = || {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|source| KeyringError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use farshore_shared::dsse::Signers;
    use farshore_shared::wire::ROOT_LIMIT;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn new_keys_are_private_and_named_by_root_1() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ring = Keyring::at(&folder.path().join("keys"));
        assert!(matches!(ring.publisher(), Err(KeyringError::Missing { .. })));
        let bytes = ring.init(RootOptions::default(), 1_800_000_000).expect("an empty folder");
        assert_eq!(ring.root().expect("just written"), bytes);
        let envelope: Envelope = serde_json::from_slice(&bytes).expect("an envelope");
        let keys = ring.publisher().expect("just written");
        let root_key = ring.signing_key("root.key").expect("just written");
        let root: Root = envelope.open(&Signers::one(root_key.public()), ROOT_LIMIT).expect("signed by root");
        assert_eq!(root.roles.director.keys, [keys.director.public().id()]);
        let mode = fs::metadata(folder.path().join("keys/director.key")).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }

    #[test]
    fn keys_are_never_overwritten() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ring = Keyring::at(folder.path());
        ring.init(RootOptions::default(), 1).expect("an empty folder");
        assert!(matches!(ring.init(RootOptions::default(), 2), Err(KeyringError::Exists(_))));
    }
}
