//! Server-side apply of one object, and namespaces that are there for others.

use farshore_shared::wire::Conflicts as Policy;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::conflict::Conflicts;
use super::connection::{Connection, Request};
use super::discovery::{Discovery, GroupVersion, Resource};
use super::fault::{Complaint, Fault};
use super::locate::{group_version, unknown_kind};
use super::metadata::{Metadata, Partial};
use super::observe::look;
use super::{adopt, path, recreate, usable};
use crate::object::{FIELD_MANAGER, Manifest, Owner};
use crate::target::{Applied, Effect, Preview};
use crate::terms::{Owned, Terms};

/// One apply: who sends it, where to, and what.
#[derive(Clone, Copy)]
pub(super) struct Applying<'a> {
    pub(super) connection: &'a Connection,
    pub(super) discovery: &'a Discovery,
    pub(super) owner: &'a Owner,
    pub(super) manifest: &'a Manifest,
}

/// Whether fields are taken from whoever owns them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Force {
    No,
    Yes,
}

/// Why an apply did not come to its end.
enum Stop {
    /// The API did not take it.
    Refused(Fault),
    /// It took it, and the object cannot be used.
    Unusable(Complaint),
}

/// What can be done about a refusal.
enum Remedy {
    /// Everything in the way has been ours, or may be taken.
    Force,
    /// The object has to go first.
    Room,
}

impl Applying<'_> {
    /// Applies the manifest on its terms.
    ///
    /// The whole validation of the API is asked for, as kubectl does: a field that the schema does not
    /// have is an error and not dropped in silence.
    pub(super) async fn apply(self) -> Result<Applied, Complaint> {
        let resource = self.resource().await?;
        if self.manifest.terms.adopt {
            adopt::adopt(self.connection, &resource, self.manifest, Effect::Lasting).await?;
        }
        let (mut force, mut made_room) = (self.first(), false);
        let metadata = loop {
            match self.put(&resource, force).await {
                Ok(metadata) => break metadata,
                Err(Stop::Unusable(complaint)) => return Err(complaint),
                Err(Stop::Refused(fault)) => match self.remedy(&resource, &fault).await? {
                    Remedy::Force if force == Force::No => force = Force::Yes,
                    Remedy::Room if !made_room => {
                        recreate::make_room(self.connection, &resource, self.owner, self.manifest).await?;
                        made_room = true;
                    }
                    Remedy::Force | Remedy::Room => return Err(self.complain(&resource, &fault)),
                },
            }
        };
        if metadata.deletion_timestamp.is_some() {
            let waits = metadata.finalizers.join(", ");
            return Err(Complaint::worthwhile(format!(
                "it is being deleted and can be applied once that has ended (it waits for: {waits})"
            )));
        }
        let (fingerprint, stamp, fields) = (metadata.fingerprint(), metadata.stamp(), metadata.fields());
        Ok(Applied { uid: metadata.uid, fingerprint, stamp, fields })
    }

    /// What an apply would do: the same questions, answered by a dry run.
    pub(super) async fn preview(self) -> Result<Preview, Complaint> {
        let resource = self.resource().await?;
        let target = self.target(&resource)?;
        let live = match self.connection.call::<Value>(Request::get(target.clone())).await {
            Ok(live) => Some(live),
            Err(fault) if fault.is(404) => None,
            Err(fault) => return Err(fault.complaint(&format!("get {resource}"))),
        };
        let mut force = self.first();
        loop {
            let request = self.request(&target, force, "&dryRun=All").whole();
            match self.connection.call::<Value>(request).await {
                Ok(next) => return Ok(Preview::of(live.as_ref(), &next, &self.manifest.key)),
                Err(fault) => match self.remedy(&resource, &fault).await? {
                    Remedy::Force if force == Force::No => force = Force::Yes,
                    Remedy::Room => {
                        recreate::in_the_way(self.connection, &resource, self.owner, self.manifest).await?;
                        return Ok(Preview::Anew);
                    }
                    Remedy::Force => return Err(self.complain(&resource, &fault)),
                },
            }
        }
    }

    /// Takes over what others have applied.
    pub(super) async fn adopt(self, effect: Effect) -> Result<Vec<crate::target::Taken>, Complaint> {
        let resource = self.resource().await?;
        adopt::adopt(self.connection, &resource, self.manifest, effect).await
    }

    async fn resource(self) -> Result<Resource, Complaint> {
        let at = group_version(self.manifest);
        let kind = self.manifest.key.kind.as_str();
        let found = self.discovery.resource(&at, kind).await;
        let found = found.map_err(|fault| fault.complaint(&format!("find out about kind {kind} of {at}")))?;
        found.ok_or_else(|| unknown_kind(kind, &at))
    }

    /// Who repairs what has been all ours need not ask first.
    fn first(self) -> Force {
        let terms = &self.manifest.terms;
        if terms.conflicts == Policy::Force || terms.owned == Owned::Everything {
            Force::Yes
        } else {
            Force::No
        }
    }

    fn target(self, resource: &Resource) -> Result<String, Complaint> {
        let key = &self.manifest.key;
        path::object(resource, resource.namespace(key.namespace.as_deref()), &key.name)
            .map_err(|bad| Complaint::pointless(bad.to_string()))
    }

    fn request(self, target: &str, force: Force, more: &str) -> Request {
        let body = serde_json::to_vec(&self.manifest.body).expect("a JSON value has string keys only");
        let forced = if force == Force::Yes { "&force=true" } else { "" };
        let query = format!("fieldManager={FIELD_MANAGER}{forced}&fieldValidation=Strict{more}");
        Request::apply(format!("{target}?{query}"), body)
    }

    async fn put(self, resource: &Resource, force: Force) -> Result<Metadata, Stop> {
        let Self { connection, discovery, manifest, .. } = self;
        let target = self.target(resource).map_err(Stop::Unusable)?;
        let request = self.request(&target, force, "");
        match (manifest.key.group.as_str(), manifest.key.kind.as_str()) {
            ("", "Namespace") => {
                let applied = send(connection, request.whole()).await?;
                usable::namespace(connection, &target, applied).await.map_err(Stop::Unusable)
            }
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                let applied = send(connection, request.whole()).await?;
                usable::definition(connection, discovery, &target, applied).await.map_err(Stop::Unusable)
            }
            _ => Ok(send::<Partial>(connection, request).await?.metadata),
        }
    }

    /// What can be done about a refusal; else what a person is told of it.
    async fn remedy(self, resource: &Resource, fault: &Fault) -> Result<Remedy, Complaint> {
        let terms = &self.manifest.terms;
        if let Some(conflicts) = Conflicts::read(fault) {
            let may = conflicts.may_be_taken(terms) || self.is_ours(resource, &conflicts).await?;
            return if may { Ok(Remedy::Force) } else { Err(conflicts.complaint()) };
        }
        match recreate::is_needed(fault) {
            true if terms.recreate => Ok(Remedy::Room),
            true => Err(recreate::how_to_ask(fault, self.manifest, &format!("apply {resource}"))),
            false => Err(self.complain(resource, fault)),
        }
    }

    /// What the object itself says, where nobody else remembers.
    ///
    /// Without an inventory, its marks say that this service has applied it. Where too many fields were ours to
    /// remember each, its own list of them is asked: what somebody took since is not in it, and is told.
    async fn is_ours(self, resource: &Resource, conflicts: &Conflicts) -> Result<bool, Complaint> {
        let terms = &self.manifest.terms;
        if !matches!(terms.owned, Owned::Unknown | Owned::TooMany) {
            return Ok(false);
        }
        let key = &self.manifest.key;
        let live = look(self.connection, resource, key.namespace.as_deref(), &key.name).await;
        let live = live.map_err(|fault| fault.complaint(&format!("get {resource}")))?;
        let Some(live) = live.filter(|live| live.is_marked(self.owner)) else { return Ok(false) };
        if terms.owned == Owned::Unknown {
            return Ok(true);
        }
        let owned = Owned::Fields(live.all_fields());
        Ok(conflicts.may_be_taken(&Terms { owned, ..terms.clone() }))
    }

    fn complain(self, resource: &Resource, fault: &Fault) -> Complaint {
        if fault.is(404) {
            self.discovery.forget(&resource.at.group);
        }
        fault.complaint(&format!("apply {resource}"))
    }
}

async fn send<T: DeserializeOwned>(connection: &Connection, request: Request) -> Result<T, Stop> {
    connection.call(request).await.map_err(Stop::Refused)
}

/// Makes sure that a namespace exists and is active. Our marks are not on it, so it is never deleted.
pub(super) async fn ensure_namespace(connection: &Connection, name: &str) -> Result<(), Complaint> {
    let target =
        path::object(&namespaces(), None, name).map_err(|bad| Fault::from(bad).complaint("create it"))?;
    let found = match connection.call::<usable::Namespace>(Request::get(target.clone())).await {
        Ok(namespace) => Ok(namespace),
        Err(fault) if fault.is(404) => create_namespace(connection, &target, name).await,
        // An account that may write into a namespace need not be allowed to see it.
        Err(fault) if fault.is(403) && connection.is_acting() => return Ok(()),
        Err(fault) => Err(fault.complaint("get namespaces")),
    };
    usable::namespace(connection, &target, found?).await.map(|_| ())
}

async fn create_namespace(
    connection: &Connection,
    target: &str,
    name: &str,
) -> Result<usable::Namespace, Complaint> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let body = serde_json::to_vec(&body).expect("a JSON value has string keys only");
    match connection.call(Request::create("/api/v1/namespaces".to_owned(), body)).await {
        Ok(namespace) => Ok(namespace),
        // Somebody was faster.
        Err(fault) if fault.is(409) => {
            let found = connection.call(Request::get(target.to_owned())).await;
            found.map_err(|fault| fault.complaint("get namespaces"))
        }
        Err(fault) => Err(fault.complaint("create namespaces")),
    }
}

/// Every API server has this one, and it needs no discovery.
fn namespaces() -> Resource {
    Resource {
        at: GroupVersion { group: String::new(), version: "v1".to_owned() },
        plural: "namespaces".to_owned(),
        scope: super::discovery::Scope::Cluster,
        verbs: vec![],
    }
}
