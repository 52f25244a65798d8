//! Names of the users and groups of service accounts, as in Kubernetes' package
//! `k8s.io/apiserver/pkg/authentication/serviceaccount`.

const USER_PREFIX: &str = "system:serviceaccount:";
/// The group of all service accounts.
pub const ALL_SERVICE_ACCOUNTS_GROUP: &str = "system:serviceaccounts";

/// Returns the user name of a service account.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("{USER_PREFIX}{namespace}:{name}")
}

/// Returns the group of the service accounts of a namespace.
pub fn group_name(namespace: &str) -> String {
    format!("{ALL_SERVICE_ACCOUNTS_GROUP}:{namespace}")
}

/// Returns the groups of a service account without `system:authenticated`.
pub fn group_names(namespace: &str) -> [String; 2] {
    [ALL_SERVICE_ACCOUNTS_GROUP.to_owned(), group_name(namespace)]
}

/// Splits the user name of a service account into namespace and name, which may be invalid; `None` for other users.
pub fn split_user_name(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(USER_PREFIX)?.split_once(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_are_split() {
        assert_eq!(split_user_name(&user_name("shop", "robot")), Some(("shop", "robot")));
        assert!(["ann", "system:serviceaccount:shop"].iter().all(|user| split_user_name(user).is_none()));
    }
}
