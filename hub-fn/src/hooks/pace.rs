//! How often word of one source is passed on: at once, and then once more at the end of a pause for all that
//! came meanwhile. Pure: it is told the time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use farshore_shared::names::Name;

/// The pause after word of a source was passed on.
pub const PAUSE: Duration = Duration::from_secs(2);
/// How many sources are remembered; with more, word is passed on without a pause.
const SOURCES: usize = 10_000;

/// What to do with word of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Pass it on.
    Now,
    /// Pass it on after so long, and say so with [`Pace::passed`].
    After(Duration),
    /// Somebody has been told to pass it on soon.
    WithTheNext,
}

/// When word of which source was passed on last.
#[derive(Debug, Default)]
pub struct Pace {
    sources: HashMap<Name, Last>,
}

#[derive(Debug)]
struct Last {
    at: Instant,
    is_another_due: bool,
}

impl Pace {
    /// What to do with word of a source that came at this time.
    pub fn pass(&mut self, source: &Name, now: Instant) -> Pass {
        self.sources.retain(|_, last| last.is_another_due || now.duration_since(last.at) < PAUSE);
        match self.sources.get_mut(source) {
            Some(last) if last.is_another_due => Pass::WithTheNext,
            Some(last) => {
                last.is_another_due = true;
                Pass::After(PAUSE.saturating_sub(now.duration_since(last.at)))
            }
            None => {
                if self.sources.len() < SOURCES {
                    self.sources.insert(source.clone(), Last { at: now, is_another_due: false });
                }
                Pass::Now
            }
        }
    }

    /// Notes that what was kept back is passed on.
    pub fn passed(&mut self, source: &Name, now: Instant) {
        if let Some(last) = self.sources.get_mut(source) {
            *last = Last { at: now, is_another_due: false };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_passed_on_at_its_beginning_and_after_its_end() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let (app, other): (Name, Name) = ("app".parse().expect("a name"), "other".parse().expect("a name"));
        let half = PAUSE / 2;
        assert_eq!(pace.pass(&app, start), Pass::Now);
        assert_eq!(pace.pass(&other, start), Pass::Now, "each source for itself");
        assert_eq!(pace.pass(&app, start + half), Pass::After(half));
        for _ in 0..1000 {
            assert_eq!(pace.pass(&app, start + half), Pass::WithTheNext);
        }
        pace.passed(&app, start + PAUSE);
        assert_eq!(pace.pass(&app, start + PAUSE + half), Pass::After(half), "the pause begins anew");
        pace.passed(&app, start + 2 * PAUSE);
        assert_eq!(pace.pass(&app, start + 3 * PAUSE), Pass::Now);
    }
}
