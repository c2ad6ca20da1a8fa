//! What is read from a state folder and shown, whether an agent has it or not.
//!
//! What was stopped is read from its own files: it is shown at once, and also while no agent runs.

use std::path::Path;

use farshore_shared::clock;
use farshore_shared::names::Name;
use farshore_shared::wire::{Holds, ServiceState, ServiceStatus, SiteControls, Stop, UnixSeconds};
use serde::Serialize;

use super::keeper::{self, Known};
use super::{Contact, Health, Snapshot};
use crate::controls::window::Windows;
use crate::controls::{Controls, doubt, files};
use crate::footprint::InForce;
use crate::store::{Found, Store, StoreError};

/// A site as it is shown: `farshore agent status --output json` and `/status.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// The site; none where the folder does not say.
    pub cluster: Option<Name>,
    /// The agent.
    pub agent: AgentView,
    /// The hub.
    pub hub: HubView,
    /// Where manifests go.
    pub target: TargetView,
    /// When the services were looked at last; none if no agent has told.
    pub as_of: Option<UnixSeconds>,
    /// Which documents are in force.
    pub holds: Option<Holds>,
    /// What is stopped.
    pub controls: SiteControls,
    /// How much is asked of cluster and machine, and who said so; none if no agent has told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub footprint: Option<InForce>,
    /// Every service, by name.
    pub services: Vec<ServiceView>,
    /// What a person should look at.
    pub alarms: Vec<String>,
    /// Reports that have not arrived at the hub.
    pub reports_waiting: usize,
}

/// The agent of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// Its version.
    pub version: Option<String>,
    /// Whether one has the folder now.
    pub running: bool,
    /// Its process id, as it sees it itself.
    pub process: Option<u32>,
}

/// The hub as a site sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HubView {
    /// Where it is.
    pub url: Option<String>,
    /// When it was heard last, and whether it is silent.
    #[serde(flatten)]
    pub contact: Contact,
    /// Whether it was heard within three polls and a minute.
    pub fresh: bool,
}

/// Where manifests go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetView {
    /// Its name.
    pub name: Option<String>,
    /// Whether it answered at the last look.
    pub reached: Option<bool>,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceView {
    /// How it is, in one word.
    pub health: Health,
    /// That it is paused by itself, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Stop>,
    /// What the last look found.
    #[serde(flatten)]
    pub status: ServiceStatus,
}

/// What is shown of a state folder.
///
/// # Errors
/// [`StoreError`] when it is none, or cannot be read.
pub fn of_folder(state: &Path) -> Result<View, StoreError> {
    let store = Store::peek(state)?;
    let running = Store::is_in_use(state);
    let (found, contact) = (keeper::snapshot(state)?, keeper::contact(state)?);
    let (snapshot, doubt) = match found {
        Found::Good(snapshot) => (Some(snapshot), None),
        Found::Absent => (None, Some("no agent has told yet how its services are".to_owned())),
        Found::Corrupt(why) => (None, Some(format!("the site's own status is damaged: {why}"))),
    };
    let mut view = match &snapshot {
        Some(snapshot) => of_snapshot(state, snapshot, contact),
        None => View { services: from_records(&store)?, ..of_nothing(state, contact) },
    };
    view.agent.running = running.is_some();
    view.agent.process = running.flatten();
    view.alarms.extend(doubt);
    Ok(view)
}

/// What is shown of what the agent knows.
#[must_use]
pub fn of_known(state: &Path, known: &Known) -> View {
    let contact = known.contact.clone();
    let mut view = match &known.snapshot {
        Some(snapshot) => of_snapshot(state, snapshot, contact),
        None => of_nothing(state, contact),
    };
    view.agent = AgentView {
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        running: true,
        process: Some(std::process::id()),
    };
    view
}

fn of_snapshot(state: &Path, snapshot: &Snapshot, contact: Contact) -> View {
    let windows = Windows(snapshot.windows.iter().filter_map(|window| window.parse().ok()).collect());
    let now = clock::now();
    let (mut controls, unread) = stopped(state);
    if let Ok(store) = Store::peek(state) {
        let told = snapshot.controls.clone().unwrap_or_default();
        doubt::as_told(&mut controls, &told, now, store.lower_time());
    }
    let paused = |name: &Name| controls.services.get(name).filter(|_| controls.paused(name, now)).cloned();
    let services = snapshot.services.iter().map(|status| ServiceView {
        health: Health::of(status),
        paused: paused(&status.name),
        status: status.clone(),
    });
    View {
        cluster: Some(snapshot.cluster.clone()),
        agent: AgentView { version: Some(snapshot.agent.clone()), running: false, process: None },
        hub: HubView {
            url: Some(snapshot.hub.clone()),
            fresh: contact.is_fresh(snapshot.poll_seconds, now),
            contact,
        },
        target: TargetView { name: Some(snapshot.target.clone()), reached: Some(snapshot.reached) },
        as_of: Some(snapshot.at),
        holds: snapshot.holds,
        footprint: snapshot.footprint,
        services: services.collect(),
        alarms: snapshot.alarms.iter().cloned().chain(unread).collect(),
        controls: controls.told(&windows, now).unwrap_or_default(),
        reports_waiting: waiting(state),
    }
}

fn of_nothing(state: &Path, contact: Contact) -> View {
    let (controls, alarms) = stopped(state);
    View {
        cluster: None,
        agent: AgentView { version: None, running: false, process: None },
        hub: HubView { url: None, contact, fresh: false },
        target: TargetView { name: None, reached: None },
        as_of: None,
        holds: None,
        controls: controls.told(&Windows::default(), clock::now()).unwrap_or_default(),
        footprint: None,
        services: vec![],
        alarms,
        reports_waiting: waiting(state),
    }
}

fn stopped(state: &Path) -> (Controls, Vec<String>) {
    files::load(state)
        .unwrap_or_else(|error| (Controls::default(), vec![farshore_shared::exit::chain(&error)]))
}

fn waiting(state: &Path) -> usize {
    let names = crate::store::files::list(&state.join("outbox")).unwrap_or_default();
    names.iter().filter(|name| name.ends_with(".report")).count()
}

/// What the records say where no agent has told: which services are in place, and what was healthy last.
fn from_records(store: &Store) -> Result<Vec<ServiceView>, StoreError> {
    let healthy = store.healthy()?.good().unwrap_or_default();
    let service = |name: Name| {
        let inventory = store.inventory(&name).ok().and_then(Found::good).unwrap_or_default();
        let in_place = inventory.items.iter().filter(|item| item.applied.is_some()).count();
        let commit = healthy.get(&name).map_or("", |healthy| healthy.commit.as_str());
        let status = ServiceStatus {
            objects: u32::try_from(in_place).unwrap_or(u32::MAX),
            message: "as the inventory has it; nobody has looked".to_owned(),
            ..ServiceStatus::new(name, commit, ServiceState::Waiting)
        };
        ServiceView { health: Health::Unknown, paused: None, status }
    };
    Ok(store.services_with_inventory()?.into_iter().map(service).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controls::files::{Control, set};
    use crate::plan::Inventory;

    #[test]
    fn a_folder_without_a_status_shows_what_its_records_say() {
        let temp = tempfile::tempdir().expect("a folder");
        assert!(of_folder(temp.path()).is_err(), "it is no state folder");
        let store = Store::open(temp.path()).expect("new");
        let inventory = Inventory { incarnation: Some(1), ..Inventory::default() };
        store.save_inventory(&"web".parse().expect("a name"), &inventory).expect("written");
        set(temp.path(), &Control::Hold, None, "tills").expect("written");
        let view = of_folder(temp.path()).expect("readable");
        assert!(view.agent.running && view.agent.process == Some(std::process::id()));
        assert_eq!(view.services.iter().map(|service| service.health).collect::<Vec<_>>(), [Health::Unknown]);
        assert_eq!(view.controls.hold.map(|hold| hold.reason).as_deref(), Some("tills"));
        drop(store);
        let view = of_folder(temp.path()).expect("readable");
        assert!(!view.agent.running, "nobody has the folder");
    }
}
