//! What is published: the head and the table of groups, with what a poll needs of it at hand.

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::wire::GroupId;

use crate::directory::Short;
use crate::record::{GroupRef, Head, Table};

/// What is published: the head and the table.
#[derive(Debug)]
pub struct Publication {
    /// The head.
    pub head: Head,
    table: Table,
    marks: Vec<Option<GroupMark>>,
    seal: Seal,
}

/// Which bytes a publication was read from, and under which root they were verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal {
    pub(super) bytes: Digest,
    pub(super) root: u64,
}

/// What a tag says of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupMark {
    /// Of its body.
    pub(crate) sequence: u64,
    /// Of its envelope.
    pub(crate) short: Short,
}

impl Publication {
    /// A publication whose groups have these numbers in this process.
    pub(super) fn new(head: Head, table: Table, seal: Seal, number: impl Fn(&GroupId) -> u32) -> Self {
        let mut marks = Vec::new();
        for (id, group) in &table.0 {
            let number = number(id) as usize;
            if marks.len() <= number {
                marks.resize(number + 1, None);
            }
            let [a, b, c, d, ..] = *group.digest.as_bytes();
            marks[number] = Some(GroupMark { sequence: group.sequence, short: [a, b, c, d] });
        }
        Self { head, table, marks, seal }
    }

    /// Where a group's body is.
    #[must_use]
    pub fn group(&self, id: &GroupId) -> Option<&GroupRef> {
        self.table.0.get(id)
    }

    /// What a tag says of the group of this number.
    pub(crate) fn mark(&self, number: u32) -> Option<GroupMark> {
        self.marks.get(number as usize).copied().flatten()
    }

    pub(super) fn seal(&self) -> Seal {
        self.seal
    }
}

/// An envelope as it was read.
pub(super) fn envelope(bytes: &Bytes) -> Option<Envelope> {
    serde_json::from_slice(bytes).ok()
}
