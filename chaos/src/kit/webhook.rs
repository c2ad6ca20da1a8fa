//! An admission webhook of a test's own, which the API server asks over TLS.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::engine::Engine;
use super::{KitError, Kubernetes, Port};

/// More than an object of the API can have.
const MAX_REQUEST: usize = 16 << 20;

/// A validating webhook for the `ConfigMap`s of one namespace: it allows all of them, except those that it was told to
/// refuse.
///
/// It is asked by the API server itself, so that an answer is what the API makes of it: a status with a code and, in
/// its details, with seconds after which to ask again.
pub struct Webhook {
    port: Port,
    certificate: String,
    known: Known,
    _engine: Engine,
}

/// What each connection knows.
type Known = Arc<Mutex<BTreeMap<String, Object>>>;

/// What is known of the objects of one name.
#[derive(Debug, Default)]
struct Object {
    refusal: Option<Refusal>,
    asked: Vec<Instant>,
}

#[derive(Debug)]
struct Refusal {
    status: Value,
    /// How often; none: until it is told otherwise.
    times: Option<u32>,
}

impl Webhook {
    /// Starts to answer; the API does not know of it yet.
    ///
    /// # Errors
    /// As said in the [module](super).
    pub async fn start() -> Result<Self, KitError> {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).map_err(unexpected)?;
        let tls = tls(made.cert.der().clone(), made.signing_key.serialize_der())?;
        let (engine, port, known) = (Engine::start()?, Port::take()?, Known::default());
        let address = port.address();
        let listening = address.clone();
        // Bound on the engine, to whose reactor the socket must belong.
        let bound = engine.handle().spawn(async move { TcpListener::bind(&listening).await });
        let bound = bound.await.map_err(std::io::Error::other).and_then(|bound| bound);
        let listener = bound.map_err(KitError::io("listening", &address))?;
        engine.handle().spawn(accept(listener, tls, Arc::clone(&known)));
        Ok(Self { port, certificate: made.cert.pem(), known, _engine: engine })
    }

    /// Makes it the guard of a namespace, under the namespace's name. Dry runs are asked about as well.
    ///
    /// # Errors
    /// As [`Kubernetes::kubectl`].
    pub fn guard(&self, kubernetes: &Kubernetes, namespace: &str) -> Result<(), KitError> {
        let hook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": namespace },
            "webhooks": [{
                "name": "guard.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
                "clientConfig": {
                    "url": format!("https://{}/", self.port.address()),
                    "caBundle": STANDARD.encode(&self.certificate),
                },
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
                "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"],
                    "resources": ["configmaps"] }],
            }],
        });
        kubernetes.kubectl_with_input(&["apply", "--filename=-"], &hook.to_string()).map(|_silence| ())
    }

    /// Refuses objects of this name with this `Status` from now on.
    pub fn refuse(&self, name: &str, status: Value) {
        self.known().entry(name.to_owned()).or_default().refusal = Some(Refusal { status, times: None });
    }

    /// Refuses objects of this name so many times.
    pub fn refuse_times(&self, times: u32, name: &str, status: Value) {
        let refusal = Refusal { status, times: Some(times) };
        self.known().entry(name.to_owned()).or_default().refusal = Some(refusal);
    }

    /// Allows everything from now on.
    pub fn allow(&self) {
        self.known().values_mut().for_each(|object| object.refusal = None);
    }

    /// When it was asked about objects of this name.
    #[must_use]
    pub fn asked(&self, name: &str) -> Vec<Instant> {
        self.known().get(name).map(|object| object.asked.clone()).unwrap_or_default()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Object>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Object {
    fn refuses(&mut self) -> Option<Value> {
        self.asked.push(Instant::now());
        let refusal = self.refusal.as_mut()?;
        let status = refusal.status.clone();
        match &mut refusal.times {
            None => {}
            Some(0) => return None,
            Some(times) => *times -= 1,
        }
        Some(status)
    }
}

fn tls(certificate: CertificateDer<'static>, key: Vec<u8>) -> Result<TlsAcceptor, KitError> {
    let key = PrivateKeyDer::try_from(key).map_err(unexpected)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate], key));
    config.map(|config| TlsAcceptor::from(Arc::new(config))).map_err(unexpected)
}

fn unexpected(error: impl std::fmt::Display) -> KitError {
    KitError::Answer { what: "a certificate for a webhook".to_owned(), answer: error.to_string() }
}

/// The connections end with the set, and the set with the engine.
async fn accept(listener: TcpListener, tls: TlsAcceptor, known: Known) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _peer)) = listener.accept().await {
        connections.spawn(connection(stream, tls.clone(), Arc::clone(&known)));
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, known: Known) {
    let stream = match tls.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return eprintln!("webhook: shaking hands ({error})"),
    };
    let service = service_fn(move |request| {
        let known = Arc::clone(&known);
        async move { Ok::<_, Infallible>(answer(request, &known).await) }
    });
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        // An API server that a test kills hangs up.
        eprintln!("webhook: {error}");
    }
}

/// `AdmissionReview` of `admission.k8s.io/v1`. What is no review gets an answer that the API server does not take.
async fn answer(request: Request<Incoming>, known: &Known) -> Response<Full<Bytes>> {
    let body = match Limited::new(request.into_body(), MAX_REQUEST).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Response::new(Full::from(error.to_string())),
    };
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let name = review["request"]["name"].as_str().unwrap_or_default().to_owned();
    let refusal = known.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default().refuses();
    let mut said = json!({ "uid": review["request"]["uid"], "allowed": refusal.is_none() });
    if let Some(status) = refusal {
        said["status"] = status;
    }
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": said });
    let mut response = Response::new(Full::from(review.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
