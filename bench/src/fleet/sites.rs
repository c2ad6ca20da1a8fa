//! What every simulated site holds, what it says, and whether what it hears is right.

use std::collections::BTreeMap;
use std::time::Duration;

use farshore_shared::clock;
use farshore_shared::compress;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::etag::DesiredTag;
use farshore_shared::pass::{self, LIFETIME};
use farshore_shared::wire::{
    BEHIND_HEADER, DESIRED_LIMIT, Desired, Group, Holds, PASS_HEADER, POLL_AFTER_HEADER, Roster, SMALL_LIMIT,
    ServiceState, ServiceStatus, Status, TAG_HEADER,
};

use super::schedule::{Due, Word, age};
use super::tally::{STALE, Tally};
use crate::load::http1::Answer;
use crate::load::poll::Caller;
use crate::seed::{Fleet, POLL_SECONDS};

/// A pass, and when it was made.
struct Pass {
    issued: u64,
    text: Box<str>,
}

/// A group document that was verified.
struct Known {
    artifact: Digest,
    commit: String,
}

/// All sites.
pub(super) struct Sites {
    passes: Vec<Pass>,
    tags: Vec<Box<str>>,
    /// Group documents by the tag's part that names them.
    known: BTreeMap<(u64, String), Known>,
    /// The highest group sequence that anybody was sent, and when it was seen first.
    newest: (u64, Option<Duration>),
    /// The last report of each cluster that was acknowledged.
    pub(super) acknowledged: BTreeMap<u32, u64>,
    reports: BTreeMap<u32, u64>,
    /// When the commit that was made in this run was first seen by anybody.
    pub(super) seen_commit: Option<Duration>,
}

/// What is to be done after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// Nothing.
    Done,
    /// The same again, after so long.
    Again(Duration),
    /// New documents: their content is fetched, and a report follows.
    Fetch,
    /// Content has arrived: a report follows.
    Report,
}

impl Sites {
    /// All sites of a fleet, which hold what is published, with passes made on all cores.
    pub(super) fn of(fleet: &Fleet) -> Self {
        let now = clock::now();
        let one = |n: usize| {
            let issued = now - age(u32::try_from(n).unwrap_or(u32::MAX));
            let text = pass::issue(fleet.key(n), &fleet.name(n), fleet.id, issued).into_boxed_str();
            (Pass { issued, text }, fleet.tag(n).to_string().into_boxed_str())
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let share = fleet.clusters.div_ceil(workers).max(1);
        let parts: Vec<(Pass, Box<str>)> = std::thread::scope(|scope| {
            let parts: Vec<_> = (0..workers)
                .map(|part| part * share..((part + 1) * share).min(fleet.clusters))
                .map(|part| scope.spawn(move || part.map(one).collect::<Vec<_>>()))
                .collect();
            parts.into_iter().flat_map(|part| part.join().expect("signing does not panic")).collect()
        });
        let (passes, tags) = parts.into_iter().unzip();
        Self {
            passes,
            tags,
            known: BTreeMap::new(),
            newest: (fleet.groups().iter().map(|group| group.sequence).max().unwrap_or(0), None),
            acknowledged: BTreeMap::new(),
            reports: BTreeMap::new(),
            seen_commit: None,
        }
    }

    /// The request of a site.
    pub(super) fn request(&mut self, fleet: &Fleet, due: Due, tally: &mut Tally) -> Vec<u8> {
        let number = due.cluster as usize;
        let now = clock::now();
        if now.saturating_sub(self.passes[number].issued) >= LIFETIME / 2 {
            let text = pass::issue(fleet.key(number), &fleet.name(number), fleet.id, now).into_boxed_str();
            self.passes[number] = Pass { issued: now, text };
            tally.passes += 1;
        }
        let pass = &self.passes[number].text;
        match due.word {
            Word::Poll => {
                let (pass, holds) = (pass.to_string(), self.tags[number].to_string());
                Caller { pass, holds }.http1("fleet")
            }
            Word::Full => format!(
                "GET /v1/desired HTTP/1.1\r\naccept-encoding: zstd\r\n{PASS_HEADER}: {pass}\r\nhost: fleet\r\n\r\n"
            )
            .into_bytes(),
            Word::Artifact => {
                let digest = self.artifact(number).map_or_else(String::new, |digest| digest.to_string());
                format!("GET /v1/artifacts/{digest} HTTP/1.1\r\n{PASS_HEADER}: {pass}\r\nhost: fleet\r\n\r\n")
                    .into_bytes()
            }
            Word::Status => {
                let body = compress::pack(&self.report(fleet, due.cluster, now).to_bytes());
                let pass = &self.passes[number].text;
                let head = format!(
                    "POST /v1/status HTTP/1.1\r\ncontent-type: application/json\r\ncontent-encoding: zstd\r\n\
                     {PASS_HEADER}: {pass}\r\nhost: fleet\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                [head.into_bytes(), body].concat()
            }
        }
    }

    fn held(&self, number: usize) -> Option<DesiredTag> {
        self.tags[number].parse().ok()
    }

    fn known(&self, number: usize) -> Option<&Known> {
        let group = self.held(number)?.group;
        self.known.get(&(group.sequence, group.short))
    }

    fn artifact(&self, number: usize) -> Option<Digest> {
        Some(self.known(number)?.artifact)
    }

    fn report(&mut self, fleet: &Fleet, cluster: u32, now: u64) -> Envelope {
        let number = cluster as usize;
        let sequence = self.reports.entry(cluster).or_default();
        *sequence += 1;
        let sequence = *sequence;
        let held = self.held(number);
        let commit = self.known(number).map_or_else(|| "0".repeat(40), |known| known.commit.clone());
        let service = |name: &str| ServiceStatus {
            objects: 1,
            ..ServiceStatus::new(name.parse().expect("a name"), &commit, ServiceState::Applied)
        };
        let status = Status {
            cluster: fleet.name(number),
            state_id: format!("bench-{cluster}"),
            sequence,
            at: now,
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            poll_seconds: POLL_SECONDS,
            holds: held.map(|tag| Holds {
                epoch: tag.epoch,
                roster: tag.roster.sequence,
                group: tag.group.sequence,
            }),
            services: vec![service("all"), service("own")],
            alarms: vec![],
            dropped: 0,
            controls: None,
            critical: vec![],
        };
        Envelope::seal(&status, &[fleet.key(number)])
    }

    /// Judges an answer.
    pub(super) fn hear(&mut self, fleet: &Fleet, due: Due, answer: &Answer, tally: &mut Tally) -> After {
        let number = due.cluster as usize;
        tally.stretched += u64::from(answer.header(POLL_AFTER_HEADER).is_some());
        match (due.word, answer.status) {
            (_, 429 | 503) => {
                tally.busy += 1;
                // A poll comes again by itself.
                let again = Duration::from_secs(if due.word == Word::Full { 5 } else { 1 });
                if due.word == Word::Poll { After::Done } else { After::Again(again) }
            }
            (Word::Poll, 304) => {
                tally.unchanged += 1;
                self.hear_unchanged(number, answer, tally);
                After::Done
            }
            (Word::Poll | Word::Full, 200) => match self.hear_documents(fleet, due, answer) {
                Ok(after) => {
                    let count = if due.word == Word::Full { &mut tally.full } else { &mut tally.changed };
                    *count += 1;
                    after
                }
                Err(why) => {
                    tally.wrong(format!("{} was sent bad documents: {why}", fleet.name(number)));
                    After::Done
                }
            },
            (Word::Status, 204) => {
                tally.statuses += 1;
                self.acknowledged.insert(due.cluster, self.reports.get(&due.cluster).copied().unwrap_or(0));
                After::Done
            }
            (Word::Artifact, 200) if self.artifact(number) == Some(Digest::of(&answer.body)) => {
                tally.artifacts += 1;
                After::Report
            }
            (word, status) => {
                let body = String::from_utf8_lossy(&answer.body);
                tally.wrong(format!("{} asked {word:?} and got {status}: {body}", fleet.name(number)));
                After::Done
            }
        }
    }

    fn hear_unchanged(&self, number: usize, answer: &Answer, tally: &mut Tally) {
        let tag = answer.header(TAG_HEADER);
        if tag != Some(&self.tags[number]) {
            tally.wrong(format!("304 with {tag:?} to a site that holds {}", self.tags[number]));
        }
        let is_behind = answer.header(BEHIND_HEADER).is_some();
        let since = self.newest.1.map(|seen| clock::since_epoch().saturating_sub(seen));
        let held = self.held(number).map_or(0, |held| held.group.sequence);
        if !is_behind && held < self.newest.0 && since.is_some_and(|since| since > STALE) {
            tally.wrong(format!(
                "304 to a site that holds {held}, {since:?} after {} was seen",
                self.newest.0
            ));
        }
    }

    fn hear_documents(&mut self, fleet: &Fleet, due: Due, answer: &Answer) -> Result<After, String> {
        let number = due.cluster as usize;
        let tag = answer.header(TAG_HEADER).ok_or("without a tag")?.to_owned();
        let new: DesiredTag = tag.parse().map_err(|_| format!("with tag {tag}"))?;
        let body = match answer.header("content-encoding") {
            Some("zstd") => {
                compress::unpack(&answer.body, DESIRED_LIMIT).map_err(|error| error.to_string())?
            }
            _ => answer.body.to_vec(),
        };
        let desired: Desired = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        let held = self.held(number).ok_or("nothing is held")?;
        let is_change = held.group != new.group;
        if due.word == Word::Full && (desired.roster.is_none() || desired.group.is_none()) {
            return Err("not both, although both were asked for".to_owned());
        }
        if let Some(envelope) = &desired.roster {
            verify_roster(fleet, number, envelope, &new)?;
        }
        if let Some(envelope) = &desired.group {
            self.verify_group(fleet, envelope, &new)?;
        }
        if held.group.sequence > new.group.sequence {
            return Err(format!("older than what it holds ({held} and {new})"));
        }
        self.tags[number] = tag.into_boxed_str();
        if new.group.sequence > self.newest.0 {
            let now = clock::since_epoch();
            self.newest = (new.group.sequence, Some(now));
            self.seen_commit.get_or_insert(now);
        }
        Ok(if is_change { After::Fetch } else { After::Done })
    }

    /// Verified once; then known by its digest.
    fn verify_group(&mut self, fleet: &Fleet, envelope: &Envelope, tag: &DesiredTag) -> Result<(), String> {
        let short = envelope.digest().short();
        if short != tag.group.short {
            return Err(format!("group {short} under tag {tag}"));
        }
        let key = (tag.group.sequence, short);
        if self.known.contains_key(&key) {
            return Ok(());
        }
        let group: Group =
            envelope.open(&fleet.trust.director(), DESIRED_LIMIT).map_err(|error| error.to_string())?;
        let service = group.entries().into_iter().flatten().find(|entry| entry.name.as_str() == "all");
        let service = service.ok_or("the group has not the service of all clusters")?;
        let (artifact, commit) = (service.artifact.digest, service.revision.commit);
        self.known.insert(key, Known { artifact, commit });
        Ok(())
    }
}

fn verify_roster(fleet: &Fleet, number: usize, envelope: &Envelope, tag: &DesiredTag) -> Result<(), String> {
    let short = envelope.digest().short();
    if short != tag.roster.short {
        return Err(format!("roster {short} under tag {tag}"));
    }
    let roster: Roster =
        envelope.open(&fleet.trust.director(), SMALL_LIMIT).map_err(|error| error.to_string())?;
    if roster.cluster != fleet.name(number) {
        return Err(format!("the roster of {}", roster.cluster));
    }
    let is_its_group = fleet.groups()[fleet.group_of(number)].id == roster.group;
    if is_its_group { Ok(()) } else { Err("a roster of another group".to_owned()) }
}
