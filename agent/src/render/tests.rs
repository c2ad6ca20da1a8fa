use std::path::Path;

use bytes::Bytes;
use farshore_shared::digest::Digest;
use farshore_shared::wire::{ApplyPolicy, Artifact, DriftRule, OnFailure, PruneBudget, Revision};
use serde_json::json;

use super::*;

fn content(files: &[(&str, &str)]) -> Content {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), Bytes::from((*text).to_owned())));
    Content::from_files(files.collect())
}

fn entry(path: &str, renderer: Renderer) -> ServiceEntry {
    ServiceEntry {
        name: "web".parse().expect("a name"),
        incarnation: 1,
        revision: Revision { source: "apps".parse().expect("a name"), commit: "c0ffee".into() },
        artifact: Artifact { digest: Digest::of(b""), size: 0, tar_digest: Digest::of(b""), tar_size: 0 },
        path: path.into(),
        renderer,
        namespace: None,
        depends_on: vec![],
        prune: PruneBudget::default(),
        health: vec![],
        timeout_seconds: None,
        on_failure: OnFailure::Hold,
        apply: ApplyPolicy::default(),
        drift: DriftRule::default(),
        critical: vec![],
    }
}

fn site() -> Site {
    let labels = [farshore_shared::names::label_pair("example.com/tier=edge").expect("a label")];
    Site { cluster: "shop-7".parse().expect("a name"), labels: labels.into_iter().collect() }
}

async fn raw_of(files: &[(&str, &str)]) -> Result<Rendered, RenderError> {
    render(&entry("app", Renderer::Raw), &content(files), &site(), &Tools::default()).await
}

async fn template_of(text: &str) -> Rendered {
    let values = json!({"greeting": "a: \"b\"", "map": {"x": 1, "list": ["yes", 2]}, "name": "web"});
    let Value::Object(values) = values else { unreachable!("it is an object") };
    let files = content(&[("app/a.yaml.j2", text)]);
    let entry = entry("app", Renderer::Template { values });
    render(&entry, &files, &site(), &Tools::default()).await.expect("something was rendered")
}

fn object(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
}

fn names(rendered: &Rendered) -> Vec<&str> {
    rendered.manifests.iter().map(|manifest| manifest.key.name.as_str()).collect()
}

#[tokio::test]
async fn raw_takes_every_manifest_file_below_the_path_in_order() {
    let (a, b, c, d) = (object("a"), object("b"), object("c"), object("d"));
    let both = format!("{a}---\n{b}---\n# nothing\n");
    let files = [
        ("app/z.yml", d.as_str()),
        ("app/a.yaml", &both),
        ("app/sub/c.yaml", &c),
        ("app/README.md", "# no manifest"),
        ("app/x.yaml.j2", "{{ no template }}"),
        ("apple/e.yaml", &a),
        ("app/kustomization.yaml", "resources: [a.yaml]"),
        ("app/k.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"),
    ];
    let rendered = raw_of(&files).await.expect("rendered");
    assert_eq!(rendered.mistakes, []);
    assert_eq!(names(&rendered), ["a", "b", "c", "d"]);
    assert_eq!(rendered.manifests[1].origin, "app/a.yaml (document 2)");
}

#[tokio::test]
async fn lists_become_their_items() {
    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "ConfigMapList", "items": [{"metadata": {"name": "b"}}]},
        {"apiVersion": "v1", "kind": "AllowList", "metadata": {"name": "c"}, "spec": {"items": []}},
        {"kind": "ConfigMap"}]}"#;
    let rendered = raw_of(&[("app/list.json", list)]).await.expect("rendered");
    assert_eq!(names(&rendered), ["a", "b", "c"]);
    assert_eq!(rendered.manifests[1].key.kind, "ConfigMap");
    let mistake = rendered.mistakes[0].to_string();
    assert!(mistake.starts_with("app/list.json (document 1), item 4: apiVersion is missing"), "{mistake}");
}

#[tokio::test]
async fn one_bad_document_is_one_mistake_and_the_others_go_on() {
    let text = format!("{}---\nkind: [\n---\nmetadata: {{name: x}}\n---\n{}", object("a"), object("b"));
    let rendered = raw_of(&[("app/a.yaml", &text), ("app/b.yaml", "\tx")]).await.expect("rendered");
    assert_eq!(names(&rendered), ["a", "b"]);
    let mistakes: Vec<_> = rendered.mistakes.iter().map(ToString::to_string).collect();
    assert_eq!(mistakes.len(), 3, "{mistakes:?}");
    assert!(mistakes[0].starts_with("app/a.yaml (document 2): line "), "{}", mistakes[0]);
    assert!(mistakes[1].contains("(document 3): apiVersion is missing"), "{}", mistakes[1]);
}

#[tokio::test]
async fn mistakes_without_end_are_cut_and_still_count() {
    let text = "a: 1\n---\n".repeat(2 * MISTAKE_LIMIT);
    let rendered = raw_of(&[("app/a.yaml", &text)]).await.expect("rendered");
    assert_eq!(rendered.mistakes.len(), MISTAKE_LIMIT + 1);
    assert!(rendered.mistakes[MISTAKE_LIMIT].why.contains("not listed"));
}

#[tokio::test]
async fn an_object_or_annotations_over_the_limit_are_mistakes_that_name_it() {
    let large = format!("{}data: {{a: {}}}\n", object("large"), "x".repeat(OBJECT_LIMIT));
    let noted = format!("{}  annotations: {{a: {}}}\n", object("noted"), "x".repeat(ANNOTATIONS_LIMIT));
    let rendered = raw_of(&[("app/a.yaml", &large), ("app/b.yaml", &noted)]).await.expect("rendered");
    assert!(rendered.manifests.is_empty());
    let mistakes: Vec<_> = rendered.mistakes.iter().map(ToString::to_string).collect();
    assert!(mistakes[0].contains("ConfigMap large") && mistakes[0].contains("limit 1572864"), "{mistakes:?}");
    assert!(mistakes[1].contains("annotations have 262145 bytes, limit 262144"), "{mistakes:?}");
}

#[tokio::test]
async fn empty_content_is_an_error_and_not_a_wish_to_remove_everything() {
    let nothing = raw_of(&[("else/a.yaml", "a: 1")]).await;
    assert!(matches!(nothing, Err(RenderError::NoFiles(path)) if path == "app"));
    let emptied = raw_of(&[("app/a.yaml", "# all gone\n"), ("app/README.md", "x")]).await;
    assert!(matches!(emptied, Err(RenderError::NoManifests(path)) if path == "app"));
}

#[tokio::test]
async fn a_template_sees_values_and_the_cluster() {
    let text = "{# a comment #}apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ values.name }}\n  labels: {{ cluster.labels | tojson }}\ndata:\n  cluster: {{ cluster.name }}\n  greeting: {{ values.greeting | tojson }}\n  {% if cluster.labels['example.com/tier'] == 'edge' %}edge: \"1\"{% endif %}\n  text: |\n    {{ values.map | to_yaml(4) }}\n";
    let rendered = template_of(text).await;
    assert_eq!(rendered.mistakes, []);
    let body = &rendered.manifests[0].body;
    assert_eq!(body["metadata"]["labels"], json!({"example.com/tier": "edge"}));
    assert_eq!(body["data"]["greeting"], "a: \"b\"");
    assert_eq!(body["data"]["edge"], "1");
    assert_eq!(body["data"]["cluster"], "shop-7");
    assert_eq!(body["data"]["text"], "list:\n- \"yes\"\n- 2\nx: 1\n");
}

#[tokio::test]
async fn a_template_that_asks_for_what_is_not_there_names_file_and_line() {
    for (text, why) in [
        ("a: 1\nb: {{ values.missing }}\n", "line 2: undefined value"),
        ("a: 1\n\nb: {{ nobody.home }}\n", "line 3: undefined value"),
        ("{% include 'other.yaml' %}", "line 1: template not found"),
        ("{{ open", "line 1: syntax error"),
    ] {
        let rendered = template_of(text).await;
        let mistake = rendered.mistakes[0].to_string();
        assert!(mistake.starts_with(&format!("app/a.yaml.j2: {why}")), "{text}: {mistake}");
    }
}

#[tokio::test]
async fn a_template_that_grows_or_loops_without_end_is_stopped() {
    let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
    assert!(template_of(loops).await.mistakes[0].why.contains("steps"));
    let long = "x".repeat(1000);
    let grows = format!("{{% for a in range(9999) %}}{long}{{% endfor %}}");
    assert!(template_of(&grows).await.mistakes[0].why.contains("more than 4194304 bytes"));
    let recursion = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    assert_eq!(template_of(recursion).await.mistakes.len(), 1);
}

fn corpus(folder: &str) -> Option<Content> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus").join(folder);
    if !root.is_dir() {
        println!("skipped: {} is not there", root.display());
        return None;
    }
    let mut builder = tar::Builder::new(Vec::new());
    append(&mut builder, &root, "app");
    let tar = builder.into_inner().expect("into memory");
    let blob = zstd::bulk::compress(&tar, 3).expect("memory to memory");
    let artifact = Artifact {
        digest: Digest::of(&blob),
        size: blob.len() as u64,
        tar_digest: Digest::of(&tar),
        tar_size: tar.len() as u64,
    };
    Some(unpack(&blob, &artifact, &Limits::default()).expect("a good artifact"))
}

fn append(builder: &mut tar::Builder<Vec<u8>>, folder: &Path, name: &str) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        let name = format!("{name}/{}", path.file_name().expect("a name").to_string_lossy());
        if path.is_dir() {
            append(builder, &path, &name);
        } else {
            let bytes = std::fs::read(&path).expect("a file");
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, &name, bytes.as_slice()).expect("into memory");
        }
    }
}

#[tokio::test]
async fn real_manifests_render_whole_and_to_the_same_bytes_each_time() {
    for (folder, least) in [("kube-prometheus/manifests", 100), ("argocd-example-apps/guestbook", 2)] {
        let Some(content) = corpus(folder) else { continue };
        let entry = entry("app", Renderer::Raw);
        let first = render(&entry, &content, &site(), &Tools::default()).await.expect("rendered");
        let again = render(&entry, &content, &site(), &Tools::default()).await.expect("rendered");
        assert_eq!(first.mistakes, [], "{folder}");
        assert!(first.manifests.len() >= least, "{folder}: {}", first.manifests.len());
        assert_eq!(first.manifests, again.manifests, "{folder}");
        for manifest in &first.manifests {
            let written = yaml::write(&manifest.body);
            assert_eq!(
                yaml::read(written.as_bytes()),
                [(1, Ok(manifest.body.clone()))],
                "{}",
                manifest.origin
            );
        }
    }
}

#[tokio::test]
async fn a_real_kustomization_is_built() {
    let Some(content) = corpus("podinfo/kustomize") else { return };
    let tools = Tools::find(|name| std::env::var_os(name));
    if tools.kustomize.is_none() {
        return println!("skipped: kustomize is not on PATH and FARSHORE_KUSTOMIZE names none");
    }
    let rendered =
        render(&entry("app", Renderer::Kustomize), &content, &site(), &tools).await.expect("built");
    assert_eq!(rendered.mistakes, []);
    let kinds: Vec<_> = rendered.manifests.iter().map(|manifest| manifest.key.kind.as_str()).collect();
    assert!(kinds.contains(&"Deployment") && kinds.contains(&"Service"), "{kinds:?}");
}
