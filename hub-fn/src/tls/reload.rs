//! A certificate that may be replaced while the hub runs: new connections are shown the new one, open ones go
//! on, and files that cannot be used change nothing.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;

use super::{TlsError, TlsFiles};

/// A certificate with its key, as the files were when they last could be used.
#[derive(Debug)]
pub struct Certificate {
    files: TlsFiles,
    current: RwLock<Arc<CertifiedKey>>,
    seen: Mutex<[Stamp; 2]>,
}

/// What tells that a file is another one: also one that was linked into its place with an old date.
type Stamp = Option<(SystemTime, u64, u64)>;

/// What a look at the files found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looked {
    /// They are as they were.
    Same,
    /// There is a new certificate, shown from now on.
    Replaced,
}

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        let seen = stamps(&files);
        let current = RwLock::new(Arc::new(read(&files)?));
        Ok(Arc::new(Self { files, current, seen: Mutex::new(seen) }))
    }

    /// Looks whether the files are others, and takes them if they can be used. Files that cannot are told
    /// of once, and looked at again when they change.
    ///
    /// # Errors
    /// [`TlsError`]: the certificate from before is still shown.
    pub fn look(&self) -> Result<Looked, TlsError> {
        // Before they are read: what is replaced while they are is seen by the next look.
        let found = stamps(&self.files);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == found {
            return Ok(Looked::Same);
        }
        *seen = found;
        let read = Arc::new(read(&self.files)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(Looked::Replaced)
    }

    /// A server that shows this certificate, whichever it is at the time: TLS 1.3, HTTP/2 first.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn server(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        let pair = |source| TlsError::Pair { cert: self.files.cert.clone(), source };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(pair)?;
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn read(files: &TlsFiles) -> Result<CertifiedKey, TlsError> {
    let chain = files.chain()?;
    if chain.is_empty() {
        return Err(TlsError::Certificate(files.cert.clone()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|source| TlsError::Pem { path: files.key.clone(), source })?;
    CertifiedKey::from_der(chain, key, &provider())
        .map_err(|source| TlsError::Pair { cert: files.cert.clone(), source })
}

fn stamps(files: &TlsFiles) -> [Stamp; 2] {
    // A file that is away is read next, which says so.
    let stamp = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len(), found.ino()))
    };
    [stamp(&files.cert), stamp(&files.key)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn shown(certificate: &Certificate) -> Vec<u8> {
        certificate.current.read().expect("nobody panics").cert[0].to_vec()
    }

    #[test]
    fn new_files_are_shown_and_bad_ones_change_nothing_and_are_told_once() {
        let (folder, other) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let files = TlsFiles::own(folder.path()).expect("an empty folder");
        let new = TlsFiles::own(other.path()).expect("an empty folder");
        let certificate = Certificate::load(files.clone()).expect("a pair");
        let old = shown(&certificate);
        assert_eq!(certificate.look().expect("a pair"), Looked::Same);

        fs::rename(&new.cert, &files.cert).expect("one file system");
        let half = certificate.look().expect_err("the key is of the other certificate");
        assert!(matches!(half, TlsError::Pair { .. }), "{half}");
        assert_eq!(certificate.look().expect("told already"), Looked::Same);
        assert_eq!(shown(&certificate), old);

        fs::rename(&new.key, &files.key).expect("one file system");
        assert_eq!(certificate.look().expect("a pair again"), Looked::Replaced);
        assert_ne!(shown(&certificate), old);

        let kept = shown(&certificate);
        fs::write(&files.cert, "").expect("a file of ours");
        certificate.look().expect_err("there is none in it");
        fs::remove_file(&files.key).expect("a file of ours");
        certificate.look().expect_err("it is away");
        assert_eq!(shown(&certificate), kept);
    }
}
