//! Files into a fleet.

use std::collections::BTreeSet;

use super::decode::{Declaration, GROUP, Outcome, document};
use super::fields::Scribe;
use super::yaml::{Piece, parse, split};
use super::{
    DOCUMENTS_LIMIT, Declared, FILE_LIMIT, FILES_LIMIT, MISTAKES_LIMIT, Mistake, Origin, Reading, Warning,
    check,
};
use farshore_shared::names::Name;

/// Whether a file of this path, relative to the repository's root, is read for declarations: a YAML
/// file that is in no folder whose name begins with `.`.
#[must_use]
pub fn is_declaration_path(path: &str) -> bool {
    let (folders, file) = path.rsplit_once('/').unwrap_or(("", path));
    (file.ends_with(".yaml") || file.ends_with(".yml")) && !folders.split('/').any(|f| f.starts_with('.'))
}

/// Reads a fleet repository from the paths and contents of its files.
///
/// Paths are relative to the repository's root and use `/`; files for which
/// [`is_declaration_path`] is false are passed over. The order of the files does not matter.
/// Whoever reads blobs need not hold more than [`FILE_LIMIT`] + 1 bytes of one: longer files are
/// refused by their length.
pub fn read<P, B>(files: impl IntoIterator<Item = (P, B)>) -> Reading
where
    P: AsRef<str>,
    B: AsRef<[u8]>,
{
    let mut reader = Reader::default();
    for (path, bytes) in files {
        if is_declaration_path(path.as_ref()) {
            reader.file(path.as_ref(), bytes.as_ref());
        }
    }
    reader.finish()
}

/// One declaration, with its name and place.
#[derive(Debug)]
pub(super) struct Found {
    /// Where it stands.
    pub(super) origin: Origin,
    /// Its name.
    pub(super) name: Name,
    /// What it is.
    pub(super) declaration: Declaration,
}

/// What is known of declarations that could not be read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// The sources that are declared, but with mistakes.
    pub(super) sources: BTreeSet<Name>,
    /// The services that are declared, but with mistakes.
    pub(super) services: BTreeSet<Name>,
    /// Files of which a part is so wrong that it may have declared anything.
    pub(super) opaque: BTreeSet<String>,
}

#[derive(Default)]
struct Reader {
    files: usize,
    documents: usize,
    found: Vec<Found>,
    unread: Unread,
    mistakes: Vec<Mistake>,
    warnings: Vec<Warning>,
}

impl Reader {
    fn file(&mut self, path: &str, bytes: &[u8]) {
        self.files += 1;
        let mut scribe = Scribe::new(path);
        if self.files > FILES_LIMIT {
            if self.files == FILES_LIMIT + 1 {
                let what = format!(
                    "this and what follows was not read: there are too many YAML files (limit {FILES_LIMIT})"
                );
                self.opaque(path, &mut scribe, what, "fewer files, or manifests in a source of their own");
            }
        } else if bytes.len() > FILE_LIMIT {
            let what = format!("the file is too large (limit {FILE_LIMIT} bytes)");
            self.not_read(path, bytes, &mut scribe, what, "declarations in smaller files");
        } else {
            match std::str::from_utf8(bytes) {
                Ok(text) => self.documents(path, text, &mut scribe),
                Err(why) => {
                    let what = format!("the file is not UTF-8 text (from byte {})", why.valid_up_to());
                    self.not_read(path, bytes, &mut scribe, what, "a file saved as UTF-8");
                }
            }
        }
        self.mistakes.append(&mut scribe.mistakes);
    }

    /// A file that cannot be looked into matters if it may declare something.
    fn not_read(&mut self, path: &str, bytes: &[u8], scribe: &mut Scribe<'_>, what: String, expected: &str) {
        if bytes.windows(GROUP.len()).any(|window| window == GROUP.as_bytes()) {
            self.opaque(path, scribe, what, expected);
        } else {
            self.warnings.push(Warning { file: path.to_owned(), line: None, message: what });
        }
    }

    fn opaque(&mut self, path: &str, scribe: &mut Scribe<'_>, what: String, expected: &str) {
        scribe.wrong_file(what, format!("expected: {expected}"));
        self.unread.opaque.insert(path.to_owned());
    }

    fn documents(&mut self, path: &str, text: &str, scribe: &mut Scribe<'_>) {
        let declares = text.contains(GROUP);
        for piece in split(text).into_iter().filter(|piece| !piece.is_blank()) {
            self.documents += 1;
            if self.documents > DOCUMENTS_LIMIT {
                if self.documents == DOCUMENTS_LIMIT + 1 {
                    let what = format!(
                        "this and what follows was not read: there are too many documents (limit {DOCUMENTS_LIMIT})"
                    );
                    self.opaque(path, scribe, what, "fewer documents, or manifests in a source of their own");
                }
                return;
            }
            self.piece(path, piece, declares, scribe);
        }
    }

    /// One document. `declares` says whether its file mentions our group anywhere: what does not
    /// parse there may have been a declaration.
    fn piece(&mut self, path: &str, piece: Piece<'_>, declares: bool, scribe: &mut Scribe<'_>) {
        if let Some(trailing) = piece.trailing.filter(|_| declares) {
            scribe.mistakes.push(Mistake {
                file: path.to_owned(),
                line: Some(piece.lines_before),
                column: Some(1),
                field: String::new(),
                message: format!("something stands behind the --- that separates documents ({trailing:?})"),
                expected: "expected: --- alone in its line".to_owned(),
            });
            self.unread.opaque.insert(path.to_owned());
            return;
        }
        match parse(piece.text, piece.lines_before) {
            Ok(nodes) => {
                for node in nodes {
                    let outcome = document(&node, scribe);
                    self.outcome(path, node.at.line, outcome);
                }
            }
            Err(why) if declares => {
                scribe.unparsable(why);
                self.unread.opaque.insert(path.to_owned());
            }
            Err(why) => {
                let message = format!("passed over, because {}", why.message);
                self.warnings.push(Warning { file: path.to_owned(), line: Some(why.at.line), message });
            }
        }
    }

    fn outcome(&mut self, path: &str, line: u32, outcome: Outcome) {
        match outcome {
            Outcome::Foreign => {}
            Outcome::Declared(name, declaration) => {
                let origin = Origin { file: path.to_owned(), line };
                self.found.push(Found { origin, name, declaration });
            }
            Outcome::Broken(Some("Source"), Some(name)) => drop(self.unread.sources.insert(name)),
            Outcome::Broken(Some("Service"), Some(name)) => drop(self.unread.services.insert(name)),
            Outcome::Broken(Some("Cluster" | "Fleet"), Some(_)) => {}
            Outcome::Broken(..) => drop(self.unread.opaque.insert(path.to_owned())),
        }
    }

    fn finish(mut self) -> Reading {
        // By place, so that the same repository reads the same in whatever order its files came.
        self.found.sort_by(|a, b| a.origin.cmp(&b.origin));
        let mut reading = Reading { mistakes: self.mistakes, warnings: self.warnings, ..Reading::default() };
        for found in self.found {
            place(found, &mut reading);
        }
        // Which of two is meant nobody knows: none is taken, and what was declared before goes on.
        if reading.mistakes.iter().any(|mistake| mistake.expected == ONE_FLEET) {
            reading.fleet.defaults = None;
        }
        check::whole(&mut reading, &self.unread);
        if reading.fleet.is_empty() && reading.mistakes.is_empty() {
            let message = format!("nothing is declared: no document of {GROUP} was found");
            reading.warnings.push(Warning { file: String::new(), line: None, message });
        }
        reading.unreadable.extend(reading.mistakes.iter().map(|mistake| mistake.file.clone()));
        reading.mistakes.sort();
        reading.warnings.sort();
        shorten(&mut reading.mistakes);
        reading
    }
}

/// Keeps a list of mistakes readable and small, and says how many are left out.
fn shorten(mistakes: &mut Vec<Mistake>) {
    let more = mistakes.len().saturating_sub(MISTAKES_LIMIT);
    mistakes.truncate(MISTAKES_LIMIT);
    if let Some(last) = mistakes.last_mut().filter(|_| more > 0) {
        last.expected = format!("{}; and {more} mistakes more", last.expected);
    }
}

const ONE_FLEET: &str = "expected: one Fleet in a fleet repository";

/// Puts a declaration into the fleet, unless its name is taken.
fn place(found: Found, reading: &mut Reading) {
    let Found { origin, name, declaration } = found;
    let fleet = &mut reading.fleet;
    let taken = match &declaration {
        Declaration::Source(_) => fleet.sources.get(&name).map(|d| ("Source", d.origin.clone())),
        Declaration::Service(_) => fleet.services.get(&name).map(|d| ("Service", d.origin.clone())),
        Declaration::Cluster(_) => fleet.clusters.get(&name).map(|d| ("Cluster", d.origin.clone())),
        Declaration::Fleet(_) => fleet.defaults.as_ref().map(|d| ("Fleet", d.origin.clone())),
    };
    if let Some((kind, first)) = taken {
        reading.unreadable.insert(first.file.clone());
        let (file, line) = (&first.file, first.line);
        let (field, what, right) = match declaration {
            Declaration::Fleet(_) => ("kind", kind.to_owned(), ONE_FLEET),
            _ => ("metadata.name", format!("{kind} {name}"), "expected: one declaration of each name"),
        };
        let what = format!("{what} is declared twice (first in {file}:{line})");
        reading.mistakes.push(check::at(&origin, field, what, right));
        return;
    }
    match declaration {
        Declaration::Source(spec) => drop(fleet.sources.insert(name, Declared { spec, origin })),
        Declaration::Service(spec) => drop(fleet.services.insert(name, Declared { spec: *spec, origin })),
        Declaration::Cluster(spec) => drop(fleet.clusters.insert(name, Declared { spec, origin })),
        Declaration::Fleet(spec) => fleet.defaults = Some(Declared { spec, origin }),
    }
}
