//! Artifacts into the state folder: resumed where they were cut, verified before they are visible.

use farshore_shared::wire::Artifact;

use super::{HubClient, HubError};
use crate::store::{Content, Download, Found, StoreError};

/// Why an artifact could not be fetched. What has arrived stays for the next attempt.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The hub.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The disk, or content that is not what its digest says.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes an artifact present: nothing is asked for when it is there and verifies.
///
/// A connection that breaks is taken up again as long as each attempt gets further than all before
/// it, so that a proxy that cuts every answer still lets an artifact through.
///
/// # Errors
/// [`FetchError`], when an attempt got no further.
pub async fn fetch(client: &mut HubClient, content: &Content, artifact: &Artifact) -> Result<(), FetchError> {
    let (here, digest) = (content.clone(), artifact.digest);
    if let Found::Good(_) = apart(move || here.check(digest)).await? {
        return Ok(());
    }
    let mut download = content.download(artifact.digest, artifact.size)?;
    let mut furthest = download.offset();
    let mut restarted = false;
    loop {
        let attempt = attempt(client, &mut download, artifact).await;
        match attempt {
            Ok(()) if download.is_whole() => return Ok(apart(move || download.finish()).await?),
            Err(FetchError::Hub(HubError::Refused { status: 416, .. })) if !restarted => {
                restarted = true;
                download.restart()?;
            }
            // A shorter body that ended in order is a cut like any other.
            Ok(()) | Err(FetchError::Hub(HubError::Unreachable { .. })) if download.offset() > furthest => {
                furthest = download.offset();
            }
            Ok(()) => {
                let (digest, size, got) = (artifact.digest, artifact.size, download.offset());
                return Err(StoreError::Length { digest, size, got }.into());
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads a whole artifact where that holds up nobody.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) => Err(StoreError::Io {
            action: "reading an artifact",
            path: "content".into(),
            source: std::io::Error::other(ended),
        }),
    }
}

async fn attempt(
    client: &mut HubClient,
    download: &mut Download,
    artifact: &Artifact,
) -> Result<(), FetchError> {
    if download.is_whole() {
        return Ok(());
    }
    let mut piece = client.artifact(artifact.digest, download.offset()).await?;
    if let Some(got) = piece.total.filter(|total| *total != artifact.size) {
        // Not the artifact, or not all of it: what has arrived may be from the same source.
        download.restart()?;
        return Err(StoreError::Length { digest: artifact.digest, size: artifact.size, got }.into());
    }
    if piece.start != download.offset() {
        download.restart()?;
        if piece.start != 0 {
            return Ok(());
        }
    }
    while let Some(bytes) = piece.body.next().await? {
        download.append(&bytes)?;
    }
    Ok(())
}
