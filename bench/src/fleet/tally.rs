//! What was answered, and when.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::schedule::Word;

/// A poll that is answered later than this after it was due is late.
pub(super) const LATE: Duration = Duration::from_secs(1);
/// How long after a commit was first seen anybody may still be told that the documents before are the newest.
pub(super) const STALE: Duration = Duration::from_secs(5);

/// Counts, and times in microseconds from when something was due to when it was answered.
pub(super) struct Tally {
    polls: Histogram<u64>,
    others: Histogram<u64>,
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
        // Grows by itself to whatever is recorded.
        let histogram = || Histogram::new(3).expect("three significant digits are possible");
        Self {
            polls: histogram(),
            others: histogram(),
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
        let micros = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        let of = if word == Word::Poll { &mut self.polls } else { &mut self.others };
        of.saturating_record(micros);
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
        self.polls.len()
    }

    /// Milliseconds within which this share of the polls was answered.
    pub(super) fn within(&self, share: f64) -> f64 {
        millis(&self.polls, share)
    }

    /// The same of everything else.
    pub(super) fn others_within(&self, share: f64) -> f64 {
        millis(&self.others, share)
    }
}

fn millis(histogram: &Histogram<u64>, share: f64) -> f64 {
    Duration::from_micros(histogram.value_at_quantile(share)).as_secs_f64() * 1000.0
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
        assert!((tally.within(1.0) - 1001.0).abs() < 2.0, "{}", tally.within(1.0));
    }
}
