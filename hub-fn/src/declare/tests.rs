//! What a fleet repository reads as, and what a person sees of its mistakes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::json;

use super::kinds::{Cluster, Fleet as OfFleet, Service, Source};
use super::*;

const SOURCE: &str = "apiVersion: farshore.dev/v1alpha1\nkind: Source\nmetadata: {name: web}\nspec: {git: {url: https://git.example/web.git}}\n";

fn service(name: &str, rest: &str) -> String {
    format!(
        "apiVersion: farshore.dev/v1alpha1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  source: fleet\n{rest}"
    )
}

fn everywhere(name: &str) -> String {
    service(name, "  clusters: {}\n")
}

fn seen(reading: &Reading) -> String {
    let mistakes = reading.mistakes.iter().map(|m| format!("mistake  {m}"));
    let warnings = reading.warnings.iter().map(|w| format!("warning  {w}"));
    mistakes.chain(warnings).collect::<Vec<_>>().join("\n")
}

fn names<T>(map: &BTreeMap<Name, T>) -> Vec<&str> {
    map.keys().map(Name::as_str).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_example_fleet_is_read_without_a_mistake() {
    let reading = validate_folder(&root().join("examples/fleet")).expect("it is there");
    assert_eq!(seen(&reading), "");
    assert!(reading.is_complete());
    assert_eq!(names(&reading.fleet.services), ["banner", "greeter", "podinfo"]);
    assert_eq!(names(&reading.fleet.clusters), ["harbour", "lighthouse"]);
    let defaults = reading.fleet.defaults.as_ref().map(|defaults| defaults.spec);
    assert_eq!(defaults.and_then(|footprint| footprint.in_flight), Some(16));
    assert_eq!(
        reading.fleet.clusters.values().filter_map(|c| c.spec.footprint.qps).collect::<Vec<_>>(),
        [20]
    );
    let keys: Vec<String> = reading.fleet.selector_keys().into_iter().map(String::from).collect();
    assert_eq!(keys, ["example.com/small", "tier"]);
    let labels: Vec<&Labels> = reading.fleet.clusters.values().map(|c| &c.spec.labels).collect();
    assert_eq!(services_matching_nobody(&reading.fleet, labels), BTreeSet::new());
    assert_eq!(services_matching_nobody(&reading.fleet, []).len(), 3);
}

#[test]
fn the_last_good_form_survives_json() {
    let fleet = validate_folder(&root().join("examples/fleet")).expect("it is there").fleet;
    let kept = serde_json::to_string(&fleet).expect("serialises");
    assert_eq!(serde_json::from_str::<Fleet>(&kept).expect("reads again"), fleet);
}

#[test]
fn every_mistake_of_a_service_is_told_at_once() {
    let file = "apiVersion: farshore.dev/v1alpha1
kind: Service
metadata:
  name: Shop
  labels: {a: b}
spec:
  source: 7
  path: ../etc
  renderer: helmm
  namespace: on
  nameSpace: x
  clusters:
    matchLabels: {tier: 1, on: x, ok: -bad-}
    matchExpressions:
      - {key: tier, operator: in, values: [a]}
      - {key: tier, operator: In}
      - {operator: Exists, values: [b]}
  dependsOn: web
  prune: {count: -1, percent: 101, kinds: [Namespace, Namspace, {}]}
  prune: {}
  timeout: 5
  onFailure: rollback
  health:
    - {apiVersion: shop.example/v1, kind: Till, current: ' '}
    - {kind: Till, ready: 'true'}
  apply: {conflicts: forced, recreate: 'yes', adopt: true, force: true}
";
    let reading = read([("apps/shop.yaml", file)]);
    insta::assert_snapshot!(seen(&reading));
    assert!(reading.fleet.is_empty());
    assert_eq!(reading.unreadable, BTreeSet::from(["apps/shop.yaml".to_owned()]));
}

#[test]
fn every_mistake_about_drift_is_told_at_once() {
    let service = |drift: &str| {
        let head = "apiVersion: farshore.dev/v1alpha1\nkind: Service\nmetadata: {name: a}\n";
        format!("{head}spec: {{source: fleet, clusters: {{}}, drift: {drift}}}\n")
    };
    let options = "{policy: on, except: [{kind: A, names: b, pointers: []}, {name: 1}, {pointers: [spec, '', \
        /metadata/name, /a~2, /data/x~1y]}], more: 1}";
    let files = [("a.yaml", service("corect")), ("b.yaml", service("[alert]")), ("c.yaml", service(options))];
    insta::assert_snapshot!(seen(&read(files)));
}

#[test]
fn every_mistake_about_a_footprint_is_told_at_once() {
    let of = |kind: &str, name: &str, footprint: &str| {
        let head = format!("apiVersion: farshore.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n");
        format!("{head}spec: {{footprint: {footprint}}}\n")
    };
    let files = [
        ("a.yaml", of("Cluster", "harbour", "{inFlight: 0, qps: 100001, sweep: 2s, processMemory: 128Mi}")),
        (
            "b.yaml",
            of("Cluster", "far", "{inFlight: 1001, qps: fast, sweep: 1d, processMemory: 1 GB, cpu: 1}"),
        ),
        ("c.yaml", of("Fleet", "shops", "{qps: 1.5, processMemory: 65Gi, inFlight: -1}")),
        ("d.yaml", of("Fleet", "shops", "8")),
        ("e.yaml", of("Fleet", "shops", "{qps: 50}")),
        ("f.yaml", of("Fleet", "ships", "{qps: 60}")),
    ];
    let reading = read(files);
    insta::assert_snapshot!(seen(&reading));
    assert_eq!(reading.unreadable.len(), 6, "the first of two counts for unreadable as well");
}

#[test]
fn a_footprint_is_read_as_it_is_written() {
    let text = "apiVersion: farshore.dev/v1alpha1
kind: Fleet
metadata: {name: shops}
spec: {footprint: {inFlight: 1000, qps: 100000, sweep: 24h, processMemory: 64Gi}}
---
apiVersion: farshore.dev/v1alpha1
kind: Cluster
metadata: {name: harbour}
spec: {footprint: {sweep: 5s, processMemory: 256Mi}}
---
apiVersion: farshore.dev/v1alpha1
kind: Cluster
metadata: {name: lighthouse}
spec: {}
";
    let reading = read([("a.yaml", text)]);
    assert_eq!(seen(&reading), "");
    let most = Footprint {
        in_flight: Some(1000),
        qps: Some(100_000),
        sweep_seconds: Some(86_400),
        process_memory: Some(64 << 30),
    };
    assert_eq!(reading.fleet.defaults.as_ref().map(|defaults| defaults.spec), Some(most));
    assert_eq!(most, most.clamped(), "what may be declared is what agents take");
    let least = Footprint { sweep_seconds: Some(5), process_memory: Some(256 << 20), ..Footprint::default() };
    let said: Vec<Footprint> =
        reading.fleet.clusters.values().map(|cluster| cluster.spec.footprint).collect();
    assert_eq!(said, [least, Footprint::default()]);
    assert_eq!(least, least.clamped());
}

#[test]
fn mistakes_of_sources_clusters_versions_and_kinds_are_told() {
    let file = "apiVersion: farshore.dev/v1alpha1
kind: Source
metadata: {name: fleet-2}
spec: {git: {url: git@git.example:a.git, branch: a b}, interval: 1s}
---
apiVersion: farshore.dev/v1alpha1
kind: Cluster
metadata: {name: a, labels: {tier: 1, on: off}}
spec: {x: 1}
---
apiVersion: farshore.dev/v2
kind: Source
---
apiVersion: farshore.dev/v1alpha1
kind: Servce
---
apiversion: farshore.dev/v1alpha1
kind: Service
---
apiVersion: farshore.dev/v1alpha1
---
apiVersion: farshore.dev/v1alpha1
kind: Service
metadata: {name: x}
spec: {source: fleet, clusters: , renderer: {exec: {}}}
---
apiVersion: farshore.dev/v1alpha1
kind: Service
metadata: {name: y}
spec: {source: fleet, clusters: {}, renderer: {template: {values: {a: .nan, 1: b}, value: {}}}}
";
    insta::assert_snapshot!(seen(&read([("all.yml", file)])));
}

#[test]
fn mistakes_between_declarations_are_told() {
    let web = service("web", "  clusters: {}\n  dependsOn: [shop]\n");
    let shop = service("shop", "  clusters: {}\n  dependsOn: [web, gone]\n");
    let lost = everywhere("lost").replace("source: fleet", "source: wep");
    let fleet = SOURCE.replace("name: web", "name: fleet");
    let reading = read([
        ("a.yaml", format!("{SOURCE}---\n{web}---\n{shop}")),
        ("b.yaml", format!("{SOURCE}---\n{lost}---\n{fleet}---\n{}", everywhere("good"))),
    ]);
    insta::assert_snapshot!(seen(&reading));
    assert_eq!(names(&reading.fleet.services), ["good"]);
    assert_eq!(names(&reading.fleet.sources), ["web"]);
    assert_eq!(reading.fleet.sources.values().next().map(|s| s.origin.file.as_str()), Some("a.yaml"));
}

#[test]
fn a_broken_document_leaves_the_others_of_its_file_readable() {
    let file = format!("{}---\nkind: [\n---\n\n{}", everywhere("a"), everywhere("b"));
    let reading = read([("f.yaml", &file)]);
    assert_eq!(names(&reading.fleet.services), ["a", "b"]);
    let line = reading.fleet.services.values().nth(1).map(|s| s.origin.line);
    assert_eq!(line, Some(12), "lines count from the top of the file");
    assert!(reading.unreadable.contains("f.yaml"));
    assert_eq!(reading.mistakes.len(), 1, "{}", seen(&reading));
}

#[test]
fn manifests_of_services_are_passed_over() {
    let reading = read([
        ("chart/templates/a.yaml", "kind: {{ .Values.kind }}\n  x: [\n"),
        ("apps/svc.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n"),
        ("list.yaml", "- a\n- b\n"),
        (".github/w.yaml", "apiVersion: farshore.dev/v9\n"),
        ("a/.b/w.yaml", "apiVersion: farshore.dev/v9\n"),
        ("notes.txt", "apiVersion: farshore.dev/v9\n"),
        ("good.yaml", SOURCE),
    ]);
    assert!(reading.is_complete(), "{}", seen(&reading));
    assert_eq!(reading.warnings.len(), 1, "the template is no YAML: {}", seen(&reading));
}

#[test]
fn what_may_be_declared_in_an_unreadable_place_is_no_second_mistake() {
    let broken = SOURCE.replace("git:", "gitt:");
    let user = everywhere("user").replace("source: fleet", "source: web");
    let reading = read([("a.yaml", broken.as_str()), ("b.yaml", user.as_str())]);
    assert_eq!(names(&reading.fleet.services), ["user"]);
    assert_eq!(reading.unreadable, BTreeSet::from(["a.yaml".to_owned()]));
    let cut = read([("a.yaml", "apiVersion: farshore.dev/v1alpha1\nkind: ["), ("b.yaml", user.as_str())]);
    assert_eq!((cut.mistakes.len(), cut.warnings.len()), (1, 1), "{}", seen(&cut));
}

#[test]
fn an_absent_selector_is_not_every_cluster() {
    for rest in ["", "  clusters:\n", "  clusters: null\n", "  clusters: []\n"] {
        let reading = read([("a.yaml", service("a", rest))]);
        assert!(reading.fleet.services.is_empty() && !reading.is_complete(), "{rest:?}");
    }
}

#[test]
fn limits_are_named_when_they_are_exceeded() {
    let large = format!("{SOURCE}#{}", "x".repeat(FILE_LIMIT));
    let reading = read([("a.yaml", large.as_bytes()), ("b.yaml", &[0xff; 4])]);
    assert!(seen(&reading).contains("limit 1048576 bytes"), "{}", seen(&reading));
    assert_eq!(reading.warnings.iter().filter(|w| w.file == "b.yaml").count(), 1);

    let files = (0..=FILES_LIMIT).map(|n| (format!("{n}.yaml"), "a: 1"));
    assert!(seen(&read(files)).contains("limit 10000"));

    let documents = "---\na\n".repeat(DOCUMENTS_LIMIT + 1);
    assert!(seen(&read([("a.yaml", documents)])).contains("limit 100000"));

    let services = (0..=SERVICES_LIMIT).map(|n| (format!("{n}.yaml"), everywhere(&format!("s{n:05}"))));
    let reading = read(services.take(FILES_LIMIT).chain([("x".to_owned(), String::new())]));
    assert!(reading.is_complete(), "{}", seen(&reading));
    let many: String = (0..=SERVICES_LIMIT).map(|n| everywhere(&format!("s{n:05}")) + "---\n").collect();
    let (half, rest) = many.split_at(many.match_indices("---\n").nth(5000).map_or(0, |(n, _)| n));
    let reading = read([("a.yaml", half), ("b.yaml", rest)]);
    assert!(seen(&reading).contains("too many services (10001, limit 10000)"), "{}", seen(&reading));
}

#[test]
fn a_folder_that_cannot_be_read_is_a_clear_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    assert!(matches!(validate_folder(&path.join("gone")), Err(FolderError::Missing(_))));
    assert!(matches!(validate_folder(path), Err(FolderError::Empty(_))));
    std::fs::write(path.join("a.txt"), "x").expect("writes");
    assert!(matches!(validate_folder(&path.join("a.txt")), Err(FolderError::NotYaml(_))));
    std::fs::write(path.join("a.yaml"), SOURCE).expect("writes");
    let one = validate_folder(&path.join("a.yaml")).expect("one file is enough");
    assert_eq!(names(&one.fleet.sources), ["web"]);
    assert_eq!(validate_folder(path).expect("the folder too").fleet, one.fleet);
}

#[test]
fn the_reader_and_the_types_agree_on_what_is_right() {
    let documents = [
        json!({"apiVersion": "farshore.dev/v1alpha1", "kind": "Service", "metadata": {"name": "a"}, "spec": {
            "source": "fleet", "path": "x/y", "renderer": {"template": {"values": {"a": [1, 2.5, null, true, "on"]}}},
            "namespace": "n", "clusters": {"matchLabels": {"t": "e"}, "matchExpressions": [
                {"key": "k", "operator": "NotIn", "values": ["a", "b"]}, {"key": "k", "operator": "Exists"}]},
            "dependsOn": [], "prune": {"count": 3, "kinds": ["Agent", "Namespace"]},
            "apply": {"conflicts": "force", "recreate": true}, "timeout": "10m", "onFailure": "revert", "health": [
                {"apiVersion": "shop.example/v1", "kind": "Till", "failed": "status.phase == 'Broken'",
                 "current": "status.phase == 'Open'"}], "drift": {"policy": "alert", "except": [
                {"kind": "Deployment", "name": "web-*", "pointers": ["/spec/replicas"]}, {"pointers": ["/data/a~1b"]}]}}}),
        json!({"apiVersion": "farshore.dev/v1alpha1", "kind": "Service", "metadata": {"name": "b"},
               "spec": {"source": "fleet", "clusters": {}, "renderer": {"kustomize": {}}}}),
        json!({"apiVersion": "farshore.dev/v1alpha1", "kind": "Service", "metadata": {"name": "c"},
               "spec": {"source": "fleet", "clusters": {}, "renderer": "template", "drift": "ignore"}}),
    ];
    for document in documents {
        let typed: Service = serde_json::from_value(document.clone()).expect("serde reads it");
        let reading = read([("a.yaml", document.to_string())]);
        assert_eq!(seen(&reading), "");
        assert_eq!(reading.fleet.services.values().next().map(|s| &s.spec), Some(&typed.spec));
    }
}

fn schema_text(schema: schemars::Schema) -> String {
    serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n"
}

#[test]
fn the_committed_schemas_are_those_of_the_types() {
    let schemas = [
        ("source", schema_text(schemars::schema_for!(Source))),
        ("service", schema_text(schemars::schema_for!(Service))),
        ("cluster", schema_text(schemars::schema_for!(Cluster))),
        ("fleet", schema_text(schemars::schema_for!(OfFleet))),
    ];
    for (name, made) in schemas {
        let path = root().join(format!("schemas/{name}.schema.json"));
        if std::env::var_os("FARSHORE_UPDATE_SCHEMAS").is_some() {
            std::fs::write(&path, &made).expect("writes the schema");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            committed, made,
            "schemas/{name}.schema.json differs from the types; make it again with: \
             FARSHORE_UPDATE_SCHEMAS=1 cargo test -p farshore-hub-fn --lib declare::tests::the_committed"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let mut declared = SOURCE.as_bytes().to_vec();
        declared.extend(&bytes);
        let _ = read([("a.yaml", bytes), ("b.yaml", declared)]);
    }

    #[test]
    fn no_text_like_yaml_makes_the_reader_panic(text in "([-a-z:\\[\\]{}&*!|>'\"#%,?<~. \n]|---\n|apiVersion: farshore.dev/v1alpha1\n|kind: Service\n|spec:\n  ){0,60}") {
        let reading = read([("a.yaml", &text)]);
        prop_assert!(reading.mistakes.len() <= MISTAKES_LIMIT);
    }
}
