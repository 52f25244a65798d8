//! Metrics of server-side applies.

use crate::metrics::{CounterCache, Counters};
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// Counts applies by kind and outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApplyMetrics {
    applies: Counters<2>,
    cache: Arc<CounterCache<(String, ApplyOutcome)>>,
}

/// The outcome of an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ApplyOutcome {
    /// The cache showed that nothing would change: nothing was sent.
    Skipped,
    /// The API server changed the object.
    Changed,
    /// The API server found nothing to change.
    Unchanged,
    Failed,
}

impl ApplyOutcome {
    fn label(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
        }
    }
}

impl ApplyMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("flyball_apply", "Objects to be applied, by outcome", self.applies.clone());
    }

    pub(crate) fn count(&self, kind: &str, outcome: ApplyOutcome) {
        self.cache.increment(
            |(k, o)| k == kind && *o == outcome,
            || {
                let labels = [("kind", kind.to_owned()), ("result", outcome.label().to_owned())];
                ((kind.to_owned(), outcome), self.applies.get_or_create_owned(&labels))
            },
        );
    }
}
