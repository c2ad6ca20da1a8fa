//! Which programs the testbed has, and how each is had. Versions are in the modules' `go.mod` files alone.

use std::path::{Path, PathBuf};

use crate::error::ChoreError;
use crate::workspace;

/// One program of the testbed.
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// What makes it print its version.
    pub(super) ask_version: &'static [&'static str],
    pub(super) origin: Origin,
}

/// Where a program comes from when it is not installed.
pub(super) enum Origin {
    /// Built from a Go module.
    Module(Module),
    /// Installed from the system's packages.
    System { package: &'static str },
}

/// How a program is built.
pub(super) struct Module {
    /// The folder of `xtask/testbed` with `go.mod` and `go.sum`.
    pub(super) folder: &'static str,
    /// The module that carries the program, whose required version is the program's.
    pub(super) requires: &'static str,
    /// The package of the program.
    pub(super) package: &'static str,
    /// Variables of the program that get its version, without which it calls itself unreleased.
    pub(super) stamps: &'static [Stamp],
}

/// A variable that the linker sets, and what to.
pub(super) enum Stamp {
    /// The version as required, `v1.2.3`.
    Version(&'static str),
    /// A text of its own.
    Text(&'static str, &'static str),
}

/// What the programs of Kubernetes tell each other and their users.
const KUBERNETES_STAMPS: &[Stamp] = &[
    Stamp::Version("k8s.io/component-base/version.gitVersion"),
    Stamp::Text("k8s.io/component-base/version.gitMajor", "1"),
    Stamp::Text("k8s.io/component-base/version.gitMinor", "36"),
    Stamp::Text("k8s.io/component-base/version.gitTreeState", "clean"),
    Stamp::Version("k8s.io/client-go/pkg/version.gitVersion"),
    Stamp::Text("k8s.io/client-go/pkg/version.gitMajor", "1"),
    Stamp::Text("k8s.io/client-go/pkg/version.gitMinor", "36"),
];

/// Without these, charts that demand a recent Kubernetes are refused when there is no cluster to ask.
const HELM_STAMPS: &[Stamp] = &[
    Stamp::Version("helm.sh/helm/v3/internal/version.version"),
    Stamp::Text("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", "1"),
    Stamp::Text("helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor", "36"),
    Stamp::Text("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor", "1"),
    Stamp::Text("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor", "36"),
];

/// All programs; the quick ones first, so that a mistake of the set-up shows early.
pub(super) static TOOLS: [Tool; 8] = [
    Tool {
        name: "redis-server",
        ask_version: &["--version"],
        origin: Origin::System { package: "redis-server" },
    },
    module(
        "kustomize",
        &["version"],
        Module {
            folder: "kustomize",
            requires: "sigs.k8s.io/kustomize/kustomize/v5",
            package: "sigs.k8s.io/kustomize/kustomize/v5",
            stamps: &[Stamp::Version("sigs.k8s.io/kustomize/api/provenance.version")],
        },
    ),
    module(
        "etcd",
        &["--version"],
        Module {
            folder: "etcd",
            requires: "go.etcd.io/etcd/server/v3",
            package: "go.etcd.io/etcd/server/v3",
            stamps: &[],
        },
    ),
    module(
        "versitygw",
        &["--version"],
        Module {
            folder: "versitygw",
            requires: "github.com/versity/versitygw",
            package: "github.com/versity/versitygw/cmd/versitygw",
            stamps: &[Stamp::Version("main.Version")],
        },
    ),
    kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", &["--version"]),
    kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl", &["version", "--client"]),
    kubernetes("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", &["--version"]),
    module(
        "helm",
        &["version", "--short"],
        Module {
            folder: "helm",
            requires: "helm.sh/helm/v3",
            package: "helm.sh/helm/v3/cmd/helm",
            stamps: HELM_STAMPS,
        },
    ),
];

const fn module(name: &'static str, ask_version: &'static [&'static str], module: Module) -> Tool {
    Tool { name, ask_version, origin: Origin::Module(module) }
}

const fn kubernetes(name: &'static str, package: &'static str, ask_version: &'static [&'static str]) -> Tool {
    let requires = "k8s.io/kubernetes";
    module(name, ask_version, Module { folder: "kubernetes", requires, package, stamps: KUBERNETES_STAMPS })
}

impl Module {
    pub(super) fn path(&self) -> PathBuf {
        modules().join(self.folder)
    }

    /// The required version, such as `v1.2.3`.
    pub(super) fn version(&self, program: &'static str) -> Result<String, ChoreError> {
        let path = self.path().join("go.mod");
        let text = std::fs::read_to_string(&path).map_err(ChoreError::io("reading a module", &path))?;
        required(&text, self.requires).ok_or(ChoreError::Pin { program, path, module: self.requires })
    }
}

/// The folder with one folder for each module.
pub(super) fn modules() -> PathBuf {
    workspace::root().join("xtask").join("testbed")
}

fn required(go_mod: &str, module: &str) -> Option<String> {
    let mut lines = go_mod.lines().map(|line| line.trim().trim_start_matches("require ").split_whitespace());
    lines.find_map(|mut words| {
        let is_it = words.next() == Some(module);
        words.next().filter(|version| is_it && version.starts_with('v')).map(str::to_owned)
    })
}

/// The folders that hold what decides a build.
pub(super) fn module_paths() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        TOOLS.iter().filter_map(|tool| tool.origin.module()).map(Module::path).collect();
    paths.sort();
    paths.dedup();
    paths
}

impl Origin {
    pub(super) fn module(&self) -> Option<&Module> {
        match self {
            Self::Module(module) => Some(module),
            Self::System { .. } => None,
        }
    }
}

/// Whether a path is a program.
pub(super) fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_of_a_module_has_a_pinned_version() {
        for tool in &TOOLS {
            if let Some(module) = tool.origin.module() {
                let version = module.version(tool.name).expect("its go.mod requires it");
                assert!(version.starts_with('v'), "{}: {version}", tool.name);
            }
        }
    }

    #[test]
    fn a_required_version_is_read_from_both_forms_of_a_requirement() {
        assert_eq!(required("require a.b/c v1.2.3\n", "a.b/c").as_deref(), Some("v1.2.3"));
        let block = "tool a.b/c\nrequire (\n\ta.b/c/d v0.0.1\n\ta.b/c v1.2.3 // indirect\n)\n";
        assert_eq!(required(block, "a.b/c").as_deref(), Some("v1.2.3"));
        assert_eq!(required("tool a.b/c\n", "a.b/c"), None);
    }
}
