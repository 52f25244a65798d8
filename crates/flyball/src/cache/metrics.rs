//! Metrics of caches, read at each scrape.

use super::{Caches, Store};
use crate::metrics::encode_family;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::Arc;

/// Collects the metrics of the caches of an operator.
#[derive(Debug)]
pub(crate) struct CacheCollector {
    pub(crate) caches: Arc<Caches>,
}

impl Collector for CacheCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let by_store = |read: fn(&Store) -> f64| {
            self.caches.stores().iter().map(move |store| {
                let namespace = store.namespace().unwrap_or_default();
                let labels = [("kind", store.kind().to_string()), ("namespace", namespace.to_owned())];
                (labels, ConstGauge::new(read(store)))
            })
        };
        let objects = by_store(|store| store.len() as f64);
        encode_family(&mut encoder, "flyball_cache_objects", "Objects in a cache", objects)?;
        let failing = by_store(|store| match store.last_error() {
            Some(last_error) if !store.is_absent() => last_error.since.elapsed().as_secs_f64(),
            Some(_) | None => 0.0,
        });
        let help = "Time for which a watch has failed, 0 while it works";
        encode_family(&mut encoder, "flyball_watch_failing_seconds", help, failing)?;
        let undecodable = ConstCounter::new(self.caches.undecodable());
        let help = "Objects read from a cache that do not decode, each time";
        encode_family(&mut encoder, "flyball_cache_undecodable", help, [([("kind", "any")], undecodable)].into_iter())
    }
}
