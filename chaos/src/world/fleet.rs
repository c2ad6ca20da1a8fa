//! Keys, certificate and record of one fleet: what its hubs share.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farshore_shared::compress;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::Secret;
use farshore_shared::names::Labels;
use farshore_shared::token::{Claims, JoinToken};
use farshore_shared::wire::Status;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;

use super::EVERY;
use super::function::Function;
use super::hub::{Hub, Role};
use super::site::{Site, Target};
use crate::kit::{Finished, KitError, Process, Redis, S3, copy, wait_for};

const BUCKET: &str = "fleet";
/// A hub that only makes keys and a root has nothing to wait for.
const FOUNDED_WITHIN: Duration = Duration::from_secs(60);
const TOKEN_LIFE: u64 = 3600;
const COMMAND_WITHIN: Duration = Duration::from_secs(30);
/// Fetching, deciding and publishing, with a minute for a machine that other tests keep busy.
const SHOWN_WITHIN: Duration = Duration::from_secs(60);

/// What hubs on several machines share.
struct Shared {
    s3: S3,
    redis: Redis,
}

/// One fleet. Its hubs and sites are values of their own, to be dropped before it.
pub struct Fleet {
    folder: TempDir,
    /// None where the record is in the data folder of the only hub, and the index in its memory.
    shared: Option<Shared>,
    url: String,
}

impl Fleet {
    /// A fleet declared in the repository at `url`, with one hub that is complete by itself.
    ///
    /// # Errors
    /// When there is no temporary folder.
    pub fn on_disk(url: &str) -> Result<Self, KitError> {
        Self::with(None, url)
    }

    /// A fleet whose record is in a bucket and whose index is in Redis, with keys and certificate that all of its
    /// hubs can be given.
    ///
    /// # Errors
    /// When a server or the first hub does not start.
    pub async fn in_bucket(url: &str) -> Result<Self, KitError> {
        let (s3, redis) = (S3::start().await?, Redis::start().await?);
        s3.create_bucket(BUCKET)?;
        let fleet = Self::with(Some(Shared { s3, redis }), url)?;
        fleet.write_certificate()?;
        fleet.found().await?;
        Ok(fleet)
    }

    fn with(shared: Option<Shared>, url: &str) -> Result<Self, KitError> {
        let folder = TempDir::new().map_err(KitError::io("making a folder", std::env::temp_dir()))?;
        Ok(Self { folder, shared, url: url.to_owned() })
    }

    /// A hub of this fleet that has not been started. Its name is that of its data folder.
    ///
    /// # Errors
    /// When no port is free.
    pub fn hub(&self, name: &str, role: Role) -> Result<Hub, KitError> {
        Hub::new(role, self.hub_arguments(name, role), self.variables())
    }

    /// A hub of this fleet as a Lambda function that has not been started. Its data folder has this name.
    ///
    /// # Errors
    /// When no port is free.
    ///
    /// # Panics
    /// When the fleet has no bucket: see [`Fleet::in_bucket`].
    pub async fn function(&self, name: &str, role: Role) -> Result<Function, KitError> {
        assert!(self.shared.is_some(), "a function has its record in a bucket");
        let mut arguments = self.hub_arguments(name, role);
        arguments.push(format!("--site-poll={EVERY}"));
        arguments.push(format!("--interval={EVERY}"));
        let (cert, key) = (self.path("cert.pem"), self.path("cert.key"));
        let (cert, key) = (cert.to_string_lossy(), key.to_string_lossy());
        Function::new(arguments, self.variables(), (&cert, &key)).await
    }

    /// A site that has not been started and polls the hub at `hub` (`HOST:PORT`).
    ///
    /// # Errors
    /// When there are no keys yet: a hub that is complete by itself makes them at its first start.
    pub fn site(&self, name: &str, hub: &str, target: Target) -> Result<Site, KitError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Site::new(name, hub, &self.token(1, now + TOKEN_LIFE)?, target)
    }

    /// A join token for so many sites, until this second since 1970.
    ///
    /// # Errors
    /// As [`Fleet::site`].
    pub fn token(&self, uses: u32, expires: u64) -> Result<String, KitError> {
        let key = self.read_key("token.key")?;
        let key = Secret::from_file(&String::from_utf8_lossy(&key), "token")
            .map_err(|error| unexpected("the token key", &error))?;
        let root = Digest::of(&self.read_key("root.1.json")?);
        let id = hex_of(Secret::random().as_bytes());
        let claims = Claims { id, labels: Labels::new(), expires, uses, replaces: None };
        Ok(JoinToken::issue(claims, &key, root).expose())
    }

    /// The server of its bucket.
    ///
    /// # Panics
    /// When it has none: see [`Fleet::in_bucket`].
    pub fn s3(&mut self) -> &mut S3 {
        &mut self.shared.as_mut().expect("this fleet was made in a bucket").s3
    }

    /// The server of its index.
    ///
    /// # Panics
    /// When it has none: see [`Fleet::in_bucket`].
    pub fn redis(&mut self) -> &mut Redis {
        &mut self.shared.as_mut().expect("this fleet was made in a bucket").redis
    }

    /// The folder of its keys.
    #[must_use]
    pub fn keys(&self) -> PathBuf {
        self.folder.path().join(if self.shared.is_some() { "keys" } else { "hub/keys" })
    }

    /// The data folder of one of its hubs.
    #[must_use]
    pub fn data(&self, hub: &str) -> PathBuf {
        self.folder.path().join(hub)
    }

    /// The folder whose files are the objects of its record.
    #[must_use]
    pub fn record(&self) -> PathBuf {
        match &self.shared {
            None => self.folder.path().join("hub/objects"),
            Some(Shared { s3, .. }) => s3.bucket_folder(BUCKET),
        }
    }

    /// Runs `farshore` to its end beside the record, whatever its exit status.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn farshore(&self, arguments: &[&str]) -> Result<Finished, KitError> {
        let mut all: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        match &self.shared {
            None => all.push(format!("--data={}", self.data("hub").display())),
            Some(Shared { s3, .. }) => all.push(format!("--objects={}", address(s3))),
        }
        if arguments.first() == Some(&"approve") {
            all.push(format!("--keys={}", self.keys().display()));
        }
        let variables = self.variables();
        let variables = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Process::start_with("farshore", &all, variables)?.output(COMMAND_WITHIN).await
    }

    /// What `farshore get sources -o json` says of a source; null when there is none of that name.
    ///
    /// # Errors
    /// When the command fails.
    pub async fn source(&self, name: &str) -> Result<Value, KitError> {
        let said = self.farshore(&["get", "sources", "--output=json"]).await?;
        if !said.status.success() {
            let what = "farshore get sources".to_owned();
            return Err(KitError::Failed { what, status: said.status, output: said.stderr });
        }
        let all: Value = serde_json::from_str(&said.stdout).map_err(|error| unexpected("sources", &error))?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        Ok(items.into_iter().find(|item| item["name"] == name).unwrap_or_default())
    }

    /// Waits until a source is in this state (`ready`, `degraded`, `held` or `failed`), and returns what
    /// `farshore get sources` says of it.
    ///
    /// # Errors
    /// At the deadline.
    pub async fn until_source(&self, name: &str, state: &str) -> Result<Value, KitError> {
        wait_for(&format!("source {name} to be {state}"), SHOWN_WITHIN, async || {
            let source = self.source(name).await.map_err(|error| error.to_string())?;
            if source["state"] == state { Ok(source) } else { Err(source.to_string()) }
        })
        .await
    }

    /// Waits until what a source has brought is held, and approves it.
    ///
    /// # Errors
    /// When nothing is held, or the approval is refused.
    pub async fn approve(&self, source: &str) -> Result<(), KitError> {
        let held = self.until_source(source, "held").await?;
        let change = held["held"]["change"].as_str().unwrap_or_default().to_owned();
        let approved = self.farshore(&["approve", &change]).await?;
        if approved.status.success() {
            return Ok(());
        }
        Err(KitError::Answer { what: format!("farshore approve {change}"), answer: approved.stderr })
    }

    /// Keeps a copy of the record as it is, for [`Fleet::restore`].
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn back_up(&self) -> Result<TempDir, KitError> {
        let backup = TempDir::new().map_err(KitError::io("making a folder", std::env::temp_dir()))?;
        copy(&self.record(), backup.path())?;
        Ok(backup)
    }

    /// Puts a copy in the place of the record: nothing later is known. No hub may run meanwhile.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn restore(&self, backup: &TempDir) -> Result<(), KitError> {
        let record = self.record();
        std::fs::remove_dir_all(&record).map_err(KitError::io("removing a folder", &record))?;
        copy(backup.path(), &record)
    }

    /// What a signed document of the record says, its signatures not looked at; none while it is not there.
    ///
    /// # Errors
    /// When it is there and says something else.
    pub fn document<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, KitError> {
        let path = self.record().join(key);
        if !path.exists() {
            return Ok(None);
        }
        let bytes = std::fs::read(&path).map_err(KitError::io("reading the record", &path))?;
        let envelope: Envelope = serde_json::from_slice(&bytes).map_err(|error| unexpected(key, &error))?;
        let payload = STANDARD.decode(&envelope.payload).map_err(|error| unexpected(key, &error))?;
        serde_json::from_slice(&payload).map(Some).map_err(|error| unexpected(key, &error))
    }

    /// The last status of a site; none before the first.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn status(&self, site: &str) -> Result<Option<Status>, KitError> {
        let mut last: Option<(u64, Status)> = None;
        // The log first: what is folded meanwhile is then found in its shard.
        for folder in ["status-log", "status/leaves", "status/shards"] {
            let path = self.record().join(folder);
            let Ok(files) = std::fs::read_dir(&path) else { continue };
            for file in files.flatten() {
                // It may be folded, and gone, by now.
                let Ok(bytes) = std::fs::read(file.path()) else { continue };
                for report in reports(&bytes).map_err(|error| unexpected(folder, &error))? {
                    if report["cluster"] != site {
                        continue;
                    }
                    let payload = report["envelope"]["payload"].as_str().unwrap_or_default();
                    let payload = STANDARD.decode(payload).map_err(|error| unexpected(folder, &error))?;
                    let status =
                        serde_json::from_slice(&payload).map_err(|error| unexpected(folder, &error))?;
                    let received = report["received"].as_u64().unwrap_or_default();
                    if last.as_ref().is_none_or(|(before, _)| received >= *before) {
                        last = Some((received, status));
                    }
                }
            }
        }
        Ok(last.map(|(_, status)| status))
    }

    /// The options of a hub in this fleet, except where it listens.
    fn hub_arguments(&self, name: &str, role: Role) -> Vec<String> {
        let mut arguments = vec![format!("--data={}", self.data(name).display()), format!("--role={role}")];
        if role != Role::Serve {
            arguments.push(format!("--fleet={}", self.url));
        }
        if let Some(Shared { s3, redis }) = &self.shared {
            arguments.push(format!("--redis={}", redis.url()));
            arguments.push(format!("--objects={}", address(s3)));
            arguments.push(format!("--tls-cert={}", self.path("cert.pem").display()));
            arguments.push(format!("--tls-key={}", self.path("cert.key").display()));
            if role != Role::Serve {
                arguments.push(format!("--keys={}", self.keys().display()));
            }
        }
        arguments
    }

    fn variables(&self) -> Vec<(String, String)> {
        let Some(Shared { s3, .. }) = &self.shared else { return Vec::new() };
        let pairs = [
            ("AWS_ACCESS_KEY_ID", s3.access_key()),
            ("AWS_SECRET_ACCESS_KEY", s3.secret_key()),
            ("AWS_REGION", s3.region()),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// One certificate for all hubs, which the root pins: a site takes any of them for its hub.
    fn write_certificate(&self) -> Result<(), KitError> {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names);
        let made = made.map_err(|error| unexpected("rcgen for a certificate", &error))?;
        self.write("cert.pem", &made.cert.pem())?;
        self.write("cert.key", &made.signing_key.serialize_pem())
    }

    /// Makes keys and root, by one step of a hub that is complete by itself.
    async fn found(&self) -> Result<(), KitError> {
        let mut arguments = self.hub_arguments("founder", Role::All);
        arguments.push("--once".to_owned());
        let variables = self.variables();
        let variables = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let founder = Process::start_with("farshore-hub", &arguments, variables)?;
        let ended = founder.output(FOUNDED_WITHIN).await?;
        // What it makes of the repository is not the question here; that there are keys is.
        if self.keys().join("root.1.json").is_file() {
            return Ok(());
        }
        let what = format!("farshore-hub {}", arguments.join(" "));
        Err(KitError::Failed { what, status: ended.status, output: ended.stderr })
    }

    fn read_key(&self, file: &str) -> Result<Vec<u8>, KitError> {
        let path = self.keys().join(file);
        std::fs::read(&path).map_err(KitError::io("reading a key", path))
    }

    fn write(&self, file: &str, text: &str) -> Result<(), KitError> {
        std::fs::write(self.path(file), text).map_err(KitError::io("writing a file", self.path(file)))
    }

    fn path(&self, file: &str) -> PathBuf {
        Path::join(self.folder.path(), file)
    }
}

fn address(s3: &S3) -> String {
    format!("s3://{BUCKET}?endpoint={}", s3.endpoint())
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unexpected(what: &str, error: &dyn std::fmt::Display) -> KitError {
    KitError::Answer { what: what.to_owned(), answer: error.to_string() }
}

/// The reports in a part of the log, or in a shard of statuses (`docs/wire.md`, "Reports in the record").
fn reports(bytes: &[u8]) -> Result<Vec<Value>, std::io::Error> {
    /// Bytes before the facts in a shard: a mark, a kind, and the length of the facts.
    const HEAD: usize = 9;
    const LIMIT: usize = 512 << 20;
    let packed = match bytes.strip_prefix(b"fss1") {
        Some([b'S', ..]) => return Ok(vec![]),
        Some(_) => {
            let length = bytes.get(5..HEAD).and_then(|length| length.try_into().ok());
            let facts = length.map_or(0, u32::from_be_bytes);
            bytes.get(HEAD + usize::try_from(facts).unwrap_or(usize::MAX - HEAD)..).unwrap_or_default()
        }
        None => bytes,
    };
    let json = compress::unpack(packed, LIMIT).map_err(std::io::Error::other)?;
    serde_json::from_slice(&json).map_err(std::io::Error::other)
}
