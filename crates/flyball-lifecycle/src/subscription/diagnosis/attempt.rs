//! A resolution that is tried for an explanation.

use super::{Case, Requests};
use crate::bundle::Bundle;
use crate::catalog::Catalogs;
use crate::resolution::{self, Installed, Request, Resolution, resolve};
use std::sync::Arc;

/// A resolution of the namespace and its input.
pub(super) struct Attempt {
    pub(super) catalogs: Arc<Catalogs>,
    pub(super) installed: Vec<Installed>,
    pub(super) requests: Requests,
}

impl Attempt {
    pub(super) fn resolve(&self, case: &Case<'_>) -> Resolution {
        let subscriptions: Vec<_> = self.requests.values().cloned().collect();
        resolve(&Request {
            namespace: &case.view.namespace,
            catalogs: &self.catalogs,
            subscriptions: &subscriptions,
            installed: &self.installed,
            isolation: case.controller.isolation,
        })
    }

    pub(super) fn own(&self, index: usize) -> Option<&resolution::Subscription> {
        self.requests.get(&index)
    }

    /// Returns the installed bundle of a Subscription.
    pub(super) fn installed_of(&self, index: usize) -> Option<&Bundle> {
        let name = self.own(index)?.installed_csv.as_deref()?;
        self.installed.iter().find(|bundle| bundle.name() == name).map(|bundle| &**bundle)
    }
}
