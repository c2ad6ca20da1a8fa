//! Names, parsed once at the edge into types that cannot hold a wrong value.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The longest [`Name`], in bytes.
///
/// It is the length of an RFC 1123 label, so that every name fits a Kubernetes label value and a
/// path component.
pub const NAME_LIMIT: usize = 63;

/// A name of a cluster, service or source: an RFC 1123 label.
///
/// Lower-case letters, digits and `-`; it begins and ends with a letter or digit; at most
/// [`NAME_LIMIT`] bytes. Names that differ only in case cannot both exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Why a text is not a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Nothing was there.
    #[error("a name cannot be empty")]
    Empty,
    /// More bytes than [`NAME_LIMIT`].
    #[error("a name has at most {NAME_LIMIT} bytes (this one has {0})")]
    TooLong(usize),
    /// A character that an RFC 1123 label does not have.
    #[error(
        "a name has lower-case letters, digits and '-' only, and begins and ends with a letter or digit (got {0:?})"
    )]
    BadCharacter(String),
}

impl Name {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        if text.is_empty() {
            return Err(BadName::Empty);
        }
        if text.len() > NAME_LIMIT {
            return Err(BadName::TooLong(text.len()));
        }
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if !text.bytes().all(inner) || text.starts_with('-') || text.ends_with('-') {
            return Err(BadName::BadCharacter(text));
        }
        Ok(Self(text))
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": NAME_LIMIT,
            "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
            "description": "An RFC 1123 label."
        })
    }
}

/// A label key as Kubernetes has it: an optional DNS prefix, `/`, and a name of at most 63 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabelKey(String);

/// A label value as Kubernetes has it: empty, or at most 63 bytes of letters, digits, `-`, `_`, `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabelValue(String);

/// The labels of a cluster.
pub type Labels = BTreeMap<LabelKey, LabelValue>;

/// Why a text is not a label key or value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLabel {
    /// Not a label key.
    #[error(
        "a label key is an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit (got {0:?})"
    )]
    Key(String),
    /// Not a label value.
    #[error(
        "a label value is empty or at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit (got {0:?})"
    )]
    Value(String),
    /// No `=` in what should be `KEY=VALUE`.
    #[error("a label is written KEY=VALUE (got {0:?})")]
    Pair(String),
}

fn qualified(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= 63 && text.bytes().all(inner) && ends(text.bytes().next()) && ends(text.bytes().last())
}

fn dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| Name::from_str(label).is_ok())
}

impl TryFrom<String> for LabelKey {
    type Error = BadLabel;

    fn try_from(text: String) -> Result<Self, BadLabel> {
        let good = match text.split_once('/') {
            Some((prefix, name)) => dns_subdomain(prefix) && qualified(name),
            None => qualified(&text),
        };
        if good { Ok(Self(text)) } else { Err(BadLabel::Key(text)) }
    }
}

impl TryFrom<String> for LabelValue {
    type Error = BadLabel;

    fn try_from(text: String) -> Result<Self, BadLabel> {
        if text.is_empty() || qualified(&text) { Ok(Self(text)) } else { Err(BadLabel::Value(text)) }
    }
}

macro_rules! label_text {
    ($type:ident, $pattern:literal, $limit:literal) => {
        impl $type {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = BadLabel;

            fn from_str(text: &str) -> Result<Self, BadLabel> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$type> for String {
            fn from(label: $type) -> Self {
                label.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "maxLength": $limit, "pattern": $pattern })
            }
        }
    };
}

label_text!(LabelKey, "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", 317);
label_text!(LabelValue, "^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$", 63);

/// Reads one `KEY=VALUE` as a command line has it.
///
/// # Errors
/// [`BadLabel`], naming what is wrong with which half.
pub fn label_pair(text: &str) -> Result<(LabelKey, LabelValue), BadLabel> {
    let (key, value) = text.split_once('=').ok_or_else(|| BadLabel::Pair(text.to_owned()))?;
    Ok((key.parse()?, value.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_an_rfc_1123_label() {
        for good in ["a", "shop-7", "0", "a".repeat(63).as_str()] {
            assert!(good.parse::<Name>().is_ok(), "{good:?} should be a name");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "../a", "a\0", "ä", "a".repeat(64).as_str()] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?} should not be a name");
        }
    }

    #[test]
    fn a_label_key_may_have_a_dns_prefix() {
        for good in ["tier", "example.com/tier", "a_b.c", "Region"] {
            assert!(good.parse::<LabelKey>().is_ok(), "{good:?} should be a key");
        }
        for bad in ["", "/tier", "Example.com/tier", "a/b/c", "-a", "a b"] {
            assert!(bad.parse::<LabelKey>().is_err(), "{bad:?} should not be a key");
        }
    }

    #[test]
    fn a_label_pair_is_split_at_the_first_equals_sign() {
        let (key, value) = label_pair("tier=edge").expect("a good pair");
        assert_eq!((key.as_str(), value.as_str()), ("tier", "edge"));
        assert_eq!(label_pair("tier"), Err(BadLabel::Pair("tier".into())));
        assert!(matches!(label_pair("tier=a=b"), Err(BadLabel::Value(_))));
    }
}
