//! The number of open watches, by user.

use flyball_core::service_account;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limit of watches of all users, and of one user, who cannot prevent those of others. The service accounts of a
/// namespace count as one user: whoever may create one may create many.
const MAX_WATCHES: usize = 100;
const MAX_OF_USER: usize = 10;

/// The open watches.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenWatches(Arc<Mutex<BTreeMap<String, usize>>>);

/// An open watch, which counts until this is dropped.
#[derive(Debug)]
pub(super) struct OpenWatch {
    all: OpenWatches,
    user: String,
}

impl OpenWatches {
    /// Counts a watch of a user; `None` if there are too many.
    pub(super) fn open(&self, user: &str) -> Option<OpenWatch> {
        let user = owner_of(user);
        let mut users = self.0.lock();
        let own = users.get(&*user).copied().unwrap_or_default();
        if own >= MAX_OF_USER || users.values().sum::<usize>() >= MAX_WATCHES {
            return None;
        }
        let user = user.into_owned();
        users.insert(user.clone(), own + 1);
        Some(OpenWatch { all: self.clone(), user })
    }
}

/// Returns the user, or the group of a namespace's service accounts.
fn owner_of(user: &str) -> Cow<'_, str> {
    match service_account::split_user_name(user) {
        Some((namespace, _)) => service_account::group_name(namespace).into(),
        None => user.into(),
    }
}

#[cfg(test)]
impl OpenWatches {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        let mut users = self.all.0.lock();
        if let Some(count) = users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                users.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_cannot_prevent_watches_of_others() {
        let watches = OpenWatches::default();
        let mut open: Vec<OpenWatch> = (0..MAX_OF_USER).filter_map(|_| watches.open("a")).collect();
        assert!(open.len() == MAX_OF_USER && watches.open("a").is_none());
        assert!(watches.open("b").is_some());
        open.pop();
        assert!(watches.open("a").is_some());
        drop(open);
        assert!(watches.is_empty());
        let all: Vec<OpenWatch> = (0..2 * MAX_WATCHES).filter_map(|n| watches.open(&n.to_string())).collect();
        assert_eq!(all.len(), MAX_WATCHES);
    }

    #[test]
    fn service_accounts_of_a_namespace_count_as_one_user() {
        let watches = OpenWatches::default();
        let account = |namespace: &str, n: usize| format!("system:serviceaccount:{namespace}:reader-{n}");
        let open: Vec<OpenWatch> = (0..50).filter_map(|n| watches.open(&account("a", n))).collect();
        assert_eq!(open.len(), MAX_OF_USER);
        assert!(watches.open(&account("b", 0)).is_some());
        drop(open);
        assert!(watches.is_empty());
    }
}
