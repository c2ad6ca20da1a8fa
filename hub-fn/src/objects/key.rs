//! Names of objects, parsed once.

use std::fmt;
use std::str::FromStr;

/// What file systems allow for one name.
const MOST_BYTES_OF_A_PART: usize = 255;

/// The name of an object: parts of `A-Z a-z 0-9 . _ -`, joined by `/`.
///
/// No part is empty, `.` or `..`, so that a key is a path below a folder as well; at most 512 bytes.
/// No key may be a folder of another one (`a` beside `a/b`): a disk cannot hold both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

/// A text that names no object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a key is parts of A-Z a-z 0-9 . _ - joined by /, at most 512 bytes (got {0:?})")]
pub struct BadKey(String);

impl Key {
    /// S3 allows 1,024 bytes; half of it leaves room for a prefix in a shared bucket.
    pub(super) const MOST_BYTES: usize = 512;

    /// The key of this text.
    ///
    /// # Errors
    /// When it has not the form of a key.
    pub fn new(text: impl Into<String>) -> Result<Self, BadKey> {
        let text = text.into();
        if text.len() <= Self::MOST_BYTES && text.split('/').all(is_part) {
            return Ok(Self(text));
        }
        Err(BadKey(text.chars().take(80).collect()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether this is one part of a key.
pub(super) fn is_part(part: &str) -> bool {
    (1..=MOST_BYTES_OF_A_PART).contains(&part.len())
        && part != "."
        && part != ".."
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

impl FromStr for Key {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        Self::new(text)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_path_that_cannot_leave_its_folder() {
        for good in ["a", "fleet/head", "artifacts/sha256/0a", "a.b/_c-d/E9", "..a/b.."] {
            assert_eq!(Key::new(good).expect(good).as_str(), good);
        }
        let long = "a".repeat(513);
        let long_part = format!("a/{}", "b".repeat(256));
        for bad in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a b", "a\\b", "ä", "a\0", "~a"]
        {
            assert!(Key::new(bad).is_err(), "{bad:?}");
        }
        assert!(Key::new(long).is_err());
        assert!(Key::new(long_part).is_err());
    }
}
