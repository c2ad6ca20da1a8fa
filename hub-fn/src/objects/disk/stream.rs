//! A file, piece by piece.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use bytes::Bytes;
use futures::{StreamExt, stream};

use crate::objects::{Key, ObjectsError, Operation, Pieces};

/// Large enough that handing over to a blocking thread costs little, small enough for many at once.
const PIECE: u64 = 256 * 1024;

/// The bytes of `range`, at most one piece in memory; the open file stays the version that it is.
pub(super) fn pieces(file: File, key: Key, range: Range<u64>) -> Pieces {
    stream::try_unfold((file, range), move |(file, left)| {
        let key = key.clone();
        async move {
            if left.is_empty() {
                return Ok(None);
            }
            let subject = key.to_string();
            tokio::task::spawn_blocking(move || next(file, &key, left)).await.unwrap_or_else(|source| {
                Err(ObjectsError::Unreachable {
                    operation: Operation::Read,
                    key: subject,
                    source: source.into(),
                })
            })
        }
    })
    .boxed()
}

type Next = Option<(Bytes, (File, Range<u64>))>;

fn next(mut file: File, key: &Key, left: Range<u64>) -> Result<Next, ObjectsError> {
    let failed = || ObjectsError::io(Operation::Read, key);
    let wanted = (left.end - left.start).min(PIECE);
    let mut piece = Vec::with_capacity(usize::try_from(wanted).unwrap_or_default());
    file.seek(SeekFrom::Start(left.start)).map_err(failed())?;
    file.by_ref().take(wanted).read_to_end(&mut piece).map_err(failed())?;
    let read = piece.len() as u64;
    if read < wanted {
        return Err(ObjectsError::corrupt(key, format!("the file ended {} bytes early", wanted - read)));
    }
    Ok(Some((piece.into(), (file, left.start + read..left.end))))
}
