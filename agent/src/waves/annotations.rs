//! What the annotations of one manifest say of its turn: ours, and those that people already have. Pure.
//!
//! The meaning follows the documents of each tool: Argo CD 3 ("Sync Phases and Waves", "Resource Hooks"),
//! Helm 3 ("Chart Hooks", "Chart Tests") and Flux 2 ("Kustomization": "Controlling the apply behavior of
//! resources"). Where two say something of one object, ours counts first, then Argo CD's, then Helm's, as
//! Argo CD has it. `docs/agent.md` tells users what is read.

use serde_json::Value;

use super::{Keeping, Occasion, Phase, Place, kinds};
use crate::object::Manifest;

/// The wave of an object: a whole number, 0 unless said.
pub const WAVE: &str = "farshore.dev/wave";
/// Whether an object is a test of the service: `"true"` or `"false"`.
pub const TEST: &str = "farshore.dev/test";
const ARGO_WAVE: &str = "argocd.argoproj.io/sync-wave";
const ARGO_HOOK: &str = "argocd.argoproj.io/hook";
const ARGO_DELETION: &str = "argocd.argoproj.io/hook-delete-policy";
const HELM_HOOK: &str = "helm.sh/hook";
const HELM_WEIGHT: &str = "helm.sh/hook-weight";
const HELM_DELETION: &str = "helm.sh/hook-delete-policy";
const FLUX_RECONCILE: &str = "kustomize.toolkit.fluxcd.io/reconcile";
const FLUX_SSA: &str = "kustomize.toolkit.fluxcd.io/ssa";

/// What is to be done with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// It is kept in place.
    Member {
        /// From when on.
        place: Place,
        /// Whether its manifest is enforced.
        keeping: Keeping,
    },
    /// It runs once in every revision.
    Hook {
        /// When; more than once where it names more than one phase.
        places: Vec<Place>,
        /// When it is removed.
        deletion: Deletion,
    },
    /// It is not written, and it is not removed either.
    LeftAlone,
}

/// When the object of a hook is removed. Whatever is said here, what is left of an earlier run goes
/// before the next one: nothing could run under its name otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deletion {
    /// After it succeeded.
    pub after_success: bool,
    /// After it failed.
    pub after_failure: bool,
}

/// Whether an object runs once in a revision and is not kept, as far as its annotations can be read.
#[must_use]
pub fn is_hook(body: &Value) -> bool {
    [TEST, ARGO_HOOK, HELM_HOOK].into_iter().any(|name| annotation(body, name).is_some())
}

/// Whether an object that is kept is only made where it is missing, and then left to others.
#[must_use]
pub fn is_made_once(body: &Value) -> bool {
    is_said(body, FLUX_SSA, "ifnotpresent")
}

/// The place of an object that is to be written.
#[must_use]
pub fn place(manifest: &Manifest) -> Place {
    match read(manifest, Occasion::Install) {
        Ok(Role::Member { place, .. }) => place,
        Ok(Role::Hook { places, .. }) => places.first().copied().unwrap_or(Place::DEFAULT),
        // What is not understood is not written at all.
        Ok(Role::LeftAlone) | Err(_) => Place::DEFAULT,
    }
}

/// Reads what a manifest says.
///
/// # Errors
/// What cannot be read, and what would be right: it is that object's error alone.
pub fn read(manifest: &Manifest, occasion: Occasion) -> Result<Role, String> {
    let body = &manifest.body;
    if is_said(body, FLUX_RECONCILE, "disabled") || is_said(body, FLUX_SSA, "ignore") {
        return Ok(Role::LeftAlone);
    }
    let wave = wave(body)?;
    if is_test(body)? {
        let place = Place { phase: Phase::Test, wave };
        return Ok(Role::Hook { places: vec![place], deletion: deletion(body)? });
    }
    if let Some(hooks) = list(body, ARGO_HOOK)? {
        return hook(&hooks, argo_phase, wave, body);
    }
    if let Some(hooks) = list(body, HELM_HOOK)? {
        return hook(&hooks, |name| helm_phase(name, occasion), wave, body);
    }
    let is_explicit = text(body, WAVE)?.is_some() || text(body, ARGO_WAVE)?.is_some();
    let place = match kinds::is_needed_first(&manifest.key) && !is_explicit {
        true => Place::FIRST,
        false => Place { phase: Phase::Sync, wave },
    };
    let keeping = if is_made_once(body) { Keeping::MadeOnce } else { Keeping::Enforced };
    Ok(Role::Member { place, keeping })
}

/// What one word of a hook's annotation asks for.
enum Word {
    In(Phase),
    /// An object like any other.
    Member,
    /// Not now, or never here.
    Passed,
}

fn hook(
    words: &[&str],
    phase: impl Fn(&str) -> Result<Word, String>,
    wave: i32,
    body: &Value,
) -> Result<Role, String> {
    let (mut places, mut is_member) = (vec![], false);
    for word in words {
        match phase(word)? {
            Word::In(phase) => places.push(Place { phase, wave }),
            Word::Member => is_member = true,
            Word::Passed => {}
        }
    }
    if is_member {
        return Ok(Role::Member { place: Place::FIRST, keeping: Keeping::Enforced });
    }
    places.sort_unstable();
    places.dedup();
    match places.is_empty() {
        true => Ok(Role::LeftAlone),
        false => Ok(Role::Hook { places, deletion: deletion(body)? }),
    }
}

fn argo_phase(word: &str) -> Result<Word, String> {
    Ok(match word {
        "PreSync" => Word::In(Phase::PreSync),
        "Sync" => Word::In(Phase::Sync),
        "PostSync" => Word::In(Phase::PostSync),
        // Nothing of ours happens when these would run: a removal is a tombstone's, and a failure is told.
        "Skip" | "SyncFail" | "PreDelete" | "PostDelete" => Word::Passed,
        other => {
            return Err(unknown(
                ARGO_HOOK,
                other,
                "PreSync, Sync, PostSync, Skip, SyncFail, PreDelete or PostDelete",
            ));
        }
    })
}

fn helm_phase(word: &str, occasion: Occasion) -> Result<Word, String> {
    let only = |wanted: Occasion, phase: Phase| {
        if occasion == wanted { Word::In(phase) } else { Word::Passed }
    };
    Ok(match word {
        "pre-install" => only(Occasion::Install, Phase::PreSync),
        "pre-upgrade" => only(Occasion::Upgrade, Phase::PreSync),
        "post-install" => only(Occasion::Install, Phase::PostSync),
        "post-upgrade" => only(Occasion::Upgrade, Phase::PostSync),
        "test" | "test-success" => Word::In(Phase::Test),
        // Helm 2 made definitions so.
        "crd-install" => Word::Member,
        // Going back runs no hooks, nor does a removal; a test that has to fail is none of Helm 3.
        "pre-delete" | "post-delete" | "pre-rollback" | "post-rollback" | "test-failure" => Word::Passed,
        other => {
            let known = "pre-install, post-install, pre-upgrade, post-upgrade, test, pre-delete, post-delete, pre-rollback or post-rollback";
            return Err(unknown(HELM_HOOK, other, known));
        }
    })
}

fn wave(body: &Value) -> Result<i32, String> {
    // A weight orders hooks; beside no hook Helm does not look at it.
    let weight = annotation(body, HELM_HOOK).map(|_| HELM_WEIGHT);
    for name in [Some(WAVE), Some(ARGO_WAVE), weight].into_iter().flatten() {
        if let Some(text) = text(body, name)? {
            let bad = || {
                format!(
                    "annotation {name} is not a whole number from -2147483648 to 2147483647 (got {text:?})"
                )
            };
            return text.trim().parse().map_err(|_: std::num::ParseIntError| bad());
        }
    }
    Ok(0)
}

fn is_test(body: &Value) -> Result<bool, String> {
    match text(body, TEST)? {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(unknown(TEST, other, "\"true\" or \"false\"")),
    }
}

fn deletion(body: &Value) -> Result<Deletion, String> {
    let mut deletion = Deletion::default();
    for name in [ARGO_DELETION, HELM_DELETION] {
        let Some(words) = list(body, name)? else { continue };
        for word in words {
            match word {
                "HookSucceeded" | "hook-succeeded" => deletion.after_success = true,
                "HookFailed" | "hook-failed" => deletion.after_failure = true,
                "BeforeHookCreation" | "before-hook-creation" => {}
                other => {
                    return Err(unknown(
                        name,
                        other,
                        "before-hook-creation, hook-succeeded or hook-failed (Argo CD: BeforeHookCreation, HookSucceeded or HookFailed)",
                    ));
                }
            }
        }
        break;
    }
    Ok(deletion)
}

fn unknown(annotation: &str, word: &str, known: &str) -> String {
    let word: String = word.chars().take(80).collect();
    format!("annotation {annotation} is not understood (got {word:?}): expected {known}")
}

fn annotation<'a>(body: &'a Value, name: &str) -> Option<&'a Value> {
    body.get("metadata")?.get("annotations")?.get(name).filter(|value| !value.is_null())
}

/// An annotation. One that is no text would be refused by the API anyway, with a longer message.
fn text<'a>(body: &'a Value, name: &str) -> Result<Option<&'a str>, String> {
    match annotation(body, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("annotation {name} is not a text: quote it")),
    }
}

/// The words between the commas of an annotation.
fn list<'a>(body: &'a Value, name: &str) -> Result<Option<Vec<&'a str>>, String> {
    let text = text(body, name)?;
    Ok(text.map(|text| text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect()))
}

/// Flux reads its own words in annotations and labels, in any case.
fn is_said(body: &Value, name: &str, word: &str) -> bool {
    let metadata = body.get("metadata");
    let said = |map: &str| metadata?.get(map)?.get(name)?.as_str();
    ["annotations", "labels"].into_iter().filter_map(said).any(|text| text.eq_ignore_ascii_case(word))
}
