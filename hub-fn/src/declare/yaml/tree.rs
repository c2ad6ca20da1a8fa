//! One document into [`Node`]s. The parser is an event parser; what is bounded here is what it
//! leaves to its caller: how many nodes there are once aliases are followed, and how deep they lie.

use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::granit_parser::{Event, Marker, Options, Parser, ScalarStyle, Tag};

use super::{At, Entry, Kind, Node, Scalar, Unparsable};

/// The deepest nesting of a document that is read.
const DEPTH_LIMIT: usize = 64;
/// The most values of a document that are read, those behind aliases counted each time.
const NODE_LIMIT: usize = 100_000;

/// Parses the documents in `text`: one, unless `...` ends one and another follows.
///
/// `lines_before` is added to every line.
pub(in crate::declare) fn parse(text: &str, lines_before: u32) -> Result<Vec<Node>, Unparsable> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = DEPTH_LIMIT;
    options.block_nesting_limit = DEPTH_LIMIT;
    let mut builder = Builder { lines_before, ..Builder::default() };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|e| Unparsable {
            at: builder.place(*e.marker()),
            message: format!("this is not YAML: {}", e.info()),
            expected: "a YAML document".to_owned(),
        })?;
        builder.take(event, builder.place(span.start))?;
    }
    Ok(builder.documents)
}

/// A value with what the bounds need to know of it.
#[derive(Debug, Clone)]
struct Weighed {
    node: Node,
    nodes: usize,
    depth: usize,
}

/// A list or mapping that has not ended.
struct Open {
    at: At,
    anchor: usize,
    shape: Shape,
    tag: Option<String>,
    nodes: usize,
    depth: usize,
}

enum Shape {
    List(Vec<Node>),
    Map(Vec<Entry>, Option<Node>),
}

#[derive(Default)]
struct Builder {
    lines_before: u32,
    documents: Vec<Node>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Weighed>,
    nodes: usize,
}

impl Builder {
    fn place(&self, mark: Marker) -> At {
        let line = u32::try_from(mark.line()).unwrap_or(u32::MAX);
        let column = u32::try_from(mark.col()).unwrap_or(u32::MAX);
        At { line: line.saturating_add(self.lines_before), column: column.saturating_add(1) }
    }

    fn take(&mut self, event: Event<'_>, at: At) -> Result<(), Unparsable> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.charge(1, 0, at)?;
                let node = Node { at, kind: Kind::Scalar(scalar(&text, style, tag.as_deref())) };
                self.close(Weighed { node, nodes: 1, depth: 0 }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.begin(at, anchor, Shape::List(Vec::new()), tag.as_deref())
            }
            Event::MappingStart(_, anchor, tag) => {
                self.begin(at, anchor, Shape::Map(Vec::new(), None), tag.as_deref())
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => self.repeat(id, at),
            Event::DocumentStart(..) => {
                self.anchors.clear();
                self.nodes = 0;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, at: At, anchor: usize, shape: Shape, tag: Option<&Tag>) -> Result<(), Unparsable> {
        self.charge(1, 0, at)?;
        let tag = tag.and_then(|tag| match (tag.core_suffix(), &shape) {
            (Some("seq"), Shape::List(_)) | (Some("map"), Shape::Map(..)) => None,
            _ => Some(written(tag)),
        });
        self.open.push(Open { at, anchor, shape, tag, nodes: 1, depth: 0 });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Unparsable> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let kind = match (open.tag, open.shape) {
            (Some(tag), _) => Kind::Scalar(Scalar::Tagged(tag)),
            (None, Shape::List(items)) => Kind::List(items),
            (None, Shape::Map(entries, _)) => Kind::Map(merged(entries)),
        };
        let node = Node { at: open.at, kind };
        self.close(Weighed { node, nodes: open.nodes, depth: open.depth }, open.anchor)
    }

    /// Puts a copy of an anchored value where its alias stands.
    fn repeat(&mut self, id: usize, at: At) -> Result<(), Unparsable> {
        let Some(target) = self.anchors.remove(&id) else {
            return Err(Unparsable {
                at,
                message: "an alias stands inside the value that it names".to_owned(),
                expected: "an anchor that ends before the alias".to_owned(),
            });
        };
        // Charged before it is copied: a bomb is refused while it is small.
        self.charge(target.nodes, target.depth, at)?;
        let copy = target.clone();
        self.anchors.insert(id, target);
        self.close(copy, 0)
    }

    /// Counts values that are about to be held, and refuses what would go over a limit.
    fn charge(&mut self, nodes: usize, depth: usize, at: At) -> Result<(), Unparsable> {
        let refuse =
            |message: String, expected: &str| Err(Unparsable { at, message, expected: expected.to_owned() });
        self.nodes += nodes;
        if self.nodes > NODE_LIMIT {
            let what =
                format!("the document has more values than are read (limit {NODE_LIMIT}, aliases followed)");
            return refuse(what, "smaller documents, or fewer aliases");
        }
        if self.open.len() + depth > DEPTH_LIMIT {
            return refuse(
                format!("the document is nested too deeply (limit {DEPTH_LIMIT})"),
                "less nesting",
            );
        }
        Ok(())
    }

    /// Puts a finished value where it belongs.
    fn close(&mut self, done: Weighed, anchor: usize) -> Result<(), Unparsable> {
        if anchor != 0 {
            self.charge(done.nodes, 0, done.node.at)?;
            self.anchors.insert(anchor, done.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(done.node);
            return Ok(());
        };
        open.nodes += done.nodes;
        open.depth = open.depth.max(done.depth + 1);
        match &mut open.shape {
            Shape::List(items) => items.push(done.node),
            Shape::Map(entries, key) => match key.take() {
                None => *key = Some(done.node),
                Some(key) => entries.push(Entry { key, value: done.node }),
            },
        }
        Ok(())
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Scalar {
    match tag {
        None if style == ScalarStyle::Plain => Scalar::plain(text),
        None => Scalar::Text(text.to_owned()),
        Some(tag) => match tag.core_suffix() {
            Some("str") => Scalar::Text(text.to_owned()),
            Some("bool" | "int" | "float" | "null") => Scalar::plain(text),
            _ => Scalar::Tagged(written(tag)),
        },
    }
}

fn written(tag: &Tag) -> String {
    format!("{}{}", tag.original_handle(), tag.suffix())
}

/// Applies `<<`: what a merged mapping has and this one does not say itself.
fn merged(entries: Vec<Entry>) -> Vec<Entry> {
    let (merges, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_merge);
    if merges.is_empty() {
        return own;
    }
    let mut said: BTreeSet<String> = own.iter().filter_map(|e| e.key.as_text().map(str::to_owned)).collect();
    let sources = merges.into_iter().flat_map(|merge| match merge.value.kind {
        Kind::Map(entries) => vec![entries],
        Kind::List(items) => items.into_iter().filter_map(into_map).collect(),
        Kind::Scalar(_) => vec![],
    });
    for entry in sources.flatten() {
        if entry.key.as_text().is_none_or(|key| said.insert(key.to_owned())) {
            own.push(entry);
        }
    }
    own
}

/// Whether an entry is `<<` with a mapping, or a list of mappings. Another value leaves it a field
/// that nobody knows, which is then reported as such.
fn is_merge(entry: &Entry) -> bool {
    entry.key.as_text() == Some("<<")
        && match &entry.value.kind {
            Kind::Map(_) => true,
            Kind::List(items) => items.iter().all(|item| item.as_map().is_some()),
            Kind::Scalar(_) => false,
        }
}

fn into_map(node: Node) -> Option<Vec<Entry>> {
    match node.kind {
        Kind::Map(entries) => Some(entries),
        Kind::Scalar(_) | Kind::List(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Node {
        parse(text, 0).expect("parses").pop().expect("one document")
    }

    #[test]
    fn values_remember_where_they_stood() {
        let node = parse("a: 1\nb:\n  c: x\n", 10).expect("parses").pop().expect("one document");
        assert_eq!(node.get("b").and_then(|b| b.get("c")).map(|c| c.at), Some(At { line: 13, column: 6 }));
    }

    #[test]
    fn a_merge_key_gives_way_to_what_is_said() {
        let node = one("base: &b {x: 1, z: 2}\nuse:\n  <<: *b\n  x: own\n");
        let used = node.get("use").expect("a mapping");
        assert_eq!(used.get("x").and_then(Node::as_text), Some("own"));
        assert!(used.get("z").is_some() && used.get("<<").is_none());
    }

    #[test]
    fn an_alias_bomb_is_refused_while_it_is_small() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..20 {
            let aliases = vec![format!("*a{}", n - 1); 9].join(", ");
            bomb.push_str(&format!("a{n}: &a{n} [{aliases}]\n"));
        }
        let refused = parse(&bomb, 0).expect_err("it is a bomb");
        assert!(refused.message.contains(&NODE_LIMIT.to_string()), "{}", refused.message);
    }

    #[test]
    fn nesting_is_bounded_whether_written_or_by_alias() {
        let flow = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(parse(&flow, 0).is_err());
        let block: String = (0..200).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
        assert!(parse(&block, 0).is_err());
        let mut chain = "a0: &a0 [x]\n".to_owned();
        for n in 1..100 {
            chain.push_str(&format!("a{n}: &a{n} [*a{}]\n", n - 1));
        }
        assert!(parse(&chain, 0).expect_err("too deep").message.contains("deeply"));
    }

    #[test]
    fn an_alias_to_what_holds_it_is_refused() {
        assert!(parse("a: &a [*a]\n", 0).is_err());
        assert!(parse("a: *nothing\n", 0).is_err());
    }
}
