//! The proof, at start, that a store honours conditional writes.
//!
//! Two publishers are kept apart by nothing but the conditions of [`Objects::put`], and stores that
//! speak the S3 protocol and ignore `If-Match` or check it before they write exist. So the
//! publisher races against itself before it trusts one.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::future::join_all;
use ulid::Ulid;

use super::{Condition, Key, Objects, ObjectsError, PutOutcome, Stored, Version};

/// As many as showed several winners on a store that checks and then writes.
const RACERS: usize = 16;
/// A store that checks and then writes passes one race now and then, and seldom this many. The first
/// also opens the connections, so that the others start closer together.
const ROUNDS: usize = 6;
const LIMIT: u64 = 1024;
const PREFIX: &str = "proof/";
/// Longer than a proof takes: what is older was left by a hub that was killed during its own.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);
const MOST_LEFT_BEHIND: usize = 1000;

/// What a store did not honour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// `If-None-Match: *`: a write that must only create.
    Absent,
    /// `If-Match`: a write that must only replace one version.
    Matches,
    /// `If-Match` where there is no object.
    MatchesOfNothing,
}

impl std::fmt::Display for Ignored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Absent => "If-None-Match: *",
            Self::Matches => "If-Match",
            Self::MatchesOfNothing => "If-Match on an absent object",
        })
    }
}

/// Why a store is not proven.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// It let through what it had to refuse, or refused everybody.
    #[error(
        "the record does not keep two writers apart: it does not honour {ignored} \
         ({winners} of {racers} writers succeeded, and exactly {expected} had to)"
    )]
    Ignored {
        /// The condition.
        ignored: Ignored,
        /// How many writes were let through.
        winners: usize,
        /// How many were tried at once.
        racers: usize,
        /// How many had to be let through.
        expected: usize,
    },
    /// The object is not what the winner wrote.
    #[error("the record does not hold what the only successful writer wrote (key {key})")]
    Lost {
        /// The object.
        key: String,
    },
    /// The store failed before anything was shown.
    #[error("proving that the record honours conditional writes")]
    Objects(#[from] ObjectsError),
}

/// Shows that a store lets exactly one of many concurrent writers through, for both conditions.
///
/// Works on objects of its own under `proof/`, and deletes them afterwards, whatever the outcome.
///
/// # Errors
/// [`ProofError::Ignored`] names the condition; publishing to such a store would lose
/// publications. [`ProofError::Objects`] shows nothing about the conditions.
pub async fn prove_conditions(objects: &dyn Objects) -> Result<(), ProofError> {
    sweep(objects).await?;
    for _ in 0..ROUNDS {
        let key = Key::new(format!("{PREFIX}{}", Ulid::generate())).expect("a ULID is a part of a key");
        let proven = prove_with(objects, &key).await;
        let deleted = objects.delete(&key).await;
        proven?;
        deleted?;
    }
    Ok(())
}

async fn prove_with(objects: &dyn Objects, key: &Key) -> Result<(), ProofError> {
    let created = race(objects, key, &Condition::Absent, Ignored::Absent).await?;
    let replaced = race(objects, key, &Condition::Matches(created), Ignored::Matches).await?;
    objects.delete(key).await?;
    let late = objects.put(key, racer(0), Condition::Matches(replaced)).await?;
    count(Ignored::MatchesOfNothing, &[late], 0)
}

/// Lets all racers write at once; returns the version of the only winner.
async fn race(
    objects: &dyn Objects,
    key: &Key,
    condition: &Condition,
    ignored: Ignored,
) -> Result<Version, ProofError> {
    let bodies: Vec<_> = (0..RACERS).map(racer).collect();
    let writes = bodies.iter().map(|body| objects.put(key, body.clone(), condition.clone()));
    let outcomes = join_all(writes).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    count(ignored, &outcomes, 1)?;
    let won = outcomes.into_iter().zip(bodies).find_map(|(outcome, bytes)| match outcome {
        PutOutcome::Stored(version) => Some(Stored { bytes, version }),
        PutOutcome::Conflict => None,
    });
    let held = objects.get(key, LIMIT).await?;
    match (won, held) {
        (Some(won), Some(held)) if won == held => Ok(held.version),
        _ => Err(ProofError::Lost { key: key.to_string() }),
    }
}

fn count(ignored: Ignored, outcomes: &[PutOutcome], expected: usize) -> Result<(), ProofError> {
    let winners = outcomes.iter().filter(|outcome| matches!(outcome, PutOutcome::Stored(_))).count();
    if winners == expected {
        return Ok(());
    }
    Err(ProofError::Ignored { ignored, winners, racers: outcomes.len(), expected })
}

/// Each racer writes something else, or a store that compares content would not see that it changed.
fn racer(n: usize) -> Bytes {
    Bytes::from(format!("racer {n} {}", Ulid::generate()))
}

async fn sweep(objects: &dyn Objects) -> Result<(), ObjectsError> {
    for listed in objects.list(PREFIX, None, MOST_LEFT_BEHIND).await? {
        let made = listed.key.as_str().strip_prefix(PREFIX).and_then(|id| id.parse::<Ulid>().ok());
        let age = made.and_then(|id| SystemTime::now().duration_since(id.datetime()).ok());
        if age.is_some_and(|age| age > LEFT_BEHIND) {
            objects.delete(&listed.key).await?;
        }
    }
    Ok(())
}
