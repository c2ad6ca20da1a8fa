//! Durations as people write them on a command line: `90s`, `2m`, `1h`, `7d`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration of whole seconds, written as a number and one of `s`, `m`, `h`, `d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a duration is a whole number and one of s, m, h, d, such as 90s or 2m (got {0:?})")]
pub struct BadDuration(String);

impl FromStr for HumanDuration {
    type Err = BadDuration;

    fn from_str(text: &str) -> Result<Self, BadDuration> {
        let bad = || BadDuration(text.chars().take(40).collect());
        let unit = text.chars().last().ok_or_else(bad)?;
        let seconds: u64 = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(bad()),
        };
        let digits = &text[..text.len() - 1];
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let number: u64 = digits.parse().map_err(|_| bad())?;
        Ok(Self(Duration::from_secs(number.checked_mul(seconds).ok_or_else(bad)?)))
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            s if s > 0 && s % 86_400 == 0 => write!(f, "{}d", s / 86_400),
            s if s > 0 && s % 3600 == 0 => write!(f, "{}h", s / 3600),
            s if s > 0 && s % 60 == 0 => write!(f, "{}m", s / 60),
            s => write!(f, "{s}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_reads_back_what_it_prints() {
        for text in ["90s", "2m", "1h", "7d", "0s"] {
            assert_eq!(text.parse::<HumanDuration>().expect("a duration").to_string(), text);
        }
        for bad in ["", "2", "m", "1.5h", "-1s", "2 m", "18446744073709551615d", "2ä"] {
            assert!(bad.parse::<HumanDuration>().is_err(), "{bad:?}");
        }
    }
}
