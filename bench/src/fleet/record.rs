//! Whether every report that was acknowledged is in the record.

use std::sync::Arc;

use farshore_hub_fn::objects::Objects;
use farshore_hub_fn::record;
use farshore_shared::dsse::{Envelope, Signers};
use farshore_shared::wire::{STATUS_LIMIT, Status};

use super::traffic::Traffic;
use crate::error::BenchError;

/// What was acknowledged and is not there.
///
/// # Errors
/// When the record does not answer.
pub(super) async fn lost(objects: &Arc<dyn Objects>, traffic: &Traffic) -> Result<Vec<String>, BenchError> {
    let acknowledged = traffic.sites.borrow().acknowledged.clone();
    let mut lost = Vec::new();
    for (cluster, sequence) in acknowledged {
        let (name, key) = {
            let fleet = traffic.fleet.borrow();
            let number = cluster as usize;
            (fleet.name(number), fleet.key(number).public().clone())
        };
        let stored = objects.get(&record::status(&name), 2 * STATUS_LIMIT as u64).await?;
        let envelope = stored.and_then(|stored| serde_json::from_slice::<Envelope>(&stored.bytes).ok());
        let status = envelope.and_then(|it| it.open::<Status>(&Signers::one(&key), STATUS_LIMIT).ok());
        let found = status.map_or(0, |status| status.sequence);
        if found < sequence {
            lost.push(format!("report {sequence} of {name} was acknowledged, and the record has {found}"));
        }
    }
    Ok(lost)
}
