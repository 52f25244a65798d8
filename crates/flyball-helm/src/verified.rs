//! Verifies that the chart renders the revisions in Secrets.
//!
//! The Secrets are in the namespace of their custom resource, where others may write Secrets. So the operator
//! compares a stored revision with a rendering before it installs the revision, once per process. The chart is
//! rendered again once a lookup of that rendering returns another result.

use crate::digest::sha256;
use crate::lookup::Lookups;
use crate::storage::{Hook, Revision};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Limit of earlier renderings of a release.
const MAX_EARLIER: usize = 4;
/// Size limit of the recorded lookups of a release.
const MAX_LOOKUP_BYTES: usize = 64 << 10;
/// Size limit of those of all releases of a kind. Releases beyond it are rendered again to find changes.
const MAX_ALL_LOOKUP_BYTES: usize = 16 << 20;

/// The revisions that this process rendered, by namespace and release.
#[derive(Debug, Default)]
pub(crate) struct VerifiedRevisions(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_release: BTreeMap<(String, String), VerifiedRevision>,
    lookup_bytes: usize,
}

#[derive(Debug)]
struct VerifiedRevision {
    digest: String,
    /// The digests of earlier renderings, the newest first.
    earlier: Vec<String>,
    lookups: Vec<Lookups>,
    lookup_bytes: usize,
}

impl Entries {
    fn remove(&mut self, key: &(String, String)) -> Option<VerifiedRevision> {
        let removed = self.by_release.remove(key)?;
        self.lookup_bytes -= removed.lookup_bytes;
        Some(removed)
    }
}

impl VerifiedRevisions {
    /// Returns true if the chart renders the same objects as the revision.
    pub(crate) fn has(&self, namespace: &str, release: &str, revision: &Revision) -> bool {
        let (digest, key) = (digest(revision), (namespace.to_owned(), release.to_owned()));
        self.0.lock().by_release.get(&key).is_some_and(|known| known.digest == digest)
    }

    /// Returns true if this process rendered the objects of the revision, for the current or for earlier values.
    pub(crate) fn has_rendered(&self, namespace: &str, release: &str, revision: &Revision) -> bool {
        let (digest, key) = (digest(revision), (namespace.to_owned(), release.to_owned()));
        self.0
            .lock()
            .by_release
            .get(&key)
            .is_some_and(|known| known.digest == digest || known.earlier.contains(&digest))
    }

    /// Returns the lookups of the renderings of a release; none if they are unknown.
    pub(crate) fn lookups(&self, namespace: &str, release: &str) -> Vec<Lookups> {
        let key = (namespace.to_owned(), release.to_owned());
        self.0.lock().by_release.get(&key).map(|known| known.lookups.clone()).unwrap_or_default()
    }

    /// Records the rendering of the chart and its lookups, unless they are too large.
    pub(crate) fn add(&self, namespace: &str, release: &str, rendered: &Revision, lookups: Vec<Lookups>) {
        let (digest, key) = (digest(rendered), (namespace.to_owned(), release.to_owned()));
        let bytes = lookups.iter().map(Lookups::size).sum::<usize>();
        let mut entries = self.0.lock();
        let mut earlier = Vec::new();
        if let Some(known) = entries.remove(&key) {
            earlier.extend([known.digest].into_iter().chain(known.earlier).filter(|other| *other != digest));
            earlier.truncate(MAX_EARLIER);
        }
        let is_small = bytes <= MAX_LOOKUP_BYTES && entries.lookup_bytes + bytes <= MAX_ALL_LOOKUP_BYTES;
        let (lookups, lookup_bytes) = if is_small { (lookups, bytes) } else { (Vec::new(), 0) };
        entries.lookup_bytes += lookup_bytes;
        entries.by_release.insert(key, VerifiedRevision { digest, earlier, lookups, lookup_bytes });
    }

    /// Drops the records of a release.
    pub(crate) fn remove(&self, namespace: &str, release: &str) {
        self.0.lock().remove(&(namespace.to_owned(), release.to_owned()));
    }
}

/// Returns true if two revisions install the same objects.
pub(crate) fn is_same(one: &Revision, other: &Revision) -> bool {
    digest(one) == digest(other)
}

/// Hashes the manifest and the hooks of a revision, without the outcome of the hooks.
fn digest(revision: &Revision) -> String {
    let hooks: String = revision.hooks.iter().map(describe).collect();
    sha256(&[revision.manifest.as_bytes(), hooks.as_bytes()])
}

/// Describes a hook on one line, without its outcome.
pub(crate) fn describe(hook: &Hook) -> String {
    let parts = (&hook.path, &hook.name, &hook.kind, &hook.events, &hook.weight, &hook.delete_policies);
    format!("{parts:?} {:?}\n", hook.manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_lookups_are_bounded() {
        let (verified, revision) = (VerifiedRevisions::default(), Revision::default());
        let releases = 2 * MAX_ALL_LOOKUP_BYTES / MAX_LOOKUP_BYTES;
        let add = |at: usize, bytes: usize| {
            verified.add("a", &at.to_string(), &revision, vec![Lookups::of_name("n".repeat(bytes))]);
        };
        let recorded = || (0..releases).filter(|at| !verified.lookups("a", &at.to_string()).is_empty()).count();
        (0..releases).for_each(|at| add(at, MAX_LOOKUP_BYTES));
        assert_eq!(recorded(), releases / 2);
        assert!(verified.has("a", &(releases - 1).to_string(), &revision), "only its lookups are unknown");
        // Another rendering of the same release takes no further memory.
        (0..releases / 2).for_each(|at| add(at, MAX_LOOKUP_BYTES));
        assert_eq!(recorded(), releases / 2);
        verified.remove("a", "0");
        add(releases - 1, MAX_LOOKUP_BYTES + 1);
        assert_eq!(recorded(), releases / 2 - 1, "the lookups of one release are bounded as well");
        add(releases - 1, MAX_LOOKUP_BYTES);
        assert_eq!(recorded(), releases / 2);
    }
}
