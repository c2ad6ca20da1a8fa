//! What goes wrong during a run, and when. Pure.

use std::time::Duration;

/// Something that happens to the hub's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A replica is killed.
    Kill(usize),
    /// It is started again.
    Start(usize),
    /// Redis forgets everything.
    Flush,
    /// Redis is killed, and comes back empty.
    RedisDown,
    RedisUp,
    /// The bucket does not answer.
    BucketDown,
    BucketUp,
    /// A commit changes the service of all clusters.
    Commit,
}

/// What shall go wrong.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trouble {
    pub(super) replicas: usize,
    pub(super) kill_every: Option<Duration>,
    pub(super) flush_redis: bool,
    pub(super) bucket_errors: bool,
    pub(super) commit: bool,
}

/// How long a killed replica stays away.
const AWAY: Duration = Duration::from_secs(1);
/// How long Redis and bucket stay away.
const OUTAGE: Duration = Duration::from_secs(5);

/// All events, in order, of a measured time of `length` that begins `after` the start.
pub(super) fn events(trouble: &Trouble, after: Duration, length: Duration) -> Vec<(Duration, Event)> {
    let at = |share: f64| after + length.mul_f64(share);
    let mut all = Vec::new();
    if let Some(every) = trouble.kill_every {
        let (mut time, mut turn) = (after + every, 0);
        while time < after + length {
            let replica = turn % trouble.replicas.max(1);
            all.extend([(time, Event::Kill(replica)), (time + AWAY, Event::Start(replica))]);
            (time, turn) = (time + every, turn + 1);
        }
    }
    if trouble.flush_redis {
        all.push((at(0.2), Event::Flush));
        all.extend([(at(0.6), Event::RedisDown), (at(0.6) + OUTAGE, Event::RedisUp)]);
    }
    if trouble.bucket_errors {
        all.extend([(at(0.75), Event::BucketDown), (at(0.75) + OUTAGE, Event::BucketUp)]);
    }
    if trouble.commit {
        all.push((at(0.4), Event::Commit));
    }
    all.sort_by_key(|(time, _)| *time);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replica_is_killed_in_turn_and_comes_back() {
        let second = Duration::from_secs(1);
        let trouble = Trouble { replicas: 3, kill_every: Some(5 * second), ..Trouble::default() };
        let all = events(&trouble, 10 * second, 16 * second);
        let expected = [
            (15, Event::Kill(0)),
            (16, Event::Start(0)),
            (20, Event::Kill(1)),
            (21, Event::Start(1)),
            (25, Event::Kill(2)),
            (26, Event::Start(2)),
        ];
        assert_eq!(all, expected.map(|(at, event)| (at * second, event)));
    }

    #[test]
    fn nothing_goes_wrong_unless_it_is_asked_for() {
        assert_eq!(events(&Trouble::default(), Duration::ZERO, Duration::from_secs(100)), []);
    }
}
