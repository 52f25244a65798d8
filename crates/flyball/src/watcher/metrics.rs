//! Metrics of watches.

use crate::metrics::Counters;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// The metrics of all watches.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchMetrics {
    lists: Counters<2>,
    events: Counters<2>,
    lost: Counters<2>,
}

/// The metrics of one watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchCounters {
    pub(super) lists: Counter,
    pub(super) events: Counter,
    pub(super) lost: Counter,
}

impl WatchMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("flyball_watch_lists", "Lists that were started", self.lists.clone());
        registry.register("flyball_watch_events", "Objects and bookmarks received", self.events.clone());
        registry.register("flyball_watch_lost", "Objects that could not be read", self.lost.clone());
    }

    /// Returns the metrics of the watch of a kind, in all namespaces or in one.
    pub(crate) fn of(&self, kind: &str, namespace: Option<&str>) -> WatchCounters {
        let labels = [("kind", kind.to_owned()), ("namespace", namespace.unwrap_or_default().to_owned())];
        WatchCounters {
            lists: self.lists.get_or_create_owned(&labels),
            events: self.events.get_or_create_owned(&labels),
            lost: self.lost.get_or_create_owned(&labels),
        }
    }
}
