//! What operators ask: how the fleet is, and words for the publisher.
//!
//! Each request is signed with a key of the root's operator role ([`farshore_shared::operator`]). The replica
//! verifies it, so that nobody else reads; what an operator says to the publisher is stored as it was
//! signed, and the publisher verifies it again. Nothing here lists the bucket.

pub mod answers;
pub mod clusters;
pub mod intents;
mod query;
pub mod words;

use farshore_shared::clock::now;
use farshore_shared::operator::{Ask, OPERATOR_HEADER, Sent};
use farshore_shared::wire::SMALL_LIMIT;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use tracing::info;

use super::Hub;
use crate::answer::{Refusal, body};
use crate::status::RollError;

/// A request that an operator has signed.
#[derive(Debug)]
struct Asked {
    /// What stands behind the `?`.
    query: String,
    body: Vec<u8>,
}

/// Reads a request whole, and verifies who asks.
async fn admit(hub: &Hub, request: Request<Incoming>) -> Result<Asked, Refusal> {
    let denied = |why: String| Refusal::of(StatusCode::UNAUTHORIZED, why);
    let mut headers = request.headers().get_all(OPERATOR_HEADER).iter();
    let (Some(header), None) = (headers.next(), headers.next()) else {
        return Err(denied(format!("sign the request with an operator key: one header {OPERATOR_HEADER}")));
    };
    let header = header.to_str().map_err(|_not_text| denied(format!("{OPERATOR_HEADER} is not text")))?;
    let header = header.to_owned();
    let method = request.method().as_str().to_owned();
    let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = body(request, SMALL_LIMIT).await?;
    let trust = hub.view.trust().await?;
    let sent = Sent { method: &method, target: &target, body: &body };
    let named = &trust.root.roles.operator.keys;
    let ask = Ask::verify(&header, &trust.operator(), named, &sent, now())
        .map_err(|bad| denied(bad.to_string()))?;
    info!(target: "farshore::operators", method, path = target, nonce = ask.nonce, "an operator asks");
    Ok(Asked { query, body })
}

impl From<RollError> for Refusal {
    fn from(error: RollError) -> Self {
        Self::unavailable(std::sync::Arc::new(error))
    }
}
