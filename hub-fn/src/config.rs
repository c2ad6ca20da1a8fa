//! What a hub is told: command line and environment, checked as a whole before anything starts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use farshore_shared::duration::HumanDuration;

use crate::handlers::Settings;
use crate::handlers::artifact::Redirects;
use crate::load;
use crate::retention::Rules;
use crate::server;
use crate::source::{Branch, FileSources, GitUrl};
use crate::tls::TlsFiles;
use crate::view::Room;
use crate::waiting::WakeLimits;

/// `farshore hub` and `farshore-hub`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct HubArgs {
    /// Folder for what this hub keeps: the record (unless --objects), mirrors, keys, TLS
    #[arg(long, env = "FARSHORE_DATA", value_name = "DIR")]
    pub data: PathBuf,
    /// Address to listen on
    #[arg(long, env = "FARSHORE_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:8443")]
    pub listen: SocketAddr,
    /// Fleet repository: http(s)://, file:// or an absolute path, with an optional #branch
    #[arg(long, env = "FARSHORE_FLEET", value_name = "URL[#branch]")]
    pub fleet: Option<String>,
    /// What this process does
    #[arg(long, env = "FARSHORE_ROLE", value_enum, default_value_t = Role::All)]
    pub role: Role,
    /// Do one bounded step of publishing and exit (not with --role serve)
    #[arg(long, env = "FARSHORE_ONCE")]
    pub once: bool,
    /// Folder of the keys [default: DATA/keys]
    #[arg(long, env = "FARSHORE_KEYS", value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// TLS certificate chain, PEM [default: one of its own]
    #[arg(long, env = "FARSHORE_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the TLS certificate, PEM
    #[arg(long, env = "FARSHORE_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Serve plain HTTP: only behind something that ends TLS
    #[arg(long, env = "FARSHORE_PLAIN")]
    pub plain: bool,
    /// Redis for the index: redis://HOST:PORT [default: memory]
    #[arg(long, env = "FARSHORE_REDIS", value_name = "URL")]
    pub redis: Option<String>,
    /// Bucket for the record: s3://BUCKET[?endpoint=URL] [default: DATA/objects]
    #[arg(long, env = "FARSHORE_OBJECTS", value_name = "URL")]
    pub objects: Option<String>,
    /// How often sources are fetched
    #[arg(long, env = "FARSHORE_INTERVAL", value_name = "DURATION", default_value = "2m")]
    pub interval: HumanDuration,
    /// How many sources are fetched at once
    #[arg(long, env = "FARSHORE_FETCHES", value_name = "N", default_value_t = 8)]
    pub fetches: usize,
    /// How many bytes the mirrors on this disk may have; beyond, the least recently used are dropped
    #[arg(long, env = "FARSHORE_MIRROR_CACHE", value_name = "BYTES", default_value_t = 10 << 30)]
    pub mirror_cache: u64,
    /// How often sites are told to poll
    #[arg(long, env = "FARSHORE_SITE_POLL", value_name = "DURATION", default_value = "2m")]
    pub site_poll: HumanDuration,
    /// The most bytes that all clusters may take in memory; the rest is read again when it is needed
    #[arg(long, env = "FARSHORE_VIEW_LIMIT", value_name = "BYTES", default_value_t = crate::view::MEMORY_LIMIT)]
    pub view_limit: usize,
    /// The most bytes of signed documents in memory, about; the rest is read again when it is needed
    #[arg(long, env = "FARSHORE_DOCUMENT_CACHE", value_name = "BYTES", default_value_t = crate::view::DOCUMENTS_LIMIT)]
    pub document_cache: u64,
    /// Connections at once; more wait in the kernel's queue
    #[arg(long, env = "FARSHORE_CONNECTIONS", value_name = "N", default_value_t = 100_000)]
    pub connections: u32,
    /// Folder of webhook secrets: a file per source, named after it (`fleet` for the fleet repository), a secret
    /// per line [default: no webhooks]
    #[arg(long, env = "FARSHORE_HOOK_SECRETS", value_name = "DIR")]
    pub hook_secrets: Option<PathBuf>,
    /// Agents that may wait for news at once in this process; 0 for none
    #[arg(long, env = "FARSHORE_WAKE_LIMIT", value_name = "N", default_value_t = 50_000)]
    pub wake_limit: u32,
    /// Polls a second that this process admits after news; those who are woken spread their polls by it
    #[arg(long, env = "FARSHORE_WAKE_RATE", value_name = "N", default_value_t = 2_000)]
    pub wake_rate: u32,
    /// Polls a second that this process can bear; beyond four fifths of it sites are asked to poll less often
    #[arg(long, env = "FARSHORE_POLL_RATE_LIMIT", value_name = "N", default_value_t = 20_000)]
    pub poll_rate_limit: u32,
    /// Requests a second of one cluster (polls, reports, waits), and four times as many at once; of polls that bring
    /// nothing new, four times as many in any second
    #[arg(long, env = "FARSHORE_CLUSTER_RATE_LIMIT", value_name = "N", default_value_t = 5)]
    pub cluster_rate_limit: u32,
    /// Artifacts that are sent at once by this process; four times as many wait for their turn
    #[arg(long, env = "FARSHORE_ARTIFACT_LIMIT", value_name = "N", default_value_t = 256)]
    pub artifact_limit: u32,
    /// Allow sources that are folders of this machine (file://)
    #[arg(long, env = "FARSHORE_ALLOW_FILE_SOURCES")]
    pub allow_file_sources: bool,
    /// How long what no document names any more is kept (at least 1h)
    #[arg(long, env = "FARSHORE_KEEP_UNNEEDED", value_name = "DURATION", default_value = "1d")]
    pub keep_unneeded: HumanDuration,
    /// Send sites to the bucket for artifacts, where it can be reached from them
    #[arg(long, env = "FARSHORE_REDIRECT_ARTIFACTS")]
    pub redirect_artifacts: bool,
}

/// The least memory for clusters: less would hold next to nothing.
const VIEW_LEAST: usize = 1 << 20;
/// The least for documents: room for the largest of each kind.
const DOCUMENTS_LEAST: u64 = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  farshore hub --data /var/lib/farshore --fleet https://git.example/fleet.git
  farshore hub --data ./hub --fleet $PWD/fleet#main --allow-file-sources --interval 10s
  farshore hub --role serve --data /tmp/cache --redis redis://redis:6379 --objects s3://fleet
  farshore hub --role publish --once --data /tmp/cache --keys /keys \\
      --objects s3://fleet --fleet https://git.example/fleet.git";

/// What a hub process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Serve and publish in one process: a hub that is complete by itself
    All,
    /// Answer sites; holds no key
    Serve,
    /// Publish; has no public route
    Publish,
}

impl Role {
    /// Whether it publishes.
    #[must_use]
    pub fn publishes(self) -> bool {
        matches!(self, Self::All | Self::Publish)
    }

    /// Whether it serves sites.
    #[must_use]
    pub fn serves(self) -> bool {
        matches!(self, Self::All | Self::Serve)
    }
}

/// The fleet repository, parsed.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// Where.
    pub url: GitUrl,
    /// Which branch.
    pub branch: Branch,
}

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// As it was given.
    pub args: HubArgs,
    /// The fleet repository.
    pub fleet: Option<Fleet>,
    /// The folder of the keys.
    pub keys: PathBuf,
    /// A certificate that was given.
    pub tls: Option<TlsFiles>,
    /// Whether sources may be folders.
    pub files: FileSources,
}

/// Everything that is wrong with a configuration, at once.
#[derive(Debug, thiserror::Error)]
#[error("configuration: {}", .0.join("; "))]
pub struct BadConfig(pub Vec<String>);

impl Config {
    /// Checks everything.
    ///
    /// # Errors
    /// [`BadConfig`] with every mistake.
    pub fn check(args: HubArgs) -> Result<Self, BadConfig> {
        let mut mistakes = Vec::new();
        let fleet = args.fleet.as_deref().and_then(|text| match fleet(text) {
            Ok(fleet) => Some(fleet),
            Err(mistake) => {
                mistakes.push(format!("--fleet: {mistake}"));
                None
            }
        });
        if args.once && !args.role.publishes() {
            mistakes.push("--once goes with --role publish or all".into());
        }
        if args.role == Role::Publish && args.fleet.is_none() {
            mistakes.push("--role publish needs --fleet".into());
        }
        mistakes.extend(numbers_out_of_range(&args));
        if !cfg!(feature = "redis") && args.redis.is_some() {
            mistakes.push("--redis: this program was built without Redis (feature redis)".into());
        }
        if !cfg!(feature = "s3") && args.objects.is_some() {
            mistakes.push("--objects: this program was built without S3 (feature s3)".into());
        }
        if !mistakes.is_empty() {
            return Err(BadConfig(mistakes));
        }
        let tls = args.tls_cert.clone().zip(args.tls_key.clone()).map(|(cert, key)| TlsFiles { cert, key });
        let keys = args.keys.clone().unwrap_or_else(|| args.data.join("keys"));
        let files = if args.allow_file_sources { FileSources::Allowed } else { FileSources::Refused };
        Ok(Self { args, fleet, keys, tls, files })
    }
}

impl Config {
    /// What this process takes on.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let args = &self.args;
        let load = load::Limits {
            polls: args.poll_rate_limit,
            interval: args.site_poll.0,
            cluster: args.cluster_rate_limit,
            artifacts: args.artifact_limit as usize,
            ..load::Limits::default()
        };
        let wake = WakeLimits { waiting: args.wake_limit as usize, rate: args.wake_rate };
        let redirects = if args.redirect_artifacts { Redirects::Allowed } else { Redirects::Never };
        Settings { load, wake, hooks: args.hook_secrets.clone(), redirects, ..Settings::default() }
    }

    /// What a view may take.
    #[must_use]
    pub fn room(&self) -> Room {
        Room { clusters: self.args.view_limit, documents: self.args.document_cache }
    }

    /// What its server lets in.
    #[must_use]
    pub fn connections(&self) -> server::Limits {
        server::Limits { connections: self.args.connections, ..server::Limits::default() }
    }

    /// What is collected when.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules { unneeded: self.args.keep_unneeded.0.as_secs(), ..Rules::default() }
    }
}

/// Every number that is out of its range.
fn numbers_out_of_range(args: &HubArgs) -> Vec<String> {
    let mut mistakes = Vec::new();
    for (flag, value) in [("--interval", args.interval), ("--site-poll", args.site_poll)] {
        if value.0.as_secs() == 0 || value.0.as_secs() > 86_400 {
            mistakes.push(format!("{flag} is between 1s and 1d (got {value})"));
        }
    }
    if args.view_limit < VIEW_LEAST {
        mistakes.push(format!("--view-limit is at least {VIEW_LEAST} bytes (got {})", args.view_limit));
    }
    if args.document_cache < DOCUMENTS_LEAST {
        let got = args.document_cache;
        mistakes.push(format!("--document-cache is at least {DOCUMENTS_LEAST} bytes (got {got})"));
    }
    if !(1..=1_000).contains(&args.fetches) {
        mistakes.push(format!("--fetches is between 1 and 1000 (got {})", args.fetches));
    }
    if args.keep_unneeded.0.as_secs() < Rules::LEAST {
        mistakes.push(format!("--keep-unneeded is at least 1h (got {})", args.keep_unneeded));
    }
    let rates = [
        ("--wake-rate", args.wake_rate),
        ("--poll-rate-limit", args.poll_rate_limit),
        ("--cluster-rate-limit", args.cluster_rate_limit),
        ("--artifact-limit", args.artifact_limit),
        ("--connections", args.connections),
    ];
    for (flag, value) in rates {
        if value == 0 || value > 1_000_000 {
            mistakes.push(format!("{flag} is between 1 and 1000000 (got {value})"));
        }
    }
    mistakes
}

fn fleet(text: &str) -> Result<Fleet, String> {
    let (url, branch) = match text.rsplit_once('#') {
        Some((url, branch)) => (url, branch.parse::<Branch>().map_err(|error| error.to_string())?),
        None => (text, Branch::Default),
    };
    // Naming it on the command line is permission to read it, wherever it is.
    let url = GitUrl::parse(url, FileSources::Allowed).map_err(|error| error.to_string())?;
    Ok(Fleet { url, branch })
}
