//! Content for the documents that are held: fetched, verified again, and removed when nothing needs it.
//!
//! Downloads run [`AT_ONCE`] beside each other, and beside reports and polls: a big one on a thin line does not
//! make its site look lost, and does not keep it from hearing that it is not wanted any more.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farshore_shared::clock;
use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::wire::Artifact;
use futures::future::try_join_all;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::{Courier, Link, PollError};
use crate::hub::{DesiredAnswer, FetchError, Heard, HubClient, HubError, fetch};
use crate::schedule::{until_asked, until_next_poll};
use crate::store::{Content, Found, StoreError};
use crate::verify::Documents;

/// How many artifacts are fetched at once.
const AT_ONCE: usize = 2;

impl Courier {
    /// Fetches what is held and not here. What cannot be fetched blocks only its service.
    pub(super) async fn complete_content(
        &mut self,
        link: &mut Link,
        verify_all: bool,
    ) -> Result<Vec<String>, PollError> {
        let Some(documents) = &self.held.documents else { return Ok(vec![]) };
        let named = artifacts(documents);
        let present = self.store.content().present()?;
        let missing: Vec<Artifact> =
            named.iter().filter(|a| verify_all || !present.contains(&a.digest)).cloned().collect();
        let tag = documents.tag().to_string();
        let alarms = self.fetch_all(link, missing, &tag).await?;
        let brought = self.store.content().present()? != present;
        if brought {
            self.orders.send_modify(|_| {});
        }
        if verify_all && alarms.is_empty() {
            self.collect(&named)?;
        }
        Ok(alarms)
    }

    /// Fetches each of them, for the documents of this tag; gives what could not be fetched, in words. Reports
    /// and polls go on meanwhile.
    ///
    /// # Errors
    /// [`PollError::Superseded`] when the hub has newer documents: what has arrived stays.
    pub(super) async fn fetch_all(
        &self,
        link: &mut Link,
        missing: Vec<Artifact>,
        tag: &str,
    ) -> Result<Vec<String>, PollError> {
        let clients = (0..missing.len().min(AT_ONCE)).map(|_| link.client.another()).collect();
        let mut downloads = std::pin::pin!(download(clients, self.store.content(), missing));
        let mut due = Instant::now() + self.until_next(None);
        loop {
            // Cancel-safe: downloads are kept outside, and a notification that is not taken stays.
            tokio::select! {
                done = &mut downloads => return Ok(done?),
                () = self.told.notified() => {
                    if let Err(error) = self.send_reports(link).await {
                        debug!(error = %chain(&error), "reports wait");
                    }
                }
                () = sleep_until(due) => {
                    let asked = ask_beside(&mut link.client, tag).await?;
                    due = Instant::now() + self.until_next(asked);
                }
            }
        }
    }

    /// How long until the next poll beside downloads.
    fn until_next(&self, asked: Option<Duration>) -> Duration {
        let name = self.keys.cluster.as_str();
        let phase = until_next_poll(name, self.interval(), clock::since_epoch());
        asked.map_or(phase, |asked| phase.max(until_asked(name, asked, self.most())))
    }

    /// Removes content that neither what is held nor what was last healthy needs.
    fn collect(&self, named: &[Artifact]) -> Result<(), StoreError> {
        let mut keep: BTreeSet<Digest> = named.iter().map(|artifact| artifact.digest).collect();
        match self.store.healthy()? {
            Found::Good(healthy) => keep.extend(healthy.values().map(|healthy| healthy.artifact)),
            Found::Absent => {}
            // Nothing is known to be unneeded.
            Found::Corrupt(_) => return Ok(()),
        }
        let gone = self.store.content().collect(&keep)?;
        debug!(gone, "content that nothing needs any more is removed");
        Ok(())
    }
}

/// Asks whether there is anything newer than these documents; gives the delay that the hub asks for.
async fn ask_beside(client: &mut HubClient, tag: &str) -> Result<Option<Duration>, PollError> {
    match client.desired(Some(tag)).await {
        Ok(Heard { answer: DesiredAnswer::Documents { .. }, .. }) => {
            info!("the hub has newer documents than those whose content is fetched");
            Err(PollError::Superseded)
        }
        Ok(Heard { poll_after, .. }) => Ok(poll_after),
        Err(HubError::Busy { retry_after, .. }) => Ok(retry_after),
        Err(error) => {
            debug!(error = %chain(&error), "no poll beside downloads");
            Ok(None)
        }
    }
}

/// Fetches each of them, one per client at a time; gives what could not be fetched, in words.
async fn download(
    clients: Vec<HubClient>,
    content: Content,
    missing: Vec<Artifact>,
) -> Result<Vec<String>, StoreError> {
    let queue = Mutex::new(VecDeque::from(missing));
    let lanes = clients.into_iter().map(|client| lane(client, &content, &queue));
    Ok(try_join_all(lanes).await?.concat())
}

async fn lane(
    mut client: HubClient,
    content: &Content,
    queue: &Mutex<VecDeque<Artifact>>,
) -> Result<Vec<String>, StoreError> {
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let mut alarms = vec![];
    while let Some(artifact) = next() {
        match fetch(&mut client, content, &artifact).await {
            Ok(()) => debug!(digest = %artifact.digest, bytes = artifact.size, "content is here"),
            Err(FetchError::Store(error @ StoreError::Io { .. })) => return Err(error),
            Err(error) => {
                warn!(digest = %artifact.digest, error = %chain(&error), "content is not here yet");
                let why = chain(&error);
                alarms.push(format!("content is not here yet ({:?}): {why}", artifact.digest));
            }
        }
    }
    Ok(alarms)
}

/// The content that documents name.
pub(super) fn artifacts(documents: &Documents) -> Vec<Artifact> {
    documents.group.entries().into_iter().flatten().map(|entry| entry.artifact).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::Trust;
    use crate::hub::tests::{Reply, peer};
    use crate::store::Store;
    use farshore_chaos::kit::wait_for;

    #[tokio::test]
    async fn an_artifact_that_stalls_does_not_hold_up_the_next() {
        let temp = tempfile::tempdir().expect("a folder");
        let content = Store::open(temp.path()).expect("new").content();
        let artifact = |bytes: &[u8]| {
            let (digest, size) = (Digest::of(bytes), bytes.len().try_into().expect("small"));
            Artifact { digest, size, tar_digest: digest, tar_size: 0 }
        };
        let (stalls, comes) = (artifact(b"stalls"), artifact(b"comes"));
        let stalled = stalls.digest.to_string();
        let hub = peer(move |head, _| {
            if head.contains(&stalled) {
                return Reply::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n".to_vec());
            }
            Reply::Whole(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\ncomes".to_vec())
        })
        .await;
        let mut client =
            HubClient::new(hub, &Trust::Bootstrap, None, Duration::from_secs(60)).expect("needs nothing");
        let clients = vec![client.another(), client.another()];
        let downloads = tokio::spawn(download(clients, content.clone(), vec![stalls, comes.clone()]));
        wait_for("the second artifact", Duration::from_secs(10), async || {
            let present = content.present().map_err(|error| error.to_string())?;
            if present.contains(&comes.digest) { Ok(()) } else { Err(format!("{present:?}")) }
        })
        .await
        .expect("it comes");
        assert!(!downloads.is_finished(), "the first one is still under way");
        downloads.abort();
    }
}
