//! A fleet in memory that signs what a test wants signed.

use farshore_shared::digest::Digest;
use farshore_shared::dsse::Envelope;
use farshore_shared::keys::SigningKey;
use farshore_shared::names::{Labels, Name};
use farshore_shared::wire::{Desired, Group, Registration, Role, Roles, Root, Roster};

use super::Identity;

/// The time of the tests: in 2027.
pub(crate) const NOW: u64 = 1_800_000_000;

pub(crate) struct Fleet {
    pub(crate) root_key: SigningKey,
    pub(crate) director: SigningKey,
    pub(crate) root: Root,
    pub(crate) site: SigningKey,
    pub(crate) cluster: Name,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let (root_key, director) = (SigningKey::generate(), SigningKey::generate());
        let root = Self::root_of(&root_key, &director);
        let cluster = "shop-7".parse().expect("a name");
        Self { root_key, director, root, site: SigningKey::generate(), cluster }
    }

    pub(crate) fn root_of(root_key: &SigningKey, director: &SigningKey) -> Root {
        let role = |key: &SigningKey| Role { keys: vec![key.public().id()], threshold: 1 };
        Root {
            version: 1,
            epoch: 1,
            issued: NOW - 100,
            expires: NOW + 1_000_000,
            keys: vec![root_key.public().clone(), director.public().clone()],
            roles: Roles {
                root: role(root_key),
                director: role(director),
                operator: Role { keys: vec![], threshold: 1 },
            },
            hubs: vec!["https://127.0.0.1:8443".into()],
            tls_pins: vec![],
            critical: vec![],
        }
    }

    pub(crate) fn root_bytes(&self) -> Vec<u8> {
        Envelope::seal(&self.root, &[&self.root_key]).to_bytes()
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity { cluster: self.cluster.clone(), key: self.site.public().id() }
    }

    pub(crate) fn registration(&self, sealing_key: &str) -> Registration {
        Registration {
            cluster: self.cluster.clone(),
            key: self.site.public().clone(),
            sealing_key: sealing_key.to_owned(),
            labels: Labels::new(),
            token: "t1".into(),
            epoch: self.root.epoch,
            sequence: 1,
            issued: NOW,
            critical: vec![],
        }
    }

    pub(crate) fn roster(&self, sequence: u64) -> Roster {
        Roster {
            cluster: self.cluster.clone(),
            key: self.site.public().id(),
            group: Digest::of(b"edge"),
            floor: 0,
            epoch: self.root.epoch,
            sequence,
            issued: NOW,
            expires: NOW + 1000,
            labels: Labels::new(),
            tombstones: vec![],
            max_delay_seconds: 3600,
            footprint: Default::default(),
            critical: vec![],
        }
    }

    pub(crate) fn group(&self, sequence: u64) -> Group {
        Group {
            group: Digest::of(b"edge"),
            epoch: self.root.epoch,
            sequence,
            issued: NOW,
            expires: NOW + 1000,
            previous: None,
            poll_seconds: 120,
            services: vec![],
            tombstones: vec![],
            footprint: Default::default(),
            critical: vec![],
        }
    }

    pub(crate) fn offer(&self, roster: Option<&Roster>, group: Option<&Group>) -> Desired {
        Desired {
            roster: roster.map(|roster| Envelope::seal(roster, &[&self.director])),
            group: group.map(|group| Envelope::seal(group, &[&self.director])),
        }
    }
}
