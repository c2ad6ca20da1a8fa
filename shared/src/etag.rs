//! The `ETag` of `GET /v1/desired`: epoch, then sequence and a short digest of roster and group.
//!
//! Any replica learns from it what the agent holds: `"1.17-0123abcd.42-89ab0123"`.

use std::fmt;
use std::str::FromStr;

/// One document, as an `ETag` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Its sequence.
    pub sequence: u64,
    /// The first eight hexadecimal digits of its envelope's digest.
    pub short: String,
}

/// What an agent holds, or what a hub would send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredTag {
    /// The epoch of both.
    pub epoch: u64,
    /// The roster.
    pub roster: Mark,
    /// The group document.
    pub group: Mark,
}

/// A text that is not such an `ETag`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an ETag of this hub")]
pub struct BadTag;

impl fmt::Display for DesiredTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, roster, group } = self;
        write!(f, "\"{epoch}.{}-{}.{}-{}\"", roster.sequence, roster.short, group.sequence, group.short)
    }
}

impl FromStr for Mark {
    type Err = BadTag;

    fn from_str(text: &str) -> Result<Self, BadTag> {
        let (sequence, short) = text.split_once('-').ok_or(BadTag)?;
        if short.len() != 8 || !short.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(BadTag);
        }
        Ok(Self { sequence: sequence.parse().map_err(|_| BadTag)?, short: short.to_owned() })
    }
}

impl FromStr for DesiredTag {
    type Err = BadTag;

    fn from_str(text: &str) -> Result<Self, BadTag> {
        let text = text.strip_prefix("W/").unwrap_or(text);
        let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).ok_or(BadTag)?;
        let mut parts = text.split('.');
        let (Some(epoch), Some(roster), Some(group), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(BadTag);
        };
        Ok(Self { epoch: epoch.parse().map_err(|_| BadTag)?, roster: roster.parse()?, group: group.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_reads_back_what_it_prints() {
        let text = "\"1.17-0123abcd.42-89ab0123\"";
        let tag: DesiredTag = text.parse().expect("a tag");
        assert_eq!(tag.to_string(), text);
        assert_eq!(format!("W/{text}").parse(), Ok(tag));
        for bad in
            ["", "\"\"", "1.17-0123abcd.42-89ab0123", "\"1.17.42\"", "\"1.17-0123abcd.42-89ab0123.x\"", "*"]
        {
            assert_eq!(bad.parse::<DesiredTag>(), Err(BadTag), "{bad:?}");
        }
    }
}
