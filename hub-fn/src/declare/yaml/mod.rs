//! YAML as kubectl reads it, into a tree that remembers where everything stood.
//!
//! - [`split`]: a file into documents, so that one that does not parse leaves the others readable.
//! - [`scalar`]: what a bare word means (YAML 1.1, as Go's `yaml.v2` has it).
//! - [`tree`]: one document into [`Node`]s, bounded in depth and in nodes.
//!
//! What the fields of a declaration are is not known here.

mod scalar;
mod split;
mod tree;

pub(super) use scalar::Scalar;
pub(super) use split::{Piece, split};
pub(super) use tree::parse;

/// A place in a file: both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    /// The line.
    pub(super) line: u32,
    /// The column, in characters.
    pub(super) column: u32,
}

/// One value, and where it stood.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Where it begins.
    pub(super) at: At,
    /// What it is.
    pub(super) kind: Kind,
}

/// What a [`Node`] is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// A text, number, truth value or nothing.
    Scalar(Scalar),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in its order, with keys that occur twice still in it.
    Map(Vec<Entry>),
}

/// One key of a mapping and its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// The key.
    pub(super) key: Node,
    /// The value.
    pub(super) value: Node,
}

/// Why a document is not YAML, or is more of it than is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unparsable {
    /// Where.
    pub(super) at: At,
    /// What is wrong.
    pub(super) message: String,
    /// What would be right.
    pub(super) expected: String,
}

impl Node {
    /// Whether nothing is written here: `null`, `~` or no value at all.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Scalar(Scalar::Null))
    }

    /// The text, if it is one.
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(Scalar::Text(text)) => Some(text),
            Kind::Scalar(_) | Kind::List(_) | Kind::Map(_) => None,
        }
    }

    /// The entries, if it is a mapping.
    pub(super) fn as_map(&self) -> Option<&[Entry]> {
        match &self.kind {
            Kind::Map(entries) => Some(entries),
            Kind::Scalar(_) | Kind::List(_) => None,
        }
    }

    /// The value of a key of a mapping: the first of that name.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.as_map()?.iter().find(|entry| entry.key.as_text() == Some(key)).map(|entry| &entry.value)
    }

    /// What it is, for an error: `a list`, `the number 1`.
    pub(super) fn describe(&self) -> String {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.describe(),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a mapping".to_owned(),
        }
    }
}
