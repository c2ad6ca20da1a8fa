//! Why something could not be measured.

use std::io;

use farshore_chaos::kit::KitError;
use farshore_hub_fn::objects::ObjectsError;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error("{doing}")]
    Io { doing: String, source: io::Error },
    #[error("preparing the servers")]
    Kit(#[from] KitError),
    #[error("accessing the record")]
    Objects(#[from] ObjectsError),
    #[error("{doing}")]
    Ours { doing: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("found no {program}: install your system's package {package} and try again")]
    NoProgram { program: &'static str, package: &'static str },
    #[error("what answered is not what was asked for: {0}")]
    Wrong(String),
    #[error("running {program} failed: {said}")]
    Failed { program: String, said: String },
}

impl BenchError {
    /// An operating system error, to be used with `map_err`.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// An error of our own crates, to be used with `map_err`.
    pub(crate) fn ours<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        doing: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Ours { doing, source: source.into() }
    }
}
