//! The texts of a declaration, parsed once into types that cannot hold a wrong value.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The longest Git address, branch or path, in bytes.
pub const TEXT_LIMIT: usize = 1024;
/// The shortest interval between two looks at a source.
pub const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);
/// The longest interval between two looks at a source.
pub const LONGEST_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a text of a declaration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BadText {
    /// What is wrong, in lower case, with the value concerned.
    pub message: String,
    /// What would be right.
    pub expected: &'static str,
}

fn bad(message: String, expected: &'static str) -> BadText {
    BadText { message, expected }
}

/// Where a Git repository is: `https://`, `http://`, `file:///`, or an absolute path.
///
/// It has no user and no password: those would stand in Git for everybody to read. Whether the hub
/// follows `file://` and paths is the hub's decision, not a matter of syntax.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GitAddress(String);

/// A branch: a Git reference name below `refs/heads/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Branch(String);

/// A folder inside a source, relative to its root, with `/` between its parts; empty for the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FolderPath(String);

/// How often a source is looked at: whole seconds, minutes or hours, from [`SHORTEST_INTERVAL`] to
/// [`LONGEST_INTERVAL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Interval(Duration);

const ADDRESS: &str = "https://HOST/PATH, http://HOST/PATH, file:///PATH or an absolute path";
const BRANCH: &str = "the name of a branch, such as main or release/1.2";
const FOLDER: &str = "a folder relative to the source's root, such as apps/shop, or nothing for the root";
const INTERVAL: &str = "a number of seconds, minutes or hours from 5s to 24h, such as 30s, 2m or 1h";

impl TryFrom<String> for GitAddress {
    type Error = BadText;

    fn try_from(text: String) -> Result<Self, BadText> {
        let refuse = |why: &str| Err(bad(format!("{why} ({text:?})"), ADDRESS));
        if text.len() > TEXT_LIMIT {
            return Err(bad(
                format!("the address is too long ({} bytes, limit {TEXT_LIMIT})", text.len()),
                ADDRESS,
            ));
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return refuse("the address has a space or control character");
        }
        match text.split_once("://") {
            Some(("https" | "http", rest)) => check_host(rest).map(|()| Self(text)),
            Some(("file", rest)) if rest.starts_with('/') => Ok(Self(text)),
            Some(("file", _)) => refuse("a file address names an absolute path"),
            Some(("ssh" | "git+ssh" | "ssh+git", _)) => refuse("git over ssh is not read"),
            Some(_) => refuse("this kind of address is not read"),
            None if text.starts_with('/') => Ok(Self(text)),
            None if text.contains('@') && text.contains(':') => refuse("git over ssh is not read"),
            None => refuse("this is not the address of a git repository"),
        }
    }
}

/// Checks what follows `http://`. The text of an address with credentials is not repeated: errors
/// end in logs.
fn check_host(rest: &str) -> Result<(), BadText> {
    let (authority, query) = match rest.find(['/', '?', '#']) {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    if authority.contains('@') {
        let what = "the address contains a user or password, which everybody who reads the repository sees";
        return Err(bad(what.to_owned(), ADDRESS));
    }
    if query.contains(['?', '#']) {
        return Err(bad(format!("a git address has no query and no fragment ({rest:?})"), ADDRESS));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let good_host = match bracketed {
        Some(ip) => ip.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
        }
    };
    if !good_host {
        return Err(bad(format!("the address names no valid host ({host:?})"), ADDRESS));
    }
    match port {
        Some(port) if port.parse::<u16>().map_or(true, |port| port == 0) => {
            Err(bad(format!("the address has an impossible port ({port:?})"), ADDRESS))
        }
        _ => Ok(()),
    }
}

impl TryFrom<String> for Branch {
    type Error = BadText;

    /// The rules are those of `git check-ref-format --branch`.
    fn try_from(text: String) -> Result<Self, BadText> {
        let forbidden =
            |c: char| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
        let bad_part = |part: &str| part.is_empty() || part.starts_with('.') || part.ends_with(".lock");
        let wrong = text.len() > TEXT_LIMIT
            || text.chars().any(forbidden)
            || text.split('/').any(bad_part)
            || text.contains("..")
            || text.contains("@{")
            || text.starts_with('-')
            || text.ends_with('.')
            || text == "@"
            || text == "HEAD";
        if text.starts_with("refs/") {
            return Err(bad(format!("a branch is named without refs/heads/ ({text:?})"), BRANCH));
        }
        if wrong {
            Err(bad(format!("git has no branch of this name ({text:?})"), BRANCH))
        } else {
            Ok(Self(text))
        }
    }
}

impl TryFrom<String> for FolderPath {
    type Error = BadText;

    /// `./`, a trailing `/` and doubled ones say nothing and are dropped.
    fn try_from(text: String) -> Result<Self, BadText> {
        let refuse = |why: &str| Err(bad(format!("{why} ({text:?})"), FOLDER));
        if text.len() > TEXT_LIMIT {
            return Err(bad(
                format!("the path is too long ({} bytes, limit {TEXT_LIMIT})", text.len()),
                FOLDER,
            ));
        }
        if text.starts_with('/') {
            return refuse("the path is absolute");
        }
        if text.contains('\\') {
            return refuse("the path has a backslash");
        }
        if text.chars().any(char::is_control) {
            return refuse("the path has a control character");
        }
        let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.contains(&"..") {
            return refuse("the path leaves its source");
        }
        if parts.iter().any(|part| part.eq_ignore_ascii_case(".git")) {
            return refuse("the path goes into git's own folder");
        }
        Ok(Self(parts.join("/")))
    }
}

impl TryFrom<String> for Interval {
    type Error = BadText;

    fn try_from(text: String) -> Result<Self, BadText> {
        let refuse = |why: &str| Err(bad(format!("{why} ({text:?})"), INTERVAL));
        let unit = match text.chars().last() {
            Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            _ => return refuse("an interval ends in s, m or h"),
        };
        let digits = &text[..text.len() - 1];
        let shaped = !digits.is_empty() && digits.len() <= 6 && digits.bytes().all(|b| b.is_ascii_digit());
        let Some(count) = digits.parse::<u64>().ok().filter(|_| shaped) else {
            return refuse("an interval is one whole number and one unit");
        };
        let interval = Duration::from_secs(count * unit);
        if !(SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&interval) {
            return refuse("the interval is too short or too long");
        }
        Ok(Self(interval))
    }
}

impl Interval {
    /// The interval.
    #[must_use]
    pub fn duration(self) -> Duration {
        self.0
    }
}

impl fmt::Display for Interval {
    /// In the largest unit that divides it: `90s`, `2m`, `1h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            s if s % 3600 == 0 => write!(f, "{}h", s / 3600),
            s if s % 60 == 0 => write!(f, "{}m", s / 60),
            s => write!(f, "{s}s"),
        }
    }
}

impl From<Interval> for String {
    fn from(interval: Interval) -> Self {
        interval.to_string()
    }
}

impl JsonSchema for Interval {
    fn schema_name() -> Cow<'static, str> {
        "Interval".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]{1,6}[smh]$", "description": INTERVAL })
    }
}

macro_rules! text {
    ($type:ident, $pattern:literal, $says:ident) => {
        impl $type {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = BadText;

            fn from_str(text: &str) -> Result<Self, BadText> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$type> for String {
            fn from(text: $type) -> Self {
                text.0
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
                json_schema!({
                    "type": "string",
                    "maxLength": TEXT_LIMIT,
                    "pattern": $pattern,
                    "description": $says
                })
            }
        }
    };
}

text!(GitAddress, "^(https?://[^@/?#\\s]+(/[^?#\\s]*)?|file:///\\S*|/\\S*)$", ADDRESS);
text!(Branch, "^[^\\s~^:?*\\[\\\\]+$", BRANCH);
text!(FolderPath, "^([^/\\\\][^\\\\]*)?$", FOLDER);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_http_file_or_a_path_without_credentials() {
        for good in [
            "https://git.example/a.git",
            "http://127.0.0.1:3000/a",
            "https://[::1]:8443/a",
            "file:///srv/a.git",
            "/srv/a.git",
        ] {
            assert!(good.parse::<GitAddress>().is_ok(), "{good:?}");
        }
        for wrong in [
            "",
            "a.git",
            "ssh://git@host/a",
            "git@host:a.git",
            "git://host/a",
            "https://",
            "https:///a",
            "https://host:0/a",
            "https://host:99999/a",
            "https://host/a?x=1",
            "https://ho st/a",
            "file://srv/a",
            "https://[::zz]/a",
        ] {
            assert!(wrong.parse::<GitAddress>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_refused_password_is_not_repeated() {
        let refused = "https://me:hunter2@git.example/a".parse::<GitAddress>().expect_err("has a password");
        assert!(!format!("{refused:?}").contains("hunter2"), "{refused:?}");
    }

    #[test]
    fn a_branch_is_what_git_takes_for_one() {
        for good in ["main", "release/1.2", "a-b_c", "ü"] {
            assert!(good.parse::<Branch>().is_ok(), "{good:?}");
        }
        for wrong in [
            "",
            "a b",
            "a..b",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "-a",
            "a.",
            "@",
            "a@{b",
            "a~1",
            "HEAD",
            "refs/heads/a",
        ] {
            assert!(wrong.parse::<Branch>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_folder_stays_inside_its_source() {
        for (written, kept) in
            [("", ""), (".", ""), ("./a//b/", "a/b"), ("a/.hidden", "a/.hidden"), ("..a", "..a")]
        {
            assert_eq!(written.parse::<FolderPath>().map(String::from), Ok(kept.to_owned()));
        }
        for wrong in ["/a", "..", "a/../b", "a\\b", "a\0", ".git/hooks", "a/.GIT"] {
            assert!(wrong.parse::<FolderPath>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_interval_is_one_number_and_one_unit() {
        for (text, seconds) in [("5s", 5), ("90s", 90), ("2m", 120), ("24h", 86400)] {
            let interval = Interval::try_from(text.to_owned()).expect(text);
            assert_eq!(interval.duration().as_secs(), seconds);
            assert_eq!(interval.to_string(), text);
        }
        for wrong in ["", "s", "4s", "25h", "1h30m", "1.5m", "+5m", " 5m", "5 m", "5", "5d", "9999999s", "5ü"]
        {
            assert!(Interval::try_from(wrong.to_owned()).is_err(), "{wrong:?}");
        }
    }
}
