//! Changes of a seeded fleet, as people and sites make them, and the publisher that hears of them.

use std::sync::Arc;

use farshore_hub_fn::index::memory::Memory;
use farshore_hub_fn::objects::Objects;
use farshore_hub_fn::publish::enrol::request_digest;
use farshore_hub_fn::publish::partition::Policy;
use farshore_hub_fn::publish::{FleetRepository, Options, Publisher, SyncOptions};
use farshore_hub_fn::record;
use farshore_hub_fn::source::{Branch, FileSources, GitUrl, Limits};
use farshore_shared::clock;
use farshore_shared::keys::SigningKey;
use farshore_shared::names::Name;
use farshore_shared::token::{Claims, JoinToken};
use farshore_shared::wire::EnrollRequest;

use super::declared::manifest;
use super::{Fleet, LABEL, POLL_SECONDS, SEALING, put};
use crate::error::BenchError;

impl Fleet {
    /// Changes the service that all clusters have, and returns the commit.
    ///
    /// # Errors
    /// When `git` fails.
    pub(crate) fn commit(&mut self, value: &str) -> Result<String, BenchError> {
        self.repo.write("apps/all/it.yaml", manifest(value))?;
        Ok(self.repo.commit("change")?)
    }

    /// Changes the service that one group has, and returns the commit.
    ///
    /// # Errors
    /// When `git` fails.
    pub(crate) fn commit_own(&mut self, group: usize, value: &str) -> Result<String, BenchError> {
        self.repo.write(format!("apps/own-{group}/it.yaml"), manifest(value))?;
        Ok(self.repo.commit("change")?)
    }

    /// Gives a cluster a label that puts it into this group, and returns the commit.
    ///
    /// # Errors
    /// When `git` fails.
    pub(crate) fn relabel(&mut self, n: usize, group: usize) -> Result<String, BenchError> {
        let text = format!(
            "apiVersion: farshore.dev/v1alpha1\nkind: Cluster\nmetadata: {{ name: {} }}\n\
             spec: {{ labels: {{ {LABEL}: g{group}, relabelled: \"true\" }} }}\n",
            self.name(n)
        );
        self.repo.write("clusters.yaml", text)?;
        Ok(self.repo.commit("relabel")?)
    }

    /// Leaves a request to enrol for the publisher, as a serving hub records it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) async fn ask_to_enrol(&self, objects: &Arc<dyn Objects>) -> Result<(), BenchError> {
        let claims = Claims {
            id: "bench-enrolment".to_owned(),
            labels: self.labels(0),
            expires: clock::now() + 3600,
            uses: 1,
            replaces: None,
        };
        let token = JoinToken::issue(claims, &self.keys.token, self.id);
        let (cluster, key) = ("newcomer".parse::<Name>().expect("a name"), SigningKey::generate());
        let proof = token.prove(&cluster, key.public(), SEALING);
        let ask = EnrollRequest {
            claims: token.claims_text.clone(),
            cluster,
            key: key.public().clone(),
            sealing_key: SEALING.to_owned(),
            proof,
        };
        let bytes = serde_json::to_vec(&ask).expect("a request has string keys only");
        put(objects, &record::pending(request_digest(&bytes)), bytes.into()).await
    }

    /// A publisher over this record that reads the fleet's repository.
    ///
    /// # Errors
    /// When the keys are gone.
    pub(crate) fn publisher(&self, objects: &Arc<dyn Objects>) -> Result<Publisher, BenchError> {
        let (trust, keys) = (self.trust.clone(), self.ring().publisher());
        let keys = keys.map_err(BenchError::ours("reading the publisher's keys"))?;
        Ok(Publisher::new(Arc::clone(objects), Arc::new(Memory::new()), (trust, keys), self.options()?))
    }

    fn options(&self) -> Result<Options, BenchError> {
        let url = GitUrl::parse(&self.url(), FileSources::Refused);
        let url = url.map_err(BenchError::ours("reading the fleet repository's address"))?;
        Ok(Options {
            fleet: Some(FleetRepository { url, branch: Branch::Default }),
            files: FileSources::Refused,
            mirrors: self.folder.path().join("mirrors"),
            policy: Policy { poll: POLL_SECONDS, ..Policy::default() },
            interval: std::time::Duration::ZERO,
            // One step waits for what it fetches, however busy the machine is.
            sync: SyncOptions { grace: Limits::default().total, ..SyncOptions::default() },
        })
    }
}
