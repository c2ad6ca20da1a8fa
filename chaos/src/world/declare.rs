//! The text of declarations, as a person would write it into a fleet repository.

/// A `Source`: a Git repository at its branch `main`.
#[must_use]
pub fn source(name: &str, url: &str) -> String {
    format!(
        "apiVersion: farshore.dev/v1alpha1\nkind: Source\nmetadata: {{ name: {name} }}\n\
         spec:\n  git: {{ url: \"{url}\", branch: main }}\n"
    )
}

/// A `Service` of every cluster, with its objects in the namespace of its own name.
///
/// `renderer` is `raw`, `template` or `kustomize`.
#[must_use]
pub fn service(name: &str, source: &str, path: &str, renderer: &str) -> String {
    format!(
        "apiVersion: farshore.dev/v1alpha1\nkind: Service\nmetadata: {{ name: {name} }}\n\
         spec:\n  source: {source}\n  path: \"{path}\"\n  renderer: {renderer}\n  namespace: {name}\n  clusters: {{}}\n"
    )
}

/// A `ConfigMap` without a namespace, whose only entry is `value`.
#[must_use]
pub fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name} }}\ndata: {{ value: \"{value}\" }}\n")
}
