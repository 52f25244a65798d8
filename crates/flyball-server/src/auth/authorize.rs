//! Authorization: decisions by the stored roles and bindings.
//!
//! Takes an [`Action`], returns a [`Decision`]. It caches the policy, and updates it by the changes since the last
//! read. Invariant: after [`Authorizer::refresh`], all decisions include the writes before it.

use super::rbac::{Change, Policy, Rule};
use super::{Action, Decision, MASTERS, User};
use crate::kinds::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind, ROLE, ROLE_BINDING};
use crate::storage::{Event, Revision, Store};
use flyball_core::{GroupResource, Status};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Number of bindings and rules that are checked in about a millisecond.
const MAX_QUICK_CHECKS: usize = 5000;

/// The kinds that the policy consists of.
static KINDS: [&Kind; 4] = [&ROLE, &CLUSTER_ROLE, &ROLE_BINDING, &CLUSTER_ROLE_BINDING];

/// Revisions of the tables of [`KINDS`].
type Versions = [Revision; 4];

/// Authorizes actions.
pub(crate) struct Authorizer {
    store: Arc<Store>,
    /// The last policy, with the versions of its tables. It is locked for a moment only, not while the store is read.
    policy: Mutex<Option<(Versions, Arc<Policy>)>>,
    /// Locked while roles and bindings are read, which takes long if there are very many subjects.
    reading: Mutex<()>,
}

/// The policy of an authorizer at one moment, for a snapshot.
#[derive(Clone, Default)]
pub(crate) struct PolicyImage(Option<(Versions, Arc<Policy>)>);

impl Authorizer {
    /// Creates an authorizer for a store, or for the image of one with its policy.
    pub(crate) fn new(image: PolicyImage, store: Arc<Store>) -> Self {
        Self { store, policy: Mutex::new(image.0), reading: Mutex::default() }
    }

    /// Returns the current policy.
    pub(crate) fn image(&self) -> PolicyImage {
        PolicyImage(self.cached_policy().clone())
    }

    /// Decides whether a rule allows an action.
    pub(crate) fn decide(&self, action: &Action<'_>) -> Decision {
        if action.user.is_in(MASTERS) {
            return Decision::Allowed(String::new());
        }
        let policy = self.policy();
        let allowing = policy
            .bindings_of(action.user, action.on.namespace())
            .find(|(binding, _)| policy.rules(binding).iter().any(|rule| rule.allows(action.verb, &action.on)));
        allowing.map_or(Decision::NoOpinion, |(binding, subject)| Decision::Allowed(binding.reason(subject)))
    }

    /// Rejects an action that no rule allows.
    pub(crate) fn authorize(&self, action: &Action<'_>) -> Result<(), Status> {
        match self.decide(action) {
            Decision::Allowed(_) => Ok(()),
            Decision::NoOpinion => Err(action.forbidden()),
        }
    }

    /// Returns true if a decision in a namespace may take a millisecond or more, by the policy that was read last.
    pub(crate) fn is_slow(&self, namespace: &str) -> bool {
        self.cached_policy().as_ref().is_some_and(|(_, policy)| policy.checks(namespace) > MAX_QUICK_CHECKS)
    }

    /// Returns true if that applies to a decision in any namespace.
    pub(crate) fn is_slow_somewhere(&self) -> bool {
        self.cached_policy().as_ref().is_some_and(|(_, policy)| policy.max_checks() > MAX_QUICK_CHECKS)
    }

    /// Returns the rules of each role of a user in a namespace (empty: the cluster), without duplicates.
    pub(crate) fn roles_of(&self, user: &User, namespace: &str) -> Vec<Arc<[Rule]>> {
        let policy = self.policy();
        let mut known = BTreeSet::new();
        let bindings = policy.bindings_of(user, namespace).filter_map(|(binding, _)| policy.role(binding));
        let mut roles: Vec<_> = bindings.filter(|role| known.insert(role.as_ptr())).cloned().collect();
        if user.is_in(MASTERS) {
            let all = || vec!["*".to_owned()];
            let resources = Rule { groups: all(), resources: all(), verbs: all(), ..Rule::default() };
            roles.push(Arc::new([resources, Rule { paths: all(), verbs: all(), ..Rule::default() }]));
        }
        roles
    }

    /// Returns the rules of a role, or of a cluster role without a namespace.
    pub(crate) fn rules_of_role(&self, namespace: Option<&str>, name: &str) -> Option<Arc<[Rule]>> {
        self.policy().rules_of_role(namespace, name).cloned()
    }

    /// Updates the policy with all writes so far. A write of a role or binding is acknowledged only after that, so that
    /// it is in effect for all later requests.
    pub(crate) fn refresh(&self) {
        self.read(&self.reading());
    }

    fn cached_policy(&self) -> MutexGuard<'_, Option<(Versions, Arc<Policy>)>> {
        self.policy.lock()
    }

    fn reading(&self) -> MutexGuard<'_, ()> {
        self.reading.lock()
    }

    /// Returns the current policy, or the one before a write that is not acknowledged yet.
    fn policy(&self) -> Arc<Policy> {
        let known = self.cached_policy().clone();
        match known {
            Some((read, policy)) if read == versions(&self.store) => policy,
            // Another thread reads them, and its write is acknowledged after that: see `refresh`.
            Some((_, policy)) => match self.reading.try_lock() {
                Some(reading) => self.read(&reading),
                None => policy,
            },
            None => self.read(&self.reading()),
        }
    }

    /// Reads the changes, while other threads decide by the policy before them.
    fn read(&self, _reading: &MutexGuard<'_, ()>) -> Arc<Policy> {
        let versions = versions(&self.store);
        // No other thread updates the policy meanwhile.
        let known = self.cached_policy().clone();
        let policy = known.and_then(|(read, before)| {
            let moved = KINDS.into_iter().zip(read).zip(versions).filter(|((_, read), now)| read != now);
            let changes: Option<Vec<_>> = moved.map(|((kind, read), _)| changes(&self.store, kind, read)).collect();
            let changes: Vec<Change> = changes?.into_iter().flatten().collect();
            Some(if changes.is_empty() { before } else { Arc::new(Policy::clone(&before).with(changes)) })
        });
        // If the changes are compacted, everything is read again.
        let policy = policy.unwrap_or_else(|| Arc::new(Policy::default().with(all(&self.store))));
        *self.cached_policy() = Some((versions, policy.clone()));
        policy
    }
}

/// Returns true if the policy includes objects of a table.
pub(crate) fn is_policy(table: &GroupResource) -> bool {
    &*table.group == ROLE.group
}

/// Returns the current versions of the tables.
fn versions(store: &Store) -> Versions {
    KINDS.map(|kind| store.changed(&kind.table()))
}

/// Returns all roles and bindings.
fn all(store: &Store) -> impl Iterator<Item = Change> {
    KINDS.into_iter().flat_map(|kind| {
        let entries = store.list(&kind.table(), None).entries;
        entries.into_iter().map(move |entry| Change::written(kind, &entry))
    })
}

/// Returns the writes to a table after a revision; `None` if it is compacted.
fn changes(store: &Store, kind: &Kind, since: Revision) -> Option<Vec<Change>> {
    let (events, _) = store.events_after(&kind.table(), since, usize::MAX).ok()?;
    let change = |event: Arc<Event>| match event.removed {
        true => Change::of(kind, &event.after.key, None),
        false => Change::written(kind, &event.after),
    };
    Some(events.into_iter().map(change).collect())
}

#[cfg(test)]
mod tests {
    use super::super::ActionTarget;
    use super::*;
    use crate::storage::{Entry, SelectableFields};
    use flyball_core::Object;
    use futures_util::FutureExt;
    use serde_json::{Value, json};

    const PODS: ActionTarget<'static> =
        ActionTarget::Resource { group: "", resource: "pods", subresource: "", namespace: "a", name: "x" };

    #[test]
    fn decisions_do_not_block_on_binding_reads() {
        let store = Arc::new(Store::new(crate::storage::Limits::of(&crate::Bounds::default())));
        let put = |table: &str, object: Value| {
            let object = Object::try_from(object).expect("an object");
            let table = GroupResource::new(ROLE.group, table);
            let key = object.key();
            let make = |revision| Ok(Entry::new(key.clone(), object, revision, SelectableFields::default(), 0));
            store.put(&table, &key, None, make).now_or_never().expect("no journal").expect("stored");
        };
        let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
        put("roles", json!({"metadata": {"name": "r", "namespace": "a"}, "rules": [rule]}));
        let authorizer = Authorizer::new(PolicyImage::default(), store.clone());
        let may = |name: &str| {
            let user = User::new(name, &[]);
            authorizer.decide(&Action { user: &user, verb: "get", on: PODS }) != Decision::NoOpinion
        };
        let bind = |name: &str| {
            let subject = json!({"kind": "User", "name": name});
            put(
                "rolebindings",
                json!({"metadata": {"name": name, "namespace": "a"},
                "roleRef": {"kind": "Role", "name": "r"}, "subjects": [subject]}),
            );
        };
        bind("ann");
        assert!(may("ann") && !may("bob"));
        let reading = authorizer.reading.lock();
        bind("bob");
        assert!(may("ann") && !may("bob"), "the write is not acknowledged yet");
        drop(reading);
        authorizer.refresh();
        let reading = authorizer.reading.lock();
        assert!(may("ann") && may("bob"), "an up-to-date policy needs no reading");
        drop(reading);
    }
}
