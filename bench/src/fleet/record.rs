//! Whether every report that was acknowledged is in the record, once the log is folded.

use std::sync::Arc;

use farshore_hub_fn::index::Index;
use farshore_hub_fn::index::memory::Memory;
use farshore_hub_fn::objects::Objects;
use farshore_hub_fn::status::{Compactor, Statuses};
use farshore_hub_fn::view::View;
use farshore_shared::dsse::Signers;
use farshore_shared::wire::{STATUS_LIMIT, Status};

use super::traffic::Traffic;
use crate::error::BenchError;

/// What was acknowledged and is not there.
///
/// # Errors
/// When the record does not answer.
pub(super) async fn lost(objects: &Arc<dyn Objects>, traffic: &Traffic) -> Result<Vec<String>, BenchError> {
    let acknowledged = traffic.sites.borrow().acknowledged.clone();
    let index: Arc<dyn Index> = Arc::new(Memory::new());
    let view = View::new(Arc::clone(objects), Arc::clone(&index));
    Compactor::new(view.clone(), Arc::clone(&index)).fold().await?;
    let statuses = Statuses::new(&view, index);
    let mut lost = Vec::new();
    for (cluster, sequence) in acknowledged {
        let (name, key) = {
            let fleet = traffic.fleet.borrow();
            let number = cluster as usize;
            (fleet.name(number), fleet.key(number).public().clone())
        };
        let report = statuses.report(&name).await?;
        let status = report.and_then(|it| it.envelope.open::<Status>(&Signers::one(&key), STATUS_LIMIT).ok());
        let found = status.map_or(0, |status| status.sequence);
        if found < sequence {
            lost.push(format!("report {sequence} of {name} was acknowledged, and the record has {found}"));
        }
    }
    Ok(lost)
}
