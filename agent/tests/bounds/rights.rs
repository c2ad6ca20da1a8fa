//! Services with accounts of their own, against the API server's real authorizer.

use std::path::{Path, PathBuf};

use farshore_agent::accounts::Accounts;
use farshore_agent::object::{Manifest, Owner};
use farshore_agent::plan::Item;
use farshore_agent::render::yaml;
use farshore_agent::target::kubernetes::Kubernetes;
use farshore_agent::target::{Deleted, ObjectError, Target as _};
use farshore_chaos::kit;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::{self, config_map, owner};
use crate::{PATIENCE, wait_for};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes")
}

fn published(file: &str) -> String {
    std::fs::read_to_string(deploy().join(file)).expect("it is published")
}

/// The published YAML, for a tenant of this name in the place of `shop`.
fn tenant(name: &str) -> String {
    published("tenant.yaml")
        .replace("namespace: shop", &format!("namespace: {name}"))
        .replace("metadata: { name: shop }", &format!("metadata: {{ name: {name} }}"))
}

/// The agent with nothing but its published rights, and the site's list of accounts.
async fn agent(server: &kit::Kubernetes, accounts: &str) -> (TempDir, Kubernetes) {
    server.kubectl_with_input(&["apply", "-f", "-"], &published("agent.yaml")).expect("good YAML");
    let token = server.kubectl(&["create", "token", "agent", "--namespace=farshore"]).expect("a token");
    let own = format!("\"token\":\"{}\"", token.trim());
    let admin = "\"token\":\"kit-admin\"";
    let (folder, kubeconfig) = cluster::changed_kubeconfig(&server.kubeconfig(), admin, &own);
    let list = folder.path().join("accounts.yaml");
    std::fs::write(&list, accounts).expect("a file");
    let accounts = Accounts::read(&list).expect("a good list");
    let target = cluster::target(&kubeconfig).await.with_accounts(accounts).expect("it is itself");
    target.ready().await.expect("everybody may see that");
    (folder, target)
}

async fn located(target: &Kubernetes, owner: &Owner, body: Value, namespace: &str) -> Manifest {
    let manifest = Manifest::read(body, "test".into()).expect("a manifest");
    let mut manifest = target.locate(vec![manifest], Some(namespace)).await.remove(0).expect("a known kind");
    manifest.mark(owner);
    manifest
}

/// Applies until the API server has read its roles.
async fn applied(target: &Kubernetes, owner: &Owner, manifest: &Manifest) -> Item {
    let applied = wait_for("the roles to be known", PATIENCE, async || {
        target.apply(owner, manifest).await.map_err(|error| error.to_string())
    });
    let applied = applied.await.expect("it is allowed");
    Item { uid: Some(applied.uid), fingerprint: Some(applied.fingerprint), ..Item::new(manifest) }
}

/// The YAML at the end of a message.
fn remedy(error: &ObjectError) -> String {
    let (_, yaml) = error.message.split_once(": {\"apiVersion\"").expect("YAML at the end");
    format!("{{\"apiVersion\"{yaml}")
}

/// Waits until an apply is refused with these words, and returns what it was refused with.
async fn refused(target: &Kubernetes, owner: &Owner, manifest: &Manifest, words: &str) -> ObjectError {
    let refused = wait_for(words, PATIENCE, async || match target.apply(owner, manifest).await {
        Err(error) if error.message.contains(words) => Ok(error),
        other => Err(format!("{other:?}")),
    });
    refused.await.expect("it is refused so")
}

#[tokio::test]
async fn the_published_rights_are_enough_for_a_tenant_and_end_at_its_namespaces() {
    let server = cluster::server().await;
    server.kubectl_with_input(&["apply", "-f", "-"], &tenant("shop")).expect("good YAML");
    server.kubectl(&["create", "namespace", "not-the-shop-s"]).expect("a namespace");
    let (_folder, target) = agent(&server, &published("accounts.yaml")).await;
    let shop = owner("shop-web");
    target.ensure_namespace(&shop, "shop").await.expect("it is there");
    let inside = located(&target, &shop, config_map("a", "1"), "shop").await;
    let item = applied(&target, &shop, &inside).await;
    let live = target.observe(&shop, &[item.clone(), item.clone()]).await;
    assert!(live.iter().all(Result::is_ok), "{live:?}");

    let outside = located(&target, &shop, config_map("a", "1"), "not-the-shop-s").await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "mine"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let role = located(&target, &shop, role, "shop").await;
    for manifest in [outside, role] {
        let error = target.apply(&shop, &manifest).await.expect_err("it is not the shop's");
        assert!(error.message.contains("system:serviceaccount:shop:deployer\" cannot patch"), "{error}");
    }
    assert!(
        target.ensure_namespace(&shop, "shop-made-this").await.is_ok(),
        "whether it is there is not known"
    );
    assert!(server.kubectl(&["get", "namespace", "shop-made-this"]).is_err(), "and it is not made");
    assert_eq!(target.delete(&shop, &item).await, Ok(Deleted::Gone));
}

#[tokio::test]
async fn the_agent_itself_may_do_nothing_but_act_as_the_accounts_it_was_given() {
    let server = cluster::server().await;
    server.kubectl_with_input(&["apply", "-f", "-"], &tenant("alone")).expect("good YAML");
    let (_folder, _target) = agent(&server, "accounts: [{service: '*', account: alone/deployer}]").await;
    let may = |arguments: &[&str]| {
        let who = ["--as=system:serviceaccount:farshore:agent"];
        let answer = server.kubectl(&[&["auth", "can-i"], arguments, &who].concat());
        answer.is_ok_and(|answer| answer.trim() == "yes")
    };
    wait_for("the roles to be known", PATIENCE, async || {
        match may(&["impersonate", "serviceaccounts/deployer", "--namespace=alone"]) {
            true => Ok(()),
            false => Err("not yet".to_owned()),
        }
    })
    .await
    .expect("the one thing that it may");
    for forbidden in [
        &["impersonate", "serviceaccounts/other", "--namespace=alone"] as &[&str],
        &["impersonate", "serviceaccounts/deployer", "--namespace=kube-system"],
        &["impersonate", "users"],
        &["impersonate", "groups"],
        &["get", "secrets", "--namespace=alone"],
        &["list", "configmaps", "--all-namespaces"],
        &["patch", "configmaps", "--namespace=alone"],
        &["create", "namespaces"],
        &["delete", "namespaces"],
        &["create", "clusterrolebindings"],
    ] {
        assert!(!may(forbidden), "{forbidden:?}");
    }
}

#[tokio::test]
async fn what_is_missing_comes_with_yaml_that_grants_it_and_nothing_more() {
    let server = cluster::server().await;
    server.kubectl(&["create", "namespace", "granting"]).expect("a namespace");
    let list = "accounts: [{service: granting, account: granting/deployer}]";
    let (_folder, target) = agent(&server, list).await;
    let owner = owner("granting");
    let manifest = located(&target, &owner, config_map("a", "1"), "granting").await;
    // One after the other, each as the message before it says: to act as the account, the account, its rights.
    for words in ["may not act as service account granting/deployer", "granting/deployer does not exist"] {
        let error = refused(&target, &owner, &manifest, words).await;
        server.kubectl_with_input(&["apply", "-f", "-"], &remedy(&error)).expect("good YAML");
    }
    for verb in ["patch", "create"] {
        let words = format!("cannot {verb} resource \"configmaps\"");
        let error = refused(&target, &owner, &manifest, &words).await;
        let yaml = remedy(&error);
        let list: Value = serde_json::from_str(&yaml).expect("JSON is YAML");
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}]);
        assert_eq!((&list["items"][0]["kind"], &list["items"][0]["rules"]), (&json!("Role"), &rules));
        server.kubectl_with_input(&["apply", "-f", "-"], &yaml).expect("good YAML");
    }
    applied(&target, &owner, &manifest).await;
    let who = "--as=system:serviceaccount:granting:deployer";
    let other = server.kubectl(&["auth", "can-i", "delete", "configmaps", "--namespace=granting", who]);
    assert!(!other.is_ok_and(|answer| answer.trim() == "yes"), "only what was refused is granted");
}

#[tokio::test]
async fn an_account_that_was_deleted_can_do_nothing_any_more() {
    let server = cluster::server().await;
    server.kubectl_with_input(&["apply", "-f", "-"], &tenant("revoked")).expect("good YAML");
    server.kubectl(&["delete", "serviceaccount", "deployer", "--namespace=revoked"]).expect("deleted");
    let (_folder, target) = agent(&server, "accounts: [{service: '*', account: revoked/deployer}]").await;
    let owner = owner("revoked");
    let manifest = located(&target, &owner, config_map("a", "1"), "revoked").await;
    // Its rights are still bound, and the API server would act for its name.
    let error = refused(&target, &owner, &manifest, "service account revoked/deployer does not exist").await;
    assert!(remedy(&error).contains("ServiceAccount"), "{error}");
}

#[tokio::test]
async fn a_service_without_an_account_is_its_own_error() {
    let server = cluster::server().await;
    server.kubectl_with_input(&["apply", "-f", "-"], &tenant("only")).expect("good YAML");
    let (_folder, target) = agent(&server, "accounts: [{service: only, account: only/deployer}]").await;
    let (known, unknown) = (owner("only"), owner("stranger"));
    let manifest = located(&target, &unknown, config_map("a", "1"), "only").await;
    let error = target.apply(&unknown, &manifest).await.expect_err("nobody stands for it");
    assert_eq!(
        error.message,
        "this site has no account for service stranger: add a rule to the file of --accounts"
    );
    let item = Item::new(&manifest);
    assert!(target.observe(&unknown, std::slice::from_ref(&item)).await[0].is_err());
    assert!(target.delete(&unknown, &item).await.is_err());
    assert!(target.preview(&unknown, &manifest).await.is_err());
    assert!(target.ensure_namespace(&unknown, "only").await.is_err());
    let manifest = located(&target, &known, config_map("a", "1"), "only").await;
    applied(&target, &known, &manifest).await;
}

#[tokio::test]
async fn a_kubeconfig_that_impersonates_somebody_itself_is_refused_with_accounts() {
    let server = cluster::server().await;
    let (admin, nobody) = ("\"token\":\"kit-admin\"", r#""token":"kit-admin","as":"nobody""#);
    let (folder, kubeconfig) = cluster::changed_kubeconfig(&server.kubeconfig(), admin, nobody);
    let list = folder.path().join("accounts.yaml");
    std::fs::write(&list, "accounts: [{service: '*', account: shop/deployer}]").expect("a file");
    let accounts = Accounts::read(&list).expect("a good list");
    let refused = cluster::target(&kubeconfig).await.with_accounts(accounts).err().expect("refused");
    assert!(refused.to_string().contains("impersonates a user itself (nobody)"), "{refused}");
}

#[test]
fn every_rule_of_the_agent_itself_is_explained() {
    let manual = std::fs::read_to_string(deploy().join("../../docs/agent.md")).expect("the manual");
    let (_, section) = manual.split_once("The agent's own rights, all of them:").expect("the table");
    let (table, _) = section.split_once("[deploy/kubernetes]").expect("its end");
    let documents = [published("agent.yaml"), published("tenant.yaml")].join("\n---\n");
    let mut rules = 0;
    for (_, document) in yaml::read(documents.as_bytes()) {
        let document = document.expect("good YAML");
        let own = document["metadata"]["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("farshore:act-as:") || name == "farshore-agent");
        for rule in document["rules"].as_array().into_iter().flatten().filter(|_| own) {
            rules += 1;
            if rule["verbs"].as_array().is_some_and(|verbs| verbs.contains(&json!("impersonate"))) {
                assert_eq!(rule["resourceNames"].as_array().map(Vec::len), Some(1), "never open: {rule}");
            }
            for word in rule["verbs"].as_array().into_iter().chain(rule["resources"].as_array()).flatten() {
                let word = word.as_str().expect("a word");
                assert!(table.contains(&format!("`{word}`")), "{word} is not explained");
            }
        }
    }
    assert_eq!(rules, 5, "one for each account, and what the agent tells of itself");
}
