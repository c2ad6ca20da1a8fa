//! What a scalar means, by the rules of the YAML library inside `kubectl` (YAML 1.1 with Go's numbers).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use granit_parser::Tag;
use serde_json::{Number, Value};

use super::Fault;

const YAML: &str = "tag:yaml.org,2002:";

/// What a scalar was found to be.
enum Resolved {
    Null,
    Bool(bool),
    Int(i64),
    /// Beyond an `i64`.
    Big(u64),
    Float(f64),
    Text,
}

/// The name of a tag of YAML itself, such as `int`.
pub(super) fn name(tag: &Tag) -> Option<String> {
    tag.suffix_in_namespace(YAML).map(std::borrow::Cow::into_owned)
}

/// The value of a scalar.
pub(super) fn value(text: &str, plain: bool, tag: Option<&Tag>) -> Result<Value, Fault> {
    let tag = match tag {
        // A tag of somebody's own says nothing that JSON could carry.
        Some(tag) => match name(tag) {
            Some(name) => Some(name),
            None => return Ok(Value::String(text.to_owned())),
        },
        None if !plain => return Ok(Value::String(text.to_owned())),
        None => None,
    };
    let unfit = |tag: &str| Fault::Tag { tag: format!("!!{tag}"), value: text.to_owned() };
    match (tag.as_deref(), resolve(text)) {
        (None | Some("null"), Resolved::Null) => Ok(Value::Null),
        (None | Some("bool"), Resolved::Bool(value)) => Ok(Value::Bool(value)),
        (None | Some("int" | "float"), Resolved::Int(value)) => Ok(value.into()),
        (None | Some("int" | "float"), Resolved::Big(value)) => Ok(unsigned(value)),
        (None | Some("float"), Resolved::Float(value)) => {
            float(value).ok_or_else(|| Fault::Number(text.to_owned()))
        }
        (Some("binary"), _) => binary(text).ok_or_else(|| unfit("binary")),
        (Some(tag @ ("null" | "bool" | "int" | "float")), _) => Err(unfit(tag)),
        (_, _) => Ok(Value::String(text.to_owned())),
    }
}

/// The text of a key: every key of JSON is one.
pub(super) fn key(text: &str, plain: bool, tag: Option<&Tag>) -> Result<String, Fault> {
    if tag.is_none() && plain {
        return match resolve(text) {
            Resolved::Null | Resolved::Big(_) => Err(Fault::Key),
            Resolved::Bool(value) => Ok(value.to_string()),
            Resolved::Int(value) => Ok(value.to_string()),
            Resolved::Float(value) => short_float(value).ok_or_else(|| Fault::Number(text.to_owned())),
            Resolved::Text => Ok(text.to_owned()),
        };
    }
    match value(text, plain, tag)? {
        Value::String(text) => Ok(text),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Number(value) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(Fault::Key),
    }
}

/// An integer, or a float where an `i64` cannot hold it.
#[expect(clippy::cast_precision_loss, reason = "kubectl rounds such integers to a float in the same way")]
pub(super) fn unsigned(value: u64) -> Value {
    i64::try_from(value).map_or_else(|_| (value as f64).into(), Value::from)
}

/// A finite float; an integer where its shortest decimal form is one.
pub(super) fn float(value: f64) -> Option<Value> {
    // JSON has one kind of number, and `1.0` comes back from it as `1`.
    let whole = value.fract() == 0.0 && value.abs() < 1e19;
    match format!("{value}").parse::<i64>() {
        Ok(integer) if whole => Some(integer.into()),
        Ok(_) | Err(_) => Number::from_f64(value).map(Value::Number),
    }
}

/// As Go prints a float of 32 bits in its shortest form (`%g`): what `kubectl` makes of a float that
/// is a key.
#[expect(clippy::cast_possible_truncation, reason = "kubectl prints such keys with 32 bits")]
fn short_float(value: f64) -> Option<String> {
    let value = value as f32;
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    let plain = (-4..6).contains(&exponent);
    let sign = if exponent < 0 { '-' } else { '+' };
    Some(if plain { value.to_string() } else { format!("{digits}e{sign}{:02}", exponent.abs()) })
}

fn binary(text: &str) -> Option<Value> {
    let compact: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes = STANDARD.decode(compact).ok()?;
    Some(Value::String(String::from_utf8_lossy(&bytes).into_owned()))
}

fn resolve(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Resolved::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Resolved::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        _ => {}
    }
    match text.as_bytes()[0] {
        b'.' => parse_float(text).map_or(Resolved::Text, Resolved::Float),
        b'+' | b'-' | b'0'..=b'9' => number(&text.replace('_', "")),
        _ => Resolved::Text,
    }
}

fn number(text: &str) -> Resolved {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let signed = digits.len() < text.len();
    match magnitude(digits) {
        Some(value) if negative && value <= i128::from(i64::MAX) + 1 => {
            Resolved::Int(i64::try_from(-value).expect("it was compared above"))
        }
        Some(value) if !negative => match (i64::try_from(value), u64::try_from(value)) {
            (Ok(value), _) => Resolved::Int(value),
            (_, Ok(value)) if !signed => Resolved::Big(value),
            _ => parse_float(text).map_or(Resolved::Text, Resolved::Float),
        },
        _ => parse_float(text).map_or(Resolved::Text, Resolved::Float),
    }
}

/// Digits with the prefix that says their base, as Go reads them.
fn magnitude(digits: &str) -> Option<i128> {
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_alphanumeric());
    // Twenty digits are enough for 64 bits in base ten; zeros in front are not.
    all.then(|| i128::from_str_radix(digits, base).ok()).flatten()
}

/// A float as YAML writes it: digits with a point somewhere, and an exponent.
fn parse_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let good = digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent));
    // What overflows is a text, as Go reports it out of range.
    good.then(|| text.parse::<f64>().ok()).flatten().filter(|value| value.is_finite())
}
