//! Since when things are unneeded: written down, because listings carry no age that can be trusted. Pure.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::compress;
use farshore_shared::digest::Digest;
use farshore_shared::wire::UnixSeconds;
use serde::{Deserialize, Serialize};

use crate::objects::Key;

/// Over how many objects marks are spread.
pub const SHARDS: usize = 16;
/// The most marks of one shard: what is found beyond waits until others are gone.
const MARKS_LIMIT: usize = 50_000;
/// The most bytes of a shard, compressed and not.
pub const LIMIT: usize = 32 << 20;

/// One shard of marks: when each object was first found unneeded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Marks(BTreeMap<String, UnixSeconds>);

/// In which shard an object's mark is.
#[must_use]
pub fn shard_of(key: &Key) -> usize {
    usize::from(Digest::of(key.as_str().as_bytes()).as_bytes()[0]) % SHARDS
}

/// Where a shard lies.
///
/// # Panics
/// Never: numbers make good keys.
#[must_use]
pub fn key_of(shard: usize) -> Key {
    Key::new(format!("gc/marks/{shard:02}")).expect("numbers make good keys")
}

impl Marks {
    /// As it is stored. A shard that cannot be read is as good as none: what it marked is marked anew and
    /// kept longer.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let json = compress::unpack(bytes, LIMIT).unwrap_or_default();
        serde_json::from_slice(&json).unwrap_or_default()
    }

    /// To be stored.
    ///
    /// # Panics
    /// Never: the keys are strings.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        compress::pack(&serde_json::to_vec(self).expect("the keys are strings"))
    }

    /// Since when an object is unneeded.
    #[must_use]
    pub fn since(&self, key: &Key) -> Option<UnixSeconds> {
        self.0.get(key.as_str()).copied()
    }

    /// The marks after a round that found exactly these unneeded (`unneeded`: how long each is kept), of which
    /// publishers have met `reused` again; and what may be deleted.
    ///
    /// Nothing is deleted in the round that marks it, and a mark from the future, which a clock that went back
    /// has left, counts from now.
    #[must_use]
    pub fn next(
        &self,
        unneeded: &BTreeMap<Key, u64>,
        reused: &BTreeSet<Key>,
        now: UnixSeconds,
    ) -> (Self, BTreeSet<Key>) {
        let (mut marks, mut due) = (BTreeMap::new(), BTreeSet::new());
        for (key, keep) in unneeded {
            let before = self.since(key).filter(|since| *since <= now && !reused.contains(key));
            if before.is_some_and(|since| now - since >= *keep) {
                due.insert(key.clone());
            }
            if before.is_some() || marks.len() < MARKS_LIMIT {
                marks.insert(key.to_string(), before.unwrap_or(now));
            }
        }
        (Self(marks), due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).expect("a key")
    }

    fn unneeded(keys: &[&str]) -> BTreeMap<Key, u64> {
        keys.iter().map(|text| (key(text), 100)).collect()
    }

    fn due(keys: &BTreeSet<Key>) -> Vec<&str> {
        keys.iter().map(Key::as_str).collect()
    }

    #[test]
    fn what_is_unneeded_for_its_time_is_due_and_what_is_needed_meanwhile_begins_anew() {
        let none = BTreeSet::new();
        let (marks, first) = Marks::default().next(&unneeded(&["a", "b"]), &none, 1000);
        assert!(first.is_empty(), "nothing is deleted in the round that marks it");
        let (marks, early) = marks.next(&unneeded(&["a", "b"]), &none, 1099);
        assert!(early.is_empty());
        let (marks, late) = marks.next(&unneeded(&["a"]), &none, 1100);
        assert_eq!(due(&late), ["a"]);
        let (marks, again) = marks.next(&unneeded(&["a", "b"]), &none, 1150);
        assert_eq!((due(&again), marks.since(&key("b"))), (vec!["a"], Some(1150)));
    }

    #[test]
    fn what_a_publisher_met_again_and_what_a_wrong_clock_marked_begins_anew() {
        let (marks, _) = Marks::default().next(&unneeded(&["a"]), &BTreeSet::new(), 1000);
        let (marks, reused) = marks.next(&unneeded(&["a"]), &BTreeSet::from([key("a")]), 2000);
        assert!(reused.is_empty());
        assert_eq!(marks.since(&key("a")), Some(2000));
        let (marks, back) = marks.next(&unneeded(&["a"]), &BTreeSet::new(), 1500);
        assert!(back.is_empty());
        assert_eq!(marks.since(&key("a")), Some(1500));
    }

    #[test]
    fn marks_read_back_and_damaged_ones_delete_nothing() {
        let (marks, _) = Marks::default().next(&unneeded(&["a"]), &BTreeSet::new(), 1000);
        assert_eq!(Marks::decode(&marks.encode()), marks);
        assert_eq!(Marks::decode(b"garbage"), Marks::default());
    }

    #[test]
    fn a_shard_of_marks_has_a_limit_and_what_is_beyond_waits() {
        let many: BTreeMap<Key, u64> = (0..MARKS_LIMIT + 10).map(|n| (key(&format!("a/{n}")), 1)).collect();
        let (marks, _) = Marks::default().next(&many, &BTreeSet::new(), 1000);
        assert_eq!(marks.0.len(), MARKS_LIMIT);
    }
}
