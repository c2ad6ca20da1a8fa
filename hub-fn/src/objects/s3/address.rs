//! Where a record in S3 is: `s3://BUCKET[/PREFIX][?endpoint=URL&region=R]`.

use std::fmt;
use std::str::FromStr;

use http::Uri;

use crate::objects::Key;

/// A bucket, a place in it, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Address {
    /// The bucket's name.
    pub bucket: String,
    /// What every key in the bucket starts with, before a `/`; the whole bucket when there is none.
    pub prefix: Option<Key>,
    /// The server, when it is not Amazon's; buckets are then the first part of the path.
    pub endpoint: Option<String>,
    /// The region; the environment's when there is none here.
    pub region: Option<String>,
}

/// A text that is no such address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// It does not start as one.
    #[error("an S3 address is s3://BUCKET[/PREFIX][?endpoint=URL&region=R] (got {0:?})")]
    Form(String),
    /// The bucket's name.
    #[error("a bucket's name is 3 to 63 of a-z 0-9 . - (got {0:?})")]
    Bucket(String),
    /// The prefix.
    #[error("the prefix of an S3 address is parts of A-Z a-z 0-9 . _ - joined by / (got {0:?})")]
    Prefix(String),
    /// The endpoint.
    #[error("the endpoint of an S3 address is http(s)://HOST[:PORT] (got {0:?})")]
    Endpoint(String),
    /// The region.
    #[error("the region of an S3 address is of a-z 0-9 - (got {0:?})")]
    Region(String),
    /// An option that there is not.
    #[error("an S3 address has the options endpoint and region, each once (got {0:?})")]
    Option(String),
}

impl FromStr for S3Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let rest = text.strip_prefix("s3://").ok_or_else(|| BadAddress::Form(text.to_owned()))?;
        let (place, options) = rest.split_once('?').map_or((rest, None), |(p, o)| (p, Some(o)));
        let (bucket, prefix) = place.split_once('/').map_or((place, ""), |(bucket, prefix)| (bucket, prefix));
        let mut address = Self {
            bucket: parse_bucket(bucket)?,
            prefix: parse_prefix(prefix)?,
            endpoint: None,
            region: None,
        };
        for option in options.into_iter().flat_map(|options| options.split('&')) {
            address.take_option(option)?;
        }
        Ok(address)
    }
}

impl S3Address {
    fn take_option(&mut self, option: &str) -> Result<(), BadAddress> {
        match option.split_once('=') {
            Some(("endpoint", url)) if self.endpoint.is_none() => self.endpoint = Some(parse_endpoint(url)?),
            Some(("region", name)) if self.region.is_none() => self.region = Some(parse_region(name)?),
            Some(_) | None => return Err(BadAddress::Option(option.to_owned())),
        }
        Ok(())
    }
}

fn parse_bucket(name: &str) -> Result<String, BadAddress> {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-');
    if (3..=63).contains(&name.len()) && name.bytes().all(is_allowed) && !name.contains("..") {
        return Ok(name.to_owned());
    }
    Err(BadAddress::Bucket(name.to_owned()))
}

fn parse_prefix(prefix: &str) -> Result<Option<Key>, BadAddress> {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    if prefix.is_empty() {
        return Ok(None);
    }
    Key::new(prefix).map(Some).map_err(|_bad_key| BadAddress::Prefix(prefix.to_owned()))
}

fn parse_endpoint(url: &str) -> Result<String, BadAddress> {
    let is_server = |uri: &Uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
            && matches!(uri.path(), "" | "/")
            && uri.query().is_none()
            && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
    };
    match url.parse::<Uri>() {
        Ok(uri) if is_server(&uri) => Ok(url.trim_end_matches('/').to_owned()),
        Ok(_) | Err(_) => Err(BadAddress::Endpoint(url.to_owned())),
    }
}

fn parse_region(name: &str) -> Result<String, BadAddress> {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if !name.is_empty() && name.bytes().all(is_allowed) {
        return Ok(name.to_owned());
    }
    Err(BadAddress::Region(name.to_owned()))
}

impl fmt::Display for S3Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if let Some(prefix) = &self.prefix {
            write!(f, "/{prefix}")?;
        }
        let options = [("endpoint", &self.endpoint), ("region", &self.region)];
        let set = options.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        for (n, (name, value)) in set.enumerate() {
            write!(f, "{}{name}={value}", if n == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_what_it_prints() {
        for text in [
            "s3://fleet",
            "s3://fleet/a/b",
            "s3://fleet?region=eu-north-1",
            "s3://fleet/a?endpoint=http://127.0.0.1:7070&region=us-east-1",
        ] {
            assert_eq!(text.parse::<S3Address>().expect(text).to_string(), text);
        }
        let address: S3Address = "s3://fleet/a/?endpoint=https://s3.example/".parse().expect("an address");
        assert_eq!(address.prefix.as_ref().map(Key::as_str), Some("a"));
        assert_eq!(address.endpoint.as_deref(), Some("https://s3.example"));
    }

    #[test]
    fn what_is_wrong_with_an_address_is_named() {
        let error = |text: &str| text.parse::<S3Address>().expect_err(text);
        assert!(matches!(error("fleet"), BadAddress::Form(_)));
        assert!(matches!(error("s3://"), BadAddress::Bucket(_)));
        assert!(matches!(error("s3://Fleet"), BadAddress::Bucket(_)));
        assert!(matches!(error("s3://fleet/a//b"), BadAddress::Prefix(_)));
        assert!(matches!(error("s3://fleet/../b"), BadAddress::Prefix(_)));
        for endpoint in ["", "127.0.0.1:80", "ftp://host", "http://host/path", "http://me:secret@host"] {
            let text = format!("s3://fleet?endpoint={endpoint}");
            assert!(matches!(error(&text), BadAddress::Endpoint(_)), "{text}");
        }
        assert!(matches!(error("s3://fleet?region=Mars!"), BadAddress::Region(_)));
        assert!(matches!(error("s3://fleet?key=1"), BadAddress::Option(_)));
        assert!(matches!(error("s3://fleet?"), BadAddress::Option(_)));
        assert!(matches!(error("s3://fleet?region=a&region=b"), BadAddress::Option(_)));
    }
}
