//! The two slots of accepted documents: the older one is overwritten, the valid newer one counts.

use std::path::PathBuf;

use farshore_shared::wire::{DESIRED_LIMIT, SMALL_LIMIT};
use serde::{Deserialize, Serialize};

use super::{Found, Store, StoreError, files};
use crate::verify::{Documents, Envelopes, Held, Marks};

/// The most bytes of a slot: both documents in base64, marks and signatures.
const SLOT_LIMIT: u64 = 2 * (DESIRED_LIMIT + SMALL_LIMIT) as u64;
const NAMES: [&str; 2] = ["a", "b"];

/// Whether objects that left the desired state may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prune {
    /// What is held is the newest that this site has seen.
    Allowed,
    /// What is held is, or may be, older than what this site has seen: it is enforced, nothing more.
    /// A full answer of the hub that is believed makes it good, also one that brings nothing new:
    /// [`Store::accept`] it all the same.
    Forbidden,
}

/// What a site finds when it starts.
#[derive(Debug, Clone)]
pub struct State {
    /// What to enforce.
    pub documents: Found<Documents>,
    /// The highest that this site has seen, from whatever file still knows it.
    pub marks: Marks,
    /// Whether it may remove anything.
    pub prune: Prune,
    /// What a person should look at.
    pub alarms: Vec<String>,
}

impl State {
    /// The same for [`crate::verify::desired()`].
    #[must_use]
    pub fn held(&self) -> Held {
        Held { documents: self.documents.clone().good(), marks: self.marks.clone() }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Slot {
    number: u64,
    envelopes: Envelopes,
    marks: Marks,
}

/// A slot's documents, read once.
struct Whole {
    number: u64,
    documents: Documents,
    marks: Marks,
}

impl Store {
    fn slot_path(&self, name: &str) -> PathBuf {
        self.dir.join("slots").join(name)
    }

    fn slot(&self, name: &str) -> Result<Found<Whole>, StoreError> {
        Ok(match files::load::<Slot>(&self.slot_path(name), SLOT_LIMIT)? {
            Found::Absent => Found::Absent,
            Found::Corrupt(why) => Found::Corrupt(why),
            Found::Good(Slot { number, envelopes, marks }) => match Documents::read_accepted(envelopes) {
                Ok(documents) => Found::Good(Whole { number, documents, marks }),
                Err(refusal) => Found::Corrupt(refusal.to_string()),
            },
        })
    }

    /// What this site held when it stopped.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the disk refuses. Corrupt files are no error: they are in the answer.
    pub fn state(&self) -> Result<State, StoreError> {
        let (mut alarms, mut whole) = (Vec::new(), Vec::new());
        for name in NAMES {
            match self.slot(name)? {
                Found::Absent => {}
                Found::Corrupt(why) => alarms.push(format!("a slot of accepted documents is corrupt: {why}")),
                Found::Good(slot) => whole.push(slot),
            }
        }
        let broken = !alarms.is_empty();
        let (recorded, unsure) = match self.marks()? {
            Found::Good(marks) => (marks, false),
            // Without the file, the slots tell: unless one of them cannot be read, which may be the newer.
            Found::Absent => (Marks::default(), broken),
            Found::Corrupt(why) => {
                alarms.push(format!("the file of high-water marks is corrupt: {why}"));
                (Marks::default(), broken)
            }
        };
        let marks = whole.iter().fold(recorded, |marks, slot| marks.join(&slot.marks));
        let Some(newest) = whole.into_iter().max_by_key(|slot| slot.number) else {
            let documents = if broken {
                Found::Corrupt("no slot of accepted documents can be read".to_owned())
            } else {
                Found::Absent
            };
            return Ok(State { documents, marks, prune: Prune::Forbidden, alarms });
        };
        let old = unsure || !marks.are_reached_by(&newest.documents);
        if old {
            alarms.push(
                "what this site holds is older than what it has seen before: it is enforced, and nothing is removed, until the hub brings something newer"
                    .to_owned(),
            );
        }
        let prune = if old { Prune::Forbidden } else { Prune::Allowed };
        Ok(State { documents: Found::Good(newest.documents), marks, prune, alarms })
    }

    /// Takes documents that were verified, and the marks that they leave.
    ///
    /// When this returns they survive a power cut; until then the ones before them do.
    ///
    /// # Errors
    /// [`StoreError::Io`]; what was held before is still held then, or already what is new.
    pub fn accept(&self, documents: &Documents, marks: &Marks) -> Result<(), StoreError> {
        let mut numbers = Vec::with_capacity(NAMES.len());
        for name in NAMES {
            // A slot that cannot be read holds nothing that could be lost: it is the first to go.
            numbers.push((self.slot(name)?.good().map_or(0, |slot| slot.number), name));
        }
        let highest = numbers.iter().map(|(number, _)| *number).max().unwrap_or(0);
        let (_, oldest) = numbers.into_iter().min_by_key(|(number, _)| *number).unwrap_or((0, NAMES[0]));
        let slot = Slot {
            number: highest.saturating_add(1),
            envelopes: documents.envelopes.clone(),
            marks: marks.clone(),
        };
        files::save(&self.slot_path(oldest), &slot)?;
        self.save_marks(marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::kit::{Fleet, NOW};
    use crate::verify::{self, Clock};
    use std::fs;

    struct Site {
        temp: tempfile::TempDir,
        store: Store,
        fleet: Fleet,
    }

    impl Site {
        fn new() -> Self {
            let temp = tempfile::tempdir().expect("a folder");
            let store = Store::open(temp.path()).expect("new");
            Self { temp, store, fleet: Fleet::new() }
        }

        fn accept(&self, sequence: u64) {
            let fleet = &self.fleet;
            let held = self.store.state().expect("readable").held();
            let offer = fleet.offer(Some(&fleet.roster(sequence)), Some(&fleet.group(sequence)));
            let accepted = verify::desired(&held, &offer, &fleet.identity(), &fleet.root, Clock { now: NOW })
                .expect("believed");
            self.store.accept(&accepted.documents, &accepted.marks).expect("written");
        }

        fn file(&self, name: &str) -> PathBuf {
            self.temp.path().join(name)
        }

        fn sequence_and_prune(&self) -> (Option<u64>, Prune) {
            let state = self.store.state().expect("readable");
            (state.documents.good().map(|documents| documents.group.sequence), state.prune)
        }
    }

    #[test]
    fn the_newest_of_both_slots_counts() {
        let site = Site::new();
        let state = site.store.state().expect("readable");
        assert_eq!((state.documents, state.prune), (Found::Absent, Prune::Forbidden));
        for sequence in 1..=5 {
            site.accept(sequence);
            assert_eq!(site.sequence_and_prune(), (Some(sequence), Prune::Allowed));
        }
    }

    #[test]
    fn a_power_cut_at_any_moment_of_accepting_leaves_the_old_or_the_new() {
        let site = Site::new();
        site.accept(1);
        let before: Vec<_> = ["slots/a", "trust/marks.json"]
            .map(|name| (name, fs::read(site.file(name)).expect("there")))
            .into();
        site.accept(2);
        let slot = fs::read(site.file("slots/b")).expect("the second slot");
        for (name, bytes) in &before {
            fs::write(site.file(name), bytes).expect("put back");
        }
        fs::remove_file(site.file("slots/b")).expect("removed");
        for end in (0..slot.len()).step_by(97) {
            fs::write(site.file("slots/.b.new"), &slot[..end]).expect("half written");
            assert_eq!(site.sequence_and_prune(), (Some(1), Prune::Allowed), "cut at {end}");
        }
        fs::write(site.file("slots/b"), &slot).expect("renamed, and the marks not yet written");
        assert_eq!(site.sequence_and_prune(), (Some(2), Prune::Allowed));
        assert!(site.store.state().expect("readable").marks.roster.is_some_and(|mark| mark.sequence == 2));
    }

    #[test]
    fn when_the_newer_slot_is_corrupt_the_older_is_enforced_without_pruning() {
        let site = Site::new();
        site.accept(1);
        site.accept(2);
        let slot = fs::read(site.file("slots/b")).expect("there");
        for damage in [Vec::new(), slot[..slot.len() / 2].to_vec(), vec![0; slot.len()]] {
            fs::write(site.file("slots/b"), damage).expect("damaged");
            assert_eq!(site.sequence_and_prune(), (Some(1), Prune::Forbidden));
        }
        assert!(site.store.state().expect("readable").alarms.len() == 2);
        // The same documents again are no rollback: they make the site whole.
        site.accept(2);
        assert_eq!(site.sequence_and_prune(), (Some(2), Prune::Allowed));
    }

    #[test]
    fn marks_survive_in_the_slots_when_their_own_file_is_lost() {
        let site = Site::new();
        site.accept(1);
        site.accept(2);
        fs::write(site.file("trust/marks.json"), "").expect("damaged");
        assert_eq!(site.sequence_and_prune(), (Some(2), Prune::Allowed));
        fs::write(site.file("slots/b"), "").expect("damaged");
        assert_eq!(site.sequence_and_prune(), (Some(1), Prune::Forbidden), "nobody knows what was newer");
        site.accept(1);
        assert_eq!(site.sequence_and_prune(), (Some(1), Prune::Allowed), "the hub knows");
    }

    #[test]
    fn two_corrupt_slots_are_not_an_empty_site() {
        let site = Site::new();
        site.accept(1);
        site.accept(2);
        for name in ["slots/a", "slots/b"] {
            fs::write(site.file(name), "x").expect("damaged");
        }
        let state = site.store.state().expect("readable");
        assert!(matches!(state.documents, Found::Corrupt(_)));
        assert!(state.marks.roster.is_some_and(|mark| mark.sequence == 2), "the marks still guard");
    }
}
