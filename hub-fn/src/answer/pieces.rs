//! A body in memory, sent piece by piece: a connection takes no more of it than its peer reads, and what waits in
//! the connection is a copy, so that the rest is not held by it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use hyper::body::{Body, Frame, SizeHint};

use crate::objects::ObjectsError;

/// The most bytes of one piece.
const PIECE: usize = 16 << 10;

/// What is left to send.
#[derive(Debug)]
pub(super) struct Pieces(pub(super) Bytes);

impl Body for Pieces {
    type Data = Bytes;
    type Error = ObjectsError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ObjectsError>>> {
        let Self(left) = self.get_mut();
        if left.is_empty() {
            return Poll::Ready(None);
        }
        let piece = Bytes::copy_from_slice(&left[..left.len().min(PIECE)]);
        left.advance(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn bytes_that_are_sent_in_pieces_arrive_whole_and_their_length_is_told_before() {
        let bytes: Bytes = (0..5 * PIECE / 2).map(|n| n as u8).collect();
        let mut sent = Pieces(bytes.clone());
        assert_eq!(sent.size_hint().exact(), Some(bytes.len() as u64));
        let first = sent.frame().await.expect("a piece").expect("memory").into_data().expect("data");
        assert_eq!(first.len(), PIECE, "no more than one is handed over at once");
        let rest = sent.collect().await.expect("memory").to_bytes();
        assert_eq!([first, rest].concat(), bytes);
    }
}
