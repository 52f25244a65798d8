//! Decisions about actions, by the roles and bindings that are stored.

use super::rbac::{Rbac, Rule};
use super::{Action, Decision, User};
use crate::storage::Store;
use flyball_core::Status;
use std::sync::Arc;

/// Bindings and rules that are looked at in about a millisecond.
const MAX_QUICK_CHECKS: usize = 5000;

/// Decides what may be done.
pub(crate) struct Authorizer {
    rbac: Rbac,
    store: Arc<Store>,
}

impl Authorizer {
    pub(crate) fn new(rbac: Rbac, store: Arc<Store>) -> Self {
        Self { rbac, store }
    }

    /// Decides whether anything allows an action.
    pub(crate) fn decide(&self, action: &Action<'_>) -> Decision {
        self.rbac.decide(&self.store, action)
    }

    /// Rejects what nothing allows.
    pub(crate) fn authorize(&self, action: &Action<'_>) -> Result<(), Status> {
        match self.decide(action) {
            Decision::Allowed(_) => Ok(()),
            Decision::NoOpinion => Err(action.forbidden()),
        }
    }

    /// Returns true if a decision in a namespace may take a millisecond or more.
    pub(crate) fn is_slow(&self, namespace: &str) -> bool {
        self.rbac.checks(&self.store, namespace) > MAX_QUICK_CHECKS
    }

    /// Returns true if a decision about some namespace may take as long.
    pub(crate) fn is_slow_somewhere(&self) -> bool {
        self.rbac.most_checks(&self.store) > MAX_QUICK_CHECKS
    }

    /// Returns the roles whose rules hold for a user in a namespace; an empty one is the cluster.
    pub(crate) fn roles_of(&self, user: &User, namespace: &str) -> Vec<Arc<[Rule]>> {
        self.rbac.roles_of(&self.store, user, namespace)
    }

    /// Returns the rules of a role, or of a cluster role without a namespace.
    pub(crate) fn rules_of_role(&self, namespace: Option<&str>, name: &str) -> Option<Arc<[Rule]>> {
        self.rbac.rules_of_role(&self.store, namespace, name)
    }

    /// Reads the roles and bindings that changed.
    pub(crate) fn refresh(&self) {
        self.rbac.refresh(&self.store);
    }

    /// Returns the rules as they are now, for a store that goes on from an image of this one's.
    pub(crate) fn image(&self) -> Rbac {
        self.rbac.image()
    }
}
