//! Verifies that the chart renders the revisions in Secrets.
//!
//! The Secrets are in the namespace of their custom resource, where others may write Secrets. So the operator
//! compares a stored revision with a rendering before it installs the revision, once per process. Until the lookups of
//! that rendering have other answers, the chart need not be rendered again.

use crate::digest::hex;
use crate::lookup::Lookups;
use crate::storage::{Hook, Revision};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Size limit of the recorded lookups of a release.
const MAX_LOOKUP_BYTES: usize = 64 << 10;

/// The revisions that this process rendered, by namespace and release.
#[derive(Debug, Default)]
pub(crate) struct Verified(Mutex<BTreeMap<(String, String), Entry>>);

#[derive(Debug)]
struct Entry {
    /// The digest of the revision.
    digest: String,
    lookups: Vec<Lookups>,
}

impl Verified {
    /// Returns true if the chart renders the same objects as the revision.
    pub(crate) fn has(&self, namespace: &str, release: &str, revision: &Revision) -> bool {
        let entries = self.0.lock();
        entries.get(&(namespace.to_owned(), release.to_owned())).is_some_and(|entry| entry.digest == digest(revision))
    }

    /// Returns the lookups of the renderings of a release; none if they are unknown.
    pub(crate) fn lookups(&self, namespace: &str, release: &str) -> Vec<Lookups> {
        let entries = self.0.lock();
        entries.get(&(namespace.to_owned(), release.to_owned())).map(|entry| entry.lookups.clone()).unwrap_or_default()
    }

    /// Records what the chart renders, and its lookups, unless they are too large.
    pub(crate) fn add(&self, namespace: &str, release: &str, rendered: &Revision, lookups: Vec<Lookups>) {
        let is_small = lookups.iter().map(Lookups::size).sum::<usize>() <= MAX_LOOKUP_BYTES;
        let lookups = if is_small { lookups } else { Vec::new() };
        let mut entries = self.0.lock();
        entries.insert((namespace.to_owned(), release.to_owned()), Entry { digest: digest(rendered), lookups });
    }

    /// Forgets a release.
    pub(crate) fn remove(&self, namespace: &str, release: &str) {
        let mut entries = self.0.lock();
        entries.remove(&(namespace.to_owned(), release.to_owned()));
    }
}

/// Returns true if two revisions install the same objects.
pub(crate) fn is_same(one: &Revision, other: &Revision) -> bool {
    digest(one) == digest(other)
}

/// Returns true if a rendering contains the hook.
pub(crate) fn is_rendered(hook: &Hook, rendered: &Revision) -> bool {
    let text = text(hook);
    rendered.hooks.iter().any(|hook| self::text(hook) == text)
}

/// Hashes the manifest and the hooks of a revision, without the outcome of the hooks.
fn digest(revision: &Revision) -> String {
    let hooks: String = revision.hooks.iter().map(text).collect();
    hex(&[revision.manifest.as_bytes(), hooks.as_bytes()])
}

/// Describes a hook on one line, without its outcome.
fn text(hook: &Hook) -> String {
    let parts = (&hook.path, &hook.name, &hook.kind, &hook.events, &hook.weight, &hook.delete_policies);
    format!("{parts:?} {:?}\n", hook.manifest)
}
