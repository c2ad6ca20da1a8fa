//! Objects that move between services, and objects that leave and stay.

use farshore_shared::wire::{ProtectedKind, Tombstone};

use super::*;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn object(kind: &str, name: &str, annotation: &str) -> String {
    format!(
        "apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}, annotations: {{{annotation}}}}}\n\
         data: {{value: as signed}}\n---\n"
    )
}

impl Case {
    fn service(&self, service: &str, commit: &str, text: &str) -> ServiceEntry {
        ServiceEntry { name: name(service), ..self.entry(commit, text) }
    }

    fn documents(&self, services: &[ServiceEntry], dead: &[&str]) -> Orders {
        let mut orders = self.orders(&services[0]);
        let documents = Arc::make_mut(orders.documents.as_mut().expect("documents"));
        documents.group.services = services.iter().map(ServiceEntry::to_value).collect();
        let tombstone = |service: &&str| Tombstone { service: name(service), incarnation: 1 };
        documents.group.tombstones = dead.iter().map(tombstone).collect();
        orders
    }

    /// Which life of an object is there, and whose mark is on it.
    fn owner_of(&self, object: &str) -> Option<(u64, String)> {
        let inner = self.target.inner();
        let (_, (life, body)) = inner.objects.iter().find(|(key, _)| key.name == object)?;
        let service = body["metadata"]["labels"]["farshore.dev/service"].as_str()?;
        Some((*life, service.to_owned()))
    }

    fn deletions(&self) -> Vec<String> {
        self.target.inner().log.iter().filter(|line| line.starts_with("delete")).cloned().collect()
    }

    fn listed(&self, service: &str) -> Vec<String> {
        let inventory = self.store.salvage(&name(service)).expect("readable");
        let mut names: Vec<String> = inventory.items.into_iter().map(|item| item.key.name).collect();
        names.sort_unstable();
        names
    }
}

async fn statuses(reconciler: &mut Reconciler<Memory>, orders: &Orders) -> BTreeMap<String, ServiceStatus> {
    let pass = reconciler.pass(orders).await.expect("the state folder is whole");
    pass.services.into_iter().map(|status| (status.name.to_string(), status)).collect()
}

#[tokio::test]
async fn an_object_that_moves_to_another_service_is_adopted_and_never_deleted() {
    // Whichever of the two is looked at first.
    for (from, to) in [("a", "b"), ("b", "a")] {
        let case = Case::new();
        let mut reconciler = case.reconciler();
        let both = config_map("moved") + &config_map("stays");
        let before = [case.service(from, "1", &both), case.service(to, "1", &config_map("other"))];
        statuses(&mut reconciler, &case.documents(&before, &[])).await;
        let (life, _) = case.owner_of("moved").expect("it is there");
        let theirs = config_map("other") + &config_map("moved");
        let after = [case.service(from, "2", &config_map("stays")), case.service(to, "2", &theirs)];
        let after = case.documents(&after, &[]);
        let told = statuses(&mut reconciler, &after).await;
        assert!(told.values().all(|status| status.state == ServiceState::Applied), "{told:?}");
        assert_eq!(case.owner_of("moved"), Some((life, to.to_owned())));
        assert_eq!(case.deletions(), [] as [&str; 0]);
        assert_eq!(
            (case.listed(from), case.listed(to)),
            (vec!["stays".into()], vec!["moved".into(), "other".into()])
        );
    }
}

#[tokio::test]
async fn a_service_with_another_name_adopts_what_it_had() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let old = case.service("old", "1", &config_map("a"));
    statuses(&mut reconciler, &case.documents(&[old], &[])).await;
    let (life, _) = case.owner_of("a").expect("it is there");
    let new = case.service("new", "1", &config_map("a"));
    let told = statuses(&mut reconciler, &case.documents(&[new], &["old"])).await;
    assert_eq!(case.owner_of("a"), Some((life, "new".to_owned())));
    assert_eq!(case.deletions(), [] as [&str; 0]);
    assert_eq!(told["old"].message, "removed");
    assert_eq!(case.listed("old"), [] as [&str; 0]);
}

#[tokio::test]
async fn nothing_is_deleted_while_a_service_that_may_declare_it_cannot_be_rendered() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let a = case.service("a", "1", &(config_map("moved") + &config_map("stays")));
    let b = case.service("b", "1", &config_map("other"));
    statuses(&mut reconciler, &case.documents(&[a, b], &[])).await;
    let a = case.service("a", "2", &config_map("stays"));
    let broken = case.service("b", "2", "# nothing\n");
    let mut missing = case.service("b", "2", &(config_map("other") + &config_map("moved")));
    missing.artifact.digest = Digest::of(b"not here yet");
    for b in [broken, missing] {
        for mut reconciler in [case.reconciler(), case.reconciler()] {
            let told = statuses(&mut reconciler, &case.documents(&[a.clone(), b.clone()], &[])).await;
            let status = &told["a"];
            // Nobody has to wait for what is only left over.
            assert_eq!(status.state, ServiceState::Applied, "{status:?}");
            assert!(status.message.contains("service b"), "{status:?}");
            assert_eq!(case.deletions(), [] as [&str; 0]);
        }
    }
    let theirs = case.service("b", "3", &config_map("other"));
    statuses(&mut reconciler, &case.documents(&[a, theirs], &[])).await;
    assert_eq!(case.deletions(), ["delete moved"]);
}

#[tokio::test]
async fn a_service_that_waits_for_the_one_that_gives_an_object_away_gets_it() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let a = case.service("a", "1", &(config_map("moved") + &config_map("stays")));
    statuses(&mut reconciler, &case.documents(&[a], &[])).await;
    let a = case.service("a", "2", &config_map("stays"));
    let mut b = case.service("b", "2", &config_map("moved"));
    b.depends_on = vec![name("a")];
    statuses(&mut reconciler, &case.documents(&[a, b], &[])).await;
    assert_eq!(case.owner_of("moved").map(|(_, owner)| owner).as_deref(), Some("b"));
    assert_eq!(case.deletions(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_protected_kind_stays_until_the_document_names_it() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let claim = object("PersistentVolumeClaim", "data", "");
    let full = case.entry("1", &(config_map("a") + &claim));
    pass(&mut reconciler, &case.orders(&full)).await;
    let mut less = case.entry("2", &config_map("a"));
    for mut reconciler in [reconciler, case.reconciler()] {
        for _ in 0..2 {
            let status = pass(&mut reconciler, &case.orders(&less)).await;
            assert_eq!(status.state, ServiceState::Applied, "{status:?}");
            assert!(status.message.contains("spec.prune.kinds"), "{status:?}");
        }
    }
    assert_eq!(case.target.names(), ["a", "data"]);
    less.prune.kinds = [ProtectedKind::PersistentVolumeClaim].into_iter().collect();
    let status = pass(&mut case.reconciler(), &case.orders(&less)).await;
    assert_eq!((status.message.as_str(), case.deletions()), ("", vec!["delete data".into()]));
}

#[tokio::test]
async fn a_service_that_is_removed_leaves_what_is_protected_and_forgets_it() {
    for kinds in [vec![], vec![ProtectedKind::Namespace]] {
        let case = Case::new();
        let mut reconciler = case.reconciler();
        let mut entry = case.service("web", "1", &(config_map("a") + &object("Namespace", "shop", "")));
        entry.prune.kinds = kinds.iter().copied().collect();
        statuses(&mut reconciler, &case.documents(&[entry], &[])).await;
        let other = case.service("other", "1", &config_map("b"));
        let told = statuses(&mut reconciler, &case.documents(&[other], &["web"])).await;
        let status = &told["web"];
        assert!(status.message.starts_with("removed"), "{status:?}");
        assert_eq!(status.message.contains("Namespace"), kinds.is_empty(), "{status:?}");
        assert_eq!(case.target.names().contains(&"shop".to_owned()), kinds.is_empty());
        assert_eq!(case.listed("web"), [] as [&str; 0]);
    }
}

#[tokio::test]
async fn a_removal_that_cannot_end_yet_goes_on_when_nobody_speaks_of_it_any_more() {
    let case = Case::new();
    let web = case.service("web", "1", &(config_map("a") + &config_map("b")));
    let other = case.service("other", "1", &config_map("c"));
    statuses(&mut case.reconciler(), &case.documents(&[web, other.clone()], &[])).await;
    case.target.inner().refused.insert("b".into());
    let told =
        statuses(&mut case.reconciler(), &case.documents(std::slice::from_ref(&other), &["web"])).await;
    assert_eq!(told["web"].state, ServiceState::Failed, "{told:?}");
    // The hub has heard of it, and the tombstone leaves the documents.
    let without = case.documents(std::slice::from_ref(&other), &[]);
    for _ in 0..2 {
        statuses(&mut case.reconciler(), &without).await;
        assert_eq!(case.target.names(), ["b", "c"], "nothing comes back");
    }
    case.target.inner().refused.clear();
    let told = statuses(&mut case.reconciler(), &without).await;
    assert_eq!((told["web"].message.as_str(), case.target.names()), ("removed", vec!["c".to_owned()]));
    let told = statuses(&mut case.reconciler(), &without).await;
    assert!(!told.contains_key("web"), "{told:?}");
}

#[tokio::test]
async fn an_object_that_says_so_stays_and_is_nobody_s_any_more() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let kept = object("ConfigMap", "kept", "farshore.dev/prune: disabled");
    pass(&mut reconciler, &case.orders(&case.entry("1", &(config_map("a") + &kept)))).await;
    let status = pass(&mut reconciler, &case.orders(&case.entry("2", &config_map("a")))).await;
    assert!(status.message.contains("kept: an annotation or a label of it says that it stays"), "{status:?}");
    assert_eq!(
        (case.target.names(), case.listed("web")),
        (vec!["a".into(), "kept".into()], vec!["a".into()])
    );
    let status = pass(&mut reconciler, &case.orders(&case.entry("2", &config_map("a")))).await;
    assert_eq!(status.message, "");
}

#[tokio::test]
async fn what_the_agent_is_made_of_stays_until_the_document_names_it() {
    let case = Case::new();
    let mut reconciler = case.reconciler();
    let agent = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: agent, labels: {farshore.dev/agent: 'true'}}\n---\n";
    pass(&mut reconciler, &case.orders(&case.entry("1", &(config_map("a") + agent)))).await;
    let mut less = case.entry("2", &config_map("a"));
    let status = pass(&mut reconciler, &case.orders(&less)).await;
    assert!(status.message.contains("name Agent in spec.prune.kinds"), "{status:?}");
    less.prune.kinds = [ProtectedKind::Agent].into_iter().collect();
    pass(&mut reconciler, &case.orders(&less)).await;
    assert_eq!(case.target.names(), ["a"]);
}
