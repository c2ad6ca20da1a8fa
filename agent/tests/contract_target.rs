//! The promises of a target, kept by a folder.

mod target_contract;

use std::fs;
use std::path::PathBuf;

use farshore_agent::object::{CLUSTER_ANNOTATION, Manifest, ObjectKey, SERVICE_LABEL};
use farshore_agent::render::yaml;
use farshore_agent::target::directory::Directory;
use serde_json::{Value, json};
use target_contract::{World, holds};

/// A folder that somebody else edits, too.
struct Folder {
    _parent: tempfile::TempDir,
    directory: Directory,
}

impl Folder {
    fn new() -> Self {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let directory = Directory::open(parent.path().join("not/there/yet"));
        Self { _parent: parent, directory }
    }

    fn edit(&self, key: &ObjectKey, change: impl FnOnce(Value) -> Value) {
        let path: PathBuf = self.directory.file(key);
        let mut documents = yaml::read(&fs::read(&path).expect("the file is there"));
        let (_, body) = documents.pop().expect("one document");
        fs::write(path, yaml::write(&change(body.expect("good YAML")))).expect("written");
    }
}

impl World for Folder {
    type Target = Directory;

    fn target(&self) -> &Directory {
        &self.directory
    }

    fn namespace(&self) -> &'static str {
        "shop"
    }

    /// A folder refuses to write where a folder is.
    async fn spoiled(&self, name: &str) -> Manifest {
        let body =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}});
        let manifest = Manifest::read(body, "contract".into()).expect("a manifest");
        fs::create_dir_all(self.directory.file(&manifest.key)).expect("a folder in its place");
        manifest
    }

    async fn meddle(&self, key: &ObjectKey, pointer: &str, value: Value) {
        self.edit(key, |mut body| {
            *body.pointer_mut(pointer).expect("the field is there") = value;
            body
        });
    }

    async fn unmark(&self, key: &ObjectKey) {
        self.edit(key, without_marks);
    }

    async fn remove(&self, key: &ObjectKey) {
        fs::remove_file(self.directory.file(key)).expect("removed");
    }

    async fn plant_foreign(&self, manifest: &Manifest) {
        fs::write(self.directory.file(&manifest.key), yaml::write(&manifest.body)).expect("written");
    }

    async fn read(&self, key: &ObjectKey) -> Option<Value> {
        let bytes = fs::read(self.directory.file(key)).ok()?;
        let (_, body) = yaml::read(&bytes).pop()?;
        Some(body.expect("good YAML"))
    }
}

/// Takes our marks from a document.
fn without_marks(mut body: Value) -> Value {
    for (map, mark) in [("labels", SERVICE_LABEL), ("annotations", CLUSTER_ANNOTATION)] {
        if let Some(map) = body["metadata"].get_mut(map).and_then(Value::as_object_mut) {
            map.remove(mark);
        }
    }
    body
}

#[tokio::test]
async fn a_folder_keeps_every_promise_of_a_target() {
    holds(&Folder::new()).await;
}
