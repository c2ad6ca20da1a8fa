//! Which service is applied as whom: a list that belongs to the site. Pure, but for reading its file.
//!
//! ```yaml
//! accounts:
//! - { service: "shop-*", account: shop/deployer }    # NAMESPACE/SERVICEACCOUNT
//! - { service: "*", account: farshore/default }      # a default, where one is wanted
//! ```
//!
//! The first rule that fits counts. Nothing that a hub sends can change it: a service is only ever looked up
//! by its name.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use farshore_shared::exit::chain;
use farshore_shared::names::Name;
use serde::Deserialize;

use crate::render::yaml;
use crate::store::{StoreError, files};

/// The most bytes of the file.
const FILE_LIMIT: u64 = 1 << 20;
/// The longest name of a service account: an RFC 1123 subdomain.
const ACCOUNT_LIMIT: usize = 253;

/// A service account of the cluster. Neither part is ever empty: an empty user would be ourselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    namespace: Name,
    name: String,
}

impl Account {
    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.as_str()
    }

    /// The name in it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user that it is to the API. Kubernetes documentation, "Authenticating", "Service account tokens".
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The account of a user, if that is one.
    #[must_use]
    pub fn of_user(user: &str) -> Option<Self> {
        let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        Self::new(namespace, name)
    }

    fn new(namespace: &str, name: &str) -> Option<Self> {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        let ends = |text: &str| text.starts_with(['-', '.']) || text.ends_with(['-', '.']);
        let good = !name.is_empty() && name.len() <= ACCOUNT_LIMIT && name.bytes().all(inner) && !ends(name);
        let namespace = namespace.parse().ok()?;
        good.then(|| Self { namespace, name: name.to_owned() })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The site's list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    service: String,
    account: Arc<Account>,
}

/// Why a list of accounts is of no use.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    /// The file cannot be read.
    #[error("reading the list of accounts ({})", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What is in it is no list of accounts.
    #[error("the list of accounts is of no use ({}): {why}", path.display())]
    Bad {
        /// Which.
        path: PathBuf,
        /// What is wrong, and what would be right.
        why: String,
    },
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    accounts: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    service: String,
    account: String,
}

impl Accounts {
    /// Reads the list from its file.
    ///
    /// # Errors
    /// [`AccountsError`]: a list with one mistake is not used in part.
    pub fn read(path: &Path) -> Result<Self, AccountsError> {
        let bad = |why| AccountsError::Bad { path: path.to_owned(), why };
        let unreadable = |source| AccountsError::Unreadable { path: path.to_owned(), source };
        let absent = || unreadable(io::ErrorKind::NotFound.into());
        let read = files::read(path, FILE_LIMIT).map_err(|error| match error {
            StoreError::Io { source, .. } => unreadable(source),
            StoreError::TooLarge { limit, .. } => bad(format!("it has over {limit} bytes")),
            other => bad(chain(&other)),
        });
        Self::parse(&read?.ok_or_else(absent)?).map_err(bad)
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut documents = yaml::read(bytes);
        let (Some((_, document)), true) = (documents.pop(), documents.is_empty()) else {
            return Err("it is one document with the list `accounts`".to_owned());
        };
        let document = document.map_err(|error| error.to_string())?;
        let file: File = serde_json::from_value(document).map_err(|error| error.to_string())?;
        let rules: Result<Vec<Rule>, String> = file.accounts.into_iter().map(Rule::read).collect();
        match rules? {
            rules if rules.is_empty() => {
                Err("it has no rule, so that no service could be applied".to_owned())
            }
            rules => Ok(Self { rules }),
        }
    }

    /// The account of a service; none when no rule fits.
    #[must_use]
    pub fn of(&self, service: &Name) -> Option<Arc<Account>> {
        let rule = self.rules.iter().find(|rule| fits(&rule.service, service.as_str()))?;
        Some(Arc::clone(&rule.account))
    }
}

impl Rule {
    fn read(entry: Entry) -> Result<Self, String> {
        let Entry { service, account } = entry;
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'*';
        if service.is_empty() || !service.bytes().all(inner) {
            return Err(format!(
                "a service is named by lower-case letters, digits, '-' and '*' (got {service:?})"
            ));
        }
        let parts = account.split_once('/').and_then(|(namespace, name)| Account::new(namespace, name));
        let Some(parts) = parts else {
            return Err(format!("an account is NAMESPACE/SERVICEACCOUNT (got {account:?})"));
        };
        Ok(Self { service, account: Arc::new(parts) })
    }
}

/// Whether a name is what a pattern says, in which `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let Some(tail) = parts.pop() else { return true };
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(accounts: &Accounts, service: &str) -> Option<String> {
        Some(accounts.of(&service.parse().expect("a name"))?.to_string())
    }

    #[test]
    fn the_first_rule_that_fits_names_the_account() {
        let text = "accounts:\n- { service: shop-till, account: shop/till }\n\
            - { service: 'shop-*', account: shop/deployer.v1 }\n- { service: '*', account: farshore/rest }\n";
        let accounts = Accounts::parse(text.as_bytes()).expect("a good list");
        assert_eq!(account(&accounts, "shop-till").as_deref(), Some("shop/till"));
        assert_eq!(account(&accounts, "shop-web").as_deref(), Some("shop/deployer.v1"));
        assert_eq!(account(&accounts, "shopping").as_deref(), Some("farshore/rest"));
        let user = accounts.of(&"shop-web".parse().expect("a name")).expect("a rule").user();
        assert_eq!(user, "system:serviceaccount:shop:deployer.v1");
        assert_eq!(
            Account::of_user(&user).map(|account| account.to_string()).as_deref(),
            Some("shop/deployer.v1")
        );
    }

    #[test]
    fn a_service_without_a_rule_has_no_account() {
        let accounts = Accounts::parse(b"accounts: [{service: a, account: b/c}]").expect("a good list");
        assert_eq!(account(&accounts, "ab"), None);
    }

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, name, is_so) in [
            ("*", "a", true),
            ("a*", "a", true),
            ("*-db", "shop-db", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxc", false),
            ("a*a", "a", false),
            ("shop", "shop-2", false),
        ] {
            assert_eq!(fits(pattern, name), is_so, "{pattern} {name}");
        }
    }

    #[test]
    fn nothing_that_would_be_nobody_or_somebody_else_is_an_account() {
        for bad in [
            "",
            "[]",
            "accounts: []",
            "accounts: [{service: '*', account: ''}]",
            "accounts: [{service: '*', account: /}]",
            "accounts: [{service: '*', account: shop/}]",
            "accounts: [{service: '*', account: /deployer}]",
            "accounts: [{service: '*', account: 'shop/a:b'}]",
            "accounts: [{service: '*', account: 'shop/a b'}]",
            "accounts: [{service: '*', account: \"shop/a\\r\\nImpersonate-Group: system:masters\"}]",
            "accounts: [{service: '*', account: system:masters}]",
            "accounts: [{service: '', account: shop/a}]",
            "accounts: [{service: 'Shop', account: shop/a}]",
            "accounts: [{service: '*', account: shop/a, groups: [system:masters]}]",
            "accounts: [{service: '*', account: shop/a}]\n---\naccounts: []",
            "accounts: [{service: a, account: b/c}]\ndefault: {}",
        ] {
            assert!(Accounts::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_list_without_an_end_is_not_read_to_its_end() {
        let refused = Accounts::read(Path::new("/dev/zero")).expect_err("it has no end");
        assert!(refused.to_string().contains("it has over 1048576 bytes"), "{refused}");
    }

    #[test]
    fn a_list_that_is_not_there_is_named() {
        let refused = Accounts::read(Path::new("/nowhere/accounts.yaml")).expect_err("it is not there");
        assert!(refused.to_string().contains("/nowhere/accounts.yaml"), "{refused}");
    }
}
