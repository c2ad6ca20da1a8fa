use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::render::yaml;

fn owner(service: &str) -> Owner {
    Owner { cluster: "shop-7".parse().expect("a name"), service: service.parse().expect("a name") }
}

fn manifest(name: &str) -> Manifest {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": {"a": "1"}});
    Manifest::read(body, "test".into()).expect("a manifest")
}

fn item(manifest: &Manifest) -> Item {
    let mut item = Item::new(manifest);
    item.uid = Some("file".into());
    item
}

async fn target() -> (tempfile::TempDir, Directory) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let directory = Directory::open(folder.path().join("out"));
    directory.ready().await.expect("it is made");
    (folder, directory)
}

fn listing(directory: &Directory) -> Vec<String> {
    let entries = fs::read_dir(directory.folder.root()).expect("the folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_file_name_is_safe_for_any_key() {
    let key = |namespace: Option<&str>, name: &str| ObjectKey {
        group: "rbac.authorization.k8s.io".into(),
        kind: "Role".into(),
        namespace: namespace.map(ToOwned::to_owned),
        name: name.into(),
    };
    assert!(file_name(&key(Some("shop"), "web")).starts_with("shop-role-web-"));
    let hostile = ["../../etc/passwd", "a/b", "a:b", "a.b", "A", ".hidden", "", "ä", "\0", &"x".repeat(1000)];
    let mut seen = std::collections::BTreeSet::new();
    for name in hostile {
        for namespace in [None, Some("cluster"), Some("..")] {
            let file = file_name(&key(namespace, name));
            let stem = file.strip_suffix(".yaml").expect("an ending");
            let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            assert!(stem.bytes().all(good) && !stem.starts_with('-') && file.len() < 255, "{file}");
            assert!(seen.insert(file.clone()), "{file} names two objects");
        }
    }
}

#[tokio::test]
async fn a_file_is_whole_marked_and_private() {
    let (_folder, directory) = target().await;
    directory.apply(&owner("web"), &manifest("a")).await.expect("applied");
    let path = directory.file(&manifest("a").key);
    let text = fs::read_to_string(&path).expect("the file");
    assert!(text.starts_with("apiVersion: v1\ndata:\n  a: \"1\"\nkind: ConfigMap\n"), "{text}");
    assert!(text.contains("farshore.dev/service: web\n"), "{text}");
    assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o600);
    let records = fs::read_dir(directory.folder.root().join(".farshore")).expect("the records");
    assert_eq!(records.count(), 1, "no temporary file is left");
}

#[tokio::test]
async fn a_file_that_was_there_before_us_is_never_overwritten() {
    let (_folder, directory) = target().await;
    let path = directory.file(&manifest("a").key);
    for theirs in [
        "",
        "not: ours\n",
        "\u{0}",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n",
    ] {
        fs::write(&path, theirs).expect("written");
        let refused = directory.apply(&owner("web"), &manifest("a")).await.expect_err("not ours");
        assert!(refused.message.contains("exists and is not Farshore's"), "{}", refused.message);
        assert_eq!(refused.retry, Retry::Pointless);
        assert_eq!(fs::read_to_string(&path).expect("the file"), theirs);
        assert_eq!(directory.delete(&owner("web"), &item(&manifest("a"))).await, Ok(Deleted::NotOurs));
    }
    assert!(directory.apply(&owner("web"), &manifest("b")).await.is_ok(), "the others go on");
}

#[tokio::test]
async fn our_file_is_repaired_whatever_became_of_it() {
    let (folder, directory) = target().await;
    let applied = directory.apply(&owner("web"), &manifest("a")).await.expect("applied");
    let path = directory.file(&manifest("a").key);
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, "untouched").expect("written");
    let damages: [&dyn Fn(); 4] = [
        &|| fs::write(&path, "").expect("emptied"),
        &|| fs::write(&path, "a: [").expect("broken"),
        &|| fs::remove_file(&path).expect("removed"),
        &|| {
            fs::remove_file(&path).expect("removed");
            symlink(&elsewhere, &path).expect("a link");
        },
    ];
    for damage in damages {
        damage();
        let seen = directory.observe(&owner("web"), &[item(&manifest("a"))]).await.remove(0).expect("seen");
        assert_ne!(seen, Live::Present { uid: applied.uid.clone(), fingerprint: applied.fingerprint });
        let again = directory.apply(&owner("web"), &manifest("a")).await.expect("repaired");
        assert_eq!(again, applied);
        assert!(fs::symlink_metadata(&path).expect("the file").is_file());
    }
    assert_eq!(fs::read_to_string(&elsewhere).expect("the file"), "untouched", "no link was followed");
}

#[tokio::test]
async fn a_link_that_somebody_planted_is_refused() {
    let (folder, directory) = target().await;
    let elsewhere = folder.path().join("elsewhere");
    symlink(&elsewhere, directory.file(&manifest("a").key)).expect("a link");
    assert!(directory.apply(&owner("web"), &manifest("a")).await.is_err());
    assert_eq!(directory.delete(&owner("web"), &item(&manifest("a"))).await, Ok(Deleted::NotOurs));
    assert!(!elsewhere.exists());
}

#[tokio::test]
async fn two_services_do_not_fight_over_one_object() {
    let (_folder, directory) = target().await;
    directory.apply(&owner("web"), &manifest("a")).await.expect("applied");
    let refused = directory.apply(&owner("shop"), &manifest("a")).await.expect_err("another's");
    assert!(refused.message.contains("service web in cluster shop-7"), "{}", refused.message);
    assert_eq!(refused.retry, Retry::Worthwhile);
    directory.delete(&owner("web"), &item(&manifest("a"))).await.expect("deleted");
    assert!(directory.apply(&owner("shop"), &manifest("a")).await.is_ok(), "it is free now");
}

#[tokio::test]
async fn a_folder_restored_without_its_records_is_known_by_its_marks() {
    let (_folder, directory) = target().await;
    let applied = directory.apply(&owner("web"), &manifest("a")).await.expect("applied");
    fs::remove_dir_all(directory.folder.root().join(".farshore")).expect("removed");
    directory.ready().await.expect("made again");
    assert_eq!(directory.apply(&owner("web"), &manifest("a")).await, Ok(applied));
    let record =
        directory.folder.root().join(".farshore").join(format!("{}.owner", file_name(&manifest("a").key)));
    fs::write(record, "{").expect("written");
    assert_eq!(directory.delete(&owner("web"), &item(&manifest("a"))).await, Ok(Deleted::Gone));
    assert_eq!(listing(&directory), [".farshore"]);
}

#[tokio::test]
async fn an_object_of_another_life_is_not_deleted() {
    let (_folder, directory) = target().await;
    directory.apply(&owner("web"), &manifest("a")).await.expect("applied");
    let mut other = item(&manifest("a"));
    other.uid = Some("0e1b-in-a-cluster".into());
    assert_eq!(directory.delete(&owner("web"), &other).await, Ok(Deleted::NotOurs));
    assert_eq!(listing(&directory).len(), 2);
}

#[tokio::test]
async fn what_a_power_cut_left_half_written_is_cleared_away() {
    let (folder, directory) = target().await;
    let left = directory.folder.root().join(".farshore/tmp-x");
    fs::write(&left, "half").expect("written");
    Directory::open(folder.path().join("out")).ready().await.expect("ready");
    assert!(!left.exists());
}

#[tokio::test]
async fn a_folder_that_cannot_be_is_unreachable_and_says_why() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("file"), "").expect("written");
    let refused = Directory::open(folder.path().join("file/out")).ready().await.expect_err("below a file");
    assert!(refused.to_string().contains("making the folder"), "{refused}");
    let records = folder.path().join("out/.farshore");
    fs::create_dir(folder.path().join("out")).expect("made");
    symlink(Path::new("/"), &records).expect("a link");
    let refused = Directory::open(folder.path().join("out")).ready().await.expect_err("a link");
    assert!(refused.to_string().contains("something else is where a folder should be"), "{refused}");
}

#[tokio::test]
async fn kinds_that_the_service_defines_are_put_in_their_place() {
    let (_folder, directory) = target().await;
    let read = |body: Value| Manifest::read(body, "test".into()).expect("a manifest");
    let definition = |kind: &str, scope: &str| {
        read(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": kind.to_lowercase()},
            "spec": {"group": "x.dev", "scope": scope, "names": {"kind": kind}}}))
    };
    let custom =
        |kind: &str| read(json!({"apiVersion": "x.dev/v1", "kind": kind, "metadata": {"name": "a"}}));
    let manifests = vec![
        custom("Wide"),
        definition("Wide", "Cluster"),
        definition("Near", "Namespaced"),
        custom("Near"),
        custom("Unknown"),
    ];
    let placed = directory.locate(manifests, Some("shop")).await;
    let namespaces: Vec<_> =
        placed.iter().map(|manifest| manifest.as_ref().expect("placed").key.namespace.as_deref()).collect();
    assert_eq!(namespaces, [None, None, None, Some("shop"), Some("shop")]);
}

#[tokio::test]
async fn a_whole_service_of_text_comes_back_as_it_was_written() {
    let (_folder, directory) = target().await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a:b/c", "namespace": "shop"},
        "data": {"x.conf": "a = 1\n\n  b: yes\n", "on": "off", "octal": "0755", "empty": "", "odd": "\t\u{85}"}});
    let mut manifest = Manifest::read(body, "test".into()).expect("a manifest");
    directory.apply(&owner("web"), &manifest).await.expect("applied");
    let bytes = fs::read(directory.file(&manifest.key)).expect("the file");
    manifest.mark(&owner("web"));
    assert_eq!(yaml::read(&bytes), [(1, Ok(manifest.body))]);
}
