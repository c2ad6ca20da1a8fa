//! Hubs as processes, over a record on disk or in a bucket.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farshore_chaos::kit::{Port, Process, Redis, S3, binary};
use farshore_hub_fn::objects::Objects;
use farshore_hub_fn::stores;
use farshore_hub_fn::tls::TlsFiles;
use tempfile::TempDir;

use crate::error::BenchError;
use crate::seed::POLL_SECONDS;

/// A million clusters may have to be loaded first.
const LISTENS_WITHIN: Duration = Duration::from_secs(120);
const BUCKET: &str = "fleet";

/// One certificate for hub and yardstick.
pub(crate) struct Certificate {
    files: TlsFiles,
    _folder: TempDir,
}

impl Certificate {
    /// Makes one.
    ///
    /// # Errors
    /// When there is no temporary folder.
    pub(crate) fn new() -> Result<Self, BenchError> {
        let folder = TempDir::new().map_err(BenchError::io("making a folder"))?;
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .map_err(BenchError::io("opening a folder to nginx"))?;
        let files = TlsFiles::own(folder.path()).map_err(BenchError::ours("making a certificate"))?;
        Ok(Self { files, _folder: folder })
    }

    /// The chain, PEM.
    pub(crate) fn cert(&self) -> &Path {
        &self.files.cert
    }

    /// The key, PEM.
    pub(crate) fn key(&self) -> &Path {
        &self.files.key
    }

    /// The digest of its key, as sites pin it.
    ///
    /// # Errors
    /// When the file is gone.
    pub(crate) fn pin(&self) -> Result<farshore_shared::digest::Digest, BenchError> {
        self.files.pin().map_err(BenchError::ours("reading the certificate"))
    }
}

/// Where a record and its index are.
pub(crate) enum Place {
    /// The record in a folder, the index in memory. One hub at a time.
    Disk(TempDir),
    /// The record in a bucket of a real S3 API, the index in a real Redis.
    Bucket(Box<Bucket>),
}

/// The servers of a fleet of several hubs.
pub(crate) struct Bucket {
    pub(crate) s3: S3,
    pub(crate) redis: Redis,
    caches: TempDir,
}

impl Place {
    /// An empty record on disk.
    ///
    /// # Errors
    /// When there is no temporary folder.
    pub(crate) fn disk() -> Result<Self, BenchError> {
        Ok(Self::Disk(TempDir::new().map_err(BenchError::io("making a folder"))?))
    }

    /// An empty record in a bucket.
    ///
    /// # Errors
    /// When a server does not start.
    pub(crate) async fn bucket() -> Result<Self, BenchError> {
        let (s3, redis) = (S3::start().await?, Redis::start().await?);
        s3.create_bucket(BUCKET)?;
        let caches = TempDir::new().map_err(BenchError::io("making a folder"))?;
        Ok(Self::Bucket(Box::new(Bucket { s3, redis, caches })))
    }

    /// The record.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) async fn objects(&self) -> Result<Arc<dyn Objects>, BenchError> {
        match self {
            Self::Disk(folder) => {
                stores::open_disk(folder.path()).map_err(BenchError::ours("opening the record"))
            }
            Self::Bucket(bucket) => bucket.objects().await,
        }
    }

    /// What a hub is told of it; `name` is that of its data folder.
    pub(crate) fn arguments(&self, name: &str) -> Vec<String> {
        match self {
            Self::Disk(folder) => vec![format!("--data={}", folder.path().display())],
            Self::Bucket(bucket) => vec![
                format!("--data={}", bucket.caches.path().join(name).display()),
                format!("--objects={}", bucket.address()),
                format!("--redis={}", bucket.redis.url()),
            ],
        }
    }

    /// The variables that a hub needs for it.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let Self::Bucket(bucket) = self else { return Vec::new() };
        let pairs = [
            ("AWS_ACCESS_KEY_ID", bucket.s3.access_key()),
            ("AWS_SECRET_ACCESS_KEY", bucket.s3.secret_key()),
            ("AWS_REGION", bucket.s3.region()),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }
}

impl Bucket {
    fn address(&self) -> String {
        format!("s3://{BUCKET}?endpoint={}&region={}", self.s3.endpoint(), self.s3.region())
    }

    async fn objects(&self) -> Result<Arc<dyn Objects>, BenchError> {
        use farshore_hub_fn::objects::s3;
        let address =
            self.address().parse::<s3::S3Address>().map_err(BenchError::ours("naming the bucket"))?;
        let store = s3::S3::connect_with(&address, self.s3.access_key(), self.s3.secret_key()).await;
        Ok(Arc::new(store.map_err(BenchError::ours("opening the bucket"))?))
    }
}

/// A hub, to be started.
pub(crate) struct Hub {
    port: Port,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

/// A hub that runs; `Drop` kills it.
pub(crate) struct Running {
    process: Process,
    address: String,
}

impl Hub {
    /// A hub that serves over this record. `name` is that of its data folder, where it has one of its own.
    ///
    /// # Errors
    /// When no port is free.
    pub(crate) fn serving(place: &Place, name: &str) -> Result<Self, BenchError> {
        let port = Port::take()?;
        let mut arguments = place.arguments(name);
        arguments.extend(["--role=serve".to_owned(), format!("--listen={}", port.address())]);
        let mut variables = place.variables();
        variables.push(("RUST_LOG".to_owned(), "info".to_owned()));
        Ok(Self { port, arguments, variables })
    }

    /// With plain HTTP.
    pub(crate) fn plain(mut self) -> Self {
        self.arguments.push("--plain".to_owned());
        self
    }

    /// With this certificate.
    pub(crate) fn with(mut self, certificate: &Certificate) -> Self {
        self.arguments.push(format!("--tls-cert={}", certificate.cert().display()));
        self.arguments.push(format!("--tls-key={}", certificate.key().display()));
        self
    }

    /// With so many threads that answer.
    pub(crate) fn threads(mut self, threads: usize) -> Self {
        self.variables.push(("TOKIO_WORKER_THREADS".to_owned(), threads.to_string()));
        self
    }

    /// As an operator sets it who expects so many polls a second.
    pub(crate) fn bears(mut self, polls: u32) -> Self {
        self.variables.push(("FARSHORE_POLL_RATE_LIMIT".to_owned(), polls.to_string()));
        self
    }

    /// Where one cluster may ask as often as it likes: a bench has fewer clusters than a fleet has.
    pub(crate) fn without_limits(mut self) -> Self {
        self.variables.push(("FARSHORE_CLUSTER_RATE_LIMIT".to_owned(), "1000000".to_owned()));
        self.bears(1_000_000)
    }

    /// Where it will answer.
    pub(crate) fn address(&self) -> String {
        self.port.address()
    }

    /// The program with its arguments and variables.
    ///
    /// # Errors
    /// When it is not built.
    pub(crate) fn command(&self) -> Result<std::process::Command, BenchError> {
        let mut command = std::process::Command::new(binary("farshore-hub")?);
        command.args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Starts it, and returns when it listens. It may be started again once the running one is gone.
    ///
    /// # Errors
    /// When it ends, or does not listen in time.
    pub(crate) async fn start(&self) -> Result<Running, BenchError> {
        let variables = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut process = Process::start_with("farshore-hub", &self.arguments, variables)?;
        process.wait_for_line("listening on http", LISTENS_WITHIN).await?;
        Ok(Running { process, address: self.address() })
    }
}

impl Running {
    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Where it answers.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

/// A publisher over the record of a bucket, with these keys and this fleet repository.
///
/// # Errors
/// When it does not start.
pub(crate) async fn publisher(
    place: &Place,
    keys: &Path,
    url: &str,
    interval: &str,
) -> Result<Process, BenchError> {
    let port = Port::take()?;
    let mut arguments = place.arguments("publisher");
    arguments.extend([
        "--role=publish".to_owned(),
        format!("--listen={}", port.address()),
        format!("--keys={}", keys.display()),
        format!("--fleet={url}"),
        format!("--interval={interval}"),
        // As the fleet was founded: with another one every document would be written anew.
        format!("--site-poll={POLL_SECONDS}s"),
        "--plain".to_owned(),
    ]);
    let variables = place.variables();
    let variables = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut process = Process::start_with("farshore-hub", &arguments, variables)?;
    process.wait_for_line("listening on http", LISTENS_WITHIN).await?;
    Ok(process)
}
