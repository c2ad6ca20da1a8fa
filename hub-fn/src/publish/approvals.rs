//! What operators have approved.

use std::collections::{BTreeMap, BTreeSet};

use super::{PublishError, Publisher, roll};
use crate::objects::{Key, Listed, ObjectsError};
use crate::record::{self, Approval, HeldChange};

impl Publisher {
    /// Whether an operator has approved any of these changes.
    ///
    /// # Errors
    /// [`PublishError`].
    pub async fn is_any_approved(&mut self, held: &[HeldChange]) -> Result<bool, PublishError> {
        let approved = if held.is_empty() { BTreeSet::new() } else { self.approved().await? };
        Ok(held.iter().any(|held| approved.contains(&held.change)))
    }

    /// The changes that operators have approved, by id. An id is the digest of the whole change. An approval is
    /// read once: what is signed for a change stays so. What is none may be written over, and is read again.
    pub(super) async fn approved(&mut self) -> Result<BTreeSet<String>, PublishError> {
        let (mut known, mut after) = (BTreeMap::new(), None);
        loop {
            let page = self.objects.list(record::APPROVALS, after.as_ref(), 1000).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for Listed { key, .. } in page {
                let change = match self.approvals.remove(&key) {
                    Some(change) => Some(change),
                    None => self.read_approval(&key).await?,
                };
                known.extend(change.map(|change| (key, change)));
            }
        }
        // Those that were collected are forgotten.
        self.approvals = known;
        Ok(self.approvals.values().cloned().collect())
    }

    async fn read_approval(&self, key: &Key) -> Result<Option<String>, ObjectsError> {
        let found = roll::signed::<Approval>(&self.objects, &self.trust.operator(), key.clone()).await?;
        let held = found.map(|(Approval { held, .. }, _)| held);
        Ok(held.filter(HeldChange::is_named_rightly).map(|held| held.change))
    }
}
