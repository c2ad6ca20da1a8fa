//! *Pure.* One shard of the directory in memory, in some 160 bytes a cluster.
//!
//! What a poll needs of a cluster lies in one line of memory: where a million of them poll in turn, each line
//! has to come from main memory, and that takes longer than everything that is done with it.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use farshore_shared::digest::Digest;
use farshore_shared::keys::PublicKey;
use farshore_shared::names::Name;
use farshore_shared::wire::UnixSeconds;
use hashbrown::HashTable;

use crate::record::SHARDS;

/// Where a cluster is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its shard.
    pub(crate) shard: u16,
    /// More of the name's hash, to find it in the shard.
    print: u32,
}

impl Place {
    /// The place of a name.
    pub(crate) fn of(name: &str) -> Self {
        let digest = Digest::of(name.as_bytes());
        let [a, b, c, d, e, f, ..] = *digest.as_bytes();
        Self { shard: u16::from_be_bytes([a, b]) % SHARDS, print: u32::from_be_bytes([c, d, e, f]) }
    }

    fn hash(self) -> u64 {
        spread(self.print)
    }
}

/// The table looks at the highest and the lowest bits.
fn spread(print: u32) -> u64 {
    u64::from(print).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The first four bytes of a digest: what a tag has of it.
pub(crate) type Short = [u8; 4];

/// What is known of a cluster's roster without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RosterMark {
    /// Its epoch.
    pub(crate) epoch: u32,
    /// Its sequence.
    pub(crate) sequence: u64,
    /// Of its envelope.
    pub(crate) short: Short,
    /// The lowest group sequence that the cluster may accept.
    pub(crate) floor: u64,
    /// The number of its group in this process.
    pub(crate) group: u32,
}

/// What is known of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    /// Which.
    pub(crate) name: Name,
    /// Epoch and sequence of its registration, or of its removal.
    pub(crate) life: (u32, u64),
    /// None once it is removed.
    pub(crate) key: Option<PublicKey>,
    /// Its roster, once it has one.
    pub(crate) roster: Option<RosterMark>,
}

impl Known {
    fn order(&self) -> (u32, u64, u32, u64) {
        let roster = self.roster.map_or((0, 0), |roster| (roster.epoch, roster.sequence));
        (self.life.0, self.life.1, roster.0, roster.1)
    }

    /// Of a later life, or with a later roster in the same one.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        self.order() > other.order()
    }
}

/// Epochs are counted by hand, one for each disaster.
pub(crate) fn epoch(epoch: u64) -> u32 {
    u32::try_from(epoch).unwrap_or(u32::MAX)
}

/// How often a cluster was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// For the first time in this second: what steers the fleet counts this one.
    First,
    /// Not for the first time in this second.
    Again,
    /// More often in this second than it may poll.
    TooOften,
}

/// A verified pass: its keyed hash, and when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// [`crate::auth`] says of what.
    pub(crate) hash: [u64; 2],
    /// In Unix seconds.
    pub(crate) expires: u32,
}

/// One cluster, in two lines of memory: what every poll needs is in the first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    pass: [u64; 2],
    roster: u64,
    floor: u64,
    roster_epoch: u32,
    pass_expires: u32,
    group: u32,
    print: u32,
    seen: AtomicU32,
    short: Short,
    is_enrolled: bool,
    name_len: u8,
    /// Polls in the second that `seen` tells.
    polls: AtomicU16,
    name_at: u32,
    // Here the second line begins.
    life: u64,
    key: [u8; 32],
    life_epoch: u32,
    looked: AtomicU32,
}

/// Of [`Slot`].
const LINE: usize = 64;
const _: () = assert!(size_of::<Slot>() == 2 * LINE && std::mem::offset_of!(Slot, life) == LINE);

impl Slot {
    /// What the cluster signs with, while it is enrolled.
    pub(crate) fn key(&self) -> Option<PublicKey> {
        self.is_enrolled.then(|| PublicKey::from(self.key))
    }

    /// Its roster. Sequences begin at 1.
    pub(crate) fn roster(&self) -> Option<RosterMark> {
        let Self { roster_epoch: epoch, roster: sequence, short, floor, group, .. } = *self;
        (sequence > 0).then_some(RosterMark { epoch, sequence, short, floor, group })
    }

    /// What is known of the cluster of this name, which is this one.
    pub(crate) fn known(&self, name: &Name) -> Known {
        let life = (self.life_epoch, self.life);
        Known { name: name.clone(), life, key: self.key(), roster: self.roster() }
    }

    /// When the pass that is remembered here ends.
    pub(crate) fn pass_expires(&self) -> UnixSeconds {
        self.pass_expires.into()
    }

    /// Notes that the cluster was heard; says whether for the first time in this second.
    pub(crate) fn note_seen(&self, now: u32) -> Heard {
        if self.seen.load(Ordering::Relaxed) == now {
            return Heard::Again;
        }
        self.seen.store(now, Ordering::Relaxed);
        self.polls.store(0, Ordering::Relaxed);
        Heard::First
    }

    /// The same for a poll, of which there may be `most` in one second.
    pub(crate) fn note_poll(&self, now: u32, most: u16) -> Heard {
        let heard = self.note_seen(now);
        // Two at once may count as one: it is a limit, not a bill.
        match self.polls.load(Ordering::Relaxed) {
            polls if polls >= most => Heard::TooOften,
            polls => {
                self.polls.store(polls + 1, Ordering::Relaxed);
                heard
            }
        }
    }

    /// When it was heard, unless that was asked before.
    pub(crate) fn take_seen(&self) -> Option<UnixSeconds> {
        // What is told of a removed cluster would be kept by nobody for anything.
        if self.seen.load(Ordering::Relaxed) == 0 || !self.is_enrolled {
            return None;
        }
        Some(self.seen.swap(0, Ordering::Relaxed).into()).filter(|at| *at > 0)
    }

    /// Whether nobody has looked on this cluster's behalf for `rest` seconds; then somebody has, now.
    pub(crate) fn may_look(&self, now: u32, rest: u32) -> bool {
        let rested = |looked: u32| (now.saturating_sub(looked) >= rest || looked == 0).then_some(now.max(1));
        self.looked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rested).is_ok()
    }

    fn order(&self) -> (u32, u64, u32, u64) {
        (self.life_epoch, self.life, self.roster_epoch, self.roster)
    }

    fn set(&mut self, known: &Known) {
        let key = known.key.as_ref().map_or([0; 32], |key| *key.as_bytes());
        if key != self.key || known.key.is_some() != self.is_enrolled {
            (self.pass, self.pass_expires) = ([0; 2], 0);
        }
        (self.key, self.is_enrolled) = (key, known.key.is_some());
        (self.life_epoch, self.life) = known.life;
        let none = RosterMark { epoch: 0, sequence: 0, short: [0; 4], floor: 0, group: 0 };
        let roster = known.roster.unwrap_or(none);
        (self.roster_epoch, self.roster, self.short) = (roster.epoch, roster.sequence, roster.short);
        (self.floor, self.group) = (roster.floor, roster.group);
    }
}

/// The clusters of one shard.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    names: Vec<u8>,
    places: HashTable<u32>,
}

impl Slots {
    /// Room for so many.
    pub(crate) fn with_capacity(clusters: usize) -> Self {
        let slots = Vec::with_capacity(clusters);
        Self { slots, names: Vec::new(), places: HashTable::with_capacity(clusters) }
    }

    /// How many there are, the removed ones included.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        let slots = self.slots.capacity() * size_of::<Slot>();
        slots + self.names.capacity() + self.places.allocation_size()
    }

    /// A cluster by its name.
    pub(crate) fn find(&self, place: Place, name: &str) -> Option<&Slot> {
        self.find_index(place, name).map(|index| &self.slots[index])
    }

    /// The cluster at this place for which a pass of this hash is remembered.
    pub(crate) fn remembered(&self, place: Place, pass: [u64; 2]) -> Option<&Slot> {
        let is_it = |index: &u32| {
            let slot = &self.slots[*index as usize];
            slot.print == place.print && slot.pass == pass && slot.is_enrolled && slot.pass_expires > 0
        };
        self.places.find(place.hash(), is_it).map(|index| &self.slots[*index as usize])
    }

    /// Remembers a pass that was verified with this key, unless the cluster's key is another by now.
    pub(crate) fn remember(&mut self, place: Place, name: &str, key: &PublicKey, pass: Remembered) {
        let Some(index) = self.find_index(place, name) else { return };
        let slot = &mut self.slots[index];
        if slot.is_enrolled && slot.key == *key.as_bytes() {
            (slot.pass, slot.pass_expires) = (pass.hash, pass.expires);
        }
    }

    /// Takes what is known of a cluster, if it is newer than what is here; says whether it was.
    pub(crate) fn take(&mut self, known: &Known) -> bool {
        let place = Place::of(known.name.as_str());
        let index = match self.find_index(place, known.name.as_str()) {
            Some(index) if known.order() <= self.slots[index].order() => return false,
            Some(index) => index,
            None => self.add(place, known.name.as_str()),
        };
        self.slots[index].set(known);
        true
    }

    /// All clusters with their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Slot)> {
        self.slots.iter().map(|slot| (self.name(slot), slot))
    }

    fn name(&self, slot: &Slot) -> &str {
        let at = slot.name_at as usize;
        std::str::from_utf8(&self.names[at..at + usize::from(slot.name_len)]).unwrap_or_default()
    }

    fn find_index(&self, place: Place, name: &str) -> Option<usize> {
        let is_it = |index: &u32| {
            let slot = &self.slots[*index as usize];
            slot.print == place.print && self.name(slot) == name
        };
        self.places.find(place.hash(), is_it).map(|index| *index as usize)
    }

    fn add(&mut self, place: Place, name: &str) -> usize {
        let index = self.slots.len();
        // A sixteenth of slack, where doubling would waste a half.
        if index == self.slots.capacity() {
            self.slots.reserve_exact(index / 16 + 4);
        }
        if self.names.len() + name.len() > self.names.capacity() {
            self.names.reserve_exact(self.names.len() / 16 + 256);
        }
        let name_at = u32::try_from(self.names.len()).expect("names of one shard are far below 4 GiB");
        self.names.extend_from_slice(name.as_bytes());
        self.slots.push(Slot {
            key: [0; 32],
            pass: [0; 2],
            life: 0,
            roster: 0,
            floor: 0,
            life_epoch: 0,
            roster_epoch: 0,
            pass_expires: 0,
            group: 0,
            print: place.print,
            name_at,
            seen: AtomicU32::new(0),
            looked: AtomicU32::new(0),
            short: [0; 4],
            name_len: u8::try_from(name.len()).expect("a name has at most 63 bytes"),
            polls: AtomicU16::new(0),
            is_enrolled: false,
        });
        let slots = &self.slots;
        let number = u32::try_from(index).expect("a shard has far below 2^32 clusters");
        self.places.insert_unique(place.hash(), number, |at| spread(slots[*at as usize].print));
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;

    fn known(name: &str, life: u64, roster: u64) -> Known {
        let mark = RosterMark { epoch: 1, sequence: roster, short: [1; 4], floor: 1, group: 0 };
        Known {
            name: name.parse().expect("a name"),
            life: (1, life),
            key: Some([7; 32].into()),
            roster: (roster > 0).then_some(mark),
        }
    }

    #[test]
    fn a_cluster_is_looked_for_in_the_shard_that_the_record_puts_it_into() {
        for name in ["harbour", "a", "site-000123"] {
            let cluster: Name = name.parse().expect("a name");
            assert_eq!(Place::of(name).shard, record::directory_shard_of(&cluster));
        }
    }

    #[test]
    fn what_is_older_or_the_same_changes_nothing_in_whatever_order_it_comes() {
        let removed = Known { key: None, roster: None, ..known("a", 6, 0) };
        let mut all = [known("a", 5, 0), known("a", 5, 8), known("a", 5, 9), removed];
        for _ in 0..all.len() {
            all.rotate_left(1);
            let mut slots = Slots::default();
            for known in all.iter().chain(&all) {
                slots.take(known);
            }
            let slot = slots.find(Place::of("a"), "a").expect("taken");
            assert_eq!((slot.key(), slot.roster(), slots.len()), (None, None, 1), "removed last");
        }
        let mut slots = Slots::default();
        assert!(slots.take(&all[0]) || slots.take(&all[1]));
    }

    #[test]
    fn a_pass_is_forgotten_with_the_key_that_it_was_verified_with() {
        let (place, key) = (Place::of("a"), PublicKey::from([7; 32]));
        let pass = Remembered { hash: [1, 2], expires: 100 };
        let mut slots = Slots::default();
        slots.take(&known("a", 5, 1));
        slots.remember(place, "a", &PublicKey::from([8; 32]), pass);
        assert!(slots.remembered(place, pass.hash).is_none(), "of another key");
        slots.remember(place, "a", &key, pass);
        slots.take(&known("a", 5, 2));
        assert!(slots.remembered(place, pass.hash).is_some(), "a new roster leaves it");
        assert!(slots.remembered(place, [1, 3]).is_none());
        slots.take(&Known { key: None, roster: None, ..known("a", 6, 0) });
        assert!(slots.remembered(place, pass.hash).is_none(), "removed");
        slots.take(&known("a", 7, 0));
        assert!(slots.remembered(place, pass.hash).is_none(), "enrolled again");
    }

    #[test]
    fn a_cluster_takes_no_more_than_160_bytes() {
        let mut slots = Slots::with_capacity(1000);
        for n in 0..1000 {
            slots.take(&known(&format!("site-{n:06}.example").replace('.', "-"), 1, 1));
        }
        assert_eq!(slots.iter().filter(|(name, _)| name.starts_with("site-")).count(), 1000);
        let each = slots.bytes() / slots.len();
        assert!(each <= 160, "{each} bytes");
    }

    #[test]
    fn a_cluster_counts_once_a_second_and_polls_so_many_times() {
        let mut slots = Slots::default();
        slots.take(&known("a", 5, 1));
        let slot = slots.find(Place::of("a"), "a").expect("taken");
        let polls = |now| [(); 4].map(|()| slot.note_poll(now, 3));
        assert_eq!(polls(1000), [Heard::First, Heard::Again, Heard::Again, Heard::TooOften]);
        assert_eq!(slot.note_seen(1000), Heard::Again, "whatever else it asks for");
        assert_eq!(slot.note_seen(1001), Heard::First);
        assert_eq!(polls(1001), [Heard::Again, Heard::Again, Heard::Again, Heard::TooOften]);
        assert_eq!(slot.take_seen(), Some(1001));
    }

    #[test]
    fn somebody_may_look_for_a_cluster_once_in_a_while() {
        let mut slots = Slots::default();
        slots.take(&known("a", 5, 1));
        let slot = slots.find(Place::of("a"), "a").expect("taken");
        assert_eq!(
            [0, 5, 9, 10, 19, 20].map(|after| slot.may_look(1000 + after, 10)),
            [true, false, false, true, false, true]
        );
    }
}
