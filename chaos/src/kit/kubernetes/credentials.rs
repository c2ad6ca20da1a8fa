//! Keys, certificates and kubeconfigs, made for one API server in its temporary folder.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::json;

use super::option;
use crate::kit::{KitError, Port};

/// The user as whom kube-controller-manager works.
pub(super) const CONTROLLERS_USER: &str = "system:kube-controller-manager";
const CONTROLLERS_TOKEN: &str = "kit-controllers";
const ADMIN_TOKEN: &str = "kit-admin";

/// The files of one API server's credentials, all in one folder.
#[derive(Debug)]
pub(super) struct Credentials {
    folder: PathBuf,
}

impl Credentials {
    pub(super) fn write(folder: &Path, port: &Port) -> Result<Self, KitError> {
        let credentials = Self { folder: folder.to_owned() };
        let pems = Pems::make().map_err(|error| KitError::Answer {
            what: "rcgen for a certificate".to_owned(),
            answer: error.to_string(),
        })?;
        // Both are of the group that RBAC lets do everything.
        let tokens = format!(
            "{ADMIN_TOKEN},admin,admin,\"system:masters\"\n\
             {CONTROLLERS_TOKEN},{CONTROLLERS_USER},controllers,\"system:masters\"\n"
        );
        credentials.file("ca.crt", &pems.authority)?;
        credentials.file("api.crt", &pems.certificate)?;
        credentials.file("api.key", &pems.key)?;
        credentials.file("accounts.key", &pems.accounts_key)?;
        credentials.file("accounts.pub", &pems.accounts_public_key)?;
        credentials.file("tokens.csv", &tokens)?;
        credentials.file("kubeconfig", &credentials.config(port, ADMIN_TOKEN))?;
        credentials.file("controllers-kubeconfig", &credentials.config(port, CONTROLLERS_TOKEN))?;
        Ok(credentials)
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.path("kubeconfig")
    }

    pub(super) fn kubeconfig_of(&self, user: &str, port: &Port, token: &str) -> Result<PathBuf, KitError> {
        let name = format!("{user}-kubeconfig");
        self.file(&name, &self.config(port, token))?;
        Ok(self.path(&name))
    }

    pub(super) fn api_arguments(&self) -> Vec<String> {
        vec![
            option("--tls-cert-file", &self.path("api.crt")),
            option("--tls-private-key-file", &self.path("api.key")),
            option("--cert-dir", &self.folder),
            option("--token-auth-file", &self.path("tokens.csv")),
            option("--service-account-key-file", &self.path("accounts.pub")),
            option("--service-account-signing-key-file", &self.path("accounts.key")),
        ]
    }

    pub(super) fn controller_arguments(&self) -> Vec<String> {
        vec![
            option("--kubeconfig", &self.path("controllers-kubeconfig")),
            option("--root-ca-file", &self.path("ca.crt")),
            option("--service-account-private-key-file", &self.path("accounts.key")),
        ]
    }

    /// JSON, which is YAML as well.
    fn config(&self, port: &Port, token: &str) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "kit", "cluster": {
                "server": format!("https://{}", port.address()),
                "certificate-authority": self.path("ca.crt"),
            } }],
            "users": [{ "name": "kit", "user": { "token": token } }],
            "contexts": [{ "name": "kit", "context": { "cluster": "kit", "user": "kit" } }],
            "current-context": "kit",
        })
        .to_string()
    }

    fn file(&self, name: &str, text: &str) -> Result<(), KitError> {
        std::fs::write(self.path(name), text).map_err(KitError::io("writing a file", self.path(name)))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

struct Pems {
    authority: String,
    certificate: String,
    key: String,
    accounts_key: String,
    accounts_public_key: String,
}

impl Pems {
    fn make() -> Result<Self, rcgen::Error> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority_key = KeyPair::generate()?;
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        let key = KeyPair::generate()?;
        let accounts_key = KeyPair::generate()?;
        Ok(Self {
            authority: authority_pem,
            certificate: server.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem(),
            accounts_key: accounts_key.serialize_pem(),
            accounts_public_key: accounts_key.public_key_pem(),
        })
    }
}
