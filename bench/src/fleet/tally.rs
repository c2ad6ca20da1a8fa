//! What was answered, and when.

use std::time::Duration;

use super::schedule::Word;

/// A poll that is answered later than this after it was due is late.
pub(super) const LATE: Duration = Duration::from_secs(1);
/// How long after a commit was first seen anybody may still be told that the documents before are the newest.
pub(super) const STALE: Duration = Duration::from_secs(5);

/// Counts, and times in microseconds from when something was due to when it was answered.
pub(super) struct Tally {
    polls: Times,
    others: Times,
    /// Polls answered later than [`LATE`].
    pub(super) late: u64,
    /// Answers that were not what they must be.
    pub(super) wrong: Vec<String>,
    /// Polls by their answer.
    pub(super) unchanged: u64,
    pub(super) changed: u64,
    pub(super) full: u64,
    pub(super) statuses: u64,
    pub(super) artifacts: u64,
    /// Answers that say to come back: 429 and 503.
    pub(super) busy: u64,
    /// Answers that ask for fewer polls; this generator goes on as before.
    pub(super) stretched: u64,
    /// Passes that were made anew.
    pub(super) passes: u64,
    /// Connections that broke under a request, which was then sent again.
    pub(super) broken: u64,
}

impl Tally {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self {
            polls: Times::default(),
            others: Times::default(),
            late: 0,
            wrong: Vec::new(),
            unchanged: 0,
            changed: 0,
            full: 0,
            statuses: 0,
            artifacts: 0,
            busy: 0,
            stretched: 0,
            passes: 0,
            broken: 0,
        }
    }

    /// Something was answered so long after it was due.
    pub(super) fn answered(&mut self, word: Word, after: Duration) {
        let of = if word == Word::Poll { &mut self.polls } else { &mut self.others };
        of.0.push(u32::try_from(after.as_micros()).unwrap_or(u32::MAX));
        if word == Word::Poll && after > LATE {
            self.late += 1;
        }
    }

    /// Remembers a wrong answer.
    pub(super) fn wrong(&mut self, what: String) {
        // One is one too many, and a thousand alike help nobody.
        if self.wrong.len() < 20 {
            self.wrong.push(what);
        }
    }

    /// Polls that were answered.
    pub(super) fn polls(&self) -> u64 {
        self.polls.0.len() as u64
    }

    /// Milliseconds within which this share of the polls was answered.
    pub(super) fn within(&self, share: f64) -> f64 {
        self.polls.within(share)
    }

    /// The same of everything else.
    pub(super) fn others_within(&self, share: f64) -> f64 {
        self.others.within(share)
    }
}

/// Every single time, in microseconds: some millions of four bytes, and no share is estimated.
#[derive(Debug, Default)]
struct Times(Vec<u32>);

impl Times {
    /// Milliseconds within which this share was answered, by the nearest rank; 0 of none.
    fn within(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        if sorted.is_empty() {
            return 0.0;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of a length is a place"
        )]
        let rank = (share * sorted.len() as f64).ceil() as usize;
        let place = rank.clamp(1, sorted.len()) - 1;
        let (_, time, _) = sorted.select_nth_unstable(place);
        Duration::from_micros(u64::from(*time)).as_secs_f64() * 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_is_late_after_a_second_and_a_report_never() {
        let mut tally = Tally::new();
        tally.answered(Word::Poll, Duration::from_millis(1));
        tally.answered(Word::Poll, Duration::from_millis(1001));
        tally.answered(Word::Status, Duration::from_secs(9));
        assert_eq!((tally.late, tally.polls()), (1, 2));
        assert!((tally.within(0.5) - 1.0).abs() < 0.001, "{}", tally.within(0.5));
        assert!((tally.within(1.0) - 1001.0).abs() < 0.001, "{}", tally.within(1.0));
        assert!(tally.others_within(0.99) > 8999.0);
    }
}
