//! What is wrong only between declarations: names that nobody has, cycles, limits.
//!
//! A declaration that fails here leaves the fleet again, and its file counts as unreadable: what
//! was published of it stays as it was.

use std::collections::{BTreeMap, BTreeSet};

use farshore_shared::names::Name;

use super::mistake::did_you_mean;
use super::reading::Unread;
use super::{FLEET_SOURCE, Fleet, Mistake, Origin, Reading, SERVICES_LIMIT, Warning};

/// A mistake of a declaration as a whole.
pub(super) fn at(origin: &Origin, field: &str, message: String, expected: impl Into<String>) -> Mistake {
    Mistake {
        file: origin.file.clone(),
        line: Some(origin.line),
        column: None,
        field: field.to_owned(),
        message,
        expected: expected.into(),
    }
}

/// Checks the fleet as a whole and takes out what fails.
pub(super) fn whole(reading: &mut Reading, unread: &Unread) {
    reserved(reading);
    too_many(reading);
    let mut wrong = BTreeSet::new();
    let fleet = std::mem::take(&mut reading.fleet);
    for (name, service) in &fleet.services {
        let mut told = Told { origin: &service.origin, unread, wrong: false, reading };
        told.source(&service.spec.source, &fleet);
        for (n, other) in service.spec.depends_on.iter().enumerate() {
            told.dependency(n, other, &fleet);
        }
        if told.wrong {
            wrong.insert(name.clone());
        }
    }
    for cycle in cycles(&fleet) {
        let Some(service) = fleet.services.get(&cycle[0]) else { continue };
        let way = cycle.iter().chain([&cycle[0]]).map(Name::as_str).collect::<Vec<_>>().join(" -> ");
        let what = format!("services depend on each other in a circle ({way})");
        reading.mistakes.push(at(
            &service.origin,
            "spec.dependsOn",
            what,
            "expected: an order in which they can start",
        ));
        let files = cycle.iter().filter_map(|name| fleet.services.get(name)).map(|s| s.origin.file.clone());
        reading.unreadable.extend(files);
        wrong.extend(cycle);
    }
    reading.fleet = fleet;
    reading.fleet.services.retain(|name, _| !wrong.contains(name));
}

fn reserved(reading: &mut Reading) {
    let sources = std::mem::take(&mut reading.fleet.sources);
    for (name, source) in sources {
        if name.as_str() == FLEET_SOURCE {
            let what = format!("the name {FLEET_SOURCE} is taken: it is this repository itself");
            reading.mistakes.push(at(&source.origin, "metadata.name", what, "expected: another name"));
        } else {
            reading.fleet.sources.insert(name, source);
        }
    }
}

fn too_many(reading: &mut Reading) {
    let count = reading.fleet.services.len();
    let Some(first) = reading.fleet.services.keys().nth(SERVICES_LIMIT).cloned() else { return };
    let over = reading.fleet.services.split_off(&first);
    reading.unreadable.extend(over.values().map(|service| service.origin.file.clone()));
    if let Some(service) = over.get(&first) {
        let what = format!(
            "there are too many services ({count}, limit {SERVICES_LIMIT}); this and those after it by name are not read"
        );
        reading.mistakes.push(at(&service.origin, "", what, "expected: fewer services"));
    }
}

/// What is told about one service.
struct Told<'a> {
    origin: &'a Origin,
    unread: &'a Unread,
    wrong: bool,
    reading: &'a mut Reading,
}

impl Told<'_> {
    fn source(&mut self, source: &Name, fleet: &Fleet) {
        if source.as_str() == FLEET_SOURCE || fleet.sources.contains_key(source) {
            return;
        }
        let known = fleet.sources.keys().map(Name::as_str).chain([FLEET_SOURCE]);
        let guess = did_you_mean(source.as_str(), known);
        let broken = self.unread.sources.contains(source);
        self.unknown("spec.source", "source", source, broken, guess);
    }

    fn dependency(&mut self, n: usize, other: &Name, fleet: &Fleet) {
        if fleet.services.contains_key(other) {
            return;
        }
        let guess = did_you_mean(other.as_str(), fleet.services.keys().map(Name::as_str));
        let broken = self.unread.services.contains(other);
        self.unknown(&format!("spec.dependsOn[{n}]"), "service", other, broken, guess);
    }

    /// A name that no declaration has is a mistake, unless its declaration may be among what could
    /// not be read: that is told already, and this is no second mistake.
    fn unknown(&mut self, field: &str, what: &str, name: &Name, broken: bool, guess: Option<&str>) {
        let unreadable = match self.unread.opaque.first() {
            _ if broken => Some(format!("the {what} {name} is declared with mistakes")),
            Some(file) => {
                Some(format!("the {what} {name} is not declared in what could be read (it may be in {file})"))
            }
            None => None,
        };
        if let Some(why) = unreadable {
            let message = format!("{field}: {why}");
            let (file, line) = (self.origin.file.clone(), Some(self.origin.line));
            self.reading.warnings.push(Warning { file, line, message });
            return;
        }
        let expected = match guess {
            Some(guess) => format!("did you mean {guess:?}?"),
            None => format!("expected: the name of a declared {what}"),
        };
        self.reading.mistakes.push(at(
            self.origin,
            field,
            format!("no {what} has the name {name}"),
            expected,
        ));
        self.wrong = true;
    }
}

/// The circles of `dependsOn`: each begins with the first of its names, and each service is in one
/// at most.
fn cycles(fleet: &Fleet) -> Vec<Vec<Name>> {
    let mut cycles = Vec::new();
    // Depth first with a stack of our own: ten thousand services may stand in one line.
    let mut state: BTreeMap<&Name, Visit> = BTreeMap::new();
    for start in fleet.services.keys() {
        let mut way: Vec<(&Name, usize)> = Vec::new();
        if !state.contains_key(start) {
            state.insert(start, Visit::Open);
            way.push((start, 0));
        }
        while let Some((name, next)) = way.last_mut() {
            let dependencies = fleet.services.get(*name).map_or(&[][..], |s| &s.spec.depends_on);
            let Some(other) = dependencies.get(*next) else {
                state.insert(*name, Visit::Done);
                way.pop();
                continue;
            };
            *next += 1;
            match state.get(other) {
                None => {
                    state.insert(other, Visit::Open);
                    way.push((other, 0));
                }
                Some(Visit::Done) => {}
                Some(Visit::Open) => {
                    let from = way.iter().position(|(name, _)| *name == other).unwrap_or_default();
                    cycles.push(turned(way[from..].iter().map(|(name, _)| (*name).clone()).collect()));
                }
            }
        }
    }
    cycles
}

enum Visit {
    Open,
    Done,
}

/// Turns a circle so that its first name stands first.
fn turned(mut cycle: Vec<Name>) -> Vec<Name> {
    let first = cycle.iter().enumerate().min_by_key(|(_, name)| *name).map_or(0, |(n, _)| n);
    cycle.rotate_left(first);
    cycle
}
