//! How one object is applied and removed, as its annotations and its service say. Pure.
//!
//! An object's own annotation wins over its service. Beside Farshore's annotations those are honoured
//! that users of other tools already have, where they mean the same; `docs/agent.md` lists them.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use farshore_shared::digest::Digest;
use farshore_shared::wire::{ApplyPolicy, Conflicts, ProtectedKind, PruneBudget};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::object::Manifest;

/// Takes fields that others own: `"true"` or `"false"`.
pub const FORCE_ANNOTATION: &str = "farshore.dev/force";
/// Deletes the object and makes it anew where a field cannot be changed: `"true"` or `"false"`.
pub const RECREATE_ANNOTATION: &str = "farshore.dev/recreate";
/// Takes the object over with all fields of who applied it before: `"true"` or `"false"`.
pub const ADOPT_ANNOTATION: &str = "farshore.dev/adopt";
/// Keeps the object when it leaves its service: `disabled`.
pub const PRUNE_ANNOTATION: &str = "farshore.dev/prune";
/// The label of what the agent itself is made of.
pub const AGENT_LABEL: &str = "farshore.dev/agent";

const FLUX_FORCE: &str = "kustomize.toolkit.fluxcd.io/force";
const FLUX_PRUNE: &str = "kustomize.toolkit.fluxcd.io/prune";
const HELM_POLICY: &str = "helm.sh/resource-policy";
const ARGO_OPTIONS: &str = "argocd.argoproj.io/sync-options";

/// The most fields of one object that are remembered.
const MARKS_LIMIT: usize = 1024;

/// How one object is to be applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// What happens where somebody else owns a field.
    pub conflicts: Conflicts,
    /// Whether it is deleted and made anew where a field cannot be changed.
    pub recreate: bool,
    /// Whether who applied it before is succeeded in everything.
    pub adopt: bool,
    /// What of it has been ours until now.
    pub owned: Owned,
    /// Which life of the name is listed as ours; none where no apply was confirmed.
    pub listed: Option<String>,
}

/// What of an object has been ours until now: who has taken such a field since has drifted it, and is not
/// asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Owned {
    /// It was never applied, or nobody remembers what it was.
    #[default]
    Unknown,
    /// This very manifest was applied.
    Everything,
    /// These fields were.
    Fields(FieldMarks),
    /// More fields were than are remembered: the object itself has to say which.
    TooMany,
}

impl Owned {
    /// Whether a field has been ours, by its path as the API writes it.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        match self {
            Self::Unknown | Self::TooMany => false,
            Self::Everything => true,
            Self::Fields(marks) => marks.has(path),
        }
    }
}

impl Terms {
    /// The terms of a manifest of a service.
    #[must_use]
    pub fn of(manifest: &Manifest, policy: ApplyPolicy, prune: PruneBudget) -> Self {
        let said = |key: &str| annotation(&manifest.body, key);
        let flag = |key: &str, default: bool| match said(key) {
            Some("true") => true,
            Some("false") => false,
            Some(_) | None => default,
        };
        let conflicts = match flag(FORCE_ANNOTATION, policy.conflicts == Conflicts::Force) {
            true => Conflicts::Force,
            false => Conflicts::Report,
        };
        let by_flux = said(FLUX_FORCE).is_some_and(|word| word.eq_ignore_ascii_case("enabled"));
        let by_argo = said(ARGO_OPTIONS).is_some_and(|options| has_option(options, "Force=true"));
        let key = &manifest.key;
        // With such an object goes more than itself, also when it comes back at once.
        let may = ProtectedKind::of(&key.group, &key.kind).is_none_or(|kind| prune.kinds.contains(kind));
        let recreate = may && flag(RECREATE_ANNOTATION, policy.recreate || by_flux || by_argo);
        let adopt = flag(ADOPT_ANNOTATION, policy.adopt);
        Self { conflicts, recreate, adopt, owned: Owned::Unknown, listed: None }
    }
}

/// Why an object is not removed when it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Guard {
    /// An annotation says that it stays.
    Kept,
    /// The agent is made of it.
    Agent,
}

impl Guard {
    /// What a manifest says of its own removal.
    #[must_use]
    pub fn of(manifest: &Manifest) -> Option<Self> {
        let label = manifest.body.pointer("/metadata/labels").and_then(|labels| labels.get(AGENT_LABEL));
        if keeps(|key| annotation(&manifest.body, key)) {
            return Some(Self::Kept);
        }
        label.is_some_and(|label| label == "true").then_some(Self::Agent)
    }
}

/// Whether annotations say that an object stays when it leaves its service.
#[must_use]
pub fn keeps_by(annotations: &BTreeMap<String, String>) -> bool {
    keeps(|key| annotations.get(key).map(String::as_str))
}

fn keeps<'a>(said: impl Fn(&str) -> Option<&'a str>) -> bool {
    let disabled = |key: &str| said(key).is_some_and(|word| word.eq_ignore_ascii_case("disabled"));
    let by_argo = |options: &str| has_option(options, "Prune=false") || has_option(options, "Delete=false");
    disabled(PRUNE_ANNOTATION)
        || disabled(FLUX_PRUNE)
        || said(HELM_POLICY).is_some_and(|word| word.eq_ignore_ascii_case("keep"))
        || said(ARGO_OPTIONS).is_some_and(by_argo)
}

fn annotation<'a>(body: &'a Value, key: &str) -> Option<&'a str> {
    body.pointer("/metadata/annotations")?.get(key)?.as_str()
}

fn has_option(options: &str, wanted: &str) -> bool {
    options.split(',').any(|option| option.trim() == wanted)
}

/// Which fields of an object are ours: a hash of each path, so that ten thousand objects stay small.
///
/// Two paths with one hash would make one of them look ours: one chance in four thousand million for each
/// pair.
#[derive(Clone, PartialEq, Eq)]
pub struct FieldMarks(Marks);

#[derive(Clone, PartialEq, Eq)]
enum Marks {
    These(Box<[u32]>),
    TooMany,
}

/// How marks are written that are too many: no text of Base64.
const TOO_MANY: &str = "*";

impl Default for FieldMarks {
    fn default() -> Self {
        Self(Marks::These(Box::default()))
    }
}

impl FieldMarks {
    /// The marks of these paths; only that there are too many, where they are too many to remember.
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let Self(marks) = Self::of_all(paths.into_iter().take(MARKS_LIMIT + 1));
        match marks {
            Marks::These(marks) if marks.len() <= MARKS_LIMIT => Self(Marks::These(marks)),
            Marks::These(_) | Marks::TooMany => Self(Marks::TooMany),
        }
    }

    /// The marks of these paths, however many: to be looked at and not to be remembered.
    pub fn of_all<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut marks: Vec<u32> = paths.into_iter().map(mark).collect();
        marks.sort_unstable();
        marks.dedup();
        Self(Marks::These(marks.into()))
    }

    /// Whether nothing is remembered, not even that there was too much.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Marks::These(marks) if marks.is_empty())
    }

    /// Whether there were more than are remembered.
    #[must_use]
    pub fn are_too_many(&self) -> bool {
        self.0 == Marks::TooMany
    }

    /// Whether a path is among those that are remembered.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        matches!(&self.0, Marks::These(marks) if marks.binary_search(&mark(path)).is_ok())
    }
}

fn mark(path: &str) -> u32 {
    let [a, b, c, d, ..] = *Digest::of(path.as_bytes()).as_bytes();
    u32::from_be_bytes([a, b, c, d])
}

impl fmt::Debug for FieldMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Marks::These(marks) => write!(f, "{} fields", marks.len()),
            Marks::TooMany => write!(f, "over {MARKS_LIMIT} fields"),
        }
    }
}

impl Serialize for FieldMarks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Marks::These(marks) = &self.0 else { return serializer.serialize_str(TOO_MANY) };
        let bytes: Vec<u8> = marks.iter().flat_map(|mark| mark.to_be_bytes()).collect();
        serializer.serialize_str(&STANDARD_NO_PAD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for FieldMarks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == TOO_MANY {
            return Ok(Self(Marks::TooMany));
        }
        let bytes = STANDARD_NO_PAD.decode(text).map_err(serde::de::Error::custom)?;
        let (marks, []) = bytes.as_chunks::<4>() else {
            return Err(serde::de::Error::custom("marks have four bytes each"));
        };
        Ok(Self(Marks::These(marks.iter().map(|mark| u32::from_be_bytes(*mark)).collect())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest(kind: &str, annotations: &Value) -> Manifest {
        let body = json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": "a", "annotations": annotations}});
        Manifest::read(body, "test".into()).expect("a manifest")
    }

    fn terms(kind: &str, annotations: &Value, policy: ApplyPolicy) -> Terms {
        Terms::of(&manifest(kind, annotations), policy, PruneBudget::default())
    }

    #[test]
    fn nothing_is_forced_recreated_or_adopted_unless_somebody_says_so() {
        assert_eq!(terms("ConfigMap", &json!(null), ApplyPolicy::default()), Terms::default());
    }

    #[test]
    fn an_object_s_own_word_wins_over_that_of_its_service() {
        let all = ApplyPolicy { conflicts: Conflicts::Force, recreate: true, adopt: true };
        let yes = json!({FORCE_ANNOTATION: "true", RECREATE_ANNOTATION: "true", ADOPT_ANNOTATION: "true"});
        let no = json!({FORCE_ANNOTATION: "false", RECREATE_ANNOTATION: "false", ADOPT_ANNOTATION: "false"});
        let everything =
            Terms { conflicts: Conflicts::Force, recreate: true, adopt: true, ..Terms::default() };
        assert_eq!(terms("ConfigMap", &json!({}), all), everything);
        assert_eq!(terms("ConfigMap", &yes, ApplyPolicy::default()), everything);
        assert_eq!(terms("ConfigMap", &no, all), Terms::default());
        assert_eq!(terms("ConfigMap", &json!({FORCE_ANNOTATION: "yes"}), all).conflicts, Conflicts::Force);
    }

    #[test]
    fn flux_and_argo_ask_for_a_new_object_in_their_own_words() {
        for asked in [
            json!({"kustomize.toolkit.fluxcd.io/force": "Enabled"}),
            json!({"argocd.argoproj.io/sync-options": "Validate=false, Force=true"}),
        ] {
            let terms = terms("Job", &asked, ApplyPolicy::default());
            assert!(terms.recreate && terms.conflicts == Conflicts::Report, "{asked}");
        }
    }

    #[test]
    fn what_is_protected_is_made_anew_only_where_its_kind_is_named() {
        let asked = manifest("PersistentVolumeClaim", &json!({RECREATE_ANNOTATION: "true"}));
        let unnamed = PruneBudget::default();
        let kinds = [ProtectedKind::PersistentVolumeClaim].into_iter().collect();
        let named = PruneBudget { kinds, ..unnamed };
        assert!(!Terms::of(&asked, ApplyPolicy::default(), unnamed).recreate);
        assert!(Terms::of(&asked, ApplyPolicy::default(), named).recreate);
    }

    #[test]
    fn every_way_to_keep_an_object_is_honoured() {
        for (asked, guard) in [
            (json!({"farshore.dev/prune": "disabled"}), Some(Guard::Kept)),
            (json!({"kustomize.toolkit.fluxcd.io/prune": "disabled"}), Some(Guard::Kept)),
            (json!({"helm.sh/resource-policy": "keep"}), Some(Guard::Kept)),
            (json!({"argocd.argoproj.io/sync-options": "Prune=false"}), Some(Guard::Kept)),
            (json!({"argocd.argoproj.io/sync-options": "Force=true,Delete=false"}), Some(Guard::Kept)),
            (json!({"farshore.dev/prune": "enabled"}), None),
            (json!({}), None),
        ] {
            assert_eq!(Guard::of(&manifest("ConfigMap", &asked)), guard, "{asked}");
            let annotations = serde_json::from_value(asked).expect("texts");
            assert_eq!(keeps_by(&annotations), guard.is_some());
        }
        let mut agent = manifest("Deployment", &json!({}));
        agent.body["metadata"]["labels"] = json!({AGENT_LABEL: "true"});
        assert_eq!(Guard::of(&agent), Some(Guard::Agent));
    }

    #[test]
    fn marks_know_the_fields_that_they_were_made_of() {
        let marks = FieldMarks::of([".data.a", ".spec.containers[name=\"a\"].image"]);
        assert!(marks.has(".data.a") && !marks.has(".data.b"));
        let written = serde_json::to_value(&marks).expect("JSON");
        assert_eq!(serde_json::from_value::<FieldMarks>(written).expect("marks"), marks);
        assert!(serde_json::from_value::<FieldMarks>(json!("AAAA")).is_err());
        let many: Vec<String> = (0..=MARKS_LIMIT).map(|n| format!(".data.k{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let too_many = FieldMarks::of(many.iter().copied());
        assert!(too_many.are_too_many() && !too_many.is_empty() && !too_many.has(".data.k1"));
        let written = serde_json::to_value(&too_many).expect("JSON");
        assert_eq!(serde_json::from_value::<FieldMarks>(written).expect("marks"), too_many);
        let most = FieldMarks::of(many[1..].iter().copied());
        assert!(!most.are_too_many() && most.has(".data.k1"));
        assert!(FieldMarks::of_all(many).has(".data.k1024"));
    }
}
