//! `farshore-agent` on a state folder of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::{EVERY, set_option};
use crate::kit::{KitError, Process, copy, program};

const GREETS_WITHIN: Duration = Duration::from_secs(30);

/// Where a site's manifests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Files in a folder of the site's.
    Directory,
    /// The cluster of this kubeconfig.
    Kubernetes(PathBuf),
}

/// A site: its state folder and its target outlive the process, as they outlive a power cut. `Drop` kills it.
#[derive(Debug)]
pub struct Site {
    process: Option<Process>,
    arguments: Vec<String>,
    kustomize: Option<PathBuf>,
    folder: TempDir,
}

impl Site {
    pub(super) fn new(name: &str, hub: &str, token: &str, target: Target) -> Result<Self, KitError> {
        let folder = TempDir::new().map_err(KitError::io("making a folder", std::env::temp_dir()))?;
        let mut site =
            Self { process: None, arguments: Vec::new(), kustomize: program("kustomize").ok(), folder };
        site.arguments = vec![
            format!("--hub=https://{hub}"),
            format!("--join={token}"),
            format!("--name={name}"),
            format!("--state={}", site.state().display()),
            format!("--poll={EVERY}"),
            format!("--sweep={EVERY}"),
        ];
        match target {
            Target::Directory => site.arguments.push(format!("--target=dir:{}", site.manifests().display())),
            Target::Kubernetes(kubeconfig) => {
                site.arguments.push("--target=kubernetes".to_owned());
                site.arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
            }
        }
        Ok(site)
    }

    /// Starts the agent, and returns when it has told what it holds. One that runs is killed first.
    ///
    /// # Errors
    /// When it ends at once.
    pub async fn start(&mut self) -> Result<(), KitError> {
        self.kill()?;
        self.process = Some(self.launch()?);
        self.process().wait_for_line("held", GREETS_WITHIN).await.map(|_line| ())
    }

    /// Starts a further agent with the same options, and does not wait for anything.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn launch(&self) -> Result<Process, KitError> {
        self.launch_with(&[])
    }

    /// Starts a command of the agent with the same options, such as `preflight`.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn launch_with(&self, first: &[&str]) -> Result<Process, KitError> {
        let kustomize = self.kustomize.as_deref().and_then(Path::to_str);
        let arguments = first.iter().copied().chain(self.arguments.iter().map(String::as_str));
        Process::start_with("farshore-agent", arguments, kustomize.map(|path| ("FARSHORE_KUSTOMIZE", path)))
    }

    /// Sets an option, given as `--name=value`, for the next start.
    #[must_use]
    pub fn option(mut self, option: impl Into<String>) -> Self {
        set_option(&mut self.arguments, option.into());
        self
    }

    /// Leaves an option out, given as `--name`, from the next start on.
    #[must_use]
    pub fn without(mut self, option: &str) -> Self {
        self.arguments.retain(|other| other.split('=').next() != Some(option));
        self
    }

    /// Kills the agent as a power cut would. Nothing happens when it does not run.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> Result<(), KitError> {
        match self.process.take() {
            Some(mut process) => process.kill().map(|_status| ()),
            None => Ok(()),
        }
    }

    /// The running agent.
    ///
    /// # Panics
    /// When it does not run.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("the test has started this site")
    }

    /// Its state folder.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Keeps a copy of its state folder as it is, for [`Site::restore`].
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn back_up(&self) -> Result<TempDir, KitError> {
        let backup = TempDir::new().map_err(KitError::io("making a folder", std::env::temp_dir()))?;
        copy(&self.state(), backup.path())?;
        Ok(backup)
    }

    /// Puts a copy in the place of its state folder. Its agent may not run meanwhile.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn restore(&self, backup: &TempDir) -> Result<(), KitError> {
        let state = self.state();
        std::fs::remove_dir_all(&state).map_err(KitError::io("removing a folder", &state))?;
        copy(backup.path(), &state)
    }

    /// The folder of its manifests, where its target is one.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    /// The manifests in that folder: what each file holds, by its name.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn objects(&self) -> Result<BTreeMap<String, String>, KitError> {
        let folder = self.manifests();
        if !folder.exists() {
            return Ok(BTreeMap::new());
        }
        let entries = std::fs::read_dir(&folder).map_err(KitError::io("reading a folder", &folder))?;
        let mut objects = BTreeMap::new();
        for entry in entries {
            let entry = entry.map_err(KitError::io("reading a folder", &folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".yaml") {
                let text = std::fs::read_to_string(entry.path())
                    .map_err(KitError::io("reading a file", entry.path()))?;
                objects.insert(name, text);
            }
        }
        Ok(objects)
    }

    /// The manifest of a `ConfigMap` in that folder; the error says which others are there.
    ///
    /// # Errors
    /// As text, for [`wait_for`](crate::kit::wait_for).
    pub fn config_map(&self, namespace: &str, name: &str) -> Result<(PathBuf, String), String> {
        let start = format!("{namespace}-configmap-{name}-");
        let objects = self.objects().map_err(|error| error.to_string())?;
        let names: Vec<String> = objects.keys().cloned().collect();
        let found = objects.into_iter().find(|(file, _text)| {
            // The rest is the digest: eight digits, and the ending.
            file.strip_prefix(&start).is_some_and(|rest| rest.len() == 8 + ".yaml".len())
        });
        let (file, text) = found.ok_or_else(|| format!("no {start}*.yaml among {names:?}"))?;
        Ok((self.manifests().join(file), text))
    }
}
