//! Amounts of memory as people write them: `512Mi`, `2Gi`.

use std::fmt;
use std::str::FromStr;

/// Bytes, written as a number and one of `Ki`, `Mi`, `Gi`, as Kubernetes has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanSize(pub u64);

/// A text that is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a size is a whole number and one of Ki, Mi, Gi, such as 512Mi (got {0:?})")]
pub struct BadSize(String);

const UNITS: [(&str, u64); 3] = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];

impl FromStr for HumanSize {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, BadSize> {
        let bad = || BadSize(text.chars().take(40).collect());
        let found = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
        let (digits, unit) = found.ok_or_else(bad)?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let number: u64 = digits.parse().map_err(|_| bad())?;
        Ok(Self(number.checked_mul(unit).ok_or_else(bad)?))
    }
}

impl fmt::Display for HumanSize {
    /// In the largest unit that divides it, else in bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, bytes)| self.0 > 0 && self.0.is_multiple_of(*bytes)) {
            Some((unit, bytes)) => write!(f, "{}{unit}", self.0 / bytes),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_reads_back_what_it_prints() {
        for text in ["1Ki", "512Mi", "1Gi", "1025Mi", "64Gi"] {
            assert_eq!(text.parse::<HumanSize>().expect("a size").to_string(), text);
        }
        assert_eq!("1024Mi".parse::<HumanSize>(), Ok(HumanSize(1 << 30)));
        for bad in ["", "1", "Mi", "1M", "1.5Gi", "-1Mi", "1 Mi", "1mi", "99999999999999Gi", "1ä"] {
            assert!(bad.parse::<HumanSize>().is_err(), "{bad:?}");
        }
    }
}
