//! `farshore-hub` as a Lambda function with a URL.

use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

use crate::kit::{KitError, Lambda, Process};

const TAKES_EVENTS_WITHIN: Duration = Duration::from_secs(30);

/// A function, running or not; `Drop` kills it. It is told everything by variables, as Lambda does.
pub struct Function {
    // Dropped before the kit freezes it for ever.
    process: Option<Process>,
    variables: Vec<(String, String)>,
    lambda: Lambda,
}

impl Function {
    pub(super) async fn new(
        arguments: Vec<String>,
        mut variables: Vec<(String, String)>,
        (cert, key): (&str, &str),
    ) -> Result<Self, KitError> {
        let lambda = Lambda::start(tls(cert, key)?).await?;
        variables.extend(arguments.iter().map(|argument| variable(argument)));
        variables.extend(lambda.variables());
        Ok(Self { process: None, variables, lambda })
    }

    /// Starts an instance, and returns when it takes events. One that runs is killed first.
    ///
    /// # Errors
    /// When it ends.
    pub async fn start(&mut self) -> Result<(), KitError> {
        self.kill()?;
        let variables = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut process = Process::start_with("farshore-hub", [""; 0], variables)?;
        process.wait_for_line("taking events from Lambda", TAKES_EVENTS_WITHIN).await?;
        self.lambda.runs(&process);
        self.process = Some(process);
        Ok(())
    }

    /// Kills the instance. Nothing happens when there is none.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> Result<(), KitError> {
        match self.process.take() {
            Some(mut process) => process.kill().map(|_status| ()),
            None => Ok(()),
        }
    }

    /// Invokes it with an event of any kind.
    ///
    /// # Errors
    /// What it says went wrong.
    pub async fn invoke(&self, event: &Value) -> Result<Value, KitError> {
        self.lambda.invoke(event).await
    }

    /// Where its URL is, as `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        self.lambda.address()
    }

    /// How many events it has taken.
    #[must_use]
    pub fn invocations(&self) -> u64 {
        self.lambda.invocations()
    }
}

/// `--site-poll=1s` is `FARSHORE_SITE_POLL=1s`.
fn variable(option: &str) -> (String, String) {
    let (name, value) = option.split_once('=').unwrap_or((option, "true"));
    let name = name.trim_start_matches('-').replace('-', "_").to_uppercase();
    (format!("FARSHORE_{name}"), value.to_owned())
}

fn tls(cert: &str, key: &str) -> Result<Arc<rustls::ServerConfig>, KitError> {
    let bad = |what: &str| {
        let what = what.to_owned();
        move |answer: String| KitError::Answer { what, answer }
    };
    let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| bad(cert)(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key)(error.to_string()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|error| bad(cert)(error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_a_variable() {
        assert_eq!(variable("--site-poll=1s"), ("FARSHORE_SITE_POLL".into(), "1s".into()));
        assert_eq!(
            variable("--objects=s3://a?endpoint=b"),
            ("FARSHORE_OBJECTS".into(), "s3://a?endpoint=b".into())
        );
    }
}
