//! Content for the documents that are held: fetched, verified again, and removed when nothing needs it.

use std::collections::BTreeSet;

use farshore_shared::digest::Digest;
use farshore_shared::exit::chain;
use farshore_shared::wire::Artifact;
use tracing::{debug, warn};

use super::{Courier, Link, PollError};
use crate::hub::{FetchError, fetch};
use crate::store::{Found, StoreError};
use crate::verify::Documents;

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
        let alarms = self.fetch_all(link, &missing).await?;
        let brought = self.store.content().present()? != present;
        if brought {
            self.orders.send_modify(|_| {});
        }
        if verify_all && alarms.is_empty() {
            self.collect(&named)?;
        }
        Ok(alarms)
    }

    /// Fetches each of them; gives what could not be fetched, in words.
    pub(super) async fn fetch_all(
        &self,
        link: &mut Link,
        artifacts: &[Artifact],
    ) -> Result<Vec<String>, PollError> {
        let mut alarms = vec![];
        for artifact in artifacts {
            match fetch(&mut link.client, &self.store.content(), artifact).await {
                Ok(()) => debug!(digest = %artifact.digest, bytes = artifact.size, "content is here"),
                Err(FetchError::Store(error @ StoreError::Io { .. })) => return Err(error.into()),
                Err(error) => {
                    warn!(digest = %artifact.digest, error = %chain(&error), "content is not here yet");
                    alarms.push(format!(
                        "content is not here yet ({:?}): {}",
                        artifact.digest,
                        chain(&error)
                    ));
                }
            }
        }
        Ok(alarms)
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

/// The content that documents name.
pub(super) fn artifacts(documents: &Documents) -> Vec<Artifact> {
    documents.group.entries().into_iter().flatten().map(|entry| entry.artifact).collect()
}
