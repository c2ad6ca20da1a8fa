//! A JSON value as YAML that every reader understands alike.
//!
//! Collections are written in block style; a text stays bare only where no version of YAML could take
//! it for anything else. Everything else is quoted as JSON quotes it, which is YAML too.

use serde_json::{Map, Value};

/// Writes a value as one YAML document that ends with a line break. The same value gives the same bytes.
#[must_use]
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => mapping(&mut out, map, 0),
        Value::Array(list) if !list.is_empty() => sequence(&mut out, list, 0),
        other => {
            scalar(&mut out, other, 0);
            out.push('\n');
        }
    }
    out
}

fn mapping(out: &mut String, map: &Map<String, Value>, indent: usize) {
    for (index, (key, value)) in map.iter().enumerate() {
        if index > 0 {
            pad(out, indent);
        }
        text(out, key);
        out.push(':');
        match value {
            Value::Object(map) if !map.is_empty() => {
                out.push('\n');
                pad(out, indent + 1);
                mapping(out, map, indent + 1);
            }
            Value::Array(list) if !list.is_empty() => {
                out.push('\n');
                pad(out, indent);
                sequence(out, list, indent);
            }
            other => {
                out.push(' ');
                scalar(out, other, indent + 1);
                out.push('\n');
            }
        }
    }
}

fn sequence(out: &mut String, list: &[Value], indent: usize) {
    for (index, value) in list.iter().enumerate() {
        if index > 0 {
            pad(out, indent);
        }
        out.push_str("- ");
        match value {
            Value::Object(map) if !map.is_empty() => mapping(out, map, indent + 1),
            Value::Array(list) if !list.is_empty() => sequence(out, list, indent + 1),
            other => {
                scalar(out, other, indent + 1);
                out.push('\n');
            }
        }
    }
}

fn pad(out: &mut String, indent: usize) {
    (0..indent).for_each(|_| out.push_str("  "));
}

fn scalar(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::String(value) if is_block(value) => block(out, value, indent),
        Value::String(value) => text(out, value),
        other => out.push_str(&other.to_string()),
    }
}

fn text(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
    } else {
        out.push_str(&quoted(text));
    }
}

/// As JSON, with everything escaped that YAML takes for a line break or does not allow.
fn quoted(text: &str) -> String {
    let json = Value::String(text.to_owned()).to_string();
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => out.push(c),
        }
    }
    out
}

/// Letters first, then what cannot mean anything, and no word that is a value of its own.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 13] =
        ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity", "nil"];
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'/');
    let rest = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/'));
    first && rest && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Lines that a literal block carries unchanged.
fn is_block(text: &str) -> bool {
    let ordinary = |c: char| {
        matches!(c, '\n' | ' '..='~' | '\u{a1}'..='\u{d7ff}') && !matches!(c, '\u{2028}' | '\u{2029}')
    };
    text.trim_end_matches('\n').contains('\n')
        && !text.starts_with([' ', '\n'])
        && !text.ends_with("\n\n")
        && text.chars().all(ordinary)
        && text.lines().all(|line| !line.ends_with(' '))
}

fn block(out: &mut String, text: &str, indent: usize) {
    out.push_str(if text.ends_with('\n') { "|" } else { "|-" });
    for line in text.lines() {
        out.push('\n');
        if !line.is_empty() {
            pad(out, indent.max(1));
            out.push_str(line);
        }
    }
}
