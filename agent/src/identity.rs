//! How a site joins its fleet: steps that may be cut at any moment and repeated from the start.
//!
//! Keys are made and synced first, so that every repetition asks for the same key, which the hub
//! then finds; then the chain of roots, from the digest in the join token; then the request; and
//! last the record that makes all of it unnecessary.

use std::sync::Arc;
use std::time::Duration;

use farshore_shared::digest::Digest;
use farshore_shared::names::Name;
use farshore_shared::token::{BadToken, JoinToken};
use farshore_shared::wire::{EnrollRequest, Enrolled, Root};

use crate::hub::{EnrollAnswer, HubClient, HubError, HubUrl, Trust};
use crate::store::{EnrolmentRecord, Found, Keys, Store, StoreError};
use crate::verify::{self, Refusal};

/// How many new roots are taken in one walk: more than any site has missed.
const WALK_LIMIT: usize = 1024;
/// How long to wait where the hub does not say.
const WAIT: Duration = Duration::from_secs(2);

/// Why a site could not join, or could not learn the trust roots.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// This site has not joined, and no token was given.
    #[error("this site has not joined a fleet: start it with a join token (--join TOKEN)")]
    TokenNeeded,
    /// The token is broken.
    #[error("the join token cannot be used")]
    Token(#[source] BadToken),
    /// The hub refuses the token or the name.
    #[error("the hub refuses to enrol this site (status {status}): {problem}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the hub says.
        problem: String,
    },
    /// The hub has no root 1, so it is no hub of this fleet.
    #[error("the hub has no trust root 1 ({hub}): is it the hub that the join token is for?")]
    NoRoot {
        /// The hub.
        hub: HubUrl,
    },
    /// What the hub answered is not believed.
    #[error("the answer of the hub is not believed")]
    Refusal(#[from] Refusal),
    /// The hub could not be asked.
    #[error("asking the hub")]
    Hub(#[from] HubError),
    /// The state folder.
    #[error("keeping what was learnt")]
    Store(#[from] StoreError),
}

impl JoinError {
    /// Whether trying again can help without anybody doing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Hub(error) if error.is_retryable())
    }
}

/// Whether a site has joined.
#[derive(Debug)]
pub enum Membership {
    /// It has. A token is not even looked at.
    Member(Box<EnrolmentRecord>),
    /// It has a token to join with.
    Joining(Box<Joining>),
}

/// What one attempt to join has brought.
#[derive(Debug)]
pub enum Progress {
    /// The request is recorded; the publisher has not signed yet.
    Pending {
        /// When to try again.
        retry_after: Duration,
    },
    /// This site is a member, and the record of it is on disk.
    Joined(Box<EnrolmentRecord>),
}

/// A site that is joining.
#[derive(Debug)]
pub struct Joining {
    token: JoinToken,
    keys: Arc<Keys>,
}

/// Whether the site of this state folder has joined, or how it will.
///
/// # Errors
/// [`JoinError::TokenNeeded`], [`JoinError::Token`]; [`JoinError::Store`] for an enrolment that
/// cannot be read while no token is given.
pub fn membership(store: &Store, keys: &Arc<Keys>, token: Option<&str>) -> Result<Membership, JoinError> {
    let broken = match store.enrolment()? {
        Found::Good(record) => return Ok(Membership::Member(Box::new(record))),
        Found::Absent => None,
        Found::Corrupt(why) => Some(why),
    };
    match (token, broken) {
        (Some(token), _) => {
            let token = token.parse().map_err(JoinError::Token)?;
            Ok(Membership::Joining(Box::new(Joining { token, keys: keys.clone() })))
        }
        (None, None) => Err(JoinError::TokenNeeded),
        (None, Some(why)) => Err(JoinError::Store(StoreError::Corrupt {
            path: store.dir().join("identity/enrolment.json"),
            why: format!("{why}; start the agent with a join token to enrol the same key again"),
        })),
    }
}

impl Joining {
    /// Goes through all steps once. Any error or power cut leaves a state from which this can be
    /// called again.
    ///
    /// # Errors
    /// [`JoinError`].
    pub async fn attempt(
        &self,
        store: &Store,
        hub: &HubUrl,
        patience: Duration,
    ) -> Result<Progress, JoinError> {
        let mut any = HubClient::new(hub.clone(), &Trust::Bootstrap, None, patience)?;
        let root = trusted_root(store, &mut any, self.token.root).await?;
        let mut client = HubClient::new(hub.clone(), &Trust::of(&root), None, patience)?;
        match client.enroll(&self.request()).await? {
            EnrollAnswer::Pending { retry_after } => {
                Ok(Progress::Pending { retry_after: retry_after.unwrap_or(WAIT) })
            }
            EnrollAnswer::Refused { status, problem } => Err(JoinError::Refused { status, problem }),
            EnrollAnswer::Enrolled(enrolled) => {
                self.keep(store, hub, &root, *enrolled).map(|record| Progress::Joined(Box::new(record)))
            }
        }
    }

    fn request(&self) -> EnrollRequest {
        let Keys { cluster, signing, sealing } = &*self.keys;
        EnrollRequest {
            claims: self.token.claims_text.clone(),
            cluster: cluster.clone(),
            key: signing.public().clone(),
            sealing_key: sealing.public().to_owned(),
            proof: self.token.prove(cluster, signing.public(), sealing.public()),
        }
    }

    fn keep(
        &self,
        store: &Store,
        hub: &HubUrl,
        root: &Root,
        enrolled: Enrolled,
    ) -> Result<EnrolmentRecord, JoinError> {
        verify::enrolled(&enrolled, &self.keys.identity(), self.keys.sealing.public(), root)?;
        let record = EnrolmentRecord {
            hub: hub.to_string(),
            fleet: self.token.root,
            cluster: self.keys.cluster.clone(),
            registration: enrolled.registration,
        };
        store.save_enrolment(&record)?;
        Ok(record)
    }

    /// The name under which this site joins.
    #[must_use]
    pub fn cluster(&self) -> &Name {
        &self.keys.cluster
    }
}

/// The newest trust root of a fleet: the chain on disk, then whatever the hub has beyond it.
///
/// The client may trust any TLS key: roots prove themselves by the fleet's digest and by the chain.
/// Each root is on disk before the next is asked for.
///
/// # Errors
/// [`JoinError`]; what was walked so far is kept.
pub async fn trusted_root(store: &Store, client: &mut HubClient, fleet: Digest) -> Result<Root, JoinError> {
    let root = match store.roots(fleet)? {
        Found::Good(chain) => chain.root,
        Found::Absent | Found::Corrupt(_) => {
            let bytes = client.trust(1).await?;
            let bytes = bytes.ok_or_else(|| JoinError::NoRoot { hub: client.hub().clone() })?;
            let root = verify::first_root(&bytes, fleet)?;
            store.save_root(1, &bytes)?;
            root
        }
    };
    newer_root(store, client, root).await
}

/// Walks from a root to the newest that the hub has (TUF 1.0, section 5.3.3 to 5.3.9).
///
/// # Errors
/// [`JoinError`]; what was walked so far is on disk.
pub async fn newer_root(store: &Store, client: &mut HubClient, mut root: Root) -> Result<Root, JoinError> {
    for _ in 0..WALK_LIMIT {
        let Some(bytes) = client.trust(root.version + 1).await? else { break };
        let next = verify::next_root(&root, &bytes)?;
        store.save_root(next.version, &bytes)?;
        root = next;
    }
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::PATIENCE;
    use crate::hub::tests::{JSON, Reply, answer, peer, sendable};
    use crate::verify::kit::{Fleet, NOW};
    use farshore_shared::dsse::Envelope;
    use farshore_shared::keys::Secret;
    use farshore_shared::names::Labels;
    use farshore_shared::token::{Claims, is_proven};
    use farshore_shared::wire::{Registration, Roster};
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// A hub of one fleet, which signs at the second request.
    struct Hub {
        fleet: Fleet,
        roots: BTreeMap<u64, Vec<u8>>,
        token_key: Secret,
        asked: Vec<EnrollRequest>,
    }

    impl Hub {
        fn new() -> Arc<Mutex<Self>> {
            let fleet = Fleet::new();
            let mut roots = BTreeMap::from([(1, fleet.root_bytes())]);
            let mut second = fleet.root.clone();
            second.version = 2;
            roots.insert(2, Envelope::seal(&second, &[&fleet.root_key]).to_bytes());
            Arc::new(Mutex::new(Self { fleet, roots, token_key: Secret::random(), asked: vec![] }))
        }

        fn token(&self) -> String {
            let claims =
                Claims { id: "t1".into(), labels: Labels::new(), expires: NOW, uses: 1, replaces: None };
            JoinToken::issue(claims, &self.token_key, Digest::of(&self.roots[&1])).expose()
        }

        fn reply(&mut self, path: &str, body: &[u8]) -> Vec<u8> {
            if let Some(version) = path.strip_prefix("/v1/trust/") {
                let root = version.parse().ok().and_then(|version: u64| self.roots.get(&version));
                return root.map_or_else(
                    || answer("404 Not Found", JSON, br#"{"error":"no such root"}"#),
                    |bytes| answer("200 OK", JSON, bytes),
                );
            }
            let ask: EnrollRequest = serde_json::from_slice(body).expect("a request");
            assert!(is_proven(&self.token_key, &ask));
            self.asked.push(ask.clone());
            if self.asked.len() == 1 {
                return answer("202 Accepted", "retry-after: 3\r\n", b"");
            }
            let registration =
                Registration { key: ask.key.clone(), ..self.fleet.registration(&ask.sealing_key) };
            let roster = Roster { key: ask.key.id(), ..self.fleet.roster(NOW) };
            let enrolled = Enrolled {
                registration: Envelope::seal(&registration, &[&self.fleet.director]),
                roster: Envelope::seal(&roster, &[&self.fleet.director]),
            };
            answer("200 OK", JSON, &serde_json::to_vec(&enrolled).expect("json"))
        }
    }

    async fn served(hub: &Arc<Mutex<Hub>>) -> HubUrl {
        let hub = hub.clone();
        peer(move |head, body| {
            let path = head.split_whitespace().nth(1).expect("a path");
            Reply::Whole(hub.lock().expect("not poisoned").reply(path, body))
        })
        .await
    }

    fn joining(store: &Store, token: &str) -> Joining {
        let keys = Arc::new(store.keys(&"shop-7".parse().expect("a name")).expect("made"));
        match membership(store, &keys, Some(token)).expect("a good token") {
            Membership::Joining(joining) => *joining,
            Membership::Member(record) => panic!("it is a member already: {record:?}"),
        }
    }

    #[tokio::test]
    async fn a_site_that_loses_power_while_joining_asks_for_the_same_key_again() {
        let hub = Hub::new();
        let url = served(&hub).await;
        let token = hub.lock().expect("not poisoned").token();
        let temp = tempfile::tempdir().expect("a folder");
        let store = Store::open(temp.path()).expect("new");
        let first = joining(&store, &token).attempt(&store, &url, PATIENCE).await.expect("recorded");
        assert!(matches!(first, Progress::Pending { retry_after } if retry_after.as_secs() == 3));
        drop(store);
        let store = Store::open(temp.path()).expect("the same");
        let again = joining(&store, &token);
        let second = sendable(again.attempt(&store, &url, PATIENCE)).await.expect("signed");
        let Progress::Joined(record) = second else { panic!("it should have joined: {second:?}") };
        {
            let hub = hub.lock().expect("not poisoned");
            assert_eq!(hub.asked[0], hub.asked[1]);
        }
        let chain = store.roots(record.fleet).expect("readable").good().expect("a chain");
        assert_eq!(chain.root.version, 2, "the chain was walked");
        let keys = Arc::new(store.keys(&record.cluster).expect("read"));
        let member = membership(&store, &keys, Some("a token that is broken")).expect("not looked at");
        assert!(matches!(member, Membership::Member(held) if held == record));
    }

    #[tokio::test]
    async fn a_hub_of_another_fleet_is_not_believed() {
        let (ours, theirs) = (Hub::new(), Hub::new());
        let url = served(&theirs).await;
        let token = ours.lock().expect("not poisoned").token();
        let temp = tempfile::tempdir().expect("a folder");
        let store = Store::open(temp.path()).expect("new");
        let refused =
            joining(&store, &token).attempt(&store, &url, PATIENCE).await.expect_err("another fleet");
        assert!(matches!(refused, JoinError::Refusal(Refusal::WrongRoot { .. })) && !refused.is_retryable());
        assert!(theirs.lock().expect("not poisoned").asked.is_empty(), "nothing was sent to it");
    }

    #[test]
    fn without_a_token_or_with_a_broken_one_the_error_says_so() {
        let temp = tempfile::tempdir().expect("a folder");
        let store = Store::open(temp.path()).expect("new");
        let keys = Arc::new(store.keys(&"shop-7".parse().expect("a name")).expect("made"));
        assert!(matches!(membership(&store, &keys, None), Err(JoinError::TokenNeeded)));
        assert!(matches!(membership(&store, &keys, Some("fs1.cut")), Err(JoinError::Token(_))));
        std::fs::write(temp.path().join("identity/enrolment.json"), "").expect("damaged");
        let refused = membership(&store, &keys, None).expect_err("unreadable");
        assert!(matches!(refused, JoinError::Store(StoreError::Corrupt { .. })));
    }
}
