//! What an artifact is made from: the files of one Git tree, as whoever reads them promises.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// The longest path inside a repository, in bytes: Linux' `PATH_MAX`, less room for where it is put.
pub const PATH_LIMIT: usize = 3_072;

/// The id of a Git object: SHA-1 over its kind, length and content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 20]);

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha1:{self}")
    }
}

/// A path from a repository's root: UTF-8, `/` between its parts, none of them empty, `.` or `..`,
/// neither NUL nor `\`. The root itself is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TreePath(String);

/// Why a text is not a [`TreePath`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// It begins with `/`.
    #[error("a path begins at the repository's root, without a '/' (got {0:?})")]
    Absolute(String),
    /// A part that goes up, or nowhere.
    #[error("a path has no empty part, no '.' and no '..' (got {0:?})")]
    Part(String),
    /// A character that some site could read as something else.
    #[error("a path has no backslash and no NUL (got {0:?})")]
    Character(String),
    /// Not UTF-8.
    #[error("a path is UTF-8 (got {0:?})")]
    NotUtf8(String),
    /// More bytes than [`PATH_LIMIT`].
    #[error("a path has at most {PATH_LIMIT} bytes (this one has {0})")]
    TooLong(usize),
}

impl TreePath {
    /// The repository's root.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// The path as text; empty for the root.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parts between the slashes, from the root down.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }

    /// The path of what has this name in this folder.
    ///
    /// # Errors
    /// [`BadPath`] if the name is more than one part, or none.
    pub fn child(&self, name: &[u8]) -> Result<Self, BadPath> {
        let name =
            str::from_utf8(name).map_err(|_| BadPath::NotUtf8(String::from_utf8_lossy(name).into_owned()))?;
        if name.is_empty() || name.contains('/') {
            return Err(BadPath::Part(name.to_owned()));
        }
        if self.0.is_empty() { name.parse() } else { format!("{}/{name}", self.0).parse() }
    }

    /// The folder that this is in; nothing for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.0.is_empty() {
            return None;
        }
        Some(Self(self.0.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned()))
    }
}

impl FromStr for TreePath {
    type Err = BadPath;

    fn from_str(text: &str) -> Result<Self, BadPath> {
        let shown = || text.chars().take(200).collect();
        if text.len() > PATH_LIMIT {
            return Err(BadPath::TooLong(text.len()));
        }
        if text.starts_with('/') {
            return Err(BadPath::Absolute(shown()));
        }
        if text.contains(['\\', '\0']) {
            return Err(BadPath::Character(shown()));
        }
        if !text.is_empty() && text.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(BadPath::Part(shown()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.0.is_empty() { "." } else { &self.0 })
    }
}

/// What a Git tree says an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Another tree.
    Folder,
    /// A file.
    File,
    /// A file that may be executed.
    Executable,
    /// A symbolic link: its blob is the target.
    Symlink,
    /// A commit of another repository.
    Submodule,
}

/// One entry of a Git tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub mode: Mode,
    /// The tree, the blob, or the other repository's commit.
    pub id: ObjectId,
}

/// One file, or what stands in its place, below a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Where, from the repository's root.
    pub path: TreePath,
    /// What it is: never [`Mode::Folder`].
    pub mode: Mode,
    /// Its blob, or the other repository's commit.
    pub id: ObjectId,
}

/// Why a tree could not be read: whoever reads it knows.
pub type ReadError = Box<dyn Error + Send + Sync>;

/// The files of one commit.
pub trait Files {
    /// What is at this path; the root is a folder.
    ///
    /// # Errors
    /// [`ReadError`] if the tree cannot be read.
    fn entry(&self, path: &TreePath) -> Result<Option<Entry>, ReadError>;

    /// Everything below this folder but folders, recursively, sorted bytewise by path; nothing if
    /// there is no such folder.
    ///
    /// # Errors
    /// [`ReadError`] if a tree cannot be read, a name is no [`TreePath`], or there are more than
    /// `limit` entries.
    fn list(&self, folder: &TreePath, limit: usize) -> Result<Vec<Listed>, ReadError>;

    /// The content of a blob.
    ///
    /// # Errors
    /// [`ReadError`] if it cannot be read or has more than `limit` bytes.
    fn blob(&self, id: &ObjectId, limit: u64) -> Result<Vec<u8>, ReadError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_inside_the_repository() {
        for good in ["", "a", "a/b.yaml", "..a/b..", "ä/ö", "a b"] {
            assert!(good.parse::<TreePath>().is_ok(), "{good:?} should be a path");
        }
        for bad in ["/", "/a", "..", "a/..", "a/../b", "./a", "a//b", "a/", "a\\b", "a\0b"] {
            assert!(bad.parse::<TreePath>().is_err(), "{bad:?} should not be a path");
        }
        assert_eq!("a".repeat(PATH_LIMIT + 1).parse::<TreePath>(), Err(BadPath::TooLong(PATH_LIMIT + 1)));
    }

    #[test]
    fn a_name_from_a_tree_is_one_part_in_utf8() {
        let folder: TreePath = "a".parse().expect("a path");
        assert_eq!(folder.child(b"b").map(|path| path.as_str().to_owned()), Ok("a/b".to_owned()));
        assert_eq!(TreePath::root().child(b"b").map(|path| path.as_str().to_owned()), Ok("b".to_owned()));
        for bad in [b"".as_slice(), b"..", b".", b"b/c", b"b\\c", b"\xff"] {
            assert!(folder.child(bad).is_err(), "{bad:?} should not be a name");
        }
    }
}
