//! Golden files: the exact bytes of everything that is said on the wire or kept in a key file.
//!
//! A difference here means that programs of two versions would no longer understand each other or
//! no longer agree on what was signed. `FARSHORE_UPDATE_GOLDEN=1` writes the files anew; the
//! difference then stands in the commit for a reviewer to see. `docs/wire.md` explains the fields.

use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farshore_shared::digest::Digest;
use farshore_shared::dsse::{Envelope, Refused, Signers};
use farshore_shared::etag::{DesiredTag, Mark};
use farshore_shared::keys::{PublicKey, Secret, SigningKey};
use farshore_shared::names::{LabelKey, LabelValue, Labels, Name};
use farshore_shared::operator::{Ask, Sent};
use farshore_shared::pass;
use farshore_shared::token::{Claims, JoinToken, is_proven};
use farshore_shared::wire::{
    ApplyPolicy, Artifact, Check, CheckOutcome, Conflicts, Desired, Document, DriftRule, EnrollRequest,
    Enrolled, FailedRevision, Footprint, Group, HealthRule, Holds, ObjectFailure, OnFailure, Problem,
    Progress, ProtectedKind, PruneBudget, Registration, Renderer, Revision, Role, Roles, Root, Roster,
    ServiceEntry, ServiceState, ServiceStatus, Status, Tombstone,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The time of every golden document: 2027-01-15 08:00:00 UTC.
const ISSUED: u64 = 1_800_000_000;
const DAY: u64 = 86_400;
const SEQUENCE: u64 = 1_800_000_000_000;
const LIMIT: usize = 64 << 10;

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

/// Compares with the committed bytes, or writes them where that was asked for.
fn assert_golden(file: &str, bytes: &[u8]) {
    let path = path(file);
    if std::env::var_os("FARSHORE_UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::write(&path, bytes).expect("the golden folder is writable");
    }
    let golden = fs::read(&path).expect("the golden file is committed");
    assert_eq!(
        String::from_utf8_lossy(bytes),
        String::from_utf8_lossy(&golden),
        "{file} is not what is committed: this breaks every peer of another version"
    );
}

/// The value gives exactly the committed bytes, and the committed bytes give back the value.
fn assert_both_ways<T: Serialize + DeserializeOwned + PartialEq + Debug>(file: &str, value: &T) {
    assert_golden(file, &serde_json::to_vec(value).expect("string keys only"));
    let golden = fs::read(path(file)).expect("the golden file is committed");
    let read: T = serde_json::from_slice(&golden).expect("the golden bytes are the document");
    assert_eq!(&read, value, "{file} does not read back");
}

/// A key from a seed of equal bytes, so that its signatures never change.
fn key(byte: u8) -> SigningKey {
    SigningKey::from_seed([byte; 32].into())
}

fn name(text: &str) -> Name {
    text.parse().expect("a good name")
}

fn labels() -> Labels {
    let pair = |key: &str, value: &str| -> (LabelKey, LabelValue) {
        (key.parse().expect("a good key"), value.parse().expect("a good value"))
    };
    Labels::from([pair("region", "north"), pair("tier", "edge")])
}

fn root() -> Root {
    let role = |byte: u8| Role { keys: vec![key(byte).public().id()], threshold: 1 };
    Root {
        version: 1,
        epoch: 1,
        issued: ISSUED,
        expires: ISSUED + 365 * DAY,
        keys: [1, 2, 3].map(|byte| key(byte).public().clone()).to_vec(),
        roles: Roles { root: role(1), director: role(2), operator: role(3) },
        hubs: vec!["https://hub.example:8443".into()],
        tls_pins: vec![Digest::of(b"tls key")],
        critical: vec![],
    }
}

fn entry() -> ServiceEntry {
    let values = json!({ "greeting": "hello", "replicas": 2 });
    ServiceEntry {
        name: name("greeter"),
        incarnation: SEQUENCE - 1_000,
        revision: Revision {
            source: name("fleet"),
            commit: "89abcdef0123456789abcdef0123456789abcdef".into(),
        },
        artifact: Artifact {
            digest: Digest::of(b"blob"),
            size: 512,
            tar_digest: Digest::of(b"tar"),
            tar_size: 4096,
        },
        path: "apps/greeter".into(),
        renderer: Renderer::Template { values: values.as_object().expect("an object").clone() },
        namespace: Some("greeter".into()),
        depends_on: vec![name("banner")],
        prune: PruneBudget { count: 5, percent: 20, ..PruneBudget::default() },
        health: vec![],
        timeout_seconds: None,
        on_failure: OnFailure::Hold,
        apply: ApplyPolicy::default(),
        drift: DriftRule::default(),
        critical: vec![],
    }
}

fn group() -> Group {
    Group {
        group: Digest::of(b"group"),
        epoch: 1,
        sequence: SEQUENCE,
        issued: ISSUED,
        expires: ISSUED + 7 * DAY,
        previous: Some(SEQUENCE - 500),
        poll_seconds: 120,
        services: vec![entry().to_value()],
        tombstones: vec![Tombstone { service: name("old"), incarnation: SEQUENCE - 9_000 }],
        footprint: Default::default(),
        critical: vec![],
    }
}

fn roster() -> Roster {
    Roster {
        cluster: name("shop-7"),
        key: key(4).public().id(),
        group: Digest::of(b"group"),
        floor: SEQUENCE,
        epoch: 1,
        sequence: SEQUENCE + 1,
        issued: ISSUED,
        expires: ISSUED + 60 * DAY,
        labels: labels(),
        tombstones: vec![Tombstone { service: name("left"), incarnation: SEQUENCE - 8_000 }],
        max_delay_seconds: 3_600,
        footprint: Default::default(),
        critical: vec![],
    }
}

fn registration() -> Registration {
    Registration {
        cluster: name("shop-7"),
        key: key(4).public().clone(),
        sealing_key: STANDARD.encode([5; 32]),
        labels: labels(),
        token: "0123456789abcdef".into(),
        epoch: 1,
        sequence: SEQUENCE + 1,
        issued: ISSUED,
        critical: vec![],
    }
}

fn status() -> Status {
    let service = |name: &str, state, message: &str, failures| ServiceStatus {
        name: self::name(name),
        commit: "89abcdef0123456789abcdef0123456789abcdef".into(),
        state,
        message: message.into(),
        objects: 3,
        failures,
        repairs: 1,
        progress: None,
        failed_revision: None,
        checks: vec![],
        drift: vec![],
    };
    let failure = ObjectFailure { object: "v1/ConfigMap shop/a".into(), message: "forbidden".into() };
    Status {
        cluster: name("shop-7"),
        state_id: "00112233445566778899aabbccddeeff".into(),
        sequence: 7,
        at: ISSUED,
        agent: "0.1.0".into(),
        poll_seconds: 120,
        holds: Some(Holds { epoch: 1, roster: SEQUENCE + 1, group: SEQUENCE }),
        services: vec![
            service("banner", ServiceState::Applied, "", vec![]),
            service("greeter", ServiceState::Failed, "1 object failed", vec![failure]),
            service("later", ServiceState::Waiting, "waits for banner", vec![]),
            service("old", ServiceState::Held, "a removal is held", vec![]),
        ],
        alarms: vec!["the clock is far from the hub's".into()],
        dropped: 2,
        controls: None,
        critical: vec![],
    }
}

/// A service that says how its health is judged, and what happens without it.
fn gated_entry() -> ServiceEntry {
    let rule = HealthRule {
        api_version: "shop.example/v1".into(),
        kind: "Till".into(),
        in_progress: Some("status.phase == 'Opening'".into()),
        failed: Some("status.phase == 'Broken'".into()),
        current: "status.phase == 'Open'".into(),
    };
    let bare = HealthRule { kind: "Drawer".into(), in_progress: None, failed: None, ..rule.clone() };
    ServiceEntry {
        health: vec![rule, bare],
        timeout_seconds: Some(600),
        on_failure: OnFailure::Revert,
        ..entry()
    }
}

/// A service under way to a revision, and one that went back from it.
fn gated_status() -> Status {
    let service = status().services.remove(2);
    let object = "Deployment.apps shop/greeter".to_owned();
    let progress = Progress {
        stage: "wave 1".into(),
        object,
        why: "1 of 3 replicas are available".into(),
        since: ISSUED - 40,
        others: 2,
    };
    let check = |outcome, message: &str, log: &str| Check {
        object: "Job.batch shop/smoke".into(),
        outcome,
        message: message.into(),
        log: log.into(),
    };
    let failed = FailedRevision {
        commit: "0123456789abcdef0123456789abcdef01234567".into(),
        why: "Job.batch shop/smoke: the Job failed".into(),
        at: ISSUED - 10,
    };
    let under_way = ServiceStatus { progress: Some(progress), ..service.clone() };
    let checks = vec![
        check(CheckOutcome::Passed, "", ""),
        check(CheckOutcome::Failed, "the Job failed", "connection refused\n"),
    ];
    let back = ServiceStatus {
        name: name("reverted"),
        state: ServiceState::Failed,
        failed_revision: Some(failed),
        checks,
        ..service
    };
    Status { services: vec![under_way, back], alarms: vec![], ..status() }
}

fn token() -> JoinToken {
    let claims = Claims {
        id: "0123456789abcdef".into(),
        labels: labels(),
        expires: ISSUED + DAY,
        uses: 1,
        replaces: Some(name("shop-7")),
    };
    JoinToken::issue(claims, &token_key(), Envelope::seal(&root(), &[&key(1)]).digest())
}

fn enroll_request() -> EnrollRequest {
    let (site, sealing_key) = (key(4), STANDARD.encode([5; 32]));
    EnrollRequest {
        claims: token().claims_text,
        cluster: name("shop-7"),
        proof: token().prove(&name("shop-7"), site.public(), &sealing_key),
        key: site.public().clone(),
        sealing_key,
    }
}

fn token_key() -> Secret {
    [6; 32].into()
}

fn sealed<T: Document>(document: &T) -> Envelope {
    Envelope::seal(document, &[&key(2)])
}

/// What a signature covers (DSSE protocol, "PAE"), built here from the specification alone.
fn pre_authentication(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn every_document_has_exactly_these_bytes() {
    assert_both_ways("root.json", &root());
    assert_both_ways("group.json", &group());
    assert_both_ways("roster.json", &roster());
    assert_both_ways("registration.json", &registration());
    assert_both_ways("status.json", &status());
}

#[test]
fn a_document_without_optional_fields_has_exactly_these_bytes() {
    let bare = Group { previous: None, services: vec![], tombstones: vec![], ..group() };
    assert_both_ways("group-bare.json", &bare);
    let quiet = Status { holds: None, services: vec![], alarms: vec![], dropped: 0, ..status() };
    assert_both_ways("status-bare.json", &quiet);
}

#[test]
fn what_is_said_of_footprints_has_exactly_these_bytes() {
    let fleet = Footprint { in_flight: Some(16), process_memory: Some(512 << 20), ..Footprint::default() };
    let cluster = Footprint { qps: Some(20), sweep_seconds: Some(1800), ..fleet };
    assert_both_ways("group-footprint.json", &Group { services: vec![], footprint: fleet, ..group() });
    assert_both_ways("roster-footprint.json", &Roster { footprint: cluster, ..roster() });
}

#[test]
fn what_is_said_of_health_has_exactly_these_bytes() {
    assert_both_ways("group-health.json", &Group { services: vec![gated_entry().to_value()], ..group() });
    assert_both_ways("status-health.json", &gated_status());
}

#[test]
fn every_renderer_has_exactly_these_bytes() {
    let template = Renderer::Template { values: serde_json::Map::new() };
    assert_both_ways("renderers.json", &vec![Renderer::Raw, template, Renderer::Kustomize]);
    let kinds = [ProtectedKind::Agent, ProtectedKind::PersistentVolumeClaim].into_iter().collect();
    let prune = PruneBudget { count: 5, percent: 20, kinds };
    let apply = ApplyPolicy { conflicts: Conflicts::Force, recreate: true, adopt: true };
    assert_both_ways(
        "policies.json",
        &(vec![prune, PruneBudget::default()], vec![apply, ApplyPolicy::default()]),
    );
}

#[test]
fn payload_types_name_kind_and_version() {
    let types = [Root::TYPE, Group::TYPE, Roster::TYPE, Registration::TYPE, Status::TYPE];
    assert_golden("payload-types.txt", (types.join("\n") + "\n").as_bytes());
}

#[test]
fn requests_and_answers_have_exactly_these_bytes() {
    let (roster, group) = (sealed(&roster()), sealed(&group()));
    assert_both_ways("desired.json", &Desired { roster: Some(roster.clone()), group: Some(group) });
    assert_both_ways("desired-roster-only.json", &Desired { roster: Some(roster.clone()), group: None });
    assert_both_ways("enrolled.json", &Enrolled { registration: sealed(&registration()), roster });
    assert_both_ways("problem.json", &Problem { error: "no such artifact (0123abcd)".into(), request: None });
    assert_both_ways("enroll-request.json", &enroll_request());
}

#[test]
fn an_envelope_has_exactly_these_bytes_and_opens_again() {
    let envelope = sealed(&roster());
    assert_both_ways("envelope.json", &envelope);
    assert_golden("envelope.json", &envelope.to_bytes());
    assert_golden("envelope-digest.txt", format!("{}\n", envelope.digest()).as_bytes());
    let opened: Roster = envelope.open(&Signers::one(key(2).public()), LIMIT).expect("signed by that key");
    assert_eq!(opened, roster());
}

#[test]
fn a_signature_covers_exactly_the_pre_authentication_encoding() {
    let envelope = sealed(&roster());
    let payload = STANDARD.decode(&envelope.payload).expect("base64");
    let covered = pre_authentication(Roster::TYPE, &payload);
    assert_golden("pae.txt", &covered);
    let signature = STANDARD.decode(&envelope.signatures[0].sig).expect("base64");
    assert!(key(2).public().verifies(&covered, &signature), "the signature is not over the PAE");
}

#[test]
fn a_join_token_has_exactly_this_text_and_still_proves_itself() {
    let text = token().expose();
    assert_golden("join-token.txt", text.as_bytes());
    let read: JoinToken = text.parse().expect("a whole token");
    assert_eq!((read.claims.clone(), read.root), (token().claims, token().root));
    assert!(is_proven(&token_key(), &enroll_request()));
}

#[test]
fn a_pass_has_exactly_this_text_and_still_verifies() {
    let site = key(4);
    let fleet = Digest::of(b"root 1");
    let pass = pass::issue(&site, &name("shop-7"), fleet, ISSUED);
    assert_golden("pass.txt", pass.as_bytes());
    let golden = fs::read_to_string(path("pass.txt")).expect("the golden file is committed");
    let read = pass::verify(&golden, site.public(), fleet, ISSUED).expect("a good pass");
    assert_eq!((read.sub, read.exp), (name("shop-7"), ISSUED + pass::LIFETIME));
}

#[test]
fn an_operator_s_request_has_exactly_these_bytes_and_still_verifies() {
    let operator = key(3);
    let (target, body) = ("/v1/clusters?state=failed&limit=100", b"");
    let ask = Ask { nonce: "AAECAwQFBgcICQoL".into(), ..Ask::new("GET", target, body, ISSUED) };
    assert_both_ways("operator-request.json", &ask);
    assert_golden("operator-header.txt", ask.header(&operator).as_bytes());
    let golden = fs::read_to_string(path("operator-header.txt")).expect("the golden file is committed");
    let (signers, sent) = (Signers::one(operator.public()), Sent { method: "GET", target, body });
    let read = Ask::verify(&golden, &signers, &[operator.public().id()], &sent, ISSUED);
    assert_eq!(read.expect("a good request"), ask);
}

#[test]
fn an_etag_has_exactly_this_text() {
    let mark = |sequence, envelope: &Envelope| Mark { sequence, short: envelope.digest().short() };
    let tag = DesiredTag {
        epoch: 1,
        roster: mark(SEQUENCE + 1, &sealed(&roster())),
        group: mark(SEQUENCE, &sealed(&group())),
    };
    assert_golden("etag.txt", tag.to_string().as_bytes());
    let golden = fs::read_to_string(path("etag.txt")).expect("the golden file is committed");
    assert_eq!(golden.parse(), Ok(tag));
}

#[test]
fn key_files_have_exactly_this_text() {
    assert_golden("signing-key.txt", key(2).to_file().as_bytes());
    assert_golden("secret-key.txt", token_key().to_file("token").as_bytes());
    let golden = fs::read_to_string(path("signing-key.txt")).expect("the golden file is committed");
    assert_eq!(SigningKey::from_file(&golden).expect("a key file").public(), key(2).public());
    assert_both_ways::<PublicKey>("public-key.json", key(2).public());
}

/// The golden document with one more field.
fn with(document: &impl Serialize, field: &str, value: Value) -> Value {
    let mut json = serde_json::to_value(document).expect("string keys only");
    json.as_object_mut().expect("a document is an object").insert(field.into(), value);
    json
}

#[test]
fn a_field_from_the_future_is_ignored_in_every_document() {
    fn assert_ignored<T: Document + PartialEq + Debug>(document: &T) {
        let longer = with(document, "fromTheFuture", json!({ "deep": [1, 2] }));
        let read: T = serde_json::from_value(longer).expect("unknown fields are ignored");
        assert_eq!(&read, document, "{}", T::TYPE);
    }
    assert_ignored(&root());
    assert_ignored(&group());
    assert_ignored(&roster());
    assert_ignored(&registration());
    assert_ignored(&status());
    let longer = with(&sealed(&roster()), "fromTheFuture", json!(1));
    let read: Envelope = serde_json::from_value(longer).expect("unknown fields are ignored");
    assert_eq!(read, sealed(&roster()));
}

#[test]
fn a_critical_field_from_the_future_refuses_every_document_by_name() {
    fn assert_refused<T: Document + Debug>(document: &T) {
        let demanding = with(document, "critical", json!(["fromTheFuture"]));
        let demanding: T = serde_json::from_value(demanding).expect("still the document");
        let refused = sealed(&demanding).open::<T>(&Signers::one(key(2).public()), LIMIT);
        assert!(matches!(refused, Err(Refused::Critical(field)) if field == "fromTheFuture"), "{}", T::TYPE);
    }
    assert_refused(&root());
    assert_refused(&group());
    assert_refused(&roster());
    assert_refused(&registration());
    assert_refused(&status());
}

#[test]
fn a_service_entry_from_the_future_blocks_only_itself() {
    let demanding = with(&entry(), "critical", json!(["fromTheFuture"]));
    let mut foreign = with(&entry(), "renderer", json!({ "kind": "fromTheFuture" }));
    foreign["name"] = json!("foreign");
    let services = vec![demanding, foreign, json!(7), entry().to_value()];
    let text = serde_json::to_vec(&Group { services, ..group() }).expect("string keys only");
    let read: Group = serde_json::from_slice(&text).expect("the document itself is understood");
    let entries = read.entries();
    assert_eq!(entries[0].as_ref().expect_err("critical").name, "greeter");
    assert_eq!(entries[1].as_ref().expect_err("renderer").name, "foreign");
    assert_eq!(entries[2].as_ref().expect_err("not an object").name, "without a name");
    assert_eq!(entries[3].as_ref(), Ok(&entry()));
}

#[test]
fn an_enrolment_request_with_a_field_that_nobody_knows_is_refused() {
    let longer = with(&enroll_request(), "fromTheFuture", json!(1));
    assert!(serde_json::from_value::<EnrollRequest>(longer).is_err());
}
