//! The hub's own TLS: a certificate that was given, or one made at the first start and pinned by root.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farshore_shared::digest::Digest;
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

mod reload;

pub use reload::{Certificate, Looked};

/// Where certificate and key are.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate chain, PEM, the hub's own first.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("accessing TLS file ({path})")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file is not PEM of the right kind.
    #[error("reading TLS file ({path})")]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// A certificate could not be made.
    #[error("making a certificate, or reading the key it is for")]
    Make(#[source] rcgen::Error),
    /// Certificate and key do not go together.
    #[error("certificate and key cannot be used together ({cert})")]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// The key of our own certificate is lost.
    #[error(
        "TLS key is missing ({key}), its certificate is not: sites may have pinned it, so put the key back from a backup, or remove the certificate to get a new pair"
    )]
    KeyMissing {
        /// The key's file.
        key: PathBuf,
    },
    /// The certificate's key cannot be found in it.
    #[error("certificate cannot be parsed ({0})")]
    Certificate(PathBuf),
}

impl TlsFiles {
    /// The hub's own: made when they are not there. Each file is whole or absent, and the key, which is
    /// what sites pin, is written first: without a certificate it gets one, and is never made anew.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn own(folder: &Path) -> Result<Self, TlsError> {
        let files = Self { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        let io = |path: &Path| {
            let path = path.to_owned();
            |source| TlsError::Io { path, source }
        };
        let has_key = files.key.try_exists().map_err(io(&files.key))?;
        match files.cert.try_exists().map_err(io(&files.cert))? {
            true if has_key => return Ok(files),
            true => return Err(TlsError::KeyMissing { key: files.key }),
            false => {}
        }
        let key = if has_key {
            let text = fs::read_to_string(&files.key).map_err(io(&files.key))?;
            rcgen::KeyPair::from_pem(&text).map_err(TlsError::Make)?
        } else {
            rcgen::KeyPair::generate().map_err(TlsError::Make)?
        };
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "farshore-hub".to_owned()];
        let params = rcgen::CertificateParams::new(names).map_err(TlsError::Make)?;
        let cert = params.self_signed(&key).map_err(TlsError::Make)?;
        fs::create_dir_all(folder).map_err(io(folder))?;
        if !has_key {
            write_private(folder, &files.key, key.serialize_pem().as_bytes()).map_err(io(&files.key))?;
        }
        write_private(folder, &files.cert, cert.pem().as_bytes()).map_err(io(&files.cert))?;
        Ok(files)
    }

    /// SHA-256 of the certificate's `SubjectPublicKeyInfo` (RFC 7469, section 2.4).
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn pin(&self) -> Result<Digest, TlsError> {
        let chain = self.chain()?;
        let first = chain.first().ok_or_else(|| TlsError::Certificate(self.cert.clone()))?;
        let parsed = rustls::server::ParsedCertificate::try_from(first)
            .map_err(|_| TlsError::Certificate(self.cert.clone()))?;
        Ok(Digest::of(&parsed.subject_public_key_info()))
    }

    /// A server that shows this certificate for as long as it runs: TLS 1.3, HTTP/2 first.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn server(&self) -> Result<Arc<ServerConfig>, TlsError> {
        Certificate::load(self.clone())?.server()
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let pem = |source| TlsError::Pem { path: self.cert.clone(), source };
        CertificateDer::pem_file_iter(&self.cert).map_err(pem)?.collect::<Result<_, _>>().map_err(pem)
    }
}

/// Writes a file that is whole or absent, whenever power fails.
fn write_private(folder: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    // Temporary files are readable by nobody else.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|failed| failed.error)?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_without_its_certificate_gets_one_and_keeps_its_pin() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = TlsFiles::own(&folder.path().join("tls")).expect("an empty folder");
        let pin = files.pin().expect("a certificate");
        let mode = fs::metadata(&files.key).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0);
        fs::remove_file(&files.cert).expect("there");
        let again = TlsFiles::own(&folder.path().join("tls")).expect("the key is there");
        assert_eq!(again.pin().expect("a certificate"), pin);
        again.server().expect("they go together");
    }

    #[test]
    fn a_key_that_is_lost_or_corrupt_is_never_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = TlsFiles::own(folder.path()).expect("an empty folder");
        fs::remove_file(&files.key).expect("there");
        assert!(matches!(TlsFiles::own(folder.path()), Err(TlsError::KeyMissing { .. })));
        fs::write(&files.key, "").expect("a folder of ours");
        fs::remove_file(&files.cert).expect("there");
        assert!(matches!(TlsFiles::own(folder.path()), Err(TlsError::Make(_))));
    }
}
