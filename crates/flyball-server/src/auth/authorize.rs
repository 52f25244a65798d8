//! Decisions about actions, by the roles and bindings that are stored.

use super::rbac::{Rbac, Rule};
use super::{Action, Decision, User};
use crate::storage::Store;
use flyball_core::Status;
use std::sync::Arc;

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

    /// Returns the rules that hold for a user in a namespace; an empty one is the cluster.
    pub(crate) fn rules_of(&self, user: &User, namespace: &str) -> Vec<Rule> {
        self.rbac.rules_of(&self.store, user, namespace)
    }

    /// Returns the rules of a role, or of a cluster role without a namespace.
    pub(crate) fn rules_of_role(&self, namespace: Option<&str>, name: &str) -> Option<Vec<Rule>> {
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
