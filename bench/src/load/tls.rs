//! TLS to a server whose certificate does not matter: what is measured runs on this machine.

use std::sync::Arc;

use farshore_agent::hub::Trust;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::BenchError;

/// Connects, and offers one protocol by ALPN.
///
/// # Errors
/// When nobody answers, or not TLS.
pub(crate) async fn connect(address: &str, protocol: &[u8]) -> Result<TlsStream<TcpStream>, BenchError> {
    let anybody = Trust::Bootstrap.config().map_err(BenchError::ours("preparing TLS"))?;
    let mut config = ClientConfig::clone(&anybody);
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = super::http1::tcp(address).await?;
    let name = ServerName::try_from("localhost").expect("a host's name");
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    connecting.await.map_err(BenchError::io(format!("shaking hands with {address}")))
}
