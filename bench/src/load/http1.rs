//! HTTP/1.1 on a raw stream, one request at a time, as a load balancer keeps its connections (RFC 9112).

use std::io::{self, ErrorKind};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::error::BenchError;

/// The most bytes of an answer's head.
const HEAD_LIMIT: usize = 16 << 10;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// Its head, as it came.
    head: String,
    /// Its body.
    pub(crate) body: Bytes,
}

impl Answer {
    /// The value of a header; its name is given in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// A connection.
pub(crate) struct Line<S> {
    stream: S,
    buffer: Vec<u8>,
    filled: usize,
}

/// Connects without Nagle's algorithm.
///
/// # Errors
/// When nobody listens.
pub(crate) async fn tcp(address: &str) -> Result<TcpStream, BenchError> {
    let doing = || format!("connecting to {address}");
    let stream = TcpStream::connect(address).await.map_err(BenchError::io(doing()))?;
    stream.set_nodelay(true).map_err(BenchError::io(doing()))?;
    Ok(stream)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    /// HTTP/1.1 on this stream.
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffer: vec![0; HEAD_LIMIT], filled: 0 }
    }

    /// Sends a whole request and reads its answer.
    ///
    /// # Errors
    /// Of the stream, or when the answer is no HTTP/1.1 with a length or in chunks.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.stream.write_all(request).await?;
        self.filled = 0;
        let end = loop {
            if self.filled == self.buffer.len() {
                return Err(io::Error::new(ErrorKind::InvalidData, "the answer's head is too long"));
            }
            let read = self.stream.read(&mut self.buffer[self.filled..]).await?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let from = self.filled.saturating_sub(3);
            self.filled += read;
            let new = &self.buffer[from..self.filled];
            if let Some(at) = new.windows(4).position(|window| window == b"\r\n\r\n") {
                break from + at + 4;
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        let status = head.get(9..12).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "no status"))?;
        let body = self.body(&head, status, end).await?;
        Ok(Answer { status, head, body })
    }

    /// RFC 9112, section 6.3: 204 and 304 have none, whatever the head says.
    async fn body(&mut self, head: &str, status: u16, end: usize) -> io::Result<Bytes> {
        if matches!(status, 204 | 304) {
            return Ok(Bytes::new());
        }
        if header(head, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return self.chunks(end).await;
        }
        let length = header(head, "content-length").and_then(|length| length.parse::<usize>().ok());
        let length =
            length.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "an answer without length"))?;
        let mut body = self.buffer[end..self.filled].to_vec();
        let begun = body.len();
        body.resize(length.max(begun), 0);
        self.stream.read_exact(&mut body[begun..]).await?;
        Ok(body.into())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    /// RFC 9112, section 7.1, without trailers.
    async fn chunks(&mut self, end: usize) -> io::Result<Bytes> {
        let mut come = self.buffer[end..self.filled].to_vec();
        let mut body = Vec::new();
        loop {
            let line = loop {
                if let Some(at) = come.windows(2).position(|pair| pair == b"\r\n") {
                    break at;
                }
                self.more(&mut come).await?;
            };
            let size = std::str::from_utf8(&come[..line]).ok();
            let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
            let size = size.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "a chunk without size"))?;
            let whole = line + 2 + size + 2;
            while come.len() < whole {
                self.more(&mut come).await?;
            }
            body.extend_from_slice(&come[line + 2..line + 2 + size]);
            come.drain(..whole);
            if size == 0 {
                return Ok(body.into());
            }
        }
    }

    async fn more(&mut self, come: &mut Vec<u8>) -> io::Result<()> {
        match self.stream.read_buf(come).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answer(bytes: &'static [u8]) -> io::Result<Answer> {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        far.write_all(bytes).await.expect("room for an answer");
        Line::new(near).ask(b"GET / HTTP/1.1\r\n\r\n").await
    }

    #[tokio::test]
    async fn an_answer_is_read_with_its_body_and_without_one_where_it_has_none() {
        let found = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nFarshore-Tag: \"x\"\r\n\r\nhello").await;
        let found = found.expect("an answer");
        assert_eq!((found.status, &found.body[..]), (200, b"hello".as_slice()));
        assert_eq!(found.header("farshore-tag"), Some("\"x\""));
        let found =
            answer(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n").await.expect("an answer");
        assert_eq!((found.status, found.body.len()), (304, 0));
    }

    #[tokio::test]
    async fn an_answer_in_chunks_is_read_to_its_end() {
        let found = answer(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nB\r\n, the world\r\n0\r\n\r\n",
        );
        assert_eq!(&found.await.expect("an answer").body[..], b"hello, the world");
    }

    #[tokio::test]
    async fn what_is_no_answer_is_an_error() {
        assert!(answer(b"SSH-2.0-x\r\n\r\n").await.is_err());
    }
}
