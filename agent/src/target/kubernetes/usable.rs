//! What others need first, and when it can be used: a Namespace that is active, a
//! `CustomResourceDefinition` whose kind is served.

use std::time::Duration;

use farshore_shared::retry::Schedule;
use serde::Deserialize;
use tokio::time::Instant;

use super::connection::{Connection, Request};
use super::discovery::{Discovery, GroupVersion};
use super::fault::Complaint;
use super::metadata::{Metadata, null_is_empty};

/// A Namespace, as far as it matters here.
#[derive(Debug, Deserialize)]
pub(super) struct Namespace {
    pub(super) metadata: Metadata,
    #[serde(default)]
    status: NamespaceStatus,
}

#[derive(Debug, Default, Deserialize)]
struct NamespaceStatus {
    #[serde(default)]
    phase: String,
}

/// A `CustomResourceDefinition`, as far as it matters here.
#[derive(Debug, Deserialize)]
pub(super) struct Definition {
    pub(super) metadata: Metadata,
    spec: DefinitionSpec,
    #[serde(default)]
    status: DefinitionStatus,
}

#[derive(Debug, Deserialize)]
struct DefinitionSpec {
    group: String,
    names: Names,
    #[serde(default, deserialize_with = "null_is_empty")]
    versions: Vec<Version>,
}

#[derive(Debug, Deserialize)]
struct Names {
    kind: String,
}

#[derive(Debug, Deserialize)]
struct Version {
    name: String,
    served: bool,
}

#[derive(Debug, Default, Deserialize)]
struct DefinitionStatus {
    #[serde(default, deserialize_with = "null_is_empty")]
    conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    message: String,
}

/// How near something is to being usable.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Usable,
    /// It may become usable; what is missing.
    NotYet(String),
    /// It will not become usable by itself.
    Never(Complaint),
}

impl Namespace {
    fn progress(&self) -> Progress {
        if self.metadata.deletion_timestamp.is_some() || self.status.phase == "Terminating" {
            return Progress::Never(Complaint::worthwhile(
                "the namespace is being deleted: it can be used again once that has ended",
            ));
        }
        match self.status.phase.as_str() {
            "Active" => Progress::Usable,
            phase => Progress::NotYet(format!("its phase is {phase:?}, not \"Active\"")),
        }
    }
}

impl Definition {
    fn progress(&self) -> Progress {
        if self.metadata.deletion_timestamp.is_some() {
            return Progress::Never(Complaint::worthwhile(
                "the definition is being deleted: its kind can be used again once that has ended",
            ));
        }
        let condition = |kind: &str| self.status.conditions.iter().find(|condition| condition.kind == kind);
        if let Some(refused) = condition("NamesAccepted").filter(|condition| condition.status == "False") {
            return Progress::Never(Complaint::worthwhile(format!(
                "its names are not accepted: {}",
                refused.message
            )));
        }
        match condition("Established") {
            Some(condition) if condition.status == "True" => Progress::Usable,
            Some(condition) => Progress::NotYet(format!("it is not established: {}", condition.message)),
            None => Progress::NotYet("it is not established".to_owned()),
        }
    }
}

/// Waits until a Namespace that was read from this address is active.
pub(super) async fn namespace(
    connection: &Connection,
    target: &str,
    mut read: Namespace,
) -> Result<Metadata, Complaint> {
    let mut patience = Patience::new(connection.options().usable);
    loop {
        match read.progress() {
            Progress::Usable => return Ok(read.metadata),
            Progress::Never(complaint) => return Err(complaint),
            Progress::NotYet(missing) => patience.pause(&missing).await?,
        }
        let answer = connection.call(Request::get(target.to_owned())).await;
        read = answer.map_err(|fault| fault.complaint("wait for the namespace"))?;
    }
}

/// Waits until the kind of a definition that was read from this address is served in all its versions.
pub(super) async fn definition(
    connection: &Connection,
    discovery: &Discovery,
    target: &str,
    mut read: Definition,
) -> Result<Metadata, Complaint> {
    let mut patience = Patience::new(connection.options().usable);
    loop {
        match read.progress() {
            Progress::Usable => break,
            Progress::Never(complaint) => return Err(complaint),
            Progress::NotYet(missing) => patience.pause(&missing).await?,
        }
        let answer = connection.call(Request::get(target.to_owned())).await;
        read = answer.map_err(|fault| fault.complaint("wait for the definition"))?;
    }
    let spec = read.spec;
    discovery.forget(&spec.group);
    for version in spec.versions.into_iter().filter(|version| version.served) {
        let at = GroupVersion { group: spec.group.clone(), version: version.name };
        served(discovery, &mut patience, &at, &spec.names.kind).await?;
    }
    Ok(read.metadata)
}

async fn served(
    discovery: &Discovery,
    patience: &mut Patience,
    at: &GroupVersion,
    kind: &str,
) -> Result<(), Complaint> {
    loop {
        match discovery.resource(at, kind).await {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => patience.pause(&format!("kind {kind} of {at} is not served")).await?,
            Err(fault) => {
                patience.pause(&fault.complaint(&format!("find out about kind {kind}")).message).await?
            }
        }
    }
}

/// How long a wait goes on, and how it is spaced.
struct Patience {
    limit: Duration,
    ends: Instant,
    schedule: Schedule,
}

impl Patience {
    fn new(limit: Duration) -> Self {
        let schedule = Schedule::new(Duration::from_millis(30), Duration::from_secs(1));
        Self { limit, ends: Instant::now() + limit, schedule }
    }

    /// Pauses before the next look, or gives up and says what was missing at the last one.
    async fn pause(&mut self, missing: &str) -> Result<(), Complaint> {
        let next = Instant::now() + self.schedule.next_delay();
        if next > self.ends {
            return Err(Complaint::worthwhile(format!(
                "applied, but not usable after {:?}: {missing}",
                self.limit
            )));
        }
        tokio::time::sleep_until(next).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn definition(status: &Value) -> Progress {
        let body = json!({"metadata": {"name": "tills.shop.example"}, "status": status,
            "spec": {"group": "shop.example", "names": {"kind": "Till"}, "versions": [{"name": "v1", "served": true}]}});
        serde_json::from_value::<Definition>(body).expect("a definition").progress()
    }

    #[test]
    fn a_namespace_is_usable_while_it_is_active() {
        let progress =
            |body: Value| serde_json::from_value::<Namespace>(body).expect("a namespace").progress();
        assert_eq!(progress(json!({"metadata": {}, "status": {"phase": "Active"}})), Progress::Usable);
        assert!(matches!(progress(json!({"metadata": {}})), Progress::NotYet(_)));
        assert!(matches!(
            progress(json!({"metadata": {}, "status": {"phase": "Terminating"}})),
            Progress::Never(_)
        ));
    }

    #[test]
    fn a_definition_is_usable_once_it_is_established() {
        let established = json!({"conditions": [
            {"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]});
        assert_eq!(definition(&established), Progress::Usable);
        assert!(matches!(definition(&json!({})), Progress::NotYet(_)));
        let taken = json!({"conditions": [
            {"type": "NamesAccepted", "status": "False", "message": "\"tills\" is already in use"}]});
        let Progress::Never(complaint) = definition(&taken) else { panic!("the name is taken") };
        assert_eq!(complaint.message, "its names are not accepted: \"tills\" is already in use");
    }

    #[tokio::test]
    async fn a_wait_ends_and_tells_what_was_missing() {
        let mut patience = Patience::new(Duration::from_millis(50));
        let begun = Instant::now();
        let complaint = loop {
            if let Err(complaint) = patience.pause("nothing yet").await {
                break complaint;
            }
        };
        assert_eq!(complaint.message, "applied, but not usable after 50ms: nothing yet");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
