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

/// Limit of earlier renderings of a release.
const MAX_EARLIER: usize = 4;
/// Size limit of the recorded lookups of a release.
const MAX_LOOKUP_BYTES: usize = 64 << 10;

/// The revisions that this process rendered, by namespace and release.
#[derive(Debug, Default)]
pub(crate) struct VerifiedRevisions(Mutex<BTreeMap<(String, String), VerifiedRevision>>);

#[derive(Debug)]
struct VerifiedRevision {
    digest: String,
    /// The digests of earlier renderings, the newest first.
    earlier: Vec<String>,
    lookups: Vec<Lookups>,
}

impl VerifiedRevisions {
    /// Returns true if the chart renders the same objects as the revision.
    pub(crate) fn has(&self, namespace: &str, release: &str, revision: &Revision) -> bool {
        let (digest, key) = (digest(revision), (namespace.to_owned(), release.to_owned()));
        self.0.lock().get(&key).is_some_and(|known| known.digest == digest)
    }

    /// Returns true if this process rendered the objects of the revision, for the current or for earlier values.
    pub(crate) fn has_rendered(&self, namespace: &str, release: &str, revision: &Revision) -> bool {
        let (digest, key) = (digest(revision), (namespace.to_owned(), release.to_owned()));
        self.0.lock().get(&key).is_some_and(|known| known.digest == digest || known.earlier.contains(&digest))
    }

    /// Returns the lookups of the renderings of a release; none if they are unknown.
    pub(crate) fn lookups(&self, namespace: &str, release: &str) -> Vec<Lookups> {
        let key = (namespace.to_owned(), release.to_owned());
        self.0.lock().get(&key).map(|known| known.lookups.clone()).unwrap_or_default()
    }

    /// Records what the chart renders, and its lookups, unless they are too large.
    pub(crate) fn add(&self, namespace: &str, release: &str, rendered: &Revision, lookups: Vec<Lookups>) {
        let is_small = lookups.iter().map(Lookups::size).sum::<usize>() <= MAX_LOOKUP_BYTES;
        let lookups = if is_small { lookups } else { Vec::new() };
        let digest = digest(rendered);
        let mut entries = self.0.lock();
        let mut earlier = Vec::new();
        if let Some(known) = entries.remove(&(namespace.to_owned(), release.to_owned())) {
            earlier.extend([known.digest].into_iter().chain(known.earlier).filter(|other| *other != digest));
            earlier.truncate(MAX_EARLIER);
        }
        let verified = VerifiedRevision { digest, earlier, lookups };
        entries.insert((namespace.to_owned(), release.to_owned()), verified);
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
