//! Following the directory: the log part by part, the head now and then.

use std::time::{Duration, Instant};

use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use futures::future::try_join_all;
use tracing::{error, info, warn};

use super::memory::{Directory, Log};
use super::read::{DirectoryError, Part, Reader};
use crate::record::{self, DirectoryHead, LogPart, Manifest, SHARDS};

/// How often the head is read, at least.
const HEAD_EVERY: Duration = Duration::from_secs(30);
/// How many parts of the log are read at once by whoever is far behind.
const WINDOW: u64 = 32;

/// How long a damaged part of the log is read again before it is passed over.
const PATIENCE: Duration = Duration::from_secs(30);

/// How far the directory was read.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    head: Option<DirectoryHead>,
    head_read: Option<Instant>,
    /// The last part of the log that was taken, or that the snapshot holds.
    position: u64,
    /// That part, if it was read: a record from a backup has another one under its number.
    last: Option<Digest>,
    /// The part that is damaged, and since when it is.
    damaged: Option<(u64, Instant)>,
    /// Where something was taken that nobody has asked for yet.
    moved: Moved,
}

/// Shards of the directory in which something moved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moved([u64; SHARDS as usize / 64]);

impl Moved {
    fn all() -> Self {
        Self([u64::MAX; SHARDS as usize / 64])
    }

    fn note(&mut self, shard: u16) {
        self.0[usize::from(shard / 64)] |= 1 << (shard % 64);
    }

    /// And those.
    pub(crate) fn add(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours |= theirs);
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.0.iter().any(|some| *some != 0)
    }

    /// Their numbers.
    pub fn shards(&self) -> impl Iterator<Item = u16> {
        (0..SHARDS).filter(|shard| self.0[usize::from(shard / 64)] & (1 << (shard % 64)) != 0)
    }
}

impl Progress {
    /// Where something was taken since this was last asked.
    pub(crate) fn take_moved(&mut self) -> Moved {
        std::mem::take(&mut self.moved)
    }

    /// Whether a damaged part may be read well yet: a bucket may answer wrongly for a moment. One that stays so
    /// is passed over, so that it stops nobody: what it said counts when a publisher tells it again, or with the
    /// snapshot that is made of it once it is mended.
    fn waits_for(&mut self, position: u64, failure: &DirectoryError) -> bool {
        match self.damaged {
            Some((known, since)) if known == position => {
                let waits = since.elapsed() < PATIENCE;
                if !waits {
                    error!(position, "damaged part of the directory's log is passed over");
                }
                waits
            }
            _ => {
                warn!(error = %chain(failure), "a part of the directory's log cannot be read");
                self.damaged = Some((position, Instant::now()));
                true
            }
        }
    }
}

/// How far a look reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The log, and the head where it is due.
    Log,
    /// The head too: so long after the last look, parts may have been collected; or a shard is gone.
    Head,
}

impl Directory {
    /// Takes what is new; where, [`Progress::take_moved`] says.
    ///
    /// # Errors
    /// [`DirectoryError`]; what was taken by then stays.
    pub(crate) async fn look(
        &self,
        reader: &Reader<'_>,
        progress: &mut Progress,
        reach: Reach,
    ) -> Result<(), DirectoryError> {
        let before = progress.position;
        if progress.head_read.is_some() {
            self.read_log(reader, progress).await?;
        }
        let is_due = progress.head_read.is_none_or(|read| read.elapsed() >= HEAD_EVERY);
        if is_due || reach == Reach::Head {
            // After a long pause, what is read now may have been collected meanwhile, and created again by a
            // publisher that stood still as long (see [`crate::publish::directory`]).
            let sure = if reach == Reach::Head { before } else { u64::MAX };
            self.read_head(reader, progress, sure).await?;
        }
        Ok(())
    }

    /// Reads the head. Up to `sure`, the parts that were read are those that were written first.
    async fn read_head(
        &self,
        reader: &Reader<'_>,
        progress: &mut Progress,
        sure: u64,
    ) -> Result<(), DirectoryError> {
        let head = reader.head().await?.map(|(head, _)| head);
        if went_back(progress.head.as_ref(), head.as_ref()) || self.lost_its_tail(reader, progress).await? {
            warn!("the directory went back: it is read anew");
            self.forget();
            *progress = Progress { moved: Moved::all(), ..Progress::default() };
        }
        let stands = head.as_ref().map_or(0, |head| head.position);
        if progress.head_read.is_some() && progress.position < stands {
            // Mostly written since the log was read a moment ago.
            self.read_log(reader, progress).await?;
        }
        if head != progress.head {
            let manifest = match &head {
                Some(head) => reader.manifest(head.manifest).await?,
                None => Manifest::default(),
            };
            let is_whole = progress.position.min(sure) >= stands;
            let log = if is_whole { Log::Complete } else { Log::Missing };
            self.stand_on(manifest, stands, log);
            if log == Log::Missing {
                progress.moved = Moved::all();
            }
            if progress.position < stands {
                (progress.position, progress.last) = (stands, None);
            }
            info!(position = stands, ?log, "snapshot of the directory");
        }
        (progress.head, progress.head_read) = (head, Some(Instant::now()));
        self.read_log(reader, progress).await
    }

    /// Whether the last part of the log that was taken is not there any more, although no snapshot has it.
    async fn lost_its_tail(&self, reader: &Reader<'_>, progress: &Progress) -> Result<bool, DirectoryError> {
        let Some(last) = progress.last else { return Ok(false) };
        // A part that a snapshot holds may have been collected.
        if progress.head.as_ref().is_some_and(|head| progress.position <= head.position) {
            return Ok(false);
        }
        match reader.part(progress.position).await? {
            Part::Absent => {
                // Unless it is in the snapshot that we are about to take.
                let head = reader.head().await?;
                Ok(head.is_none_or(|(head, _)| head.position < progress.position))
            }
            // Damaged since: what it said is known.
            Part::Damaged(_) => Ok(false),
            Part::Read(found) => Ok(digest(&found) != last),
        }
    }

    /// Takes every part that there is; one at a time, unless there are many.
    async fn read_log(&self, reader: &Reader<'_>, progress: &mut Progress) -> Result<(), DirectoryError> {
        let mut window = 1;
        loop {
            let first = progress.position + 1;
            let parts = try_join_all((first..first + window).map(|position| reader.part(position))).await?;
            for part in parts {
                let part = match part {
                    Part::Absent => return Ok(()),
                    Part::Damaged(failure) if progress.waits_for(progress.position + 1, &failure) => {
                        return Ok(());
                    }
                    Part::Damaged(_) => {
                        (progress.position, progress.last) = (progress.position + 1, None);
                        continue;
                    }
                    Part::Read(part) => part,
                };
                (progress.position, progress.last) = (part.position, Some(digest(&part)));
                for entry in part.entries {
                    progress.moved.note(record::directory_shard_of(&entry.cluster));
                    self.take(part.position, entry);
                }
            }
            window = (2 * window).min(WINDOW);
        }
    }
}

fn digest(part: &LogPart) -> Digest {
    Digest::of(&serde_json::to_vec(part).expect("a part has string keys only"))
}

fn went_back(before: Option<&DirectoryHead>, after: Option<&DirectoryHead>) -> bool {
    let order = |head: &DirectoryHead| (head.epoch, head.position);
    before.is_some_and(|before| after.is_none_or(|after| order(after) < order(before)))
}
