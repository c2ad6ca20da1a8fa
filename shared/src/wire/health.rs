//! What a service entry says of health, and what a status says of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::UnixSeconds;

/// The most rules of health that one service may bring.
pub const RULES_LIMIT: usize = 32;
/// The most bytes of one expression of a rule.
pub const EXPRESSION_LIMIT: usize = 1024;
/// How long a wave may be without progress unless the service says otherwise, in seconds.
pub const DEFAULT_TIMEOUT: u64 = 300;

/// What a site does when a new revision of a service is not healthy within its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// It stays where it is, and says so.
    #[default]
    Hold,
    /// It goes back to the revision that was healthy last, and says so.
    Revert,
}

impl OnFailure {
    /// Whether this is what a service that says nothing gets.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How objects of one kind are judged: expressions of the Common Expression Language, tried in the order
/// `inProgress`, `failed`, `current`; the first that is true decides, and if none is, it is in progress.
///
/// They see the object's `apiVersion`, `kind`, `metadata`, `spec`, `status`, and the whole as `self`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct HealthRule {
    /// The API that the kind belongs to, such as `shop.example/v1`; its version does not matter.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// True for an object that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_progress: Option<String>,
    /// True for an object that has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// True for an object that is healthy.
    pub current: String,
}

/// What a service waits for on its way to a revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// How far it is: `wave 2`, `hooks before`, `tests`.
    pub stage: String,
    /// The object that is waited for, the first of them.
    pub object: String,
    /// What it lacks.
    pub why: String,
    /// Since when it is waited for, by the site's clock.
    pub since: UnixSeconds,
    /// How many others are waited for as well.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A revision that was not healthy here, and that is not tried again by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedRevision {
    /// Its commit.
    pub commit: String,
    /// What was wrong with it.
    pub why: String,
    /// When the site gave it up, by its own clock.
    pub at: UnixSeconds,
}

/// How a test or a hook of the revision went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// `Kind.group namespace/name`.
    pub object: String,
    /// How it ended.
    pub outcome: CheckOutcome,
    /// Why, where there is something to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The end of what it printed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log: String,
}

/// How a [`Check`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckOutcome {
    /// With success.
    Passed,
    /// Without.
    Failed,
}
