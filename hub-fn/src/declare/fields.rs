//! Walking a document: every mistake is written down and the walk goes on.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::mistake::{Mistake, known_words};
use super::text::BadText;
use super::yaml::{At, Entry, Kind, Node, Unparsable};

/// Writes down the mistakes of one file.
pub(super) struct Scribe<'a> {
    file: &'a str,
    /// What has been found.
    pub(super) mistakes: Vec<Mistake>,
}

impl<'a> Scribe<'a> {
    /// Nothing found so far.
    pub(super) fn new(file: &'a str) -> Self {
        Self { file, mistakes: Vec::new() }
    }

    /// A mistake at a place.
    pub(super) fn wrong(
        &mut self,
        at: At,
        field: &str,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) {
        self.mistakes.push(Mistake {
            file: self.file.to_owned(),
            line: Some(at.line),
            column: Some(at.column),
            field: field.to_owned(),
            message: message.into(),
            expected: expected.into(),
        });
    }

    /// A mistake of the whole file.
    pub(super) fn wrong_file(&mut self, message: impl Into<String>, expected: impl Into<String>) {
        self.mistakes.push(Mistake {
            file: self.file.to_owned(),
            line: None,
            column: None,
            field: String::new(),
            message: message.into(),
            expected: expected.into(),
        });
    }

    /// A document that does not parse.
    pub(super) fn unparsable(&mut self, why: Unparsable) {
        self.wrong(why.at, "", why.message, why.expected);
    }
}

/// `a.b`, or `b` at the root.
pub(super) fn below(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// The fields of one mapping. What is taken is known; [`Fields::close`] reports the rest.
pub(super) struct Fields<'n> {
    path: String,
    at: At,
    entries: Vec<&'n Entry>,
    known: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// Opens a mapping; keys that are no texts or occur twice are mistakes.
    pub(super) fn open(node: &'n Node, path: &str, scribe: &mut Scribe<'_>) -> Option<Self> {
        let Some(all) = node.as_map() else {
            scribe.wrong(
                node.at,
                path,
                format!("this is {}", node.describe()),
                "expected: a mapping of fields",
            );
            return None;
        };
        let entries = distinct(all, path, scribe).into_iter().map(|(_, entry)| entry).collect();
        Some(Self { path: path.to_owned(), at: node.at, entries, known: Vec::new() })
    }

    /// The path of a field of this mapping.
    pub(super) fn path(&self, field: &str) -> String {
        below(&self.path, field)
    }

    /// A field that may be absent; `null` is absence, as kubectl has it.
    pub(super) fn take(&mut self, field: &'static str) -> Option<&'n Node> {
        self.known.push(field);
        let found = self.entries.iter().find(|entry| entry.key.as_text() == Some(field))?;
        (!found.value.is_null()).then_some(&found.value)
    }

    /// A field that must be there.
    pub(super) fn demand(
        &mut self,
        field: &'static str,
        right: &str,
        scribe: &mut Scribe<'_>,
    ) -> Option<&'n Node> {
        let found = self.take(field);
        if found.is_none() {
            scribe.wrong(self.at, &self.path(field), "the field is missing", format!("expected: {right}"));
        }
        found
    }

    /// Reports the fields that nobody took.
    pub(super) fn close(self, scribe: &mut Scribe<'_>) {
        for entry in &self.entries {
            if let Some(key) = entry.key.as_text().filter(|key| !self.known.contains(key)) {
                let path = if self.path.is_empty() { String::new() } else { self.path.clone() };
                scribe.wrong(
                    entry.key.at,
                    &path,
                    format!("unknown field {key:?}"),
                    known_words(key, &self.known),
                );
            }
        }
    }
}

/// The entries of a mapping by key, without those whose key is not a text or was there before.
fn distinct<'n>(all: &'n [Entry], path: &str, scribe: &mut Scribe<'_>) -> Vec<(&'n str, &'n Entry)> {
    let mut first: std::collections::BTreeMap<&str, u32> = std::collections::BTreeMap::new();
    let mut kept = Vec::new();
    for entry in all {
        match entry.key.as_text() {
            None => {
                let what = format!("a key of the mapping is {}", entry.key.describe());
                scribe.wrong(entry.key.at, path, what, right_text(&entry.key, "a text"));
            }
            Some(key) => match first.insert(key, entry.key.at.line) {
                Some(line) => scribe.wrong(
                    entry.key.at,
                    &below(path, key),
                    format!("the field is there twice (first in line {line})"),
                    "expected: one of them",
                ),
                None => kept.push((key, entry)),
            },
        }
    }
    kept
}

/// What would be right where a text was wanted: quoting, if that is all that is missing.
fn right_text(node: &Node, right: &str) -> String {
    match &node.kind {
        Kind::Scalar(scalar) => match scalar.unquoted() {
            Some(word) => format!("quote it: \"{word}\""),
            None => format!("expected: {right}"),
        },
        Kind::List(_) | Kind::Map(_) => format!("expected: {right}"),
    }
}

/// A text.
pub(super) fn text<'n>(node: &'n Node, path: &str, right: &str, scribe: &mut Scribe<'_>) -> Option<&'n str> {
    let text = node.as_text();
    if text.is_none() {
        scribe.wrong(node.at, path, format!("this is {}", node.describe()), right_text(node, right));
    }
    text
}

/// A text that is parsed into a type whose error says all there is to say.
pub(super) fn parsed<T>(node: &Node, path: &str, right: &str, scribe: &mut Scribe<'_>) -> Option<T>
where
    T: TryFrom<String>,
    T::Error: Display,
{
    match T::try_from(text(node, path, right, scribe)?.to_owned()) {
        Ok(value) => Some(value),
        Err(why) => {
            scribe.wrong(node.at, path, why.to_string(), format!("expected: {right}"));
            None
        }
    }
}

/// A text that is parsed into one of the types of [`super::text`].
pub(super) fn exact<T>(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<T>
where
    T: TryFrom<String, Error = BadText>,
{
    match T::try_from(text(node, path, "a text", scribe)?.to_owned()) {
        Ok(value) => Some(value),
        Err(why) => {
            scribe.wrong(node.at, path, why.message, format!("expected: {}", why.expected));
            None
        }
    }
}

/// The items of a list, each with its path.
pub(super) fn items<'n>(
    node: &'n Node,
    path: &str,
    right: &str,
    scribe: &mut Scribe<'_>,
) -> Vec<(String, &'n Node)> {
    match &node.kind {
        Kind::List(items) => {
            items.iter().enumerate().map(|(n, item)| (format!("{path}[{n}]"), item)).collect()
        }
        Kind::Scalar(_) | Kind::Map(_) => {
            scribe.wrong(
                node.at,
                path,
                format!("this is {}", node.describe()),
                format!("expected: a list of {right}"),
            );
            Vec::new()
        }
    }
}

/// A mapping whose keys are free, each with its path.
pub(super) fn pairs<'n>(
    node: &'n Node,
    path: &str,
    right: &str,
    scribe: &mut Scribe<'_>,
) -> Vec<(&'n str, &'n Entry)> {
    match node.as_map() {
        Some(all) => distinct(all, path, scribe),
        None => {
            scribe.wrong(node.at, path, format!("this is {}", node.describe()), format!("expected: {right}"));
            Vec::new()
        }
    }
}

/// A whole number from 0 to 2^32 - 1.
pub(super) fn count(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<u32> {
    let count = whole(node).and_then(|value| u32::try_from(value).ok());
    if count.is_none() {
        scribe.wrong(
            node.at,
            path,
            format!("this is {}", node.describe()),
            "expected: a whole number from 0",
        );
    }
    count
}

/// A whole number within bounds.
pub(super) fn bounded(
    node: &Node,
    path: &str,
    bounds: &RangeInclusive<u64>,
    scribe: &mut Scribe<'_>,
) -> Option<u64> {
    let what = match whole(node) {
        Some(number) if bounds.contains(&number) => return Some(number),
        Some(number) => format!("the number is too small or too large ({number})"),
        None => format!("this is {}", node.describe()),
    };
    let expected = format!("expected: a whole number from {} to {}", bounds.start(), bounds.end());
    scribe.wrong(node.at, path, what, expected);
    None
}

fn whole(node: &Node) -> Option<u64> {
    match &node.kind {
        Kind::Scalar(scalar) => scalar.to_json()?.as_u64(),
        Kind::List(_) | Kind::Map(_) => None,
    }
}

/// Yes or no.
pub(super) fn boolean(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<bool> {
    let json = match &node.kind {
        Kind::Scalar(scalar) => scalar.to_json(),
        Kind::List(_) | Kind::Map(_) => None,
    };
    let found = json.and_then(|value| value.as_bool());
    if found.is_none() {
        scribe.wrong(node.at, path, format!("this is {}", node.describe()), "expected: true or false");
    }
    found
}

/// Free values, as JSON.
pub(super) fn json(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<Value> {
    match &node.kind {
        Kind::Scalar(scalar) => {
            let value = scalar.to_json();
            if value.is_none() {
                scribe.wrong(
                    node.at,
                    path,
                    format!("this is {}", node.describe()),
                    "expected: a value that JSON has",
                );
            }
            value
        }
        Kind::List(list) => {
            let items = list.iter().enumerate().map(|(n, item)| json(item, &format!("{path}[{n}]"), scribe));
            Some(Value::Array(items.collect::<Vec<_>>().into_iter().collect::<Option<_>>()?))
        }
        Kind::Map(_) => json_map(node, path, scribe).map(Value::Object),
    }
}

/// Free values below free keys, as JSON.
pub(super) fn json_map(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<Map<String, Value>> {
    let before = scribe.mistakes.len();
    let map = pairs(node, path, "a mapping of values", scribe)
        .into_iter()
        .filter_map(|(key, entry)| Some((key.to_owned(), json(&entry.value, &below(path, key), scribe)?)))
        .collect();
    (scribe.mistakes.len() == before).then_some(map)
}
