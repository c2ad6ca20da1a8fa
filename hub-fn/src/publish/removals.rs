//! Removing clusters, as operators asked.
//!
//! First the directory says that a cluster is gone, so that every replica refuses its passes; then its documents
//! are deleted, and at last the request. Whoever is killed in between leaves a request that the next one finds.

use farshore_shared::wire::Registration;
use tracing::{debug, info, warn};

use super::directory::note;
use super::partition::Stamp;
use super::roll::{found, signed};
use super::{PublishError, Publisher};
use crate::objects::{Key, ObjectsError};
use crate::record::{self, Entry, Removal};

/// How many removals are handled in one step.
const BATCH: usize = 1000;

impl Publisher {
    /// Handles the removals that wait.
    pub(super) async fn remove_asked(&mut self, stamp: Stamp) -> Result<(), PublishError> {
        let mut gone = Vec::new();
        for listed in self.objects.list(record::REMOVALS, None, BATCH).await? {
            let key = listed.key;
            match self.checked(&key).await? {
                Some(removal) => {
                    self.note_removal(&removal, stamp);
                    gone.push((key, removal));
                }
                None => {
                    warn!(%key, "request to remove a cluster is refused");
                    self.objects.delete(&key).await?;
                }
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        self.tell_directory(stamp).await?;
        for (key, removal) in gone {
            self.objects.delete(&record::registration(&removal.cluster)).await?;
            self.objects.delete(&record::roster(&removal.cluster)).await?;
            self.objects.delete(&key).await?;
            if let Err(error) = self.index.forget_seen(std::slice::from_ref(&removal.cluster)).await {
                debug!(cluster = %removal.cluster, %error, "index keeps when it was heard, until the fleet is counted");
            }
            info!(cluster = %removal.cluster, "cluster is removed");
        }
        Ok(())
    }

    /// A removal that an operator signed and that is of this very life of the cluster, or of one that is gone.
    async fn checked(&self, key: &Key) -> Result<Option<Removal>, ObjectsError> {
        let asked = signed::<Removal>(&self.objects, &self.trust.operator(), key.clone()).await?;
        let Some((removal, _)) = asked else { return Ok(None) };
        if record::removal(&removal.cluster) != *key {
            return Ok(None);
        }
        let registration = record::registration(&removal.cluster);
        let stored = found::<Registration>(&self.objects, &self.trust.director(), registration).await?;
        let known = self.members.get(&removal.cluster);
        let is_meant = stored.is_none_or(|stored| {
            let registration = stored.document;
            registration.key.id() == removal.key && registration.issued <= removal.issued
        });
        let is_known_so = known.is_none_or(|known| known.key.id() == removal.key);
        Ok((is_meant && is_known_so).then_some(removal))
    }

    fn note_removal(&mut self, removal: &Removal, stamp: Stamp) {
        if self.members.get(&removal.cluster).is_none() {
            return;
        }
        let entry = Entry::removed(removal.cluster.clone(), stamp.epoch, stamp.sequence);
        self.untold.remove(&removal.cluster);
        self.members.take(entry.clone());
        note(&mut self.untold, entry);
    }
}
