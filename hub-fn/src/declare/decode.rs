//! One document into one declaration, with every mistake that it has.

use std::collections::BTreeSet;

use farshore_shared::names::{LabelKey, LabelValue, Labels, Name};
use farshore_shared::wire::{ApplyPolicy, Conflicts, Footprint, ProtectedKind, PruneBudget};

use super::OfCluster;
use super::drift;
use super::fields::{Fields, Scribe, below, boolean, count, exact, items, json_map, pairs, parsed, text};
use super::footprint;
use super::health;
use super::kinds::{GitSpec, RendererSpec, ServiceSpec, SourceSpec};
use super::mistake::known_words;
use super::selector::{LabelSelector, Operator, Requirement, Test};
use super::yaml::{Kind, Node};

/// What `apiVersion` of a declaration begins with.
pub(super) const GROUP: &str = "farshore.dev/";
/// The `apiVersion` that is read.
pub(super) const VERSION: &str = "farshore.dev/v1alpha1";
const KINDS: [&str; 4] = ["Source", "Service", "Cluster", "Fleet"];
const KIND: &str = "Source, Service, Cluster or Fleet";
const RENDERERS: [&str; 3] = ["raw", "template", "kustomize"];
const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
const NAME: &str = "at most 63 lower-case letters, digits and '-'";
const KEY: &str = "a label key such as tier or example.com/tier";
const VALUE: &str = "a text of at most 63 letters, digits, '-', '_' and '.'";

/// What a document declares.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Declaration {
    /// A source.
    Source(SourceSpec),
    /// A service.
    Service(Box<ServiceSpec>),
    /// What holds for a cluster.
    Cluster(OfCluster),
    /// What holds for every cluster that says nothing else.
    Fleet(Footprint),
}

/// What became of a document.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is something else, such as a manifest of a service.
    Foreign,
    /// It declares something.
    Declared(Name, Declaration),
    /// It has mistakes. The kind and the name are those that could still be read.
    Broken(Option<&'static str>, Option<Name>),
}

/// Reads one document. An outcome is [`Outcome::Broken`] exactly when mistakes were written down.
pub(super) fn document(node: &Node, scribe: &mut Scribe<'_>) -> Outcome {
    let version = node.get("apiVersion").and_then(Node::as_text);
    let ours = match version {
        Some(version) => version.starts_with(GROUP),
        // Without a version it is ours only if it says so under another name.
        None => node.as_map().is_some_and(|entries| {
            entries.iter().any(|e| e.value.as_text().is_some_and(|text| text.starts_with(GROUP)))
        }),
    };
    if !ours {
        return Outcome::Foreign;
    }
    let before = scribe.mistakes.len();
    let Some(mut fields) = Fields::open(node, "", scribe) else { return Outcome::Broken(None, None) };
    if let Some(at) = fields.demand("apiVersion", VERSION, scribe)
        && at.as_text() != Some(VERSION)
    {
        let what = format!("unknown version {:?}", version.unwrap_or_default());
        scribe.wrong(at.at, "apiVersion", what, format!("known: {VERSION}"));
        return Outcome::Broken(None, None);
    }
    let kind = kind(&mut fields, scribe);
    let (name, declaration) = match kind {
        Some("Source") => source(&mut fields, scribe),
        Some("Service") => service(&mut fields, scribe),
        Some("Cluster") => cluster(&mut fields, scribe),
        Some(_) => fleet(&mut fields, scribe),
        None => return Outcome::Broken(None, None),
    };
    fields.close(scribe);
    match (name, declaration) {
        (Some(name), Some(declaration)) if scribe.mistakes.len() == before => {
            Outcome::Declared(name, declaration)
        }
        (name, _) => Outcome::Broken(kind, name),
    }
}

fn kind(fields: &mut Fields<'_>, scribe: &mut Scribe<'_>) -> Option<&'static str> {
    let node = fields.demand("kind", KIND, scribe)?;
    let written = text(node, "kind", KIND, scribe)?;
    let kind = KINDS.into_iter().find(|kind| *kind == written);
    if kind.is_none() {
        scribe.wrong(node.at, "kind", format!("unknown kind {written:?}"), known_words(written, &KINDS));
    }
    kind
}

fn name(fields: &mut Fields<'_>, scribe: &mut Scribe<'_>) -> Option<Name> {
    let mut metadata = Fields::open(fields.demand("metadata", "{ name: ... }", scribe)?, "metadata", scribe)?;
    let name = metadata.demand("name", NAME, scribe).and_then(|n| parsed(n, "metadata.name", NAME, scribe));
    metadata.close(scribe);
    name
}

type Read = (Option<Name>, Option<Declaration>);

fn source(fields: &mut Fields<'_>, scribe: &mut Scribe<'_>) -> Read {
    let name = name(fields, scribe);
    let spec = fields.demand("spec", "{ git: { url: ... } }", scribe);
    let spec = spec.and_then(|node| source_spec(node, scribe));
    (name, spec.map(Declaration::Source))
}

fn source_spec(node: &Node, scribe: &mut Scribe<'_>) -> Option<SourceSpec> {
    let mut spec = Fields::open(node, "spec", scribe)?;
    let git = spec.demand("git", "{ url: ... }", scribe).and_then(|node| git(node, scribe));
    let interval = spec.take("interval").and_then(|node| exact(node, "spec.interval", scribe));
    spec.close(scribe);
    Some(SourceSpec { git: git?, interval })
}

fn git(node: &Node, scribe: &mut Scribe<'_>) -> Option<GitSpec> {
    let mut git = Fields::open(node, "spec.git", scribe)?;
    let right = "the address of a git repository";
    let url = git.demand("url", right, scribe).and_then(|node| exact(node, "spec.git.url", scribe));
    let branch = git.take("branch").and_then(|node| exact(node, "spec.git.branch", scribe));
    git.close(scribe);
    Some(GitSpec { url: url?, branch })
}

fn service(fields: &mut Fields<'_>, scribe: &mut Scribe<'_>) -> Read {
    let name = name(fields, scribe);
    let spec = fields.demand("spec", "{ source: ..., clusters: ... }", scribe);
    let spec = spec.and_then(|node| service_spec(node, scribe));
    (name, spec.map(|spec| Declaration::Service(Box::new(spec))))
}

fn service_spec(node: &Node, scribe: &mut Scribe<'_>) -> Option<ServiceSpec> {
    let mut spec = Fields::open(node, "spec", scribe)?;
    let source = spec
        .demand("source", "the name of a Source, or fleet for this repository", scribe)
        .and_then(|node| parsed(node, "spec.source", NAME, scribe));
    let path = spec.take("path").and_then(|node| exact(node, "spec.path", scribe)).unwrap_or_default();
    let renderer = spec.take("renderer").and_then(|node| renderer(node, scribe)).unwrap_or_default();
    let namespace = spec.take("namespace").and_then(|node| parsed(node, "spec.namespace", NAME, scribe));
    let right = "a label selector; {} is every cluster, and leaving it out must not mean that";
    let clusters = spec.demand("clusters", right, scribe).and_then(|node| selector(node, scribe));
    let depends_on = spec.take("dependsOn").map(|node| dependencies(node, scribe)).unwrap_or_default();
    let prune = spec.take("prune").and_then(|node| prune(node, scribe));
    let health = spec.take("health").map(|node| health::rules(node, scribe)).unwrap_or_default();
    let timeout = spec.take("timeout").and_then(|node| exact(node, "spec.timeout", scribe));
    let on_failure = spec.take("onFailure").and_then(|node| health::on_failure(node, scribe));
    let apply = spec.take("apply").and_then(|node| apply(node, scribe)).unwrap_or_default();
    let drift = spec.take("drift").and_then(|node| drift::read(node, scribe));
    spec.close(scribe);
    let (source, clusters, on_failure) = (source?, clusters?, on_failure.unwrap_or_default());
    Some(ServiceSpec {
        source,
        path,
        renderer,
        namespace,
        clusters,
        depends_on,
        prune,
        health,
        timeout,
        on_failure,
        apply,
        drift,
    })
}

fn dependencies(node: &Node, scribe: &mut Scribe<'_>) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    for (path, item) in items(node, "spec.dependsOn", "names of services", scribe) {
        match parsed(item, &path, NAME, scribe) {
            Some(name) if names.contains(&name) => {
                scribe.wrong(item.at, &path, format!("{name} is there twice"), "expected: each service once");
            }
            Some(name) => names.push(name),
            None => {}
        }
    }
    names
}

fn prune(node: &Node, scribe: &mut Scribe<'_>) -> Option<PruneBudget> {
    let mut fields = Fields::open(node, "spec.prune", scribe)?;
    let mut budget = PruneBudget::default();
    if let Some(node) = fields.take("kinds") {
        let items = items(node, "spec.prune.kinds", "protected kinds", scribe);
        let kinds: Vec<_> = items.iter().filter_map(|(at, item)| protected(item, at, scribe)).collect();
        budget.kinds = kinds.into_iter().collect();
    }
    if let Some(node) = fields.take("count") {
        budget.count = count(node, "spec.prune.count", scribe)?;
    }
    if let Some(node) = fields.take("percent") {
        budget.percent = count(node, "spec.prune.percent", scribe)?;
        if budget.percent > 100 {
            let what = format!("{} is more than everything", budget.percent);
            scribe.wrong(node.at, "spec.prune.percent", what, "expected: a percentage from 0 to 100");
        }
    }
    fields.close(scribe);
    Some(budget)
}

fn protected(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<ProtectedKind> {
    let word = text(node, path, "the name of a protected kind", scribe)?;
    let kind = word.parse().ok();
    if kind.is_none() {
        let known = ProtectedKind::ALL.map(ProtectedKind::as_str);
        let what = format!("{word:?} is no protected kind: only those have to be named");
        scribe.wrong(node.at, path, what, known_words(word, &known));
    }
    kind
}

fn apply(node: &Node, scribe: &mut Scribe<'_>) -> Option<ApplyPolicy> {
    let mut fields = Fields::open(node, "spec.apply", scribe)?;
    let conflicts = fields.take("conflicts").and_then(|node| conflicts(node, scribe)).unwrap_or_default();
    let mut flag = |field: &'static str, scribe: &mut Scribe<'_>| {
        let path = fields.path(field);
        fields.take(field).and_then(|node| boolean(node, &path, scribe)).unwrap_or_default()
    };
    let (recreate, adopt) = (flag("recreate", scribe), flag("adopt", scribe));
    fields.close(scribe);
    Some(ApplyPolicy { conflicts, recreate, adopt })
}

fn conflicts(node: &Node, scribe: &mut Scribe<'_>) -> Option<Conflicts> {
    let path = "spec.apply.conflicts";
    match text(node, path, "report or force", scribe)? {
        "report" => Some(Conflicts::Report),
        "force" => Some(Conflicts::Force),
        word => {
            let what = format!("{word:?} is no way to treat a conflict");
            scribe.wrong(node.at, path, what, known_words(word, &["report", "force"]));
            None
        }
    }
}

fn renderer(node: &Node, scribe: &mut Scribe<'_>) -> Option<RendererSpec> {
    let path = "spec.renderer";
    let (written, options) = match &node.kind {
        Kind::Map(entries) => match entries.as_slice() {
            [entry] => (&entry.key, Some(&entry.value)),
            _ => {
                let what = format!("the mapping has {} keys", entries.len());
                scribe.wrong(
                    node.at,
                    path,
                    what,
                    "expected: one renderer, such as { template: { values: {} } }",
                );
                return None;
            }
        },
        Kind::Scalar(_) | Kind::List(_) => (node, None),
    };
    let word = text(written, path, "the name of a renderer", scribe)?;
    let options = options.filter(|options| !options.is_null());
    let inside = below(path, word);
    match word {
        "template" => {
            let Some(options) = options else {
                return Some(RendererSpec::Template { values: Default::default() });
            };
            let mut fields = Fields::open(options, &inside, scribe)?;
            let at = fields.path("values");
            let values = fields.take("values").map(|node| json_map(node, &at, scribe));
            fields.close(scribe);
            Some(RendererSpec::Template { values: values.unwrap_or_else(|| Some(Default::default()))? })
        }
        "raw" | "kustomize" => {
            if let Some(options) = options {
                Fields::open(options, &inside, scribe)?.close(scribe);
            }
            Some(if word == "raw" { RendererSpec::Raw } else { RendererSpec::Kustomize })
        }
        _ => {
            scribe.wrong(
                written.at,
                path,
                format!("unknown renderer {word:?}"),
                known_words(word, &RENDERERS),
            );
            None
        }
    }
}

fn labels(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Labels {
    let mut labels = Labels::new();
    for (key, entry) in pairs(node, path, "a mapping of labels", scribe) {
        let here = below(path, key);
        let good_key = parsed::<LabelKey>(&entry.key, &here, KEY, scribe);
        let value = parsed::<LabelValue>(&entry.value, &here, VALUE, scribe);
        if let (Some(key), Some(value)) = (good_key, value) {
            labels.insert(key, value);
        }
    }
    labels
}

fn selector(node: &Node, scribe: &mut Scribe<'_>) -> Option<LabelSelector> {
    let mut fields = Fields::open(node, "spec.clusters", scribe)?;
    let match_labels = fields.take("matchLabels").map(|n| labels(n, "spec.clusters.matchLabels", scribe));
    let path = fields.path("matchExpressions");
    let expressions = fields.take("matchExpressions").map(|n| items(n, &path, "expressions", scribe));
    fields.close(scribe);
    let match_expressions = expressions
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(path, item)| requirement(item, &path, scribe))
        .collect();
    Some(LabelSelector { match_labels: match_labels.unwrap_or_default(), match_expressions })
}

fn requirement(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<Requirement> {
    let mut fields = Fields::open(node, path, scribe)?;
    let key_path = fields.path("key");
    let key = fields.demand("key", KEY, scribe).and_then(|node| parsed(node, &key_path, KEY, scribe));
    let at = fields.path("operator");
    let operator = fields.demand("operator", "In, NotIn, Exists or DoesNotExist", scribe);
    let operator = operator.and_then(|node| self::operator(node, &at, scribe));
    let at = fields.path("values");
    let values: BTreeSet<LabelValue> = fields
        .take("values")
        .map(|node| items(node, &at, "label values", scribe))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(path, item)| parsed(item, &path, VALUE, scribe))
        .collect();
    fields.close(scribe);
    match Test::new(operator?, values) {
        Ok(test) => Some(Requirement { key: key?, test }),
        Err(why) => {
            scribe.wrong(
                node.at,
                path,
                why.to_string(),
                "expected: values for In and NotIn, none for the others",
            );
            None
        }
    }
}

fn operator(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<Operator> {
    match text(node, path, "In, NotIn, Exists or DoesNotExist", scribe)? {
        "In" => Some(Operator::In),
        "NotIn" => Some(Operator::NotIn),
        "Exists" => Some(Operator::Exists),
        "DoesNotExist" => Some(Operator::DoesNotExist),
        other => {
            scribe.wrong(
                node.at,
                path,
                format!("unknown operator {other:?}"),
                known_words(other, &OPERATORS),
            );
            None
        }
    }
}

fn cluster(fields: &mut Fields<'_>, scribe: &mut Scribe<'_>) -> Read {
    let metadata = fields.demand("metadata", "{ name: ..., labels: {} }", scribe);
    let spec = fields.take("spec").and_then(|node| footprint::spec(node, scribe));
    let Some(mut metadata) = metadata.and_then(|node| Fields::open(node, "metadata", scribe)) else {
        return (None, None);
    };
    let name = metadata.demand("name", NAME, scribe).and_then(|n| parsed(n, "metadata.name", NAME, scribe));
    let labels = metadata.take("labels").map(|n| labels(n, "metadata.labels", scribe)).unwrap_or_default();
    metadata.close(scribe);
    let footprint = spec.unwrap_or_default().into();
    (name, Some(Declaration::Cluster(OfCluster { labels, footprint })))
}

fn fleet(fields: &mut Fields<'_>, scribe: &mut Scribe<'_>) -> Read {
    let name = name(fields, scribe);
    let spec = fields.demand("spec", "{ footprint: ... }", scribe);
    let spec = spec.and_then(|node| footprint::spec(node, scribe));
    (name, spec.map(|spec| Declaration::Fleet(spec.into())))
}
