//! What a bare word means. kubectl reads YAML 1.1 as Go's `yaml.v2` has it: `on` is true, `0755` is
//! octal, `1_000` is a thousand, a date is a text.

use serde_json::{Number, Value};

/// A value that has no parts. The numbers and truth values keep the text that was written, because
/// a person who forgot to quote recognises that.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::declare) enum Scalar {
    /// Nothing: an empty value, `~` or `null`.
    Null,
    /// `true`, `yes`, `on`, `y` and their opposites.
    Bool(bool, String),
    /// A number that JSON can carry.
    Number(Number, String),
    /// `.nan` or `.inf`, which JSON cannot carry.
    NotFinite(String),
    /// A text.
    Text(String),
    /// Something with a tag that is not read, such as `!secret`.
    Tagged(String),
}

impl Scalar {
    /// What an unquoted, untagged word means.
    pub(super) fn plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                return Self::Bool(true, text.to_owned());
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
                return Self::Bool(false, text.to_owned());
            }
            ".nan" | ".NaN" | ".NAN" => return Self::NotFinite(text.to_owned()),
            _ => {}
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
            return Self::NotFinite(text.to_owned());
        }
        if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Self::Text(text.to_owned());
        }
        match number(text) {
            Some(number) => Self::Number(number, text.to_owned()),
            None => Self::Text(text.to_owned()),
        }
    }

    /// The value as JSON, or none for what JSON cannot carry.
    pub(in crate::declare) fn to_json(&self) -> Option<Value> {
        match self {
            Self::Null => Some(Value::Null),
            Self::Bool(value, _) => Some(Value::Bool(*value)),
            Self::Number(value, _) => Some(Value::Number(value.clone())),
            Self::Text(text) => Some(Value::String(text.clone())),
            Self::NotFinite(_) | Self::Tagged(_) => None,
        }
    }

    /// What it is, for an error.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value, text) => format!("the truth value {value} (written {text})"),
            Self::Number(_, text) | Self::NotFinite(text) => format!("the number {text}"),
            Self::Text(text) => format!("the text {text:?}"),
            Self::Tagged(tag) => format!("a value with the tag {tag}"),
        }
    }

    /// What was written, where it is a word that quoting would make a text.
    pub(in crate::declare) fn unquoted(&self) -> Option<&str> {
        match self {
            Self::Bool(_, text) | Self::Number(_, text) | Self::NotFinite(text) => Some(text),
            Self::Null | Self::Text(_) | Self::Tagged(_) => None,
        }
    }
}

fn number(text: &str) -> Option<Number> {
    let digits = text.replace('_', "");
    integer(&digits).or_else(|| float(&digits))
}

/// Go's `strconv.ParseInt(text, 0, 64)`, then `ParseUint`: the base is in the prefix, and a leading
/// zero is octal.
fn integer(text: &str) -> Option<Number> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = rest.to_ascii_lowercase();
    let (digits, base) = [("0x", 16), ("0b", 2), ("0o", 8), ("0", 8)]
        .iter()
        .find_map(|(prefix, base)| Some((lower.strip_prefix(prefix)?, *base)))
        .filter(|(digits, _)| !digits.is_empty())
        .unwrap_or((lower.as_str(), 10));
    if !digits.chars().all(|c| c.is_digit(base)) {
        return None;
    }
    let value = u64::from_str_radix(digits, base).ok()?;
    if negative { Some(Number::from(0_i64.checked_sub_unsigned(value)?)) } else { Some(Number::from(value)) }
}

/// A decimal number with an optional fraction and exponent, as `yaml.v2` demands its shape.
fn float(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let shaped = digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    if !shaped || exponent.is_some_and(|e| e.is_empty() || !digits(e)) {
        return None;
    }
    Number::from_f64(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bare_words_mean_what_kubectl_takes_them_for() {
        let cases = [
            ("yes", json!(true)),
            ("on", json!(true)),
            ("N", json!(false)),
            ("Off", json!(false)),
            ("yEs", json!("yEs")),
            ("", json!(null)),
            ("~", json!(null)),
            ("0755", json!(493)),
            ("0o17", json!(15)),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("1_000", json!(1000)),
            ("-12", json!(-12)),
            ("+7", json!(7)),
            ("0", json!(0)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("18446744073709551615", json!(u64::MAX)),
            ("18446744073709551616", json!(18446744073709551616.0)),
            ("1.5", json!(1.5)),
            (".5", json!(0.5)),
            ("1e3", json!(1000.0)),
            ("089", json!(89.0)),
            ("1.2.3", json!("1.2.3")),
            ("2026-11-21", json!("2026-11-21")),
            ("10:30", json!("10:30")),
            ("0x", json!("0x")),
            ("-", json!("-")),
            (".", json!(".")),
            ("1e", json!("1e")),
            ("inf", json!("inf")),
        ];
        for (text, value) in cases {
            assert_eq!(Scalar::plain(text).to_json(), Some(value), "{text:?}");
        }
        assert_eq!(Scalar::plain("-.inf"), Scalar::NotFinite("-.inf".into()));
        assert_eq!(Scalar::plain(".NaN").to_json(), None);
    }
}
