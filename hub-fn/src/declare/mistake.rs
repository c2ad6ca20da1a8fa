//! What a person is told: mistakes, which keep a declaration from counting, and warnings.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something in the fleet repository that is wrong, and what would be right.
///
/// It prints as `FILE:LINE:COLUMN: FIELD: MESSAGE (EXPECTED)`, without the parts that are unknown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mistake {
    /// The file, as a path in the repository.
    pub file: String,
    /// The line, from 1, where it is known.
    pub line: Option<u32>,
    /// The column in characters, from 1, where it is known.
    pub column: Option<u32>,
    /// The field, such as `spec.renderer`; empty when it is the whole document or file.
    pub field: String,
    /// What is wrong, in lower case, with the value concerned.
    pub message: String,
    /// What would be right.
    pub expected: String,
}

/// Something that is probably not meant, but that keeps nothing from counting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// The file, as a path in the repository; empty when it is about the whole repository.
    pub file: String,
    /// The line, from 1, where it is known.
    pub line: Option<u32>,
    /// What to look at, in lower case.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.message)?;
        if self.expected.is_empty() { Ok(()) } else { write!(f, " ({})", self.expected) }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.as_str(), self.line) {
            ("", _) => write!(f, "{}", self.message),
            (file, Some(line)) => write!(f, "{file}:{line}: {}", self.message),
            (file, None) => write!(f, "{file}: {}", self.message),
        }
    }
}

/// ` (did you mean "x"?)`'s inner part, when one of the known words is close to what was written.
pub(super) fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = written.to_lowercase();
    // Words much longer than any that is known are not misspellings, and comparing them costs.
    if lower.len() > 64 {
        return None;
    }
    known
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(&lower, &word.to_lowercase()), word))
        .filter(|(distance, word)| *distance <= 1 + word.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// `known: a, b`, preceded by a guess of what was meant.
pub(super) fn known_words(written: &str, known: &[&str]) -> String {
    let list =
        if known.is_empty() { "known: none".to_owned() } else { format!("known: {}", known.join(", ")) };
    match did_you_mean(written, known.iter().copied()) {
        Some(word) => format!("did you mean {word:?}? {list}"),
        None => list,
    }
}
