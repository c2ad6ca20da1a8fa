//! Reports that have not arrived yet: bounded in bytes, the oldest goes first, what went is counted.

use std::fs;
use std::path::PathBuf;

use farshore_shared::dsse::Envelope;
use farshore_shared::keys::random_bytes;
use farshore_shared::wire::STATUS_LIMIT;
use serde::{Deserialize, Serialize};

use super::{Found, StoreError, files};

/// The bytes that an outbox has unless somebody says otherwise.
pub const DEFAULT_LIMIT: u64 = 1 << 20;
/// The most bytes of one report's file.
const REPORT_LIMIT: u64 = 2 * STATUS_LIMIT as u64;

/// What a new report is numbered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Number {
    /// Random, made with the state folder.
    pub state_id: String,
    /// Counts up from 1, never used twice.
    pub sequence: u64,
    /// Reports that were dropped and that no report has told of.
    pub dropped: u64,
}

/// One report that has not arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Its number.
    pub sequence: u64,
    /// How many dropped reports it tells of.
    pub dropped: u64,
    /// The signed status.
    pub envelope: Envelope,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    state_id: String,
    next: u64,
    dropped: u64,
}

/// The queue of reports.
#[derive(Debug)]
pub struct Outbox {
    dir: PathBuf,
    limit: u64,
    meta: Meta,
    /// Number and bytes of each report on disk, oldest first.
    queue: Vec<(u64, u64)>,
}

impl Outbox {
    pub(super) fn open(dir: PathBuf, limit: u64) -> Result<Self, StoreError> {
        let mut queue: Vec<(u64, u64)> = Vec::new();
        for name in files::list(&dir)? {
            let path = dir.join(&name);
            if let Some(sequence) = name.strip_suffix(".report").and_then(|n| n.parse().ok()) {
                let bytes = fs::metadata(&path).map_err(|source| StoreError::Io {
                    action: "reading a file's length",
                    path,
                    source,
                })?;
                queue.push((sequence, bytes.len()));
            }
        }
        queue.sort_unstable();
        let after = queue.last().map_or(1, |(sequence, _)| sequence.saturating_add(1));
        let meta = match files::load::<Meta>(&dir.join("meta.json"), 1024)? {
            // A power cut came after a report and before its number was counted: the report itself
            // tells that the number is used, and carries the count of what was dropped.
            Found::Good(meta) if meta.next < after => Meta { next: after, dropped: 0, ..meta },
            Found::Good(meta) => meta,
            // A new id: the hub must not take new numbers for old ones.
            Found::Absent | Found::Corrupt(_) => {
                let meta = Meta { state_id: hex::encode(random_bytes::<16>()), next: after, dropped: 0 };
                files::save(&dir.join("meta.json"), &meta)?;
                meta
            }
        };
        Ok(Self { dir, limit, meta, queue })
    }

    fn path(&self, sequence: u64) -> PathBuf {
        // Padded, so that names sort as numbers do.
        self.dir.join(format!("{sequence:020}.report"))
    }

    /// Adds a report, which `sign` makes from its number. When it returns, the report survives a
    /// power cut; the oldest have been dropped if there was no room.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn push(&mut self, sign: impl FnOnce(&Number) -> Envelope) -> Result<(), StoreError> {
        let Meta { state_id, next: sequence, dropped } = self.meta.clone();
        let envelope = sign(&Number { state_id, sequence, dropped });
        let path = self.path(sequence);
        files::save(&path, &Report { sequence, dropped, envelope })?;
        let bytes = fs::metadata(&path)
            .map_err(|source| StoreError::Io { action: "reading a file's length", path, source })?
            .len();
        self.queue.push((sequence, bytes));
        self.meta.next = sequence.saturating_add(1);
        self.meta.dropped = 0;
        self.shrink()?;
        self.save()
    }

    fn shrink(&mut self) -> Result<(), StoreError> {
        while self.queue.iter().map(|(_, bytes)| bytes).sum::<u64>() > self.limit {
            let (oldest, _) = self.queue[0];
            self.drop_report(oldest)?;
        }
        Ok(())
    }

    /// What a dropped report would have told of is told by the next one.
    fn drop_report(&mut self, sequence: u64) -> Result<(), StoreError> {
        let told = files::load::<Report>(&self.path(sequence), REPORT_LIMIT)?.good().map_or(0, |r| r.dropped);
        self.meta.dropped = self.meta.dropped.saturating_add(told).saturating_add(1);
        self.remove(sequence)
    }

    fn remove(&mut self, sequence: u64) -> Result<(), StoreError> {
        self.queue.retain(|(queued, _)| *queued != sequence);
        files::remove(&self.path(sequence))
    }

    fn save(&self) -> Result<(), StoreError> {
        files::save(&self.dir.join("meta.json"), &self.meta)
    }

    /// The oldest report. One that cannot be read is dropped, and counted.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn peek(&mut self) -> Result<Option<Report>, StoreError> {
        while let Some((sequence, _)) = self.queue.first().copied() {
            if let Found::Good(report) = files::load(&self.path(sequence), REPORT_LIMIT)? {
                return Ok(Some(report));
            }
            self.drop_report(sequence)?;
            self.save()?;
        }
        Ok(None)
    }

    /// Removes a report that has arrived. A power cut before it is gone sends it twice, which the hub
    /// counts once.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn pop(&mut self, sequence: u64) -> Result<(), StoreError> {
        self.remove(sequence)
    }

    /// Dropped reports that no report has told of.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.meta.dropped
    }

    /// How many reports wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    fn envelope(number: &Number) -> Envelope {
        let payload = format!("{}/{}", number.sequence, number.dropped);
        Envelope { payload_type: "status".into(), payload: payload + &"x".repeat(200), signatures: vec![] }
    }

    fn outbox(limit: u64) -> (tempfile::TempDir, Store, Outbox) {
        let temp = tempfile::tempdir().expect("a folder");
        let store = Store::open(temp.path()).expect("new");
        let outbox = store.outbox(limit).expect("opened");
        (temp, store, outbox)
    }

    #[test]
    fn reports_leave_in_order_and_numbers_are_never_used_twice() {
        let (_temp, store, mut outbox) = outbox(DEFAULT_LIMIT);
        outbox.push(envelope).expect("written");
        outbox.push(envelope).expect("written");
        assert_eq!(outbox.peek().expect("readable").map(|r| r.sequence), Some(1));
        outbox.pop(1).expect("removed");
        outbox.pop(2).expect("removed");
        assert!(outbox.is_empty());
        let id = outbox.meta.state_id.clone();
        let mut again = store.outbox(DEFAULT_LIMIT).expect("opened");
        again
            .push(|number| {
                assert_eq!((number.sequence, &number.state_id), (3, &id));
                envelope(number)
            })
            .expect("written");
    }

    #[test]
    fn a_full_outbox_drops_the_oldest_and_counts_each_once() {
        let (_temp, store, mut outbox) = outbox(1500);
        for _ in 0..20 {
            outbox.push(envelope).expect("written");
        }
        assert!(outbox.queue.iter().map(|(_, bytes)| bytes).sum::<u64>() <= 1500);
        let mut outbox = store.outbox(1500).expect("opened");
        let (waiting, mut told) = (outbox.len(), outbox.dropped());
        while let Some(report) = outbox.peek().expect("readable") {
            told += report.dropped;
            outbox.pop(report.sequence).expect("removed");
        }
        assert_eq!(told + u64::try_from(waiting).expect("few"), 20);
    }

    #[test]
    fn a_power_cut_between_a_report_and_its_count_reuses_no_number() {
        let (temp, store, mut outbox) = outbox(DEFAULT_LIMIT);
        outbox.push(envelope).expect("written");
        let meta = temp.path().join("outbox/meta.json");
        let before = fs::read(&meta).expect("there");
        outbox.push(envelope).expect("written");
        fs::write(&meta, before).expect("as before the second count");
        let mut outbox = store.outbox(DEFAULT_LIMIT).expect("opened");
        outbox
            .push(|number| {
                assert_eq!(number.sequence, 3);
                envelope(number)
            })
            .expect("written");
    }

    #[test]
    fn a_corrupt_report_is_dropped_and_a_corrupt_count_begins_a_new_state() {
        let (temp, store, mut outbox) = outbox(DEFAULT_LIMIT);
        outbox.push(envelope).expect("written");
        outbox.push(envelope).expect("written");
        let id = outbox.meta.state_id.clone();
        fs::write(temp.path().join("outbox/00000000000000000001.report"), "").expect("damaged");
        assert_eq!(outbox.peek().expect("readable").map(|r| r.sequence), Some(2));
        assert_eq!(outbox.dropped(), 1);
        fs::write(temp.path().join("outbox/meta.json"), "x").expect("damaged");
        let outbox = store.outbox(DEFAULT_LIMIT).expect("opened");
        assert!(outbox.meta.state_id != id && outbox.meta.next == 3);
    }
}
