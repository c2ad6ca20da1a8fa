//! Commits and branches, by name.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The longest branch name, in bytes.
const BRANCH_LIMIT: usize = 250;

/// The id of a Git commit; as text, 40 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommitId([u8; 20]);

/// A text that is not 40 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a commit is 40 lower-case hexadecimal digits (got {0:?})")]
pub struct BadCommit(String);

impl CommitId {
    /// The first 10 hexadecimal digits, for people.
    #[must_use]
    pub fn short(&self) -> String {
        hex::encode(&self.0[..5])
    }

    pub(super) fn of(id: &gix::hash::oid) -> Self {
        let mut bytes = [0; 20];
        bytes.copy_from_slice(id.as_bytes());
        Self(bytes)
    }

    pub(super) fn object(&self) -> gix::ObjectId {
        gix::ObjectId::Sha1(self.0)
    }
}

impl FromStr for CommitId {
    type Err = BadCommit;

    fn from_str(text: &str) -> Result<Self, BadCommit> {
        let lower = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let mut bytes = [0; 20];
        match hex::decode_to_slice(text, &mut bytes) {
            Ok(()) if lower => Ok(Self(bytes)),
            Ok(()) | Err(_) => Err(BadCommit(text.chars().take(80).collect())),
        }
    }
}

impl TryFrom<String> for CommitId {
    type Error = BadCommit;

    fn try_from(text: String) -> Result<Self, BadCommit> {
        text.parse()
    }
}

impl From<CommitId> for String {
    fn from(commit: CommitId) -> Self {
        commit.to_string()
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex::encode(self.0))
    }
}

impl fmt::Debug for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "commit:{}", self.short())
    }
}

/// Which branch of a repository is followed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Branch {
    /// The one that the repository's `HEAD` names; as text, empty.
    #[default]
    Default,
    /// The one of this name, below `refs/heads/`.
    Named(BranchName),
}

/// A name that Git accepts for a branch, without `refs/heads/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchName(String);

impl BranchName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that Git does not accept as the name of a branch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a branch is named without refs/heads/, in at most {BRANCH_LIMIT} bytes that Git accepts (got {0:?}; see git-check-ref-format)"
)]
pub struct BadBranch(String);

impl Branch {
    /// The name, unless it is whatever the repository's `HEAD` names.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Default => None,
            Self::Named(name) => Some(&name.0),
        }
    }
}

impl FromStr for Branch {
    type Err = BadBranch;

    fn from_str(text: &str) -> Result<Self, BadBranch> {
        if text.is_empty() {
            return Ok(Self::Default);
        }
        let full = format!("refs/heads/{text}");
        let good = text.len() <= BRANCH_LIMIT
            && !text.starts_with("refs/")
            && !text.starts_with('-')
            && gix::validate::reference::name(full.as_str().into()).is_ok();
        if good {
            Ok(Self::Named(BranchName(text.to_owned())))
        } else {
            Err(BadBranch(text.chars().take(80).collect()))
        }
    }
}

impl TryFrom<String> for Branch {
    type Error = BadBranch;

    fn try_from(text: String) -> Result<Self, BadBranch> {
        text.parse()
    }
}

impl From<Branch> for String {
    fn from(branch: Branch) -> Self {
        branch.name().unwrap_or_default().to_owned()
    }
}

impl fmt::Display for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name().unwrap_or("HEAD"))
    }
}

impl JsonSchema for Branch {
    fn schema_name() -> Cow<'static, str> {
        "Branch".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": BRANCH_LIMIT,
            "description": "A branch, without refs/heads/; the repository's default branch if empty."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_reads_back_what_it_prints() {
        let text = "0123456789abcdef0123456789abcdef01234567";
        let commit: CommitId = text.parse().expect("a commit");
        assert_eq!(commit.to_string(), text);
        for bad in ["", "0123", &text.to_uppercase(), &format!("{text}0")] {
            assert!(bad.parse::<CommitId>().is_err(), "{bad:?} should not be a commit");
        }
    }

    #[test]
    fn a_branch_is_what_git_accepts_below_heads() {
        assert_eq!("".parse(), Ok(Branch::Default));
        for good in ["main", "release/1.2", "ä"] {
            assert_eq!(good.parse::<Branch>().expect("a branch").name(), Some(good));
        }
        for bad in ["refs/heads/main", "a..b", "a b", "a*", "a:b", "^a", "-a", "a/", "a.lock", "a\0"] {
            assert!(bad.parse::<Branch>().is_err(), "{bad:?} should not be a branch");
        }
    }
}
