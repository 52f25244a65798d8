//! Bundles that a resolution has selected.

use crate::bundle::Bundle;
use crate::catalog::Catalogs;
use crate::resolution::Choice;

/// A choice, its package, and the Subscription to this package.
#[derive(Clone, Debug)]
pub(super) struct Selected {
    pub(super) choice: Choice,
    pub(super) package: String,
    pub(super) subscription: Option<usize>,
}

impl Selected {
    /// Returns the bundle.
    pub(super) fn bundle<'c>(&self, catalogs: &'c Catalogs) -> Option<&'c Bundle> {
        let entries = &catalogs.get(&self.choice.catalog)?.entries;
        entries.iter().find(|entry| entry.name() == self.choice.name).map(|entry| &*entry.bundle)
    }
}
