//! Which Events are written, and when: what is repeated becomes one Event with a count, and there are never many at a
//! time. Pure. Paces are counted by a clock that nobody sets; what an Event says of time is by the site's.

use std::collections::BTreeMap;

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;

use super::Event;
use super::happenings::Happening;
use crate::moment::Moment;

/// What is repeated within so many seconds is one Event.
const SERIES: u64 = 360;
/// An Event that is repeated is written again at most so often, in seconds.
const AGAIN: u64 = 60;
/// So many new Events at once,
const BURST: u32 = 20;
/// and one more every so many seconds.
const REFILL: u64 = 15;
/// The most characters of a note: the API takes 1,024 bytes.
const NOTE_LIMIT: usize = 250;

/// The Events of a site.
#[derive(Debug)]
pub struct Tally {
    cluster: Name,
    series: BTreeMap<Key, Series>,
    room: u32,
    refilled: u64,
    /// Events for which there was no room.
    pub dropped: u64,
}

type Key = (Option<Name>, &'static str, String);

#[derive(Debug)]
struct Series {
    event: Event,
    /// When it happened last.
    last: u64,
    /// When it was written, and the count then; none while it was not.
    written: Option<(u64, u32)>,
}

impl Tally {
    /// Nothing has happened at this site.
    #[must_use]
    pub fn new(cluster: Name, now: u64) -> Self {
        Self { cluster, series: BTreeMap::new(), room: BURST, refilled: now, dropped: 0 }
    }

    /// Something happened.
    pub fn add(&mut self, happening: Happening, moment: Moment) {
        let (wall, now) = (moment.wall, moment.steady.as_secs());
        self.refill(now);
        self.series.retain(|_, series| now.saturating_sub(series.last) < SERIES || series.is_due());
        let Happening { service, reason, subject, tone, note } = happening;
        let key = (service.clone(), reason, subject);
        if let Some(series) = self.series.get_mut(&key) {
            (series.event.last, series.event.count) = (wall, series.event.count.saturating_add(1));
            series.last = now;
            return;
        }
        if self.room == 0 {
            self.dropped += 1;
            return;
        }
        self.room -= 1;
        let note: String = note.chars().take(NOTE_LIMIT).collect();
        let about = service.as_ref().unwrap_or(&self.cluster);
        let said = format!("{} {about} {reason} {note} {wall}", self.cluster);
        let name = format!("{about}.{}", &Digest::of(said.as_bytes()).to_string()[..16]);
        let cluster = self.cluster.clone();
        let event = Event { name, cluster, service, reason, tone, note, first: wall, last: wall, count: 1 };
        self.series.insert(key, Series { event, last: now, written: None });
    }

    /// What is to be written now.
    #[must_use]
    pub fn due(&self, now: u64) -> Vec<Event> {
        let due = self.series.values().filter(|series| series.is_due() && series.due_at() <= now);
        due.map(|series| series.event.clone()).collect()
    }

    /// When something is to be written.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        self.series.values().filter(|series| series.is_due()).map(Series::due_at).min()
    }

    /// An Event was written, or nobody wants it.
    pub fn done(&mut self, event: &Event, now: u64) {
        for series in self.series.values_mut().filter(|series| series.event.name == event.name) {
            series.written = Some((now, event.count));
        }
    }

    fn refill(&mut self, now: u64) {
        let more = now.saturating_sub(self.refilled) / REFILL;
        if more > 0 {
            self.room = self.room.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)).min(BURST);
            self.refilled = now;
        }
    }
}

impl Series {
    fn is_due(&self) -> bool {
        self.written.is_none_or(|(_, count)| count < self.event.count)
    }

    fn due_at(&self) -> u64 {
        self.written.map_or(0, |(at, _)| at.saturating_add(AGAIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::announce::Tone;
    use std::time::Duration;

    fn happening(service: &str, subject: &str) -> Happening {
        Happening {
            service: Some(service.parse().expect("a name")),
            reason: "DriftRepaired",
            subject: subject.into(),
            tone: Tone::Normal,
            note: "x".repeat(5000),
        }
    }

    fn tally() -> Tally {
        Tally::new("shop-7".parse().expect("a name"), 1000)
    }

    /// Both clocks show the same, until one is set.
    fn at(now: u64) -> Moment {
        Moment { wall: now, steady: Duration::from_secs(now) }
    }

    /// Writes all that is due, and gives the counts.
    fn write(tally: &mut Tally, now: u64) -> Vec<u32> {
        let due = tally.due(now);
        due.iter().for_each(|event| tally.done(event, now));
        due.iter().map(|event| event.count).collect()
    }

    #[test]
    fn what_is_repeated_is_one_event_that_is_written_once_a_minute() {
        let mut tally = tally();
        tally.add(happening("web", ""), at(1000));
        assert_eq!(write(&mut tally, 1000), [1]);
        let name = tally.series.values().next().expect("one").event.name.clone();
        for now in 1001..1060 {
            tally.add(happening("web", ""), at(now));
            assert_eq!(write(&mut tally, now), [0; 0]);
        }
        assert_eq!(tally.next_due(), Some(1060));
        assert_eq!(write(&mut tally, 1060), [60]);
        assert_eq!(tally.next_due(), None);
        assert_eq!(tally.series.values().next().expect("one").event.name, name);
        tally.add(happening("web", ""), at(1059 + SERIES));
        assert_eq!(write(&mut tally, 2000), [1], "after a while it is another one");
        tally.add(happening("web", "other"), at(2001));
        assert_eq!(write(&mut tally, 2001), [1], "and so is one about something else");
    }

    #[test]
    fn a_site_that_goes_wild_writes_few_events_and_counts_the_rest() {
        let mut tally = tally();
        for n in 0..1000 {
            tally.add(happening(&format!("s{n}"), ""), at(1000));
        }
        assert_eq!(tally.due(1000).len(), 20);
        assert_eq!(tally.dropped, 980);
        assert!(tally.due(1000).iter().all(|event| event.note.len() <= 1024));
        write(&mut tally, 1000);
        for n in 0..1000 {
            tally.add(happening(&format!("t{n}"), ""), at(1000 + REFILL));
        }
        assert_eq!(tally.due(1000 + REFILL).len(), 1);
    }

    #[test]
    fn a_clock_that_is_set_back_holds_no_event_up_and_drops_none() {
        let mut tally = tally();
        let in_2038 = |steady| Moment { wall: 2_147_483_647, steady: Duration::from_secs(steady) };
        let in_1970 = |steady| Moment { wall: 10, steady: Duration::from_secs(steady) };
        (0..1000).for_each(|n| tally.add(happening(&format!("s{n}"), ""), in_2038(1000)));
        assert_eq!(write(&mut tally, 1000).len(), 20);
        tally.add(happening("s1", ""), in_1970(1001));
        assert_eq!(write(&mut tally, 1000 + AGAIN), [2], "it is written again after a minute, as ever");
        let now = 1001 + SERIES;
        tally.add(happening("s1", ""), in_1970(now));
        let again = tally.due(now);
        assert_eq!((again[0].count, again[0].first), (1, 10), "a new series, and room for it");
    }
}
