//! The record in an S3 bucket.
//!
//! A version is the object's ETag. Conditions are `If-None-Match: *` and `If-Match`, of which
//! [`prove_conditions`](super::prove_conditions) has to show that the server honours them.

use std::time::Duration;

use async_trait::async_trait;
use aws_config::ConfigLoader;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{BehaviorVersion, Builder, Credentials, ProvideCredentials, Region};
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::ByteStream;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};

use super::{
    ByteRange, Condition, Content, Key, Listed, Objects, ObjectsError, Operation, Pieces, PutOutcome, Stored,
    Version,
};

mod address;
mod answer;

pub use address::{BadAddress, S3Address};
use answer::{Meaning, failed, meaning};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// From the request to the first byte of the answer. While a body flows, the SDK's protection
/// against stalled streams watches it instead.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// The slowest upload that is waited for: a body counts into [`ANSWER_WITHIN`].
const SLOWEST_UPLOAD: u64 = 100 * 1024;
/// What S3 lists at once.
const PAGE: usize = 1000;
/// Servers other than Amazon's have no regions, and this is the one they are called by.
const REGION_OF_ENDPOINTS: &str = "us-east-1";

/// The record in a bucket.
#[derive(Debug, Clone)]
pub struct S3 {
    client: Client,
    bucket: String,
    /// Empty, or with a `/` at its end.
    prefix: String,
}

/// Why a bucket cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No region in the address, the environment or the profile.
    #[error("no region for the bucket: set it in the address (?region=R) or as AWS_REGION (bucket {0})")]
    NoRegion(String),
    /// No credentials in the usual places.
    #[error(
        "no credentials for the bucket: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (bucket {bucket})"
    )]
    NoCredentials {
        /// The bucket.
        bucket: String,
        /// What each place said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl S3 {
    /// Finds region and credentials in the address and in the usual places (environment, profile,
    /// web identity, container, instance). Does not ask the bucket yet.
    ///
    /// # Errors
    /// When there is no region, or no credentials.
    pub async fn connect(address: &S3Address) -> Result<Self, ConnectError> {
        Self::connect_by(address, shared_config(address)).await
    }

    /// As [`S3::connect`], with this key instead of what the usual places say.
    ///
    /// # Errors
    /// When there is no region.
    pub async fn connect_with(address: &S3Address, id: &str, secret: &str) -> Result<Self, ConnectError> {
        let key = Credentials::new(id, secret, None, None, "given");
        Self::connect_by(address, shared_config(address).credentials_provider(key)).await
    }

    async fn connect_by(address: &S3Address, loader: ConfigLoader) -> Result<Self, ConnectError> {
        let config = loader.load().await;
        if config.region().is_none() {
            return Err(ConnectError::NoRegion(address.bucket.clone()));
        }
        let no_credentials = |source| ConnectError::NoCredentials { bucket: address.bucket.clone(), source };
        let credentials =
            config.credentials_provider().ok_or_else(|| no_credentials("there is no provider".into()))?;
        credentials.provide_credentials().await.map_err(|error| no_credentials(error.into()))?;
        let mut builder = Builder::from(&config).force_path_style(address.endpoint.is_some());
        builder.set_endpoint_url(address.endpoint.clone());
        Ok(Self {
            client: Client::from_conf(builder.build()),
            bucket: address.bucket.clone(),
            prefix: address.prefix.as_ref().map_or_else(String::new, |prefix| format!("{prefix}/")),
        })
    }

    fn name(&self, key: &Key) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The object's size, of which an unsatisfiable range does not tell.
    async fn total(&self, key: &Key) -> Result<Option<u64>, ObjectsError> {
        let request = self.client.head_object().bucket(&self.bucket).key(self.name(key));
        match request.send().await {
            Ok(head) => Ok(Some(size(key, head.content_length())?)),
            Err(error) if meaning(&error) == Meaning::Absent => Ok(None),
            Err(error) => Err(failed(Operation::Read, key.as_str(), error)),
        }
    }
}

fn shared_config(address: &S3Address) -> ConfigLoader {
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
        .build_https();
    let timeouts =
        TimeoutConfig::builder().connect_timeout(CONNECT_WITHIN).read_timeout(ANSWER_WITHIN).build();
    let loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(http)
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard());
    let region = match (&address.region, &address.endpoint) {
        (Some(region), _) => Some(region.as_str()),
        (None, Some(_endpoint)) => Some(REGION_OF_ENDPOINTS),
        (None, None) => None,
    };
    match region {
        Some(region) => loader.region(Region::new(region.to_owned())),
        None => loader,
    }
}

#[async_trait]
impl Objects for S3 {
    async fn get(&self, key: &Key, limit: u64) -> Result<Option<Stored>, ObjectsError> {
        let request = self.client.get_object().bucket(&self.bucket).key(self.name(key));
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) if meaning(&error) == Meaning::Absent => return Ok(None),
            Err(error) => return Err(failed(Operation::Get, key.as_str(), error)),
        };
        let too_large = |size| ObjectsError::TooLarge { key: key.to_string(), limit, size };
        if let Some(size) = answer.content_length().and_then(|size| u64::try_from(size).ok())
            && size > limit
        {
            return Err(too_large(size));
        }
        let version = version(key, answer.e_tag())?;
        let mut body = answer.body;
        let mut bytes = BytesMut::new();
        while let Some(piece) = body.try_next().await.map_err(|error| broken_off(key, error))? {
            bytes.extend_from_slice(&piece);
            let size = bytes.len() as u64;
            if size > limit {
                return Err(too_large(size));
            }
        }
        Ok(Some(Stored { bytes: bytes.freeze(), version }))
    }

    async fn read(&self, key: &Key, range: Option<ByteRange>) -> Result<Option<Content>, ObjectsError> {
        let request = self.client.get_object().bucket(&self.bucket).key(self.name(key));
        let answer = match request.set_range(range.map(header)).send().await {
            Ok(answer) => answer,
            Err(error) => match meaning(&error) {
                Meaning::Absent => return Ok(None),
                Meaning::Unsatisfiable => {
                    let Some(total) = self.total(key).await? else { return Ok(None) };
                    return Err(ObjectsError::Unsatisfiable { key: key.to_string(), total });
                }
                Meaning::Conflict | Meaning::Other => {
                    return Err(failed(Operation::Read, key.as_str(), error));
                }
            },
        };
        let length = size(key, answer.content_length())?;
        let (start, total) = match answer.content_range() {
            Some(text) => parse_content_range(text)
                .ok_or_else(|| ObjectsError::corrupt(key, format!("its Content-Range is {text:?}")))?,
            None => (0, length),
        };
        let sent = start..start.saturating_add(length);
        let asked = range.map_or(Some(0..total), |range| range.within(total));
        // A server that ignores ranges, or says so of an empty object by answering 200.
        let asked = asked.ok_or_else(|| ObjectsError::Unsatisfiable { key: key.to_string(), total })?;
        if sent != asked {
            let reason = format!("the server sent bytes {sent:?}, asked for {asked:?} of {total}");
            return Err(ObjectsError::corrupt(key, reason));
        }
        Ok(Some(Content { total, range: sent, stream: pieces(key.clone(), answer.body) }))
    }

    async fn put(&self, key: &Key, bytes: Bytes, condition: Condition) -> Result<PutOutcome, ObjectsError> {
        let upload = Duration::from_secs(bytes.len() as u64 / SLOWEST_UPLOAD);
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(ANSWER_WITHIN + upload)
            .build();
        let mut settings = Builder::new().timeout_config(timeouts);
        let request =
            self.client.put_object().bucket(&self.bucket).key(self.name(key)).body(ByteStream::from(bytes));
        let request = match &condition {
            Condition::Always => request,
            Condition::Absent => request.if_none_match("*"),
            Condition::Matches(version) => request.if_match(version.as_str()),
        };
        if condition != Condition::Always {
            // A second attempt would be refused because of the success of the first one, whose
            // answer was lost: the writer would take its own write for somebody else's.
            settings = settings.retry_config(RetryConfig::disabled());
        }
        match request.customize().config_override(settings).send().await {
            Ok(answer) => Ok(PutOutcome::Stored(version(key, answer.e_tag())?)),
            Err(error) => match (meaning(&error), condition) {
                (Meaning::Conflict, Condition::Absent | Condition::Matches(_))
                | (Meaning::Absent, Condition::Matches(_)) => Ok(PutOutcome::Conflict),
                _ => Err(failed(Operation::Put, key.as_str(), error)),
            },
        }
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<Listed>, ObjectsError> {
        let mut found = Vec::new();
        let mut after = after.map(|after| self.name(after));
        while found.len() < limit {
            let page = self
                .client
                .list_objects_v2()
                .bucket(&self.bucket)
                .prefix(format!("{}{prefix}", self.prefix))
                .set_start_after(after.clone())
                .max_keys(i32::try_from(PAGE.min(limit - found.len())).unwrap_or(i32::MAX))
                .send()
                .await
                .map_err(|error| failed(Operation::List, prefix, error))?;
            let last = page.contents().last().and_then(|object| object.key()).map(str::to_owned);
            found.extend(page.contents().iter().filter_map(|object| self.listed(object)));
            // A page that does not go on would be asked for for ever.
            if page.is_truncated() != Some(true) || last.is_none() || last <= after {
                break;
            }
            after = last;
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn delete(&self, key: &Key) -> Result<(), ObjectsError> {
        let request = self.client.delete_object().bucket(&self.bucket).key(self.name(key));
        match request.send().await {
            Ok(_deleted) => Ok(()),
            Err(error) if meaning(&error) == Meaning::Absent => Ok(()),
            Err(error) => Err(failed(Operation::Delete, key.as_str(), error)),
        }
    }

    async fn presign(&self, key: &Key, ttl: Duration) -> Result<Option<String>, ObjectsError> {
        let refused = |source: Box<dyn std::error::Error + Send + Sync>| ObjectsError::Refused {
            operation: Operation::Read,
            key: key.to_string(),
            source,
        };
        let config = PresigningConfig::expires_in(ttl).map_err(|error| refused(error.into()))?;
        let request = self.client.get_object().bucket(&self.bucket).key(self.name(key));
        match request.presigned(config).await {
            Ok(signed) => Ok(Some(signed.uri().to_owned())),
            Err(error) => Err(failed(Operation::Read, key.as_str(), error)),
        }
    }
}

impl S3 {
    /// `None` for what is in the bucket but is not ours, such as the markers of folders.
    fn listed(&self, object: &aws_sdk_s3::types::Object) -> Option<Listed> {
        let key = Key::new(object.key()?.strip_prefix(&self.prefix)?).ok()?;
        Some(Listed { key, size: u64::try_from(object.size()?).ok()? })
    }
}

/// The body as it arrives; the SDK ends it with an error when it stalls or is cut.
fn pieces(key: Key, body: ByteStream) -> Pieces {
    stream::try_unfold(body, move |mut body| {
        let key = key.clone();
        async move {
            let piece = body.try_next().await.map_err(|error| broken_off(&key, error))?;
            Ok(piece.map(|piece| (piece, body)))
        }
    })
    .boxed()
}

fn broken_off(key: &Key, error: aws_sdk_s3::primitives::ByteStreamError) -> ObjectsError {
    ObjectsError::Unreachable { operation: Operation::Read, key: key.to_string(), source: error.into() }
}

fn version(key: &Key, e_tag: Option<&str>) -> Result<Version, ObjectsError> {
    e_tag.map(Version::new).ok_or_else(|| ObjectsError::corrupt(key, "the server gave no ETag"))
}

fn size(key: &Key, length: Option<i64>) -> Result<u64, ObjectsError> {
    length
        .and_then(|length| u64::try_from(length).ok())
        .ok_or_else(|| ObjectsError::corrupt(key, "the server gave no length"))
}

fn header(range: ByteRange) -> String {
    match range {
        ByteRange::From(first) => format!("bytes={first}-"),
        ByteRange::Within(first, last) => format!("bytes={first}-{last}"),
        ByteRange::Last(count) => format!("bytes=-{count}"),
    }
}

/// Start and total of `bytes START-END/TOTAL`.
fn parse_content_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()?))
}
