//! Who is known, and what a poll is compared with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farshore_shared::etag::DesiredTag;
use farshore_shared::keys::PublicKey;
use farshore_shared::names::Name;
use farshore_shared::wire::{GroupId, Registration, Roster, SMALL_LIMIT, UnixSeconds};

use super::error::{ViewError, shared};
use super::tag::{TagText, tag};
use super::{Signed, View};
use crate::auth::Caller;
use crate::directory::{Heard, Known, Place, Remembered, RosterMark, epoch};
use crate::record;

/// How long nobody looks on one cluster's behalf again, in seconds: what it says that it holds is not
/// proven, and must not make us read.
const LOOK_REST: u32 = 10;
/// How often a shard is loaded that is dropped again before it was looked at.
const ATTEMPTS: usize = 4;
/// How many clusters that the directory does not know are looked for in a second.
const LOOKUPS: u32 = 500;

/// What a cluster would be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Its tag.
    pub(crate) tag: DesiredTag,
    /// The lowest group sequence that the cluster may accept.
    pub(crate) floor: u64,
    /// Its group.
    pub(crate) group: GroupId,
}

/// A poll as it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steady<'a> {
    /// Where the cluster is that the pass claims.
    pub(crate) place: Place,
    /// The keyed hash of the pass.
    pub(crate) pass: [u64; 2],
    /// What the caller holds.
    pub(crate) tag: &'a [u8],
    /// The time.
    pub(crate) now: UnixSeconds,
    /// How often a cluster may be answered so within a second.
    pub(crate) most: u16,
}

impl View {
    /// How often the cluster was heard, where its pass is remembered and it holds what this replica would send, as
    /// far as it knew at most `age` ago. Notes that it was heard. No waiting, and no memory of its own.
    pub(crate) fn steady(&self, poll: Steady<'_>, age: Duration) -> Option<Heard> {
        if self.age().is_none_or(|is| is > age) {
            return None;
        }
        let published = self.memory.published.load();
        let published = published.as_ref()?;
        let heard = self.memory.directory.with_slots(poll.place.shard, |slots| {
            let slot = slots.remembered(poll.place, poll.pass)?;
            if !is_valid(slot.pass_expires(), poll.now) {
                return None;
            }
            let roster = slot.roster()?;
            let group = published.mark(roster.group).filter(|group| group.sequence >= roster.floor)?;
            let is_held = TagText::new(&roster, &group).as_bytes() == poll.tag;
            is_held.then(|| slot.note_poll(seconds(poll.now), poll.most))
        });
        heard.flatten()
    }

    /// The key of the cluster for which this pass was verified before.
    pub(crate) fn remembered(&self, place: Place, pass: [u64; 2], now: UnixSeconds) -> Option<PublicKey> {
        let found = self.memory.directory.with_slots(place.shard, |slots| {
            slots.remembered(place, pass).filter(|slot| is_valid(slot.pass_expires(), now))?.key()
        });
        found.flatten()
    }

    /// Remembers a pass that was verified with this key.
    pub(crate) fn remember(&self, cluster: &Name, key: &PublicKey, pass: [u64; 2], expires: UnixSeconds) {
        let pass = Remembered { hash: pass, expires: seconds(expires) };
        self.memory.directory.remember(cluster, key, pass);
    }

    /// Notes that a cluster was heard; says whether for the first time in this second, as far as memory knows.
    pub fn note_seen(&self, cluster: &Name, now: UnixSeconds) -> Heard {
        let place = Place::of(cluster.as_str());
        let heard = self.memory.directory.with_slots(place.shard, |slots| {
            slots.find(place, cluster.as_str()).map(|slot| slot.note_seen(seconds(now)))
        });
        heard.flatten().unwrap_or(Heard::First)
    }

    /// Whether somebody may look into objects on this cluster's behalf, and nobody else for some time.
    pub(crate) fn may_look(&self, cluster: &Name, now: UnixSeconds) -> bool {
        let place = Place::of(cluster.as_str());
        let may = self.memory.directory.with_slots(place.shard, |slots| {
            slots.find(place, cluster.as_str()).map(|slot| slot.may_look(seconds(now), LOOK_REST))
        });
        may.flatten().unwrap_or(false)
    }

    /// What a caller would be sent, as far as memory knows; none when its shard is not loaded.
    #[must_use]
    pub fn tag(&self, caller: &Caller) -> Option<DesiredTag> {
        self.offer(&caller.cluster).map(|offer| offer.tag)
    }

    /// The group of a cluster, as far as memory knows.
    #[must_use]
    pub fn group_of(&self, cluster: &Name) -> Option<GroupId> {
        self.memory.directory.group_id(self.in_memory(cluster)?.roster?.group)
    }

    /// What a cluster would be sent, as far as memory knows.
    pub(crate) fn offer(&self, cluster: &Name) -> Option<Offer> {
        let known = self.in_memory(cluster)?;
        let (_key, roster) = known.key.zip(known.roster)?;
        let group = self.published()?.mark(roster.group)?;
        let id = self.memory.directory.group_id(roster.group)?;
        Some(Offer { tag: tag(&roster, &group), floor: roster.floor, group: id })
    }

    /// What is known of a cluster: from memory; or from its own objects, if the directory is behind.
    pub(crate) async fn known(&self, cluster: &Name) -> Result<Option<Known>, Arc<ViewError>> {
        self.fresh().await?;
        for _ in 0..ATTEMPTS {
            self.load_shard(Place::of(cluster.as_str()).shard).await?;
            // Where there is little room, the shard is gone again: that says nothing of the cluster.
            let Some(listed) = self.in_shard(cluster) else { continue };
            let listed = listed.filter(|known| known.key.is_some());
            if listed.as_ref().is_some_and(|known| known.roster.is_some()) {
                return Ok(listed);
            }
            let found = self.memory.unlisted.try_get_with_by_ref(cluster, self.look_up(cluster)).await?;
            if let Some(found) = found {
                self.memory.directory.learn(&found);
            }
            if let Some(known) = self.in_shard(cluster) {
                return Ok(known.filter(|known| known.key.is_some()));
            }
        }
        Err(Arc::new(ViewError::Crowded))
    }

    /// Reads a roster again, and takes it if it is newer.
    pub(crate) async fn look_for(&self, cluster: &Name) -> Result<(), Arc<ViewError>> {
        self.look_since(std::time::Instant::now()).await?;
        self.roster(cluster, super::Freshness::Now).await?;
        Ok(())
    }

    pub(super) fn in_memory(&self, cluster: &Name) -> Option<Known> {
        self.in_shard(cluster).flatten()
    }

    /// What its shard has of a cluster; none if the shard is not loaded.
    fn in_shard(&self, cluster: &Name) -> Option<Option<Known>> {
        let place = Place::of(cluster.as_str());
        self.memory.directory.with_slots(place.shard, |slots| {
            slots.find(place, cluster.as_str()).map(|slot| slot.known(cluster))
        })
    }

    /// Takes a roster that was read from objects.
    pub(super) fn learn_roster(&self, roster: &Signed<Roster>) {
        let Some(before) = self.in_memory(&roster.document.cluster).filter(|known| known.key.is_some())
        else {
            return;
        };
        // A roster of a life before has another key.
        if before.key.as_ref().is_some_and(|key| key.id() == roster.document.key) {
            self.memory.directory.learn(&Known { roster: Some(self.mark(roster)), ..before });
        }
    }

    fn mark(&self, roster: &Signed<Roster>) -> RosterMark {
        let [a, b, c, d, ..] = *roster.digest.as_bytes();
        RosterMark {
            epoch: epoch(roster.document.epoch),
            sequence: roster.document.sequence,
            short: [a, b, c, d],
            floor: roster.document.floor,
            group: self.memory.directory.group_number(&roster.document.group),
        }
    }

    /// Registration and roster of a cluster that the directory does not have yet. The index is not asked:
    /// it may still hold a cluster that was removed.
    async fn look_up(&self, cluster: &Name) -> Result<Option<Arc<Known>>, ViewError> {
        if !self.memory.directory.is_empty() && !self.memory.lookups.is_allowed(farshore_shared::clock::now())
        {
            return Err(ViewError::Busy { limit: LOOKUPS });
        }
        let trust = self.trust().await.map_err(shared)?;
        let director = trust.director();
        let (registration, roster) = futures::future::try_join(
            self.stored::<Registration>(record::registration(cluster), &director, SMALL_LIMIT, |found| {
                found.document.cluster == *cluster
            }),
            self.stored::<Roster>(record::roster(cluster), &director, SMALL_LIMIT, |found| {
                found.document.cluster == *cluster
            }),
        )
        .await?;
        let Some(registration) = registration.map(|found| found.document) else { return Ok(None) };
        // Between two lives, the roster is still that of the key before.
        let roster = roster.filter(|roster| roster.document.key == registration.key.id());
        Ok(Some(Arc::new(Known {
            name: cluster.clone(),
            life: (epoch(registration.epoch), registration.sequence),
            key: Some(registration.key),
            roster: roster.map(|roster| self.mark(&roster)),
        })))
    }
}

fn is_valid(expires: UnixSeconds, now: UnixSeconds) -> bool {
    now <= expires.saturating_add(farshore_shared::pass::LEEWAY)
}

/// Unix seconds as a slot has them: good until 2106.
fn seconds(at: UnixSeconds) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// How many lookups there were in this second.
#[derive(Debug, Default)]
pub(super) struct Rate(AtomicU64);

impl Rate {
    fn is_allowed(&self, now: UnixSeconds) -> bool {
        let second = u64::from(seconds(now)) << 32;
        let count = |held: u64| if held & !0xffff_ffff == second { held + 1 } else { second + 1 };
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| Some(count(held)));
        let counted = before.map_or_else(count, count);
        counted - second <= u64::from(LOOKUPS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_so_many_strangers_are_looked_for_in_a_second() {
        let rate = Rate::default();
        let allowed = |now| (0..2 * LOOKUPS).filter(|_| rate.is_allowed(now)).count();
        assert_eq!([allowed(1_800_000_000), allowed(1_800_000_001)], [LOOKUPS as usize; 2]);
    }
}
