//! What the fleet repository of a seeded fleet says.

use farshore_chaos::kit::GitRepo;

use super::LABEL;
use crate::error::BenchError;

/// A service for all clusters and one for each group.
pub(super) fn repository(groups: usize) -> Result<GitRepo, BenchError> {
    let mut repo = GitRepo::new()?;
    let mut declared = service("all", "{}");
    repo.write("apps/all/it.yaml", manifest("first"))?;
    for n in 0..groups {
        declared += &format!(
            "---\n{}",
            service(&format!("own-{n}"), &format!("{{ matchLabels: {{ {LABEL}: g{n} }} }}"))
        );
        repo.write(format!("apps/own-{n}/it.yaml"), manifest(&format!("of group {n}")))?;
    }
    repo.write("fleet.yaml", declared)?;
    repo.commit("first")?;
    Ok(repo)
}

fn service(name: &str, clusters: &str) -> String {
    format!(
        "apiVersion: farshore.dev/v1alpha1\nkind: Service\nmetadata: {{ name: {name} }}\n\
         spec: {{ source: fleet, path: apps/{name}, namespace: bench, clusters: {clusters} }}\n"
    )
}

/// A manifest whose only entry is `value`.
pub(super) fn manifest(value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: it }}\ndata: {{ value: \"{value}\" }}\n")
}
