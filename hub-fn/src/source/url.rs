//! Where a Git repository is, parsed once.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The longest URL, in bytes.
pub const URL_LIMIT: usize = 2_048;

/// Whether repositories on the hub's own disk may be sources.
///
/// A fleet repository that others write to could otherwise name any repository that the hub's user
/// can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSources {
    /// `file://` and absolute paths are read.
    Allowed,
    /// Only `https://` and `http://` are.
    Refused,
}

/// The address of a Git repository that is read without credentials: `https://`, `http://`, or
/// `file://` with an absolute path, which may also stand alone.
///
/// As text, an absolute path is written with its `file://`. Nothing in it is percent-decoded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GitUrl(String);

/// Why a text is not a [`GitUrl`]. Nothing that could be a secret is repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// A user name or password before the host.
    #[error("a Git URL has no user name and no password: repositories are read anonymously")]
    Credentials,
    /// `ssh://`, or `user@host:path`.
    #[error("Git over SSH is not supported: use https://, http:// or file://")]
    Ssh,
    /// Something else before `://`.
    #[error("a Git URL begins with https://, http:// or file:// (got {0:?})")]
    Scheme(String),
    /// Neither a URL nor an absolute path.
    #[error("a Git URL begins with https://, http://, file:// or is an absolute path")]
    NoScheme,
    /// No host, or a port that is no number.
    #[error("a Git URL names a host, and a port only as a number (in {0:?})")]
    Host(String),
    /// A query or fragment: both are places where tokens are put.
    #[error("a Git URL has neither '?' nor '#'")]
    Query,
    /// `file://` with a host, or a relative path.
    #[error("a file URL has an absolute path: file:///path/to/repository")]
    RelativeFile,
    /// A space or control character.
    #[error("a Git URL has no spaces and no control characters")]
    Character,
    /// More bytes than [`URL_LIMIT`].
    #[error("a Git URL has at most {URL_LIMIT} bytes (this one has {0})")]
    TooLong(usize),
    /// A file where files are refused.
    #[error(
        "repositories on the hub's own disk are refused unless --allow-file-sources is given (got {0:?})"
    )]
    FileRefused(String),
}

/// How the repository is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach<'a> {
    /// Over the network.
    Http,
    /// On this disk.
    File(&'a Path),
}

impl GitUrl {
    /// Reads a URL or an absolute path, and refuses files where they are refused.
    ///
    /// # Errors
    /// [`BadUrl`], without repeating what could be a secret.
    pub fn parse(text: &str, files: FileSources) -> Result<Self, BadUrl> {
        let url: Self = text.parse()?;
        url.check(files)?;
        Ok(url)
    }

    /// Refuses a file where files are refused.
    ///
    /// # Errors
    /// [`BadUrl::FileRefused`].
    pub fn check(&self, files: FileSources) -> Result<(), BadUrl> {
        match (self.reach(), files) {
            (Reach::File(_), FileSources::Refused) => Err(BadUrl::FileRefused(self.0.clone())),
            (Reach::File(_), FileSources::Allowed) | (Reach::Http, _) => Ok(()),
        }
    }

    /// The URL as text, with its scheme.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn reach(&self) -> Reach<'_> {
        self.0.strip_prefix("file://").map_or(Reach::Http, |path| Reach::File(Path::new(path)))
    }

    /// The URL of a repository on this disk.
    ///
    /// # Errors
    /// [`BadUrl`] if the path is not absolute, or not UTF-8.
    pub fn of_path(path: &Path) -> Result<Self, BadUrl> {
        path.to_str().filter(|text| text.starts_with('/')).ok_or(BadUrl::RelativeFile)?.parse()
    }
}

fn check_authority(rest: &str) -> Result<(), BadUrl> {
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err(BadUrl::Credentials);
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        Some(_) | None => (authority, None),
    };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let host_is_good = !host.is_empty()
        && (bracketed || host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')));
    let port_is_good = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    if host_is_good && port_is_good { Ok(()) } else { Err(BadUrl::Host(authority.to_owned())) }
}

fn check_plain(text: &str) -> Result<(), BadUrl> {
    let head = text.split('/').next().unwrap_or_default();
    match head.split_once(':') {
        Some((host, _)) if !host.is_empty() => Err(BadUrl::Ssh),
        Some(_) | None if head.contains('@') => Err(BadUrl::Ssh),
        Some(_) | None => Err(BadUrl::NoScheme),
    }
}

impl FromStr for GitUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        if text.len() > URL_LIMIT {
            return Err(BadUrl::TooLong(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(BadUrl::Character);
        }
        if text.starts_with('/') {
            return Ok(Self(format!("file://{text}")));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            check_plain(text)?;
            return Err(BadUrl::NoScheme);
        };
        let scheme = scheme.to_ascii_lowercase();
        match scheme.as_str() {
            "https" | "http" => {
                check_authority(rest)?;
                if rest.contains(['?', '#']) {
                    return Err(BadUrl::Query);
                }
                if rest.contains(char::is_whitespace) {
                    return Err(BadUrl::Character);
                }
            }
            "file" if rest.starts_with('/') => {}
            "file" => return Err(BadUrl::RelativeFile),
            "ssh" | "git+ssh" | "ssh+git" => return Err(BadUrl::Ssh),
            other => return Err(BadUrl::Scheme(other.chars().take(20).collect())),
        }
        Ok(Self(format!("{scheme}://{rest}")))
    }
}

impl TryFrom<String> for GitUrl {
    type Error = BadUrl;

    fn try_from(text: String) -> Result<Self, BadUrl> {
        text.parse()
    }
}

impl From<GitUrl> for String {
    fn from(url: GitUrl) -> Self {
        url.0
    }
}

impl fmt::Display for GitUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl JsonSchema for GitUrl {
    fn schema_name() -> Cow<'static, str> {
        "GitUrl".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": URL_LIMIT,
            "pattern": "^(https?://|file:///|/)",
            "description": "https://, http://, file:// or an absolute path, without credentials."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_https_http_file_or_an_absolute_path() {
        for (text, kept) in [
            ("https://git.example/fleet.git", "https://git.example/fleet.git"),
            ("HTTP://127.0.0.1:8080/a/b", "http://127.0.0.1:8080/a/b"),
            ("https://[::1]:8443/a", "https://[::1]:8443/a"),
            ("https://[::1]/a", "https://[::1]/a"),
            ("file:///srv/a repo", "file:///srv/a repo"),
            ("/srv/fleet", "file:///srv/fleet"),
        ] {
            let url = GitUrl::parse(text, FileSources::Allowed).expect("a good URL");
            assert_eq!(url.as_str(), kept);
        }
        for bad in
            ["", "fleet", "./fleet", "file://host/fleet", "https:///x", "https://h:x/", "ftp://h/x", "h\0"]
        {
            assert!(GitUrl::parse(bad, FileSources::Allowed).is_err(), "{bad:?} should be refused");
        }
    }

    #[test]
    fn credentials_are_refused_and_not_repeated() {
        for text in [
            "https://me:hunter2@git.example/a",
            "http://hunter2@git.example/a",
            "https://git.example/a?t=hunter2",
        ] {
            let error = text.parse::<GitUrl>().expect_err("credentials");
            assert!(!error.to_string().contains("hunter2"), "{error} repeats a secret");
        }
    }

    #[test]
    fn ssh_in_all_its_spellings_is_refused() {
        for text in ["ssh://git@host/a", "git@host:a.git", "host:a/b.git", "git+ssh://host/a"] {
            assert_eq!(text.parse::<GitUrl>(), Err(BadUrl::Ssh), "{text}");
        }
    }

    #[test]
    fn files_are_refused_unless_allowed() {
        for text in ["/srv/fleet", "file:///srv/fleet"] {
            assert!(matches!(GitUrl::parse(text, FileSources::Refused), Err(BadUrl::FileRefused(_))));
            assert!(text.parse::<GitUrl>().is_ok());
        }
        assert!(GitUrl::parse("https://git.example/a", FileSources::Refused).is_ok());
    }
}
