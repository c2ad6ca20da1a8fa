//! The fleet repository of the demo: what is declared, and commits to it.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::DemoError;

/// The three services, as a person would write them.
const SERVICES: &str = "\
# Manifests as they are, on every cluster.
apiVersion: farshore.dev/v1alpha1
kind: Service
metadata: { name: notice }
spec:
  source: fleet
  path: apps/notice
  renderer: raw
  namespace: demo
  clusters: {}
---
# Templates, filled in at the site with these values and its own name and labels.
apiVersion: farshore.dev/v1alpha1
kind: Service
metadata: { name: greeting }
spec:
  source: fleet
  path: apps/greeting
  renderer:
    template:
      values: { word: Ahoy }
  namespace: demo
  clusters: {}
---
# Only where clusters are labelled so.
apiVersion: farshore.dev/v1alpha1
kind: Service
metadata: { name: tides }
spec:
  source: fleet
  path: apps/tides
  renderer: raw
  namespace: demo
  clusters: { matchLabels: { place: sea } }
";

const GREETING: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: greeting
data:
  text: {{ (values.word ~ \" from \" ~ cluster.name ~ \", at \" ~ cluster.labels.place) | tojson }}
";

const TIDES: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: tides
data:
  high: \"06:12 18:37\"
";

/// What `notice` says at first.
pub(super) const FIRST_NOTICE: &str = "open from 8 to 18";

fn notice(text: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: notice\ndata:\n  text: {}\n",
        serde_json::Value::from(text)
    )
}

/// A Git repository with a working tree.
#[derive(Debug)]
pub(super) struct Repository {
    path: PathBuf,
}

impl Repository {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the repository with its first commit.
    pub(super) async fn make(&self) -> Result<(), DemoError> {
        self.write("services.yaml", SERVICES)?;
        self.write("apps/notice/notice.yaml", &notice(FIRST_NOTICE))?;
        self.write("apps/greeting/greeting.yaml", GREETING)?;
        self.write("apps/tides/tides.yaml", TIDES)?;
        self.git(&["init", "--quiet", "--initial-branch=main"]).await?;
        // In the repository rather than around a command, so that a visitor's commits work too.
        for (key, value) in [
            ("user.name", "Farshore demo"),
            ("user.email", "demo@farshore.example"),
            ("commit.gpgSign", "false"),
            ("core.hooksPath", "/dev/null"),
        ] {
            self.git(&["config", key, value]).await?;
        }
        self.commit("Three services").await?;
        Ok(())
    }

    /// Changes the notice and commits that; the commit's short id.
    pub(super) async fn change_notice(&self, text: &str) -> Result<String, DemoError> {
        self.write("apps/notice/notice.yaml", &notice(text))?;
        self.commit(&format!("The notice says: {text}")).await
    }

    /// Commits that nothing is declared any more.
    pub(super) async fn remove_services(&self) -> Result<String, DemoError> {
        self.git(&["rm", "--quiet", "services.yaml"]).await?;
        self.commit("Remove everything").await
    }

    /// Commits the opposite of the last commit.
    pub(super) async fn take_back(&self) -> Result<String, DemoError> {
        self.git(&["revert", "--no-edit", "HEAD"]).await?;
        self.git(&["rev-parse", "--short", "HEAD"]).await
    }

    async fn commit(&self, message: &str) -> Result<String, DemoError> {
        self.git(&["add", "--all"]).await?;
        self.git(&["commit", "--quiet", "--message", message]).await?;
        self.git(&["rev-parse", "--short", "HEAD"]).await
    }

    fn write(&self, file: &str, text: &str) -> Result<(), DemoError> {
        let path = self.path.join(file);
        let parent = path.parent().expect("a file of the repository lies in a folder");
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text));
        written.map_err(|source| DemoError::Io { doing: "writing a file of the fleet", path, source })
    }

    /// Runs Git as nobody in particular: what the user has configured is not the demo's business.
    async fn git(&self, args: &[&str]) -> Result<String, DemoError> {
        let mut command = Command::new("git");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GIT_") {
                command.env_remove(name);
            }
        }
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.arg("-C").arg(&self.path).args(args).kill_on_drop(true);
        let shown = format!("git {}", args.join(" "));
        super::world::output(command, &shown).await
    }
}
