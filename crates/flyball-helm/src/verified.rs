//! Verifies that the chart renders the revisions in Secrets.
//!
//! The Secrets are in the namespace of their custom resource, where others may write Secrets. So the operator
//! compares a stored revision with a rendering before it installs the revision, once per process.

use crate::digest::hex;
use crate::storage::{Hook, Revision};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Digests of the revisions that this process rendered, by namespace and release.
#[derive(Debug, Default)]
pub(crate) struct VerifiedRevisions(Mutex<BTreeMap<(String, String), String>>);

impl VerifiedRevisions {
    /// Returns true if the chart renders the same objects as the revision.
    pub(crate) fn has(&self, namespace: &str, release: &str, revision: &Revision) -> bool {
        let (digest, key) = (digest(revision), (namespace.to_owned(), release.to_owned()));
        self.0.lock().get(&key) == Some(&digest)
    }

    /// Records what the chart renders.
    pub(crate) fn add(&self, namespace: &str, release: &str, rendered: &Revision) {
        let digest = digest(rendered);
        self.0.lock().insert((namespace.to_owned(), release.to_owned()), digest);
    }

    /// Forgets a release.
    pub(crate) fn remove(&self, namespace: &str, release: &str) {
        let mut digests = self.0.lock();
        digests.remove(&(namespace.to_owned(), release.to_owned()));
    }
}

/// Returns true if two revisions install the same objects.
pub(crate) fn is_same(one: &Revision, other: &Revision) -> bool {
    digest(one) == digest(other)
}

/// Hashes the manifest and the hooks of a revision, without the outcome of the hooks.
fn digest(revision: &Revision) -> String {
    let hooks: String = revision.hooks.iter().map(describe).collect();
    hex(&[revision.manifest.as_bytes(), hooks.as_bytes()])
}

/// Describes a hook on one line, without its outcome.
pub(crate) fn describe(hook: &Hook) -> String {
    let parts = (&hook.path, &hook.name, &hook.kind, &hook.events, &hook.weight, &hook.delete_policies);
    format!("{parts:?} {:?}\n", hook.manifest)
}
