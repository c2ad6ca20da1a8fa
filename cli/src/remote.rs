//! A hub over HTTP, asked as an operator: each request is signed with the operator's key.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use farshore_agent::hub::{self, HubClient, HubUrl, PATIENCE, Trust};
use farshore_hub_fn::handlers::operators::answers::{
    ClusterAnswer, ClusterItem, ClusterPage, ServicePage, SourcePage, Stored,
};
use farshore_hub_fn::record::{Counts, Intent, SourceHead};
use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Refused};
use farshore_shared::exit::{Exit, chain};
use farshore_shared::keys::{BadKey, SigningKey};
use farshore_shared::names::Name;
use farshore_shared::operator::{Ask, OPERATOR_HEADER};
use farshore_shared::wire::{ROOT_LIMIT, Root};
use http::Request;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

use crate::time::{ClockError, now};

/// The most bytes of one page.
const PAGE_LIMIT: usize = 64 << 20;
/// What the keys' folder calls the root.
const ROOT_FILE: &str = "root.1.json";

/// With which key a hub is called, and how it is known.
#[derive(Debug, Clone, Args)]
pub(crate) struct CallArgs {
    /// With --hub: the operator's key (operator.key of the keys)
    #[arg(long, env = "FARSHORE_KEY", value_name = "FILE", requires = "hub")]
    pub(crate) key: Option<PathBuf>,
    /// With --hub: the trust root that pins its TLS key [default: root.1.json beside the key]
    #[arg(long, env = "FARSHORE_ROOT", value_name = "FILE", requires = "hub")]
    root: Option<PathBuf>,
    /// With --hub: SHA-256 of the public key that its certificate has, instead of a root; may be repeated
    #[arg(long, env = "FARSHORE_PIN", value_name = "DIGEST", value_delimiter = ',', requires = "hub")]
    pin: Vec<Digest>,
}

/// Why a hub was not asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    /// No key was named.
    #[error("with --hub, name the operator's key: --key FILE")]
    NoKey,
    /// A file cannot be read.
    #[error("reading {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The key file holds something else.
    #[error("reading the operator's key ({path})")]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: BadKey,
    },
    /// The root file holds something else.
    #[error("trust root is not one ({path}): {why}")]
    Root {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Its TLS key is another.
    #[error(
        "the hub shows a TLS key that is not pinned ({hub}): is it the right hub? Pins are in the trust root (--root FILE), or given by --pin"
    )]
    Pin {
        /// Which hub.
        hub: String,
    },
    /// It did not give what was asked.
    #[error(transparent)]
    Hub(#[from] hub::HubError),
    /// It answered with something else.
    #[error("reading the hub's answer: is it of another version?")]
    Answer(#[source] serde_json::Error),
    /// The clock.
    #[error(transparent)]
    Clock(#[from] ClockError),
}

impl RemoteError {
    /// How the program ends with it.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::NoKey => Exit::Usage,
            Self::Hub(hub::HubError::Refused { .. }) => Exit::BadInput,
            Self::Hub(error) if error.is_retryable() => Exit::Unreachable,
            Self::Pin { .. }
            | Self::Hub(_)
            | Self::File { .. }
            | Self::Key { .. }
            | Self::Root { .. }
            | Self::Answer(_) => Exit::BadInput,
            Self::Clock(_) => Exit::Fault,
        }
    }
}

/// A hub, and the key with which it is asked.
pub(crate) struct Remote {
    client: HubClient,
    key: SigningKey,
}

impl Remote {
    /// Prepares to ask; nothing is sent yet.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(crate) fn open(hub: &HubUrl, call: &CallArgs) -> Result<Self, RemoteError> {
        let path = call.key.clone().ok_or(RemoteError::NoKey)?;
        let key = SigningKey::from_file(&read(&path)?)
            .map_err(|source| RemoteError::Key { path: path.clone(), source })?;
        let beside = path.with_file_name(ROOT_FILE);
        let trust = match &call.root {
            _ if !call.pin.is_empty() => Trust::Pinned(call.pin.clone()),
            Some(root) => Trust::of(&read_root(root)?),
            None if beside.exists() => Trust::of(&read_root(&beside)?),
            None => Trust::System,
        };
        Ok(Self { client: HubClient::new(hub.clone(), &trust, None, PATIENCE)?, key })
    }

    /// The operator's key.
    pub(crate) fn key(&self) -> &SigningKey {
        &self.key
    }

    /// Clusters that a query asks for, at most `limit`; whether there are more; and the fleet by state.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(crate) async fn clusters(
        &mut self,
        query: &[(&str, String)],
        limit: usize,
    ) -> Result<(Vec<ClusterItem>, bool, Option<Counts>), RemoteError> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let most = (limit - items.len()).clamp(1, 1000).to_string();
            let page = [("limit", most)].into_iter().chain(cursor.take().map(|cursor| ("cursor", cursor)));
            let query: Vec<(&str, String)> = query.iter().cloned().chain(page).collect();
            let page: ClusterPage = self.get("/v1/clusters", &query).await?;
            items.extend(page.clusters);
            match page.next {
                Some(next) if items.len() < limit => cursor = Some(next),
                next => return Ok((items, next.is_some(), page.counts)),
            }
        }
    }

    /// One cluster, with its last report.
    ///
    /// # Errors
    /// [`RemoteError`]; refused with 404 where it is not enrolled.
    pub(crate) async fn cluster(&mut self, name: &Name) -> Result<ClusterAnswer, RemoteError> {
        self.get(&format!("/v1/clusters/{name}"), &[]).await
    }

    /// Services as they are intended, how their sources are, and how many clusters have each.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(crate) async fn services(
        &mut self,
    ) -> Result<(Intent, Vec<SourceHead>, BTreeMap<Name, u64>), RemoteError> {
        let (mut intent, mut heads, mut clusters) = (Intent::default(), Vec::new(), BTreeMap::new());
        let mut cursor = None;
        loop {
            let page: ServicePage = self.get("/v1/services", &next_page(cursor)).await?;
            intent.services.extend(page.services);
            heads.extend(page.heads);
            clusters.extend(page.clusters);
            cursor = page.next;
            if cursor.is_none() {
                return Ok((intent, heads, clusters));
            }
        }
    }

    /// Sources as they are intended, and how they are.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(crate) async fn sources(&mut self) -> Result<(Intent, Vec<SourceHead>), RemoteError> {
        let (mut intent, mut heads) = (Intent::default(), Vec::new());
        let mut cursor = None;
        loop {
            let page: SourcePage = self.get("/v1/sources", &next_page(cursor)).await?;
            intent.sources.extend(page.sources);
            heads.extend(page.heads);
            cursor = page.next;
            if cursor.is_none() {
                return Ok((intent, heads));
            }
        }
    }

    /// Gives a signed word to the publisher.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(crate) async fn tell(&mut self, path: &str, word: &Envelope) -> Result<(), RemoteError> {
        self.ask::<Stored>("POST", path, word.to_bytes()).await.map(drop)
    }

    async fn get<T: DeserializeOwned>(
        &mut self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<T, RemoteError> {
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        self.ask("GET", &format!("{path}{mark}{}", query.join("&")), vec![]).await
    }

    async fn ask<T: DeserializeOwned>(
        &mut self,
        method: &str,
        target: &str,
        body: Vec<u8>,
    ) -> Result<T, RemoteError> {
        let header = Ask::new(method, target, &body, now()?).header(&self.key);
        let request = Request::builder().method(method).uri(target).header(OPERATOR_HEADER, header);
        let answer = self.client.ask(request, Bytes::from(body), PAGE_LIMIT).await;
        let answer =
            answer.map_err(|error| match chain(&error).contains("ApplicationVerificationFailure") {
                true => RemoteError::Pin { hub: self.client.hub().to_string() },
                false => error.into(),
            })?;
        serde_json::from_slice(&answer).map_err(RemoteError::Answer)
    }
}

fn next_page(cursor: Option<String>) -> Vec<(&'static str, String)> {
    cursor.into_iter().map(|cursor| ("cursor", cursor)).collect()
}

/// A value as a query carries it.
fn encoded(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~,".contains(&byte);
    value
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn read(path: &Path) -> Result<String, RemoteError> {
    std::fs::read_to_string(path).map_err(|source| RemoteError::File { path: path.to_owned(), source })
}

fn read_root(path: &Path) -> Result<Root, RemoteError> {
    let wrong = |why: String| RemoteError::Root { path: path.to_owned(), why };
    let envelope: Envelope = serde_json::from_str(&read(path)?).map_err(|error| wrong(error.to_string()))?;
    envelope.open_self_signed(ROOT_LIMIT).map_err(|refused: Refused| wrong(chain(&refused)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_encoded_as_a_query_carries_it() {
        assert_eq!(encoded("example.com/tier=edge"), "example.com%2Ftier%3Dedge");
        assert_eq!(encoded("failed,never-seen"), "failed,never-seen");
        assert_eq!(encoded("a&b c"), "a%26b%20c");
    }
}
