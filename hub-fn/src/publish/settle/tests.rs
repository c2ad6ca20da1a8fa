use super::*;
use crate::declare;
use crate::record::{IntentService, Made};

fn name() -> Name {
    "web".parse().expect("a name")
}

fn intent(path: &str) -> Intent {
    let text = format!(
        "apiVersion: farshore.dev/v1alpha1\nkind: Service\nmetadata: {{ name: web }}\nspec: {{ source: fleet, path: {path}, clusters: {{}} }}\n"
    );
    let fleet = declare::read([("a.yaml", text)]).fleet;
    let declared = fleet.services.into_iter().map(|(name, declared)| {
        (name, IntentService { spec: declared.spec, origin: declared.origin, published: None })
    });
    Intent { services: declared.collect(), ..Intent::default() }
}

fn content(text: &str) -> Content {
    let digest = Digest::of(text.as_bytes());
    Content { key: digest, artifact: Artifact { digest, size: 1, tar_digest: digest, tar_size: 1 } }
}

fn ready(commit: &str, content: Result<Content, String>) -> BTreeMap<String, SourceSeen> {
    let services = [(name(), content)].into();
    [(FLEET.to_owned(), SourceSeen::Ready { commit: commit.into(), services })].into()
}

fn published(intent: &Intent) -> Option<Published> {
    intent.services[&name()].published.clone()
}

#[test]
fn a_life_is_given_once_and_a_revision_changes_with_its_content_only() {
    let mut intent = intent("a");
    settle(&mut intent, &ready("c1", Ok(content("1"))), 7);
    let first = published(&intent).expect("published");
    assert_eq!((first.incarnation, first.commit.as_str()), (7, "c1"));
    settle(&mut intent, &ready("c2", Ok(content("1"))), 8);
    assert_eq!(published(&intent), Some(first));
    settle(&mut intent, &ready("c3", Ok(content("2"))), 9);
    let third = published(&intent).expect("published");
    assert_eq!((third.incarnation, third.commit.as_str()), (7, "c3"));
}

#[test]
fn whatever_is_wrong_with_a_source_or_a_path_keeps_what_was_published() {
    let mut good = intent("a");
    settle(&mut good, &ready("c1", Ok(content("1"))), 7);
    let held = HeldChange::new("up", Some("c1"), "c0", crate::record::HoldCause::NotDescending, 0, 1);
    for (seen, state) in [
        (ready("c2", Err("path is empty (a)".into())), SourceState::Degraded),
        ([(FLEET.to_owned(), SourceSeen::Failed("no route".into()))].into(), SourceState::Failed),
        ([(FLEET.to_owned(), SourceSeen::Held(held))].into(), SourceState::Held),
    ] {
        let mut after = good.clone();
        let reports = settle(&mut after, &seen, 9);
        assert_eq!((after, reports[FLEET].state), (good.clone(), state));
        assert!(!reports[FLEET].messages.is_empty());
    }
}

#[test]
fn what_was_never_published_stays_unpublished_until_it_has_content() {
    let mut intent = intent("a");
    settle(&mut intent, &ready("c1", Err("no such path".into())), 7);
    assert_eq!(published(&intent), None);
    settle(&mut intent, &ready("c2", Ok(content("1"))), 9);
    assert_eq!(published(&intent).map(|published| published.incarnation), Some(9));
}

#[test]
fn an_artifact_is_rendered_as_it_was_made_until_the_new_declaration_has_content() {
    let mut before = intent("a");
    settle(&mut before, &ready("c1", Ok(content("1"))), 7);
    let mut after = intent("b");
    after.services.get_mut(&name()).expect("declared").published = published(&before);
    settle(&mut after, &ready("c2", Err("no such path".into())), 8);
    let made = |intent: &Intent| published(intent).map(|published| published.made);
    assert_eq!(made(&after), made(&before));
    settle(&mut after, &ready("c3", Ok(content("2"))), 9);
    assert_eq!(made(&after), Some(Made::of(&after.services[&name()].spec)));
}

#[test]
fn new_values_of_a_template_need_no_new_content_but_another_renderer_does() {
    let mut intent = intent("a");
    let service = intent.services.get_mut(&name()).expect("declared");
    let template = |text: &str| crate::declare::RendererSpec::Template {
        values: [("k".to_owned(), serde_json::Value::from(text))].into_iter().collect(),
    };
    service.spec.renderer = template("1");
    settle(&mut intent, &ready("c1", Ok(content("1"))), 7);
    let service = intent.services.get_mut(&name()).expect("declared");
    let published = service.published.clone().expect("published");
    service.spec.renderer = template("2");
    assert_eq!(*service.renderer(&published), template("2"));
    service.spec.renderer = crate::declare::RendererSpec::Kustomize;
    assert_eq!(*service.renderer(&published), template("1"));
}
