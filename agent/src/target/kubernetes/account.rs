//! Whether the account of a service is there, and what would make it so.

use serde::de::IgnoredAny;

use super::connection::{Connection, Request};
use super::fault::Complaint;
use super::grant;
use crate::accounts::Account;

/// Looks at an account, as ourselves.
///
/// The same role that lets us act as it lets us see it: whoever may not see it is told of both.
pub(super) async fn look(connection: &Connection, account: &Account) -> Result<(), Complaint> {
    let (namespace, name) = (account.namespace(), account.name());
    let target = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}");
    match connection.call::<IgnoredAny>(Request::get_metadata(target)).await {
        Ok(_) => Ok(()),
        Err(fault) if fault.is(404) => Err(Complaint::worthwhile(format!(
            "service account {account} does not exist; `kubectl apply -f -` with this makes it: {}",
            grant::an_account(account)
        ))),
        Err(fault) => match fault.status().filter(|status| status.code == 403) {
            Some(status) => Err(Complaint::worthwhile(forbidden(account, &status.message))),
            None => Err(fault.complaint("get serviceaccounts")),
        },
    }
}

fn forbidden(account: &Account, message: &str) -> String {
    let who = message.split_once("User \"").and_then(|(_, rest)| rest.split_once('"'));
    let user = who.map_or("", |(user, _)| user);
    format!(
        "the agent may not act as service account {account}; `kubectl apply -f -` with this grants it: {}",
        grant::to_act_as(account, user)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_see_an_account_is_told_what_the_agent_needs() {
        let account = Account::of_user("system:serviceaccount:shop:deployer").expect("an account");
        let told = forbidden(
            &account,
            "serviceaccounts \"deployer\" is forbidden: User \"system:serviceaccount:farshore:agent\" cannot get resource",
        );
        for part in ["act as service account shop/deployer", "\"impersonate\"", "\"name\":\"agent\""] {
            assert!(told.contains(part), "{told}");
        }
    }
}
