//! The hub's own TLS: a certificate that was given, or one made at the first start and pinned by root.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farshore_shared::digest::Digest;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

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
    #[error("making a certificate")]
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
    /// The certificate's key cannot be found in it.
    #[error("certificate cannot be parsed ({0})")]
    Certificate(PathBuf),
}

impl TlsFiles {
    /// The hub's own: made when they are not there.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn own(folder: &Path) -> Result<Self, TlsError> {
        let files = Self { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        if files.cert.exists() && files.key.exists() {
            return Ok(files);
        }
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "farshore-hub".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).map_err(TlsError::Make)?;
        let io = |path: &Path| {
            let path = path.to_owned();
            |source| TlsError::Io { path, source }
        };
        fs::create_dir_all(folder).map_err(io(folder))?;
        write_private(&files.key, made.signing_key.serialize_pem().as_bytes()).map_err(io(&files.key))?;
        write_private(&files.cert, made.cert.pem().as_bytes()).map_err(io(&files.cert))?;
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

    /// A server that shows this certificate: TLS 1.3, HTTP/2 first.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn server(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|source| TlsError::Pem { path: self.key.clone(), source })?;
        let pair = |source| TlsError::Pair { cert: self.cert.clone(), source };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(pair)?;
        let mut config = builder.with_no_client_auth().with_single_cert(self.chain()?, key).map_err(pair)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let pem = |source| TlsError::Pem { path: self.cert.clone(), source };
        CertificateDer::pem_file_iter(&self.cert).map_err(pem)?.collect::<Result<_, _>>().map_err(pem)
    }
}

fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
