//! Whom to talk TLS with: the keys that the root pins, else the site's own authorities.

use std::sync::Arc;

use farshore_shared::digest::Digest;
use farshore_shared::wire::Root;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::HubError;

/// Which TLS keys a hub may show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Any. For trust roots only, which prove themselves by digest and by chain.
    Bootstrap,
    /// Those with one of these digests of the `SubjectPublicKeyInfo` (RFC 7469, section 2.4).
    ///
    /// Names and dates of certificates do not matter then: a site whose clock is wrong must still
    /// reach its hub.
    Pinned(Vec<Digest>),
    /// Those that the site's own certificate authorities vouch for.
    System,
}

impl Trust {
    /// What a root says.
    #[must_use]
    pub fn of(root: &Root) -> Self {
        if root.tls_pins.is_empty() { Self::System } else { Self::Pinned(root.tls_pins.clone()) }
    }

    /// What a client is told to hold to it, with TLS 1.3 and both versions of HTTP.
    ///
    /// # Errors
    /// [`HubError::Setup`] where this machine has no authorities and the root pins no key.
    pub fn config(&self) -> Result<Arc<ClientConfig>, HubError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|source| HubError::Setup { source: source.into() })?;
        let pins = match self {
            Self::Bootstrap => None,
            Self::Pinned(pins) => Some(pins.clone()),
            Self::System => {
                let mut config = builder.with_root_certificates(system_roots()?).with_no_client_auth();
                config.alpn_protocols = protocols();
                return Ok(Arc::new(config));
            }
        };
        let verifier = Arc::new(KeyVerifier { pins, provider });
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.alpn_protocols = protocols();
        Ok(Arc::new(config))
    }
}

fn protocols() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}

fn system_roots() -> Result<RootCertStore, HubError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    Err(HubError::Setup {
        source: match found.errors.into_iter().next() {
            Some(error) => error.into(),
            None => "this machine has no certificate authorities, and the root pins no key".into(),
        },
    })
}

/// Accepts a certificate for its key alone.
#[derive(Debug)]
struct KeyVerifier {
    /// None accepts every key.
    pins: Option<Vec<Digest>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for KeyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(pins) = &self.pins else { return Ok(ServerCertVerified::assertion()) };
        let certificate = webpki::EndEntityCert::try_from(end_entity)
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if pins.contains(&Digest::of(&certificate.subject_public_key_info())) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
