//! HTTP/2 by hyper, one request at a time on each connection.

use bytes::Bytes;
use farshore_shared::wire::{HOLDS_HEADER, PASS_HEADER, TAG_HEADER};
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use super::poll::Caller;
use crate::error::BenchError;

/// A connection; its task ends with it.
pub(crate) struct Line {
    sender: SendRequest<Empty<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Line {
    /// HTTP/2 with prior knowledge on this stream.
    ///
    /// # Errors
    /// When the other side speaks something else.
    pub(crate) async fn new<S>(stream: S) -> Result<Self, BenchError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shaken = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(BenchError::ours("beginning HTTP/2"))?;
        // How it ended is told to whoever waits for an answer on it.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, driver })
    }

    /// Sends a poll; the answer's status and tag.
    ///
    /// # Errors
    /// When there is no answer.
    pub(crate) async fn poll(&mut self, caller: &Caller) -> Result<(u16, Option<String>), BenchError> {
        let request = Request::get("http://localhost/v1/desired")
            .header("accept-encoding", "zstd")
            .header(HOLDS_HEADER, &caller.holds)
            .header(PASS_HEADER, &caller.pass)
            .body(Empty::new())
            .map_err(BenchError::ours("writing a request"))?;
        let asking = async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        };
        let answer = asking.await.map_err(BenchError::ours("polling over HTTP/2"))?;
        let tag = answer.headers().get(TAG_HEADER).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        Ok((answer.status().as_u16(), tag))
    }
}
