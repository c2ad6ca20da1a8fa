//! When every cluster says what. Pure: it is told the time.
//!
//! Polls come when the agent's own schedule says so. About every two hours an agent fetches its documents in full
//! and reports in full; when in these two hours is hashed from its name. Passes are renewed after half of their life;
//! at the start of a run their ages are spread over that half, as in a fleet that has been there for a while.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use farshore_agent::schedule::until_next_poll;
use farshore_shared::pass::LIFETIME;
use farshore_shared::retry::hashed_share;

/// How often an agent fetches everything again, and reports in full.
pub(super) const FULL: Duration = Duration::from_secs(7200);

/// What a cluster says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    /// A poll with the tag of what it holds.
    Poll,
    /// A poll without.
    Full,
    /// A report.
    Status,
    /// The content of a service that a commit changed.
    Artifact,
}

/// Something to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    /// When, since the Unix epoch.
    pub(super) at: Duration,
    /// By whom.
    pub(super) cluster: u32,
    /// What.
    pub(super) word: Word,
}

/// What is to be said next.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    interval: Duration,
    due: BinaryHeap<Reverse<Due>>,
}

/// The name of a cluster, as its polls are spread by.
fn name(cluster: u32) -> String {
    format!("site-{cluster:07}")
}

/// After which share of two hours a cluster fetches everything, or reports.
fn share(word: &str, cluster: u32) -> f64 {
    hashed_share(&[word, &name(cluster)])
}

/// Whether a cluster fetches everything or reports within this time from the start.
pub(super) fn speaks_within(cluster: usize, length: Duration) -> bool {
    let cluster = u32::try_from(cluster).unwrap_or(u32::MAX);
    ["full", "status"].iter().any(|word| FULL.mul_f64(share(word, cluster)) < length)
}

/// How old a cluster's pass is at the start, in seconds.
pub(super) fn age(cluster: u32) -> u64 {
    Duration::from_secs(LIFETIME / 2).mul_f64(share("pass", cluster)).as_secs()
}

/// The first poll from `now` on of a cluster that has polled for a while.
fn first_poll(name: &str, interval: Duration, now: Duration) -> Duration {
    let mut at = now.saturating_sub(3 * interval);
    while at < now {
        at += until_next_poll(name, interval, at);
    }
    at
}

impl Schedule {
    /// Of a fleet that has been there for a while, from `now` for so long.
    pub(super) fn of(clusters: u32, interval: Duration, now: Duration, length: Duration) -> Self {
        let mut all = Vec::with_capacity(clusters as usize);
        for cluster in 0..clusters {
            let at = first_poll(&name(cluster), interval, now);
            all.push(Reverse(Due { at, cluster, word: Word::Poll }));
            for (word, text) in [(Word::Full, "full"), (Word::Status, "status")] {
                let after = FULL.mul_f64(share(text, cluster));
                if after < length {
                    all.push(Reverse(Due { at: now + after, cluster, word }));
                }
            }
        }
        Self { interval, due: all.into() }
    }

    /// Adds something to be said.
    pub(super) fn add(&mut self, due: Due) {
        self.due.push(Reverse(due));
    }

    /// When something is due next.
    pub(super) fn next(&self) -> Option<Duration> {
        self.due.peek().map(|Reverse(due)| due.at)
    }

    /// What is due by now. Whoever polls is due again an interval later.
    pub(super) fn take(&mut self, now: Duration) -> Option<Due> {
        if self.next()? > now {
            return None;
        }
        let Reverse(due) = self.due.pop()?;
        if due.word == Word::Poll {
            let at = due.at + until_next_poll(&name(due.cluster), self.interval, due.at);
            self.due.push(Reverse(Due { at, ..due }));
        }
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn every_cluster_polls_once_an_interval_and_no_second_is_busier_than_others() {
        let start = Duration::from_secs(1_800_000_000);
        let mut schedule = Schedule::of(6000, MINUTE, start, 3 * MINUTE);
        let mut by_second = [0_u32; 180];
        while let Some(due) = schedule.take(start + 3 * MINUTE) {
            if due.word == Word::Poll {
                let second = usize::try_from((due.at - start).as_secs()).expect("a few minutes");
                if second < 180 {
                    by_second[second] += 1;
                }
            }
        }
        let all: u32 = by_second.iter().sum();
        assert!((17_000..19_000).contains(&all), "{all}");
        assert!(by_second[..170].iter().all(|n| (50..150).contains(n)), "{by_second:?}");
    }

    #[test]
    fn in_two_hours_everybody_reports_once() {
        let start = Duration::from_secs(1_800_000_000);
        let mut schedule = Schedule::of(50, Duration::from_secs(3600), start, FULL);
        let mut reports = 0;
        while let Some(due) = schedule.take(start + FULL) {
            reports += u32::from(due.word == Word::Status);
        }
        assert_eq!(reports, 50);
        assert!(!speaks_within(7, Duration::ZERO) && speaks_within(7, FULL));
    }
}
