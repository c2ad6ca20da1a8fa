//! Bounded zstd for documents: a decoder that stops at a limit, whatever the frame promises.

use std::io::Read as _;

/// The largest window that is accepted, as a power of two: 8 MiB.
const WINDOW_LOG_MAX: u32 = 23;

/// Why bytes could not be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// More than the limit came out.
    #[error("decompressed content exceeds its limit ({limit} bytes)")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// Not a whole zstd frame.
    #[error("reading a zstd frame")]
    Broken(#[source] std::io::Error),
}

/// Compresses with a checksum, deterministically.
///
/// # Panics
/// Never: writing to memory cannot fail.
#[must_use]
pub fn pack(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 3).expect("compressing from memory to memory cannot fail")
}

/// Decompresses at most `limit` bytes.
///
/// # Errors
/// [`Error::TooLarge`] as soon as one byte more comes out; [`Error::Broken`] for anything that is not
/// a whole frame.
pub fn unpack(bytes: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(Error::Broken)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(Error::Broken)?;
    let mut out = Vec::new();
    let room = u64::try_from(limit).expect("a limit fits in 64 bits").saturating_add(1);
    decoder.take(room).read_to_end(&mut out).map_err(Error::Broken)?;
    if out.len() > limit { Err(Error::TooLarge { limit }) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_out_again() {
        let text = b"farshore ".repeat(1000);
        assert_eq!(unpack(&pack(&text), text.len()).expect("within the limit"), text);
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let bomb = pack(&vec![0; 64 << 20]);
        assert!(bomb.len() < 64 << 10);
        assert!(matches!(unpack(&bomb, 1 << 20), Err(Error::TooLarge { limit }) if limit == 1 << 20));
    }

    #[test]
    fn a_cut_frame_is_broken() {
        let packed = pack(b"some text that is long enough to be cut");
        assert!(matches!(unpack(&packed[..packed.len() - 3], 1 << 20), Err(Error::Broken(_))));
    }
}
