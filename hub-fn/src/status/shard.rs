//! One object of statuses: what it holds, its bytes, and which of two reports counts. Pure.
//!
//! The bytes are `fss1`, a kind (`L` holds reports, `S` was split), the length of the facts as four big-endian
//! bytes, the facts, and the reports; both are JSON, compressed with zstd. Facts stand first, so that a
//! list of clusters reads a tenth of the object.

use std::collections::BTreeMap;

use farshore_shared::compress;
use farshore_shared::dsse::Envelope;
use farshore_shared::names::Name;
use farshore_shared::wire::{STATUS_LIMIT, ServiceState, ServiceStatus, Status};

use crate::record::{Facts, Report, STATUS_SHARD_LIMIT};

const MAGIC: &[u8] = b"fss1";
const LEAF: u8 = b'L';
const SPLIT: u8 = b'S';
/// Bytes before the facts.
pub const HEAD: usize = MAGIC.len() + 1 + 4;
/// The most characters of a message in [`Facts`].
const MESSAGE_LIMIT: usize = 300;

/// An object of statuses that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("object of statuses is damaged ({0})")]
pub struct Damaged(pub String);

/// What an object of statuses says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Reports, by cluster.
    Leaf(Reports),
    /// Its reports are in the objects of its shards.
    Split,
}

/// The last report of each cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reports(BTreeMap<Name, Known>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    report: Report,
    facts: Facts,
}

impl Reports {
    /// How many clusters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The report of a cluster.
    #[must_use]
    pub fn get(&self, cluster: &Name) -> Option<&Report> {
        self.0.get(cluster).map(|known| &known.report)
    }

    /// What a list shows, by cluster.
    #[must_use]
    pub fn facts(&self) -> BTreeMap<Name, Facts> {
        self.0.iter().map(|(cluster, known)| (cluster.clone(), known.facts.clone())).collect()
    }

    /// All reports, by cluster.
    pub fn into_reports(self) -> impl Iterator<Item = Report> {
        self.0.into_values().map(|known| known.report)
    }

    /// Takes a report if it counts more than the one that is there: of one state folder the one with the
    /// higher number, of two the one that was received later. The same report twice changes nothing, and
    /// of two folders' reports no order of arrival loses the later one.
    ///
    /// Returns whether it was taken; a report that cannot be read is not.
    pub fn take(&mut self, report: Report) -> bool {
        let Some(facts) = Facts::of(&report) else { return false };
        match self.0.get(&report.cluster) {
            Some(held) if !facts.counts_more_than(&held.facts) => false,
            Some(_) | None => {
                self.0.insert(report.cluster.clone(), Known { report, facts });
                true
            }
        }
    }
}

impl FromIterator<Report> for Reports {
    fn from_iter<T: IntoIterator<Item = Report>>(reports: T) -> Self {
        let mut all = Self::default();
        for report in reports {
            all.take(report);
        }
        all
    }
}

impl Facts {
    /// The facts of a report; none if it is not that cluster's status. The signature was verified by
    /// whoever acknowledged it, and is verified again by whoever shows the report itself.
    #[must_use]
    pub fn of(report: &Report) -> Option<Self> {
        let status = peek(&report.envelope).filter(|status| status.cluster == report.cluster)?;
        Some(Self::of_status(&status, report.received))
    }

    /// The facts of a status.
    #[must_use]
    pub fn of_status(status: &Status, received: u64) -> Self {
        let applied = status.services.iter().filter(|service| service.state == ServiceState::Applied).count();
        let worst = status.services.iter().max_by_key(|service| badness(service.state));
        let problem = worst.filter(|service| service.state != ServiceState::Applied).map(told);
        let message = problem.or_else(|| status.alarms.first().cloned()).unwrap_or_default();
        Self {
            state_id: status.state_id.clone(),
            sequence: status.sequence,
            received,
            poll_seconds: status.poll_seconds,
            holds: status.holds,
            worst: worst.map(|service| service.state),
            services: count(status.services.len()),
            applied: count(applied),
            message: message.chars().take(MESSAGE_LIMIT).collect(),
        }
    }

    fn counts_more_than(&self, other: &Self) -> bool {
        if self.state_id == other.state_id {
            self.sequence > other.sequence
        } else {
            // Two folders that were heard in the same millisecond: any one, as long as it is the same.
            (self.received, &self.state_id) > (other.received, &other.state_id)
        }
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn badness(state: ServiceState) -> u8 {
    match state {
        ServiceState::Applied => 0,
        ServiceState::Held => 1,
        ServiceState::Waiting => 2,
        ServiceState::Failed => 3,
    }
}

/// What a person should know of a service that is not applied.
fn told(service: &ServiceStatus) -> String {
    let state = match service.state {
        ServiceState::Applied => "applied",
        ServiceState::Waiting => "waiting",
        ServiceState::Held => "held",
        ServiceState::Failed => "failed",
    };
    let failure = service.failures.first().map(|failure| format!("{}: {}", failure.object, failure.message));
    let why = if service.message.is_empty() { failure.unwrap_or_default() } else { service.message.clone() };
    let colon = if why.is_empty() { "" } else { ": " };
    format!("service {} {state}{colon}{why}", service.name)
}

/// A status, its signature not looked at.
fn peek(envelope: &Envelope) -> Option<Status> {
    serde_json::from_slice(&envelope.peek(STATUS_LIMIT)?).ok()
}

/// The bytes of an object of statuses.
///
/// # Panics
/// Never: reports have string keys only, and facts have less than 4 GiB.
#[must_use]
pub fn encode(content: &Content) -> Vec<u8> {
    let Content::Leaf(reports) = content else { return [MAGIC, &[SPLIT], &[0; 4]].concat() };
    let json = "reports have string keys only";
    let facts: BTreeMap<&Name, &Facts> =
        reports.0.iter().map(|(cluster, known)| (cluster, &known.facts)).collect();
    let facts = compress::pack(&serde_json::to_vec(&facts).expect(json));
    let all: Vec<&Report> = reports.0.values().map(|known| &known.report).collect();
    let all = compress::pack(&serde_json::to_vec(&all).expect(json));
    let length = u32::try_from(facts.len()).expect("facts have less than 4 GiB").to_be_bytes();
    [MAGIC, &[LEAF], &length, &facts, &all].concat()
}

/// Reads an object of statuses.
///
/// # Errors
/// [`Damaged`].
pub fn decode(bytes: &[u8]) -> Result<Content, Damaged> {
    let Some(length) = facts_length(bytes)? else { return Ok(Content::Split) };
    let packed = bytes.get(HEAD + length..).ok_or_else(|| Damaged("it was cut".into()))?;
    let reports: Vec<Report> = unpack(packed)?;
    Ok(Content::Leaf(reports.into_iter().collect()))
}

/// How many bytes the facts have, from the first [`HEAD`] bytes; none where the object was split.
///
/// # Errors
/// [`Damaged`].
pub fn facts_length(bytes: &[u8]) -> Result<Option<usize>, Damaged> {
    let strange = || Damaged("it does not begin as one of ours".into());
    let head = bytes.get(..HEAD).and_then(|head| head.strip_prefix(MAGIC)).ok_or_else(strange)?;
    let length = u32::from_be_bytes(head[1..].try_into().map_err(|_wrong_length| strange())?);
    match head[0] {
        SPLIT => Ok(None),
        LEAF => usize::try_from(length).map(Some).map_err(|_too_large| strange()),
        _ => Err(strange()),
    }
}

/// Reads the facts.
///
/// # Errors
/// [`Damaged`].
pub fn decode_facts(packed: &[u8]) -> Result<BTreeMap<Name, Facts>, Damaged> {
    unpack(packed)
}

fn unpack<T: serde::de::DeserializeOwned>(packed: &[u8]) -> Result<T, Damaged> {
    let json = compress::unpack(packed, STATUS_SHARD_LIMIT).map_err(|error| Damaged(error.to_string()))?;
    serde_json::from_slice(&json).map_err(|error| Damaged(error.to_string()))
}

#[cfg(test)]
pub(crate) mod tests {
    use farshore_shared::keys::SigningKey;
    use proptest::prelude::*;

    use super::*;

    /// A report of a cluster that nothing is wrong with.
    pub(crate) fn report(cluster: &str, state_id: &str, sequence: u64, received: u64) -> Report {
        let status = serde_json::json!({
            "cluster": cluster, "stateId": state_id, "sequence": sequence, "at": received / 1000,
            "agent": "test", "pollSeconds": 60, "services": [],
        });
        let status: Status = serde_json::from_value(status).expect("a status");
        let key = SigningKey::from_seed([7; 32].into());
        Report { cluster: status.cluster.clone(), received, envelope: Envelope::seal(&status, &[&key]) }
    }

    fn newest(reports: &Reports) -> (String, u64) {
        let facts = reports.facts().into_values().next().expect("one cluster");
        (facts.state_id, facts.sequence)
    }

    #[test]
    fn the_higher_number_counts_and_then_the_later_state_folder() {
        let mut reports = Reports::default();
        assert!(reports.take(report("a", "one", 2, 10)));
        assert!(!reports.take(report("a", "one", 2, 20)), "the same number twice is one report");
        assert!(!reports.take(report("a", "one", 1, 20)), "overtaken");
        assert!(reports.take(report("a", "two", 1, 30)), "the state folder began anew");
        assert!(!reports.take(report("a", "one", 3, 25)), "of the folder before");
        assert_eq!(newest(&reports), ("two".into(), 1));
        let mut stranger = report("a", "one", 1, 1);
        stranger.cluster = "b".parse().expect("a name");
        assert!(!reports.take(stranger), "it is of another cluster");
        assert_eq!(reports.len(), 1);
    }

    #[test]
    fn an_object_reads_back_and_its_facts_by_themselves() {
        let reports: Reports = ["b", "a", "c"].map(|name| report(name, "one", 1, 5)).into_iter().collect();
        let bytes = encode(&Content::Leaf(reports.clone()));
        assert_eq!(decode(&bytes), Ok(Content::Leaf(reports.clone())));
        let length = facts_length(&bytes[..HEAD]).expect("ours").expect("a leaf");
        assert_eq!(decode_facts(&bytes[HEAD..HEAD + length]), Ok(reports.facts()));
        assert_eq!(decode(&encode(&Content::Split)), Ok(Content::Split));
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn the_worst_service_is_what_is_told() {
        let status = serde_json::json!({
            "cluster": "a", "stateId": "s", "sequence": 1, "at": 1, "agent": "t", "pollSeconds": 60,
            "services": [
                {"name": "x", "commit": "c", "state": "waiting", "message": "m", "objects": 1},
                {"name": "y", "commit": "c", "state": "failed", "objects": 1,
                 "failures": [{"object": "Pod a/b", "message": "denied"}]},
                {"name": "z", "commit": "c", "state": "applied", "objects": 1},
            ],
            "alarms": ["the clock"],
        });
        let status: Status = serde_json::from_value(status).expect("a status");
        let facts = Facts::of_status(&status, 9);
        assert_eq!((facts.worst, facts.services, facts.applied), (Some(ServiceState::Failed), 3, 1));
        assert_eq!(facts.message, "service y failed: Pod a/b: denied");
        let quiet = Facts::of_status(&Status { services: vec![], ..status }, 9);
        assert_eq!(quiet.message, "the clock");
    }

    proptest! {
        /// As sites send: each folder's numbers grow with time, and a later folder begins later.
        #[test]
        fn whatever_order_reports_are_folded_in_the_last_one_is_there(
            order in Just((0..12u64).collect::<Vec<_>>()).prop_shuffle()
        ) {
            let sent = |n: u64| report("a", if n < 7 { "first" } else { "second" }, n + 1, 100 + n);
            let reports: Reports = order.into_iter().map(sent).collect();
            prop_assert_eq!(newest(&reports), ("second".to_owned(), 12));
        }
    }
}
