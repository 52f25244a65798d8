//! Metrics of leader election, under the name of controller-runtime.

use crate::metrics::Gauges;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Shows which leases this replica holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct ElectionMetrics {
    leaders: Gauges<1>,
}

impl ElectionMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "1 if this replica holds the lease, else 0";
        registry.register("leader_election_master_status", help, self.leaders.clone());
    }

    /// Returns the gauge that is 1 while this replica holds a lease, else 0.
    pub(crate) fn leads(&self, lease: &str) -> Gauge {
        self.leaders.get_or_create_owned(&[("name", lease.to_owned())])
    }
}
