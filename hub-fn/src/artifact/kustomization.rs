//! What one kustomization refers to. It is not validated here: kustomize does that at the site.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{BadPath, ReadError, TreePath};

/// The file names by which kustomize knows a kustomization.
pub(super) const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// How deeply a kustomization may be nested.
const DEPTH_LIMIT: usize = 64;

/// Fields of which every scalar must be a path: what is missing there fails at the site for certain.
const PATH_FIELDS: [&str; 5] = ["resources", "bases", "components", "crds", "configurations"];

/// Fields whose scalars are paths or inline YAML.
const PATH_OR_INLINE_FIELDS: [&str; 4] =
    ["generators", "transformers", "validators", "patchesStrategicMerge"];

/// Whether a scalar must name something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It is a path of something that must exist.
    Path,
    /// Kustomize loads it if it is not inline.
    Load,
    /// It may be a path.
    Perhaps,
}

/// A scalar, and what its place says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scalar {
    pub(super) role: Role,
    pub(super) text: String,
}

/// Every scalar of a kustomization.
pub(super) fn scalars(bytes: &[u8]) -> Result<Vec<Scalar>, ReadError> {
    let text = str::from_utf8(bytes)?;
    let mut found = Vec::new();
    serde_saphyr::with_deserializer_from_str(text, |de| {
        Collect { place: Place::default(), depth: 0, found: &mut found }.deserialize(de)
    })?;
    Ok(found)
}

/// Whether kustomize would look for this on the network.
pub(super) fn is_remote(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let scp = |head: &str| !head.is_empty() && !head.contains('/');
    lower.contains("://")
        || lower.contains("?ref=")
        || ["git@", "git::", "github.com/", "github.com:", "gitlab.com/", "bitbucket.org/", "gh:"]
            .iter()
            .any(|start| lower.starts_with(start))
        || lower
            .split_once(':')
            .is_some_and(|(head, rest)| scp(head) && head.contains('.') && !rest.is_empty())
}

/// The path that a scalar in a kustomization of this folder names, if it can be one.
///
/// # Errors
/// [`BadPath`] if it leaves the repository or cannot be a path.
pub(super) fn resolve(folder: &TreePath, text: &str) -> Result<TreePath, BadPath> {
    if text.starts_with('/') {
        return Err(BadPath::Absolute(text.to_owned()));
    }
    let mut parts: Vec<&str> = folder.parts().collect();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or_else(|| BadPath::Part(text.to_owned()))?;
            }
            part => parts.push(part),
        }
    }
    parts.join("/").parse()
}

/// The keys that led here: the first and the last.
#[derive(Clone, Default)]
struct Place {
    top: String,
    last: String,
}

impl Place {
    fn role(&self) -> Role {
        let (top, last) = (self.top.as_str(), self.last.as_str());
        let listed = top == last;
        if listed && PATH_FIELDS.contains(&top) || top == "openapi" && last == "path" {
            return Role::Path;
        }
        let patch = matches!(top, "patches" | "patchesJson6902" | "replacements") && last == "path";
        let generator = matches!(top, "configMapGenerator" | "secretGenerator")
            && matches!(last, "files" | "envs" | "env");
        let chart = matches!(top, "helmCharts" | "helmChartInflationGenerator")
            && matches!(last, "repo" | "chartRepoUrl" | "valuesFile" | "additionalValuesFiles");
        if listed && PATH_OR_INLINE_FIELDS.contains(&top) || patch || generator || chart {
            Role::Load
        } else {
            Role::Perhaps
        }
    }
}

struct Collect<'a> {
    place: Place,
    depth: usize,
    found: &'a mut Vec<Scalar>,
}

impl<'a> Collect<'a> {
    fn below<'b>(&'b mut self, place: Place) -> Collect<'b>
    where
        'a: 'b,
    {
        Collect { place, depth: self.depth + 1, found: self.found }
    }
}

impl<'de> DeserializeSeed<'de> for Collect<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        if self.depth > DEPTH_LIMIT {
            return Err(serde::de::Error::custom(format_args!("nested more than {DEPTH_LIMIT} deep")));
        }
        de.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Collect<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.found.push(Scalar { role: self.place.role(), text: text.to_owned() });
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i128<E>(self, _: i128) -> Result<(), E> {
        Ok(())
    }

    fn visit_u128<E>(self, _: u128) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<(), D::Error> {
        de.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let place = self.place.clone();
        while items.next_element_seed(self.below(place.clone()))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = fields.next_key::<Key>()? {
            let Key(last) = key;
            let top = if self.depth == 0 { last.clone() } else { self.place.top.clone() };
            fields.next_value_seed(self.below(Place { top, last }))?;
        }
        Ok(())
    }
}

/// A key that may be anything; only text matters.
struct Key(String);

impl<'de> serde::Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, text: &str) -> Result<Key, E> {
                Ok(Key(text.to_owned()))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Key, E> {
                Ok(Key(String::new()))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Key, E> {
                Ok(Key(String::new()))
            }

            fn visit_u64<E>(self, _: u64) -> Result<Key, E> {
                Ok(Key(String::new()))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Key, E> {
                Ok(Key(String::new()))
            }

            fn visit_unit<E>(self) -> Result<Key, E> {
                Ok(Key(String::new()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Key, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Key(String::new()))
            }
        }
        de.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scalar_is_found_with_what_its_place_says() {
        let found = scalars(
            b"resources:\n- ../base\n- a.yaml\npatches:\n- path: p.yaml\n  target: {kind: Deployment}\n\
              namePrefix: x-\nreplicas:\n- {name: a, count: 2}\n",
        )
        .expect("YAML");
        let of = |role| {
            found.iter().filter(|scalar| scalar.role == role).map(|s| s.text.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of(Role::Path), ["../base", "a.yaml"]);
        assert_eq!(of(Role::Load), ["p.yaml"]);
        assert_eq!(of(Role::Perhaps), ["Deployment", "x-", "a"]);
    }

    #[test]
    fn an_empty_or_odd_kustomization_has_no_scalars_and_broken_yaml_is_an_error() {
        assert_eq!(scalars(b"").expect("empty"), []);
        assert_eq!(scalars(b"1: 2\n2.5: ~\ntrue: [1]\n").expect("odd keys"), []);
        assert!(scalars(b"resources: [a.yaml\nnamePrefix: }").is_err());
        assert!(scalars(b"\xff\xfe").is_err());
    }

    #[test]
    fn a_reference_is_relative_to_its_folder_and_stays_in_the_repository() {
        let folder: TreePath = "apps/prod".parse().expect("a path");
        let at = |text| resolve(&folder, text).map(|path| path.as_str().to_owned());
        assert_eq!(at("../base"), Ok("apps/base".to_owned()));
        assert_eq!(at("./a/../b.yaml"), Ok("apps/prod/b.yaml".to_owned()));
        assert_eq!(at("../.."), Ok(String::new()));
        assert!(at("../../..").is_err());
        assert!(at("/etc/passwd").is_err());
    }

    #[test]
    fn remote_references_are_known_by_how_kustomize_writes_them() {
        for remote in [
            "https://github.com/org/repo//deploy?ref=v1",
            "github.com/org/repo",
            "git@github.com:org/repo",
            "ssh://git@host/repo",
            "git.example.com:org/repo.git",
            "git::https://host/repo",
            "host/repo.git?ref=main",
        ] {
            assert!(is_remote(remote), "{remote} should be remote");
        }
        for local in ["../base", "a.yaml", "key=a.yaml", "deploy/github.com", "a:b"] {
            assert!(!is_remote(local), "{local} should be local");
        }
    }
}
