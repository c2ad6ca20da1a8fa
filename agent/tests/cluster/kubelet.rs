//! A node's kubelet, as far as the API server asks it for logs.

use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A kubelet that answers every request for a log with the same text.
pub(crate) struct Kubelet {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Kubelet {
    pub(crate) async fn printing(log: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&asked);
        tokio::spawn(async move {
            let acceptor = acceptor();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, heard) = (acceptor.clone(), Arc::clone(&heard));
                tokio::spawn(async move {
                    // The API server also looks whether anybody is there, and hangs up.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        answer(stream, log, &heard).await;
                    }
                });
            }
        });
        Self { port, asked }
    }

    /// What it was asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

fn acceptor() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions that it knows")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a key for its certificate");
    TlsAcceptor::from(Arc::new(config))
}

async fn answer(mut stream: TlsStream<TcpStream>, log: &str, heard: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    heard.lock().expect("not poisoned").push(head.lines().next().unwrap_or_default().to_owned());
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{log}",
        log.len()
    );
    stream.write_all(answer.as_bytes()).await.expect("the API server reads");
    stream.shutdown().await.expect("the API server reads");
}
