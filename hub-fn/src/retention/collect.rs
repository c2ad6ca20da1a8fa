//! Doing it: marks are kept, claims are made, pointers fenced, objects deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::SigningKey;
use farshore_shared::wire::UnixSeconds;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tracing::{debug, info};

use super::claim::{Claim, TAKEOVER};
use super::guarded::REUSED;
use super::marks::{self, Marks};
use super::needed::{Kind, Pointer, Rules};
use super::survey::{RetentionError, Survey};
use crate::objects::{Condition, Key, Objects, ObjectsError, PutOutcome, Stored, Version, update};
use crate::record::{self, DirectoryHead, Head};
use crate::source::kept;
use crate::trust::Trust;

/// The most objects of one claim.
const CLAIMED_AT_ONCE: usize = 1000;
/// The most claims of one round; what is left is due in the next one.
const CLAIMS: usize = 100;
/// How long one claim is worked on, in seconds: far below [`TAKEOVER`], so that nothing is on its way any
/// more when somebody else takes it over.
const CLAIM_TIME: u64 = 900;
/// How often a pointer is fenced anew when publications move it.
const ATTEMPTS: usize = 16;
const IN_FLIGHT: usize = 16;
const PAGE: usize = 1000;
/// The most bytes of what says when the last round began.
const TURN_LIMIT: u64 = 64;

/// An object that nobody needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub key: Key,
    /// What it is.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
    /// For how many seconds it is kept.
    pub keep: u64,
    /// Since when it is known to be unneeded; none if this is the first look that found it.
    pub since: Option<UnixSeconds>,
}

impl Found {
    /// Whether it may be deleted.
    #[must_use]
    pub fn is_due(&self, now: UnixSeconds) -> bool {
        self.since.is_some_and(|since| since <= now && now - since >= self.keep)
    }
}

/// What a round did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    /// What was unneeded when it began.
    pub unneeded: Vec<Found>,
    /// What was deleted.
    pub deleted: Vec<Found>,
    /// Whether another collector was at work, so that this one deleted no more.
    pub was_busy: bool,
}

/// Where it says when the last round began.
fn turn() -> Key {
    Key::new("gc/turn").expect("a constant that is a key")
}

fn begun(turn: &Stored) -> Option<UnixSeconds> {
    String::from_utf8_lossy(&turn.bytes).trim().parse().ok()
}

/// Gives back the turn that was taken at this time, for a round that came to no end: the next one may begin at once.
///
/// # Errors
/// [`ObjectsError`].
pub async fn give_turn_back(objects: &dyn Objects, taken: UnixSeconds) -> Result<(), ObjectsError> {
    let free = |stored: Option<&Stored>| {
        let is_ours = stored.and_then(begun) == Some(taken);
        is_ours.then(|| Bytes::from_static(b"0"))
    };
    update(objects, &turn(), TURN_LIMIT, free).await?;
    Ok(())
}

/// Collects one record.
#[derive(Debug, Clone, Copy)]
pub struct Collector<'a> {
    objects: &'a Arc<dyn Objects>,
    trust: &'a Trust,
    rules: Rules,
}

impl<'a> Collector<'a> {
    /// Collects what this trust root's director has signed, by these rules.
    #[must_use]
    pub fn new(objects: &'a Arc<dyn Objects>, trust: &'a Trust, rules: Rules) -> Self {
        Self { objects, trust, rules }
    }

    /// Whether nobody has begun a round within the last `pause` seconds; who is told so begins one now. It
    /// only saves work: two rounds at once are correct.
    ///
    /// # Errors
    /// [`RetentionError`].
    pub async fn takes_turn(&self, pause: u64, now: UnixSeconds) -> Result<bool, RetentionError> {
        let mut is_ours = false;
        update(&**self.objects, &turn(), TURN_LIMIT, |stored| {
            let last = stored.and_then(begun);
            is_ours = last.is_none_or(|last| last > now || now - last >= pause);
            is_ours.then(|| Bytes::from(now.to_string()))
        })
        .await?;
        Ok(is_ours)
    }

    /// What is unneeded, and since when; changes nothing.
    ///
    /// # Errors
    /// [`RetentionError`].
    pub async fn look(&self) -> Result<Vec<Found>, RetentionError> {
        let Some(survey) = Survey::take(self.objects, self.trust).await? else { return Ok(vec![]) };
        let mut found = self.unneeded(&survey).await?;
        let shards = (0..marks::SHARDS).map(|shard| self.marks(shard));
        let marks: Vec<Marks> = stream::iter(shards).buffered(IN_FLIGHT).try_collect().await?;
        for found in &mut found {
            found.since = marks[marks::shard_of(&found.key)].since(&found.key);
        }
        Ok(found)
    }

    /// Marks what is unneeded and deletes what was unneeded for its time. `director` signs the fences.
    ///
    /// # Errors
    /// [`RetentionError`]. Whatever was begun is ended by a later round, of anybody.
    pub async fn round(&self, director: &SigningKey, now: UnixSeconds) -> Result<Round, RetentionError> {
        let mut round = Round::default();
        let (claim, version) = Claim::load(&**self.objects).await?;
        if !claim.keys.is_empty() {
            // Of a clock that was far ahead, as well: nobody would take that one over for years.
            if claim.at.abs_diff(now) < TAKEOVER {
                round.was_busy = true;
                return Ok(round);
            }
            info!(objects = claim.keys.len(), "taking over what another collector left unfinished");
            let left = self.described(&claim).await?;
            if !self.delete(&left, version, director, now, &mut round).await? {
                return Ok(round);
            }
        }
        let Some(survey) = Survey::take(self.objects, self.trust).await? else { return Ok(round) };
        round.unneeded = self.unneeded(&survey).await?;
        let mut due = self.mark(&mut round.unneeded, now).await?;
        due.sort_by_key(|found| found.kind != Kind::Mirror);
        for part in due.chunks(CLAIMED_AT_ONCE).take(CLAIMS) {
            let (claim, version) = Claim::load(&**self.objects).await?;
            let is_free = claim.keys.is_empty();
            if !is_free || !self.delete(part, version, director, now, &mut round).await? {
                round.was_busy = true;
                break;
            }
        }
        Ok(round)
    }

    /// Claims, fences, looks again, deletes and releases; false if another collector was faster.
    async fn delete(
        &self,
        doomed: &[Found],
        before: Option<Version>,
        director: &SigningKey,
        now: UnixSeconds,
        round: &mut Round,
    ) -> Result<bool, RetentionError> {
        let started = Instant::now();
        let keys = doomed.iter().map(|found| found.key.to_string()).collect();
        let claim = Claim { at: now, keys };
        let Some(version) = claim.store(&**self.objects, before).await? else { return Ok(false) };
        let pointers: BTreeSet<Pointer> =
            doomed.iter().filter_map(|found| found.kind.pointer(&found.key)).collect();
        if let Some(survey) = self.fence(&pointers, director, now).await? {
            let is_unneeded = |found: &&Found| survey.needed.unneeded(&found.key, &self.rules).is_some();
            // What lists others goes before them: whoever is cut in between leaves nothing that lists what is gone.
            let (lists, listed): (Vec<&Found>, Vec<&Found>) =
                doomed.iter().filter(is_unneeded).partition(|found| found.kind == Kind::Mirror);
            for batch in [lists, listed] {
                let deletions = batch.into_iter().map(|found| self.delete_one(found, started));
                let mut deletions = stream::iter(deletions.collect::<Vec<_>>()).buffer_unordered(IN_FLIGHT);
                while let Some(found) = deletions.try_next().await? {
                    round.deleted.push(found);
                }
            }
        }
        // A claim that was taken over meanwhile is not ours to release.
        Ok(Claim { at: now, ..Claim::default() }.store(&**self.objects, Some(version)).await?.is_some())
    }

    async fn delete_one(&self, found: &Found, started: Instant) -> Result<Found, RetentionError> {
        if started.elapsed() > Duration::from_secs(CLAIM_TIME) {
            return Err(RetentionError::TooLate(CLAIM_TIME));
        }
        self.objects.delete(&found.key).await?;
        debug!(key = %found.key, kind = found.kind.label(), bytes = found.size, "collected");
        Ok(found.clone())
    }

    /// Moves the pointers to what they say already, and returns what that needs: whoever has read them
    /// before has to read them again.
    async fn fence(
        &self,
        pointers: &BTreeSet<Pointer>,
        director: &SigningKey,
        now: UnixSeconds,
    ) -> Result<Option<Survey>, RetentionError> {
        for _ in 0..ATTEMPTS {
            let Some(survey) = Survey::take(self.objects, self.trust).await? else { return Ok(None) };
            let mut is_fenced = true;
            for pointer in pointers {
                is_fenced = is_fenced && self.fence_one(pointer, &survey, director, now).await?;
            }
            if is_fenced {
                return Ok(Some(survey));
            }
        }
        Err(RetentionError::Contended(ATTEMPTS))
    }

    async fn fence_one(
        &self,
        pointer: &Pointer,
        survey: &Survey,
        director: &SigningKey,
        now: UnixSeconds,
    ) -> Result<bool, ObjectsError> {
        let signed = |bytes, version: &Version| (Bytes::from(bytes), Condition::Matches(version.clone()));
        let (key, (bytes, condition)) = match pointer {
            Pointer::Fleet => {
                let Some((head, version)) = &survey.published.head else { return Ok(true) };
                let head = Head { sequence: head.sequence + 1, issued: now, ..head.clone() };
                (record::head(), signed(Envelope::seal(&head, &[director]).to_bytes(), version))
            }
            Pointer::Directory => {
                let Some((head, version)) = &survey.directory else { return Ok(true) };
                // Its bytes have to differ, also within one second.
                let head = DirectoryHead { issued: now.max(head.issued + 1), ..head.clone() };
                (record::directory_head(), signed(Envelope::seal(&head, &[director]).to_bytes(), version))
            }
            Pointer::Mirror(name) => {
                // What was never a part of a mirror when it was looked at has no head; then one is made.
                let head = survey.mirrors.get(name).unwrap_or(&kept::Head::Absent);
                let Some(fence) = head.fence() else { return Ok(true) };
                (record::mirror_head(name), fence)
            }
        };
        let put = self.objects.put(&key, bytes, condition).await?;
        Ok(matches!(put, PutOutcome::Stored(_)))
    }

    /// What the record holds and the survey does not need.
    async fn unneeded(&self, survey: &Survey) -> Result<Vec<Found>, ObjectsError> {
        let mut found = Vec::new();
        for prefix in Kind::PREFIXES {
            let mut after = None;
            loop {
                let page = self.objects.list(prefix, after.as_ref(), PAGE).await?;
                let is_last = page.len() < PAGE;
                after = page.last().map(|listed| listed.key.clone());
                found.extend(page.into_iter().filter_map(|listed| {
                    let (kind, keep) = survey.needed.unneeded(&listed.key, &self.rules)?;
                    Some(Found { key: listed.key, kind, size: listed.size, keep, since: None })
                }));
                if is_last {
                    break;
                }
            }
        }
        Ok(found)
    }

    async fn marks(&self, shard: usize) -> Result<Marks, ObjectsError> {
        let stored = self.objects.get(&marks::key_of(shard), marks::LIMIT as u64).await?;
        Ok(stored.map(|stored| Marks::decode(&stored.bytes)).unwrap_or_default())
    }

    /// Writes the marks of what was found, says in `found` since when each is unneeded, and returns what is due.
    async fn mark(&self, found: &mut [Found], now: UnixSeconds) -> Result<Vec<Found>, ObjectsError> {
        let notes = self.objects.list(REUSED, None, PAGE).await?;
        let digest_of = |key: &Key| key.as_str().strip_prefix(REUSED).map(ToOwned::to_owned);
        let reused = notes
            .iter()
            .filter_map(|note| Key::new(format!("artifacts/sha256/{}", digest_of(&note.key)?)).ok());
        let reused: BTreeSet<Key> = reused.collect();
        let mut shards: Vec<BTreeMap<Key, u64>> = vec![BTreeMap::new(); marks::SHARDS];
        for found in found.iter() {
            shards[marks::shard_of(&found.key)].insert(found.key.clone(), found.keep);
        }
        let mut due = BTreeSet::new();
        let mut all = Vec::new();
        for (shard, unneeded) in shards.iter().enumerate() {
            let mut kept = (Marks::default(), BTreeSet::new());
            update(&**self.objects, &marks::key_of(shard), marks::LIMIT as u64, |stored| {
                let before = stored.map(|stored| Marks::decode(&stored.bytes)).unwrap_or_default();
                kept = before.next(unneeded, &reused, now);
                (kept.0 != before).then(|| Bytes::from(kept.0.encode()))
            })
            .await?;
            due.append(&mut kept.1);
            all.push(kept.0);
        }
        for note in notes {
            self.objects.delete(&note.key).await?;
        }
        for found in found.iter_mut() {
            found.since = all[marks::shard_of(&found.key)].since(&found.key);
        }
        Ok(found.iter().filter(|found| due.contains(&found.key)).cloned().collect())
    }

    /// What another collector was about to delete; sizes are not known any more.
    async fn described(&self, claim: &Claim) -> Result<Vec<Found>, RetentionError> {
        let keys = claim.keys.iter().filter_map(|text| Key::new(text.clone()).ok());
        let found = keys.filter_map(|key| {
            let kind = Kind::of(&key)?;
            Some(Found { key, kind, size: 0, keep: 0, since: Some(claim.at) })
        });
        Ok(found.collect())
    }
}
