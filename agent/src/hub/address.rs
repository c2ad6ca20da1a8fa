//! Where a hub is: `https://host:port`, or `http://` on this very machine.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;

/// The address of a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubUrl {
    pub(super) secure: bool,
    /// Without brackets, also for IPv6.
    pub(super) host: String,
    pub(super) port: u16,
}

/// Why a text is not the address of a hub.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// Another form.
    #[error("the address of a hub has the form https://host:port (got {0:?})")]
    Form(String),
    /// Not encrypted, and not this machine.
    #[error(
        "http:// is allowed for this machine only, such as http://127.0.0.1:8443 (got {0:?}): use https://"
    )]
    Plain(String),
}

impl FromStr for HubUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad = || BadUrl::Form(text.chars().take(200).collect());
        let uri: Uri = text.trim().parse().map_err(|_| bad())?;
        let authority = uri.authority().ok_or_else(bad)?;
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if !bare || authority.as_str().contains('@') {
            return Err(bad());
        }
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(_) | None => return Err(bad()),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if host.is_empty() {
            return Err(bad());
        }
        if !secure && !here {
            return Err(BadUrl::Plain(text.chars().take(200).collect()));
        }
        let port = match authority.port() {
            Some(port) => port.as_str().parse().map_err(|_| bad())?,
            None if secure => 443,
            None => 80,
        };
        Ok(Self { secure, host, port })
    }
}

impl HubUrl {
    /// `host:port`, as the `Host` header has it.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for HubUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.secure { "https" } else { "http" }, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_a_host_and_a_port() {
        for (text, prints) in [
            ("https://hub.example", "https://hub.example:443"),
            ("https://hub.example:8443/", "https://hub.example:8443"),
            ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
            ("http://127.0.0.1:8443", "http://127.0.0.1:8443"),
            ("http://localhost", "http://localhost:80"),
        ] {
            assert_eq!(text.parse::<HubUrl>().expect(text).to_string(), prints);
        }
    }

    #[test]
    fn what_is_not_encrypted_stays_on_this_machine() {
        assert!(matches!("http://hub.example".parse::<HubUrl>(), Err(BadUrl::Plain(_))));
        assert!(matches!("http://127.0.0.1.example".parse::<HubUrl>(), Err(BadUrl::Plain(_))));
        for bad in ["", "hub.example", "ftp://a", "https://", "https://a/b", "https://a?b", "https://u:p@a"] {
            assert!(matches!(bad.parse::<HubUrl>(), Err(BadUrl::Form(_))), "{bad:?}");
        }
    }
}
