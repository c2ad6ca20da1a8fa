//! Rosters and group documents, against what the site has seen before.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::etag::{self, DesiredTag};
use farshore_shared::wire::{self, DESIRED_LIMIT, Group, GroupId, Root, Roster, SMALL_LIMIT, UnixSeconds};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::clock::{Clock, Trust};
use super::enrolment::addressed;
use super::{Identity, Kind, Refusal, director, open};

/// How many groups' high-water marks are remembered: a cluster that comes back to a group still
/// knows what it saw there, and the roster's floor guards whatever was forgotten.
const GROUPS_LIMIT: usize = 32;

/// The highest document of one kind that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// Its sequence.
    pub sequence: u64,
    /// The digest of its signed payload.
    pub payload: Digest,
}

/// The high-water marks: they never go down.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Marks {
    /// The epoch that the sequences belong to.
    pub epoch: u64,
    /// Of the rosters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roster: Option<Mark>,
    /// Of the group documents, by group.
    #[serde(default)]
    pub groups: BTreeMap<GroupId, Mark>,
    /// A lower bound of the true time, in seconds since 1970; 0 where nothing is known.
    pub lower_time: UnixSeconds,
}

impl Marks {
    /// Whether nothing newer than these documents was ever accepted.
    #[must_use]
    pub fn are_reached_by(&self, documents: &Documents) -> bool {
        let Documents { roster, group, .. } = documents;
        let reached = |mark: Option<&Mark>, sequence| mark.is_none_or(|mark| mark.sequence <= sequence);
        roster.epoch > self.epoch
            || (roster.epoch == self.epoch
                && reached(self.roster.as_ref(), roster.sequence)
                && reached(self.groups.get(&group.group), group.sequence))
    }

    /// The higher of both, mark by mark: what a site knows from several files.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        let lower_time = self.lower_time.max(other.lower_time);
        let (mut joined, lower) =
            if self.epoch >= other.epoch { (self.clone(), other) } else { (other.clone(), self) };
        joined.lower_time = lower_time;
        if joined.epoch == lower.epoch {
            let higher = |a: Option<Mark>, b: Mark| a.filter(|a| a.sequence >= b.sequence).unwrap_or(b);
            joined.roster = lower.roster.map(|mark| higher(joined.roster, mark)).or(joined.roster);
            for (id, mark) in &lower.groups {
                joined.groups.insert(*id, higher(joined.groups.get(id).copied(), *mark));
            }
        }
        joined
    }

    fn note(&mut self, documents: &Documents) {
        let Documents { roster, group, envelopes } = documents;
        if roster.epoch > self.epoch {
            *self = Self { epoch: roster.epoch, lower_time: self.lower_time, ..Self::default() };
        }
        self.roster = Some(mark(roster.sequence, &envelopes.roster));
        self.groups.insert(group.group, mark(group.sequence, &envelopes.group));
        while self.groups.len() > GROUPS_LIMIT {
            let others = self.groups.iter().filter(|(id, _)| **id != group.group);
            let Some(oldest) = others.min_by_key(|(_, mark)| mark.sequence).map(|(id, _)| *id) else { break };
            self.groups.remove(&oldest);
        }
    }
}

fn mark(sequence: u64, envelope: &Envelope) -> Mark {
    // The payload and not the envelope: the same document signed again by a new key is the same.
    Mark { sequence, payload: Digest::of(envelope.payload.as_bytes()) }
}

/// Both documents as they were signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelopes {
    /// Of the roster.
    pub roster: Envelope,
    /// Of the group document.
    pub group: Envelope,
}

/// A roster and a group document that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documents {
    /// The cluster's own document.
    pub roster: Roster,
    /// Its group's document.
    pub group: Group,
    /// Both as they were signed.
    pub envelopes: Envelopes,
}

impl Documents {
    /// Reads documents that were accepted before, from the site's own disk.
    ///
    /// Signatures are not looked at: they were when the documents were accepted, and a root that has
    /// replaced the director since must not take from a site what it holds.
    ///
    /// # Errors
    /// [`Refusal::Unreadable`].
    pub fn read_accepted(envelopes: Envelopes) -> Result<Self, Refusal> {
        let roster = payload(Kind::Roster, &envelopes.roster)?;
        let group = payload(Kind::Group, &envelopes.group)?;
        Ok(Self { roster, group, envelopes })
    }

    /// The `ETag` with which the hub is asked for something newer.
    #[must_use]
    pub fn tag(&self) -> DesiredTag {
        let mark = |sequence, envelope: &Envelope| etag::Mark { sequence, short: envelope.digest().short() };
        DesiredTag {
            epoch: self.roster.epoch,
            roster: mark(self.roster.sequence, &self.envelopes.roster),
            group: mark(self.group.sequence, &self.envelopes.group),
        }
    }
}

fn payload<T: DeserializeOwned>(kind: Kind, envelope: &Envelope) -> Result<T, Refusal> {
    let bytes = STANDARD
        .decode(&envelope.payload)
        .map_err(|source| Refusal::Unreadable { kind, source: source.into() })?;
    serde_json::from_slice(&bytes).map_err(|source| Refusal::Unreadable { kind, source: source.into() })
}

/// What the site has.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// What it enforces, if anything.
    pub documents: Option<Documents>,
    /// What it has seen.
    pub marks: Marks,
}

/// Whether an answer brought anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// At least one document is not the one held: it has to be stored.
    New,
    /// Everything offered is held already.
    Same,
}

/// What shall be stored, and then enforced.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The documents.
    pub documents: Documents,
    /// The marks that they leave.
    pub marks: Marks,
    /// Whether anything is new.
    pub change: Change,
    /// What a person should look at.
    pub alarms: Vec<String>,
}

/// Decides about an answer to `GET /v1/desired`: all of it is accepted, or nothing.
///
/// A document that is not offered is the one held. `root` is the newest of the chain.
///
/// # Errors
/// [`Refusal`], with what is wrong; the marks stay as they are.
pub fn desired(
    held: &Held,
    offered: &wire::Desired,
    identity: &Identity,
    root: &Root,
    clock: Clock,
) -> Result<Accepted, Refusal> {
    let judge = Judge { marks: &held.marks, root, clock };
    let (documents, news) = combine(held, offered, identity, &judge)?;
    let Documents { roster, group, .. } = &documents;
    if roster.group != group.group {
        return Err(Refusal::WrongGroup { roster: roster.group, offered: group.group });
    }
    if roster.epoch != group.epoch {
        return Err(Refusal::Mixed { roster: roster.epoch, group: group.epoch });
    }
    if group.sequence < roster.floor {
        return Err(Refusal::BelowFloor { floor: roster.floor, offered: group.sequence });
    }
    unique_services(group)?;
    // That the clock is wrong is said at every pass, with a hub and without.
    let alarms = frozen(roster.expires.min(group.expires), clock, &held.marks).into_iter().collect();
    let mut marks = held.marks.clone();
    marks.note(&documents);
    for issued in news.iter().flatten() {
        marks.lower_time = clock.raised(marks.lower_time, *issued);
    }
    let same = held.documents.as_ref().is_some_and(|held| held.envelopes == documents.envelopes);
    let change = if same { Change::Same } else { Change::New };
    Ok(Accepted { documents, marks, change, alarms })
}

/// Puts what is offered over what is held. The dates tell what of it is new.
fn combine(
    held: &Held,
    offered: &wire::Desired,
    identity: &Identity,
    judge: &Judge<'_>,
) -> Result<(Documents, [Option<UnixSeconds>; 2]), Refusal> {
    if offered.roster.is_none() && offered.group.is_none() {
        return Err(Refusal::NothingOffered);
    }
    let held = held.documents.as_ref();
    let (roster, roster_envelope, new_roster) = match (&offered.roster, held) {
        (Some(envelope), _) => {
            let roster: Roster = open(Kind::Roster, envelope, &director(judge.root), SMALL_LIMIT)?;
            addressed(&roster, identity)?;
            let news = judge.number(&Numbered::of_roster(&roster), envelope)?;
            (roster, envelope, news)
        }
        (None, Some(held)) => {
            judge.still_newest(&Numbered::of_roster(&held.roster))?;
            (held.roster.clone(), &held.envelopes.roster, None)
        }
        (None, None) => return Err(Refusal::Incomplete { kind: Kind::Roster }),
    };
    let (group, group_envelope, new_group) = match (&offered.group, held) {
        (Some(envelope), _) => {
            let group: Group = open(Kind::Group, envelope, &director(judge.root), DESIRED_LIMIT)?;
            if group.group != roster.group {
                return Err(Refusal::WrongGroup { roster: roster.group, offered: group.group });
            }
            let news = judge.number(&Numbered::of_group(&group), envelope)?;
            (group, envelope, news)
        }
        (None, Some(held)) => {
            judge.still_newest(&Numbered::of_group(&held.group))?;
            (held.group.clone(), &held.envelopes.group, None)
        }
        (None, None) => return Err(Refusal::Incomplete { kind: Kind::Group }),
    };
    let envelopes = Envelopes { roster: roster_envelope.clone(), group: group_envelope.clone() };
    Ok((Documents { roster, group, envelopes }, [new_roster, new_group]))
}

/// What both documents have in common.
struct Numbered {
    kind: Kind,
    group: Option<GroupId>,
    epoch: u64,
    sequence: u64,
    issued: UnixSeconds,
    expires: UnixSeconds,
}

impl Numbered {
    fn of_roster(roster: &Roster) -> Self {
        let Roster { epoch, sequence, issued, expires, .. } = *roster;
        Self { kind: Kind::Roster, group: None, epoch, sequence, issued, expires }
    }

    fn of_group(document: &Group) -> Self {
        let Group { group, epoch, sequence, issued, expires, .. } = *document;
        Self { kind: Kind::Group, group: Some(group), epoch, sequence, issued, expires }
    }
}

struct Judge<'a> {
    marks: &'a Marks,
    root: &'a Root,
    clock: Clock,
}

impl Judge<'_> {
    /// Whether a document may follow what was accepted. Gives its date when it is new.
    fn number(&self, document: &Numbered, envelope: &Envelope) -> Result<Option<UnixSeconds>, Refusal> {
        let Numbered { kind, epoch: offered, sequence, .. } = *document;
        let root = self.root.epoch;
        // An epoch begins with a root: neither a thief of the director's key nor an old copy of the
        // record can name another. The mark guards a site whose trust folder was restored.
        if offered < root.max(self.marks.epoch) {
            return Err(Refusal::OldEpoch { kind, offered, root: root.max(self.marks.epoch) });
        }
        if offered > root {
            return Err(Refusal::NewEpoch { kind, offered, root });
        }
        // TUF 1.0, section 5.4.3 (rollback): what was seen within this epoch is the least.
        match self.seen(document) {
            Some(seen) if sequence < seen.sequence => {
                Err(Refusal::RolledBack { kind, held: seen.sequence, offered: sequence })
            }
            Some(seen) if sequence == seen.sequence && mark(sequence, envelope) != seen => {
                Err(Refusal::Equivocation { kind, sequence })
            }
            Some(seen) if sequence == seen.sequence => Ok(None),
            Some(_) | None => self.fresh(document).map(|()| Some(document.issued)),
        }
    }

    /// What was seen of this kind in the document's epoch.
    fn seen(&self, document: &Numbered) -> Option<Mark> {
        let seen = match document.group {
            None => self.marks.roster,
            Some(group) => self.marks.groups.get(&group).copied(),
        };
        seen.filter(|_| document.epoch == self.marks.epoch)
    }

    /// Whether what is held may stand beside what is offered. A site whose newer slot was lost holds
    /// less than its marks: an answer that leaves the other document out would make that good, and
    /// take the mark down with it.
    fn still_newest(&self, held: &Numbered) -> Result<(), Refusal> {
        let Numbered { kind, sequence: offered, .. } = *held;
        match self.seen(held) {
            Some(seen) if offered < seen.sequence => {
                Err(Refusal::RolledBack { kind, held: seen.sequence, offered })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// TUF 1.0, section 5.4.4 (freeze): what is new must not have expired, and neither may the root
    /// (section 5.3.10). A clock that cannot be right decides nothing.
    fn fresh(&self, document: &Numbered) -> Result<(), Refusal> {
        let now = self.clock.now;
        if self.clock.trust(self.marks.lower_time) != Trust::Good {
            return Ok(());
        }
        for (kind, expired) in [(document.kind, document.expires), (Kind::Root, self.root.expires)] {
            if expired <= now {
                return Err(Refusal::Expired { kind, expired, now });
            }
        }
        Ok(())
    }
}

fn unique_services(group: &Group) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    let names = group.services.iter().filter_map(|entry| entry.get("name").and_then(Value::as_str));
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(Refusal::DuplicateService { service: name.chars().take(80).collect() }),
        None => Ok(()),
    }
}

/// What is in force stays so after it has expired, but somebody should know that nothing newer came.
fn frozen(expires: UnixSeconds, clock: Clock, marks: &Marks) -> Option<String> {
    let expired = clock.trust(marks.lower_time) == Trust::Good && expires <= clock.now;
    expired.then(|| {
        format!(
            "the hub offers nothing newer than documents that have expired (expired at {expires}, now {}, in seconds since 1970): they stay in force",
            clock.now
        )
    })
}
