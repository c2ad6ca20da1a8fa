//! The program as a person and a script meet it: help, exit codes, what goes where.

mod kit;

use std::path::Path;

use farshore_shared::token::JoinToken;
use kit::{farshore, run};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

#[test]
fn help_has_examples_and_goes_to_standard_output() {
    for command in [
        &["--help"] as &[&str],
        &["hub", "--help"],
        &["agent", "--help"],
        &["agent", "status", "--help"],
        &["agent", "pause", "--help"],
        &["agent", "resume", "--help"],
        &["agent", "hold", "--help"],
        &["agent", "retry", "--help"],
        &["agent", "preflight", "--help"],
        &["trust", "init", "--help"],
        &["token", "create", "--help"],
        &["get", "clusters", "--help"],
        &["get", "services", "--help"],
        &["get", "sources", "--help"],
        &["approve", "--help"],
        &["diff", "--help"],
        &["adopt", "--help"],
        &["validate", "--help"],
        &["completion", "--help"],
    ] {
        let help = farshore(command).with(0);
        assert!(help.out.contains("Examples:\n  "), "{command:?}: {}", help.out);
        assert!(help.err.is_empty(), "{command:?}: {}", help.err);
    }
    assert!(farshore(&["hub", "--help"]).out.starts_with("Run a hub"));
    assert!(farshore(&["agent", "--help"]).out.starts_with("Run an agent"));
}

#[test]
fn a_command_line_that_is_not_understood_ends_with_2() {
    for command in [
        &[] as &[&str],
        &["get"],
        &["get", "clusters"],
        &["get", "clusters", "--data", "x", "--state", "odd"],
        &["get", "clusters", "--data", "x", "--selector", "tier"],
        &["token", "create"],
        &["token", "create", "--data", "x", "--ttl", "0s"],
        &["token", "create", "--data", "x", "--uses", "0"],
        &["token", "create", "--data", "x", "--replace", "Shop"],
        &["trust", "init", "--keys", "x", "--hub", "http://hub.example"],
        &["trust", "init", "--keys", "x", "--tls-pin", "abc"],
        &["approve", "x"],
        &["approve", "x", "--objects", "s3://fleet"],
        &["hub"],
        &["agent"],
        &["agent", "status"],
        &["agent", "hold", "--state", "x", "--for", "1h", "--until", "2027-01-01T00:00:00Z"],
        &["agent", "hold", "--state", "x", "--until", "tomorrow"],
        &["completion", "tcsh"],
    ] {
        let refused = farshore(command).with(2);
        assert!(refused.out.is_empty() && !refused.err.is_empty(), "{command:?}");
    }
}

#[test]
fn a_shell_gets_its_completion_script() {
    for shell in ["bash", "zsh", "fish"] {
        let script = farshore(&["completion", shell]).with(0).out;
        assert!(script.contains("farshore") && script.contains("approve"), "{shell}");
        assert!(script.contains("preflight") && script.contains("release"), "{shell}: commands of an agent");
    }
}

#[test]
fn a_token_alone_is_on_standard_output_and_says_what_was_asked() {
    let folder = folder();
    let keys = folder.path().join("keys");
    farshore(&["trust", "init", "--keys", text(&keys), "--hub", "https://hub.example:8443"]).with(0);
    let (data, tier, region) = (text(folder.path()), "tier=edge", "region=north");
    let made = farshore(&[
        "token",
        "create",
        "--data",
        data,
        "--label",
        tier,
        "--label",
        region,
        "--ttl",
        "2h",
        "--uses",
        "3",
        "--replace",
        "shop-7",
    ])
    .with(0);
    let token: JoinToken = made.out.trim_end_matches('\n').parse().expect("a token and a line's end");
    assert_eq!(token.claims.labels.len(), 2);
    assert_eq!(token.claims.uses, 3);
    assert_eq!(token.claims.replaces.expect("it was asked for").as_str(), "shop-7");
    assert!(made.err.contains("shop-7") && made.err.contains("3 uses") && !made.err.contains("fs1."));
    let again = run(&["token", "create"], &[("FARSHORE_KEYS", text(&keys))]).with(0);
    let again: JoinToken = again.out.trim_end().parse().expect("a token");
    assert_eq!(again.root, token.root, "both are of one fleet");
    assert_ne!(again.claims.id, token.claims.id);
}

#[test]
fn without_keys_there_is_no_token_but_a_way_to_them() {
    let folder = folder();
    let refused = farshore(&["token", "create", "--data", text(folder.path())]).with(3);
    assert!(refused.out.is_empty());
    assert!(refused.err.starts_with("farshore: key file is missing"), "{}", refused.err);
    assert!(refused.err.contains("farshore trust init"), "{}", refused.err);
    assert_eq!(refused.err.lines().count(), 1, "an error is told once: {}", refused.err);
}

#[test]
fn keys_are_made_once_and_never_again() {
    let folder = folder();
    let keys = folder.path().join("keys");
    let pin = "ab".repeat(32);
    let made = farshore(&["trust", "init", "--keys", text(&keys), "--tls-pin", &pin]).with(0);
    assert!(made.out.contains(&pin) && made.out.contains("next:"), "{}", made.out);
    let before = std::fs::read(keys.join("root.1.json")).expect("a root");
    let refused = farshore(&["trust", "init", "--keys", text(&keys)]).with(3);
    assert!(refused.err.contains("never overwritten"), "{}", refused.err);
    assert_eq!(std::fs::read(keys.join("root.1.json")).expect("a root"), before);
    let absent = farshore(&["trust", "init", "--keys", "x", "--tls-cert", "/nonexistent.pem"]).with(3);
    assert!(absent.err.contains("/nonexistent.pem"), "{}", absent.err);
}

#[test]
fn the_example_fleet_is_valid() {
    let fleet = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/fleet");
    let valid = farshore(&["validate", fleet]).with(0);
    assert_eq!(valid.out, "1 source, 3 services, 2 clusters read; 0 mistakes, 0 warnings\n");
    let json = farshore(&["validate", fleet, "-o", "json"]).with(0).out;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON")["services"], 3);
}

#[test]
fn every_mistake_of_a_broken_fleet_is_told_with_its_place() {
    let folder = folder();
    let service = "apiVersion: farshore.dev/v1alpha1\nkind: Service\nmetadata:\n  name: Web\nspec:\n  source: fleet\n  clusters: {}\n  rendererr: raw\n";
    std::fs::write(folder.path().join("web.yaml"), service).expect("writes");
    std::fs::write(folder.path().join("bad.yaml"), "a: [").expect("writes");
    let broken = farshore(&["validate", text(folder.path())]).with(3);
    for part in [
        "web.yaml:4:9: ",
        "web.yaml:8:3: ",
        "bad.yaml:1: warning: ",
        "0 clusters read; 2 mistakes, 1 warning",
    ] {
        assert!(broken.out.contains(part), "no {part} in {}", broken.out);
    }
    assert!(!broken.out.contains('\u{1b}'), "no colours where nobody looks");
    let json = farshore(&["validate", text(folder.path()), "-o", "json"]).with(3).out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["mistakes"].as_array().map(Vec::len), Some(2));
    let gone = farshore(&["validate", "/nonexistent"]).with(3);
    assert!(gone.out.is_empty() && gone.err.contains("/nonexistent"), "{}", gone.err);
}

#[test]
fn where_there_is_no_record_that_is_said() {
    let folder = folder();
    let data = text(folder.path());
    for what in ["clusters", "services", "sources"] {
        let absent = farshore(&["get", what, "--data", data]).with(3);
        assert!(absent.err.contains("there is no record here"), "{}", absent.err);
    }
    std::fs::create_dir(folder.path().join("objects")).expect("a folder");
    let empty = farshore(&["get", "clusters", "--data", data]).with(3);
    assert!(empty.err.contains("no trust root is in the record yet"), "{}", empty.err);
    let approve = farshore(&["approve", "0123456789ab", "--data", data]).with(3);
    assert!(approve.err.contains("no trust root"), "{}", approve.err);
    assert!(std::fs::read_dir(folder.path().join("objects")).expect("a folder").next().is_none());
}

#[cfg(feature = "s3")]
#[test]
fn a_bucket_that_does_not_answer_ends_with_5() {
    let port = farshore_chaos::kit::Port::take().expect("a port on which nobody listens");
    let bucket = format!("s3://fleet?endpoint=http://{}", port.address());
    let keys =
        [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "us-east-1")];
    let silent = run(&["get", "sources", "--objects", &bucket], &keys).with(5);
    assert!(silent.err.starts_with("farshore: ") && silent.err.contains("did not answer"), "{}", silent.err);
}
