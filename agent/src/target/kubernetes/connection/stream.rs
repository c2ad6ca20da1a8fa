//! An answer that goes on: lines, each bounded, and none waited for longer than a deadline.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use kube::client::Body;

use super::{Connection, Fault, Request};

/// The longest line, in bytes: an object's metadata stays far below it.
const LINE_LIMIT: usize = 8 << 20;
/// What a buffer keeps of its room between two lines, in bytes.
const KEPT_ROOM: usize = 64 << 10;

/// The lines of an answer.
pub(in super::super) struct Lines {
    body: Body,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no end of a line.
    searched: usize,
    quiet: Duration,
}

impl Connection {
    /// Sends a request whose answer goes on, and returns when it begins.
    pub(in super::super) async fn stream(&self, request: &Request) -> Result<Lines, Fault> {
        let limit = self.options.request;
        let body = match tokio::time::timeout(limit, self.begun(&self.streaming, request)).await {
            Ok(begun) => begun?,
            Err(tokio::time::error::Elapsed { .. }) => return Err(Fault::Slow(limit)),
        };
        Ok(Lines { body, buffer: BytesMut::new(), searched: 0, quiet: self.options.quiet })
    }
}

impl Lines {
    /// The next line without its end; none when the answer has ended. What stands behind the last end of
    /// a line is no line.
    pub(in super::super) async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.buffer.split_to(self.searched + end + 1);
                line.truncate(line.len() - 1);
                self.searched = 0;
                if self.buffer.is_empty() && self.buffer.capacity() > KEPT_ROOM {
                    self.buffer = BytesMut::new();
                }
                return Ok(Some(line.freeze()));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LINE_LIMIT {
                return Err(Fault::Cut(format!("a line has more than {LINE_LIMIT} bytes").into()));
            }
            let frame = match tokio::time::timeout(self.quiet, self.body.frame()).await {
                Ok(frame) => frame,
                Err(tokio::time::error::Elapsed { .. }) => return Err(Fault::Slow(self.quiet)),
            };
            match frame {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(Fault::Cut(error.into())),
            }
        }
    }
}
