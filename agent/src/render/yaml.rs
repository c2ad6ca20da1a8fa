//! YAML and JSON, read as `kubectl` reads them.
//!
//! `kubectl` splits a file at lines of `---` before it parses anything, resolves scalars by YAML 1.1
//! (`yes` is a boolean, `0755` is octal), turns keys into strings and every integer beyond 64 bits into
//! a float. Two things are stricter here: a key that is there twice is refused, where `kubectl` lets
//! the last one win; and documents that it would drop silently (after `...`) are read.

mod scalar;
mod write;

use std::collections::{BTreeSet, HashMap};

use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

pub use write::write;

/// The deepest nesting of one document.
pub const DEPTH_LIMIT: usize = 100;
/// The most bytes of a file with manifests.
pub const FILE_LIMIT: usize = 32 << 20;
/// The most bytes that anchors and aliases of one document may add to what is written in it.
pub const ALIAS_LIMIT: usize = 4 << 20;

/// Why a document cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// Not UTF-8.
    #[error("not UTF-8 text (byte {0})")]
    Encoding(usize),
    /// The whole file is too large.
    #[error("file has {0} bytes, limit {FILE_LIMIT}")]
    Size(usize),
    /// Not YAML, or not JSON.
    #[error("line {line}: {message}")]
    Syntax {
        /// Counted from 1 in the file.
        line: usize,
        /// What the parser said.
        message: String,
    },
    /// YAML, but nothing that a manifest can have.
    #[error("line {line}: {fault}")]
    Refused {
        /// Counted from 1 in the file.
        line: usize,
        /// What it is.
        fault: Fault,
    },
}

/// What YAML can say and a manifest cannot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// One key twice in one mapping.
    #[error("key {0:?} is there twice")]
    DuplicateKey(String),
    /// A key that has no text.
    #[error("a key is a text, a number or a boolean")]
    Key,
    /// Nested too deep.
    #[error("nested deeper than {DEPTH_LIMIT} levels")]
    Depth,
    /// Aliases that expand without measure.
    #[error("aliases add more than {ALIAS_LIMIT} bytes")]
    Aliases,
    /// An anchor that is not there, or not yet whole.
    #[error("an alias names an anchor that is not complete before it")]
    Alias,
    /// `<<` with something else than mappings.
    #[error("'<<' takes a mapping or a list of mappings")]
    Merge,
    /// Infinity or not a number: JSON has neither.
    #[error("a number that JSON does not have ({0})")]
    Number(String),
    /// A tag that the value does not fit.
    #[error("{value:?} is no {tag}")]
    Tag {
        /// Such as `!!int`.
        tag: String,
        /// The scalar.
        value: String,
    },
}

/// Reads every document of a file; empty ones are left out. Each is numbered from 1, in its order.
#[must_use]
pub fn read(bytes: &[u8]) -> Vec<(usize, Result<Value, YamlError>)> {
    if bytes.len() > FILE_LIMIT {
        return vec![(1, Err(YamlError::Size(bytes.len())))];
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => return vec![(1, Err(YamlError::Encoding(error.valid_up_to())))],
    };
    let documents = if text.trim_start().starts_with('{') {
        read_json(text).unwrap_or_else(|_| read_yaml(text))
    } else {
        read_yaml(text)
    };
    let numbered = documents.into_iter().enumerate().map(|(index, document)| (index + 1, document));
    numbered.filter(|(_, document)| !matches!(document, Ok(Value::Null))).collect()
}

/// A file that begins with `{` is JSON, unless it is not: then it may be YAML in flow style.
fn read_json(text: &str) -> Result<Vec<Result<Value, YamlError>>, serde_json::Error> {
    let mut documents = Vec::new();
    let mut stream = serde_json::de::Deserializer::from_str(text);
    loop {
        // A stream ends where nothing but space is left.
        if stream.end().is_ok() {
            return Ok(documents);
        }
        match StrictJson(DEPTH_LIMIT).deserialize(&mut stream) {
            Ok(value) => documents.push(Ok(value)),
            Err(error) if error.is_data() => {
                let line = error.line();
                let message = error.to_string();
                documents.push(Err(YamlError::Syntax { line, message }));
                return Ok(documents);
            }
            Err(error) => return Err(error),
        }
    }
}

fn read_yaml(text: &str) -> Vec<Result<Value, YamlError>> {
    let mut documents = Vec::new();
    for (line, chunk) in split(text) {
        let mut builder = Builder::default();
        let outcome = builder.run(chunk);
        documents.extend(builder.documents.into_iter().map(Ok));
        if let Err(error) = outcome {
            documents.push(Err(error.below(line)));
        }
    }
    documents
}

impl YamlError {
    /// The same error in a text that begins `lines` lines further down.
    fn below(mut self, lines: usize) -> Self {
        match &mut self {
            Self::Syntax { line, .. } | Self::Refused { line, .. } => *line += lines,
            Self::Encoding(_) | Self::Size(_) => {}
        }
        self
    }
}

/// Cuts a text at its lines of `---`, so that one broken document does not hide the next: each piece,
/// and the number of lines before it.
fn split(text: &str) -> Vec<(usize, &str)> {
    let (mut pieces, mut begin, mut begin_line, mut at) = (Vec::new(), 0, 0, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let separator = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.trim_start().is_empty() || rest.trim_start().starts_with('#'));
        if separator && at > begin {
            pieces.push((begin_line, &text[begin..at]));
            (begin, begin_line) = (at, number);
        }
        at += line.len();
    }
    pieces.push((begin_line, &text[begin..]));
    pieces
}

/// A collection that is not whole yet.
struct Open {
    node: Node,
    anchor: usize,
}

enum Node {
    List(Vec<Value>),
    Map {
        map: Map<String, Value>,
        /// Keys that were written here, as opposed to merged in.
        written: BTreeSet<String>,
        key: Option<Key>,
    },
}

enum Key {
    Text(String),
    Merge,
}

#[derive(Default)]
struct Builder {
    documents: Vec<Value>,
    stack: Vec<Open>,
    anchors: HashMap<usize, Value>,
    /// Bytes copied for anchors, aliases and merges.
    copied: usize,
}

impl Builder {
    fn run(&mut self, text: &str) -> Result<(), YamlError> {
        let mut options = granit_parser::options! { flow_nesting_limit: 2 * DEPTH_LIMIT, block_nesting_limit: 2 * DEPTH_LIMIT };
        options.set_emit_comments(false);
        for event in Parser::new_from_str_with_options(text, options) {
            let (event, span) =
                event.map_err(|e| YamlError::Syntax { line: e.marker().line(), message: e.info() })?;
            self.event(event).map_err(|fault| YamlError::Refused { line: span.start.line(), fault })?;
        }
        Ok(())
    }

    fn event(&mut self, event: Event<'_>) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_deref()),
            Event::SequenceStart(_, anchor, _) => self.open(Node::List(Vec::new()), anchor),
            Event::MappingStart(_, anchor, _) => {
                self.open(Node::Map { map: Map::new(), written: BTreeSet::new(), key: None }, anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).ok_or(Fault::Alias)?.clone();
                self.copy(&value)?;
                if self.stack.len() + depth(&value) > DEPTH_LIMIT {
                    return Err(Fault::Depth);
                }
                self.put(value)
            }
            Event::UnresolvedAlias(_) => Err(Fault::Alias),
            Event::DocumentStart(..) => {
                self.anchors.clear();
                self.copied = 0;
                Ok(())
            }
            // What begins and ends a stream or a document, and comments: nothing of a value.
            _ => Ok(()),
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
    ) -> Result<(), Fault> {
        let plain = style == ScalarStyle::Plain;
        if let Some(Open { node: Node::Map { key: key @ None, written, .. }, .. }) = self.stack.last_mut() {
            let merge = tag.is_some_and(|tag| scalar::name(tag).as_deref() == Some("merge"));
            *key = Some(if text == "<<" && (merge || (plain && tag.is_none())) {
                Key::Merge
            } else {
                let text = scalar::key(text, plain, tag)?;
                if written.contains(&text) {
                    return Err(Fault::DuplicateKey(text));
                }
                Key::Text(text)
            });
            if anchor > 0 {
                self.remember(anchor, Value::String(text.to_owned()))?;
            }
            return Ok(());
        }
        let value = scalar::value(text, plain, tag)?;
        if anchor > 0 {
            self.remember(anchor, value.clone())?;
        }
        self.put(value)
    }

    fn open(&mut self, node: Node, anchor: usize) -> Result<(), Fault> {
        if matches!(self.stack.last(), Some(Open { node: Node::Map { key: None, .. }, .. })) {
            return Err(Fault::Key);
        }
        if self.stack.len() == DEPTH_LIMIT {
            return Err(Fault::Depth);
        }
        self.stack.push(Open { node, anchor });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fault> {
        let open = self.stack.pop().expect("the parser closes what it opened");
        let value = match open.node {
            Node::List(list) => Value::Array(list),
            Node::Map { map, .. } => Value::Object(map),
        };
        if open.anchor > 0 {
            self.remember(open.anchor, value.clone())?;
        }
        self.put(value)
    }

    fn put(&mut self, value: Value) -> Result<(), Fault> {
        let Some(open) = self.stack.last_mut() else {
            self.documents.push(value);
            return Ok(());
        };
        match &mut open.node {
            Node::List(list) => list.push(value),
            Node::Map { map, written, key } => match key.take() {
                Some(Key::Text(text)) => {
                    written.insert(text.clone());
                    map.insert(text, value);
                }
                Some(Key::Merge) => merge(map, value)?,
                None => match value {
                    // An alias as a key.
                    Value::String(text) if written.contains(&text) => return Err(Fault::DuplicateKey(text)),
                    Value::String(text) => *key = Some(Key::Text(text)),
                    _ => return Err(Fault::Key),
                },
            },
        }
        Ok(())
    }

    fn remember(&mut self, anchor: usize, value: Value) -> Result<(), Fault> {
        self.copy(&value)?;
        self.anchors.insert(anchor, value);
        Ok(())
    }

    fn copy(&mut self, value: &Value) -> Result<(), Fault> {
        self.copied += weight(value);
        if self.copied > ALIAS_LIMIT { Err(Fault::Aliases) } else { Ok(()) }
    }
}

/// What a merge brings overwrites what stands before it and yields to what stands after it; of a list
/// of mappings the first wins. That is how `kubectl` does it.
fn merge(map: &mut Map<String, Value>, value: Value) -> Result<(), Fault> {
    let sources = match value {
        Value::Object(source) => vec![source],
        Value::Array(list) => list
            .into_iter()
            .map(|value| if let Value::Object(source) = value { Ok(source) } else { Err(Fault::Merge) })
            .collect::<Result<_, _>>()?,
        _ => return Err(Fault::Merge),
    };
    for source in sources.into_iter().rev() {
        map.extend(source);
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// About the bytes that a value takes in memory.
fn weight(value: &Value) -> usize {
    let own = size_of::<Value>();
    match value {
        Value::String(text) => own + text.len(),
        Value::Array(list) => own + list.iter().map(weight).sum::<usize>(),
        Value::Object(map) => {
            own + map.iter().map(|(key, value)| own + key.len() + weight(value)).sum::<usize>()
        }
        _ => own,
    }
}

/// JSON without duplicate keys and without numbers that `kubectl` reads otherwise; the number is how
/// much deeper it may nest.
struct StrictJson(usize);

impl<'de> DeserializeSeed<'de> for StrictJson {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJson {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(scalar::unsigned(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        scalar::float(value).ok_or_else(|| E::custom("a number that JSON does not have"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let below = self.0.checked_sub(1).ok_or_else(|| A::Error::custom(Fault::Depth))?;
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(StrictJson(below))? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let below = self.0.checked_sub(1).ok_or_else(|| A::Error::custom(Fault::Depth))?;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(StrictJson(below))?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(Fault::DuplicateKey(key)));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests;
