//! The index that all replicas share.
//!
//! A value is `fs1 `, the version as 20 digits, the SHA-256 of key, version and bytes, and the
//! bytes: what else is found under a key of ours is garbage, is forgotten, and is an error to
//! nobody but the one call. A Redis that is away costs one time-out a second and process; meanwhile
//! every other call fails at once.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use futures::{StreamExt as _, stream};
use redis::aio::{ConnectionManager, ConnectionManagerConfig, PubSubStream};
use redis::{Client, ErrorKind, RedisError, RedisResult, Script};

use tracing::{debug, warn};

use super::{
    Entry, Index, IndexError, Kept, MOST_BYTES, News, NewsStream, SeenShard, TTL, check_size, redis_seen,
};
use crate::record::SeenTable;

/// More than any answer of a Redis in the same place takes, and not more than a poll may lose.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// How long nobody asks again after Redis did not answer.
const REST: Duration = Duration::from_secs(1);
/// How errors call what was heard of clusters.
const SEEN: &str = "seen";
/// How many clusters are noted in one round trip: Redis does nothing else meanwhile.
const SEEN_AT_ONCE: usize = 20_000;
const PREFIX: &str = "farshore:";
/// The channel of [`News`].
const NEWS: &str = "farshore:news";
const MAGIC: &[u8] = b"fs1 ";
const DIGITS: usize = 20;
const HEAD: usize = MAGIC.len() + DIGITS + 32;

/// Keeps the value unless a well-formed one with a higher version is there. Versions are compared
/// as text, because a number of Lua holds 53 bits.
const PUT: &str = "\
local held = redis.pcall('GETRANGE', KEYS[1], 0, 23)
if type(held) == 'string' and #held == 24 and string.sub(held, 1, 4) == 'fs1 '
    and string.match(string.sub(held, 5), '^%d+$') and string.sub(held, 5) > ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1";

const LEASE: &str = "\
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'string' and held ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1";

/// An index in Redis.
pub struct Redis {
    client: Client,
    /// How it is called in errors: without its password.
    address: String,
    link: Mutex<Link>,
    ttl: Duration,
    put: Script,
    lease: Script,
}

/// Whether Redis is asked.
enum Link {
    /// Through this connection, which is made, and made again, when it is used.
    Open(ConnectionManager),
    /// Not before this time.
    Resting(Instant),
}

/// A Redis that cannot be asked at all.
#[derive(Debug, thiserror::Error)]
#[error("a Redis address is redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]")]
pub struct BadRedisUrl(#[source] RedisError);

impl Redis {
    /// An index at `redis://HOST[:PORT][/DB]` that keeps entries for [`TTL`]. Does not wait for
    /// Redis, which may well be away.
    ///
    /// # Errors
    /// When the URL is not one of Redis.
    pub fn connect(url: &str) -> Result<Self, BadRedisUrl> {
        Self::connect_with(url, TTL)
    }

    /// As [`Redis::connect`], with its own time to live.
    ///
    /// # Errors
    /// When the URL is not one of Redis.
    pub fn connect_with(url: &str, ttl: Duration) -> Result<Self, BadRedisUrl> {
        let client = Client::open(url).map_err(BadRedisUrl)?;
        let address = client.get_connection_info().addr().to_string();
        let link = Mutex::new(Link::Resting(Instant::now()));
        Ok(Self { client, address, link, ttl, put: Script::new(PUT), lease: Script::new(LEASE) })
    }

    /// A connection, unless Redis is left alone at the moment.
    fn connection(&self) -> RedisResult<ConnectionManager> {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        match &*link {
            Link::Open(connection) => return Ok(connection.clone()),
            Link::Resting(until) if Instant::now() < *until => {
                return Err(io::Error::other("it did not answer a moment ago").into());
            }
            Link::Resting(_over) => {}
        }
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(ANSWER_WITHIN))
            .set_response_timeout(Some(ANSWER_WITHIN))
            .set_number_of_retries(1);
        let connection = ConnectionManager::new_lazy_with_config(self.client.clone(), config)?;
        *link = Link::Open(connection.clone());
        Ok(connection)
    }

    /// Gives up the connection, be it one that hangs for ever, and lets Redis rest.
    fn rest(&self) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Link::Resting(Instant::now() + REST);
    }

    async fn call<T>(
        &self,
        key: &str,
        work: impl AsyncFnOnce(&mut ConnectionManager) -> RedisResult<T>,
    ) -> Result<T, IndexError> {
        let away = |source: RedisError| IndexError::Away { key: key.to_owned(), source: source.into() };
        let mut connection = self.connection().map_err(away)?;
        match tokio::time::timeout(ANSWER_WITHIN, work(&mut connection)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) if is_garbage(&error) => Err(garbage(key, error.to_string())),
            Ok(Err(error)) => {
                if error.is_io_error() || error.is_unrecoverable_error() {
                    self.rest();
                }
                Err(away(error))
            }
            Err(elapsed) => {
                self.rest();
                Err(IndexError::Away { key: key.to_owned(), source: elapsed.into() })
            }
        }
    }
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis")
            .field("address", &self.address)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Index for Redis {
    async fn get(&self, key: &str) -> Result<Option<Entry>, IndexError> {
        let name = format!("{PREFIX}{key}");
        // One byte more than allowed shows that there is too much, and no more of it is sent.
        let end = HEAD + MOST_BYTES;
        let read = self
            .call(key, async |connection| {
                redis::cmd("GETRANGE").arg(&name).arg(0).arg(end).query_async(connection).await
            })
            .await;
        let decoded = read.and_then(|value: Bytes| match value.len() {
            0 => Ok(None),
            size if size > end => Err(garbage(key, "it is too large")),
            _ => decode(key, value).map(Some),
        });
        if let Err(IndexError::Garbage { .. }) = &decoded {
            // It could look newer than what is put after it.
            self.forget(key).await?;
        }
        decoded
    }

    async fn put(&self, key: &str, entry: &Entry) -> Result<(), IndexError> {
        check_size(key, entry)?;
        let mut call = self.put.key(format!("{PREFIX}{key}"));
        call.arg(digits(entry.version)).arg(encode(key, entry)).arg(millis(self.ttl));
        self.call(key, async |connection| call.invoke_async(connection).await).await
    }

    async fn forget(&self, key: &str) -> Result<(), IndexError> {
        let name = format!("{PREFIX}{key}");
        self.call(key, async |connection| redis::cmd("DEL").arg(&name).query_async(connection).await).await
    }

    async fn lease(&self, name: &str, holder: &str, ttl: Duration) -> Result<bool, IndexError> {
        let mut call = self.lease.key(format!("{PREFIX}lease:{name}"));
        call.arg(holder).arg(millis(ttl));
        self.call(name, async |connection| call.invoke_async(connection).await).await
    }

    async fn note_seen(&self, times: &SeenTable) -> Result<Kept, IndexError> {
        let times: Vec<_> = times.iter().collect();
        for some in times.chunks(SEEN_AT_ONCE) {
            let pipe = redis_seen::note(&some.iter().map(|(name, at)| ((*name).clone(), **at)).collect());
            self.call(SEEN, async |connection| pipe.query_async::<()>(connection).await).await?;
        }
        Ok(Kept::Yes)
    }

    async fn seen(&self, shard: u16) -> Result<Option<SeenShard>, IndexError> {
        let begin = redis_seen::begin(shard);
        let begun = self.call(SEEN, async |connection| begin.query_async(connection).await).await?;
        let mut reading = redis_seen::Reading::of(shard, begun);
        while let Some(more) = reading.more() {
            let page = self.call(SEEN, async |connection| more.query_async(connection).await).await?;
            reading.take(page);
        }
        if reading.is_cut() {
            warn!(
                shard,
                limit = redis_seen::SHARD_LIMIT,
                "last-seen times beyond the limit of a shard are not read"
            );
        }
        Ok(Some(reading.found()))
    }

    async fn forget_seen(&self, clusters: &[Name]) -> Result<(), IndexError> {
        for some in clusters.chunks(SEEN_AT_ONCE) {
            let forget = redis_seen::forget(some);
            self.call(SEEN, async |connection| forget.query_async::<()>(connection).await).await?;
        }
        Ok(())
    }

    async fn tell(&self, news: &News) -> Result<(), IndexError> {
        let text = serde_json::to_string(news).expect("news have string keys only");
        let published = async |connection: &mut ConnectionManager| {
            redis::cmd("PUBLISH").arg(NEWS).arg(&text).query_async(connection).await
        };
        self.call(NEWS, published).await
    }

    fn hear(&self) -> NewsStream {
        let client = self.client.clone();
        stream::unfold((client, None), async |(client, mut open)| {
            loop {
                let Some(heard) = &mut open else {
                    open = subscribe(&client).await;
                    if open.is_some() {
                        return Some((News::Missed, (client, open)));
                    }
                    tokio::time::sleep(REST).await;
                    continue;
                };
                match heard.next().await {
                    None => open = None,
                    Some(message) => {
                        // Something else than news on our channel: whoever sent it means something.
                        let news = serde_json::from_slice(message.get_payload_bytes());
                        return Some((news.unwrap_or(News::Missed), (client, open)));
                    }
                }
            }
        })
        .boxed()
    }
}

/// A connection of its own that hears all news; none while Redis is away.
async fn subscribe(client: &Client) -> Option<PubSubStream> {
    let subscribed = async {
        let mut connection = client.get_async_pubsub().await?;
        connection.subscribe(NEWS).await?;
        RedisResult::Ok(connection.into_on_message())
    };
    let subscribed = tokio::time::timeout(ANSWER_WITHIN, subscribed).await;
    match subscribed {
        Ok(Ok(heard)) => Some(heard),
        Ok(Err(error)) => {
            debug!(%error, "index is away: no news are heard");
            None
        }
        Err(_elapsed) => None,
    }
}

fn is_garbage(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedReturnType) || error.code() == Some("WRONGTYPE")
}

fn garbage(key: &str, reason: impl Into<String>) -> IndexError {
    IndexError::Garbage { key: key.to_owned(), reason: reason.into() }
}

/// As many milliseconds, and never none, which Redis refuses.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, i64::MAX.unsigned_abs() / 2)
}

fn digits(version: u64) -> String {
    format!("{version:0DIGITS$}")
}

fn checksum(key: &str, version: &str, bytes: &[u8]) -> Digest {
    Digest::of_parts([key.as_bytes(), version.as_bytes(), bytes])
}

fn encode(key: &str, entry: &Entry) -> Vec<u8> {
    let version = digits(entry.version);
    let sum = checksum(key, &version, &entry.bytes);
    [MAGIC, version.as_bytes(), sum.as_bytes(), &entry.bytes].concat()
}

fn decode(key: &str, mut value: Bytes) -> Result<Entry, IndexError> {
    if value.len() < HEAD || !value.starts_with(MAGIC) {
        return Err(garbage(key, "it is not a value of ours"));
    }
    let head = value.split_to(HEAD);
    let version = std::str::from_utf8(&head[MAGIC.len()..MAGIC.len() + DIGITS]).unwrap_or_default();
    if checksum(key, version, &value).as_bytes() != &head[MAGIC.len() + DIGITS..] {
        return Err(garbage(key, "its checksum is wrong"));
    }
    let version = version.parse().map_err(|_not_a_number| garbage(key, "its version is not a number"))?;
    Ok(Entry { version, bytes: value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_reads_back_and_no_changed_byte_of_it_does() {
        let entry = Entry { version: u64::MAX, bytes: Bytes::from_static(b"body") };
        let value = encode("a", &entry);
        assert_eq!(decode("a", value.clone().into()).expect("our own"), entry);
        assert!(decode("b", value.clone().into()).is_err(), "under another key");
        for at in 0..value.len() {
            let mut changed = value.clone();
            changed[at] ^= 1;
            assert!(decode("a", changed.into()).is_err(), "byte {at} changed");
            assert!(decode("a", value[..at].to_vec().into()).is_err(), "cut at {at}");
        }
    }
}
