//! What a service says of health, out of its document.

use farshore_shared::wire::{EXPRESSION_LIMIT, HealthRule, OnFailure, RULES_LIMIT};

use super::fields::{Fields, Scribe, items, text};
use super::mistake::known_words;
use super::yaml::Node;

const WORDS: [&str; 2] = ["hold", "revert"];
const API: &str = "the API of the kind, such as shop.example/v1";
const EXPRESSION: &str =
    "an expression in CEL that is true or false, such as status.phase == \"Open\", of at most 1024 bytes";

/// `spec.onFailure`.
pub(super) fn on_failure(node: &Node, scribe: &mut Scribe<'_>) -> Option<OnFailure> {
    match text(node, "spec.onFailure", "hold or revert", scribe)? {
        "hold" => Some(OnFailure::Hold),
        "revert" => Some(OnFailure::Revert),
        other => {
            scribe.wrong(
                node.at,
                "spec.onFailure",
                format!("unknown word {other:?}"),
                known_words(other, &WORDS),
            );
            None
        }
    }
}

/// `spec.health`.
pub(super) fn rules(node: &Node, scribe: &mut Scribe<'_>) -> Vec<HealthRule> {
    let rules = items(node, "spec.health", "rules of health", scribe);
    if rules.len() > RULES_LIMIT {
        let what = format!("there are {} rules", rules.len());
        scribe.wrong(node.at, "spec.health", what, format!("expected: at most {RULES_LIMIT}"));
        return vec![];
    }
    rules.iter().filter_map(|(path, item)| rule(item, path, scribe)).collect()
}

fn rule(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<HealthRule> {
    let mut fields = Fields::open(node, path, scribe)?;
    let (api_at, kind_at) = (fields.path("apiVersion"), fields.path("kind"));
    let api_version = fields.demand("apiVersion", API, scribe).and_then(|n| filled(n, &api_at, API, scribe));
    let kind = fields.demand("kind", "a kind", scribe).and_then(|n| filled(n, &kind_at, "a kind", scribe));
    let mut optional = |name: &'static str, scribe: &mut Scribe<'_>| {
        let at = fields.path(name);
        fields.take(name).map(|node| expression(node, &at, scribe))
    };
    let (in_progress, failed) = (optional("inProgress", scribe), optional("failed", scribe));
    let at = fields.path("current");
    let current = fields.demand("current", EXPRESSION, scribe).and_then(|n| expression(n, &at, scribe));
    fields.close(scribe);
    Some(HealthRule {
        api_version: api_version?,
        kind: kind?,
        in_progress: in_progress.flatten(),
        failed: failed.flatten(),
        current: current?,
    })
}

fn filled(node: &Node, path: &str, right: &str, scribe: &mut Scribe<'_>) -> Option<String> {
    let written = text(node, path, right, scribe)?;
    if written.trim().is_empty() {
        scribe.wrong(node.at, path, "the text is empty", format!("expected: {right}"));
        return None;
    }
    Some(written.to_owned())
}

/// Whether it is CEL is seen at the site, by the one who evaluates it.
fn expression(node: &Node, path: &str, scribe: &mut Scribe<'_>) -> Option<String> {
    let written = filled(node, path, EXPRESSION, scribe)?;
    if written.len() > EXPRESSION_LIMIT {
        let what = format!("the expression is too long ({} bytes, limit {EXPRESSION_LIMIT})", written.len());
        scribe.wrong(node.at, path, what, format!("expected: {EXPRESSION}"));
        return None;
    }
    Some(written)
}
