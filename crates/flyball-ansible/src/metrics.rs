//! The metrics of operator-sdk's Ansible operator, under their names, besides those of all operators.
//!
//! Their labels are the kinds of `watches.yaml`, so users cannot add members.

mod roles;
mod server;

pub(crate) use roles::{RoleMetrics, Update, check_name};
pub(crate) use server::{PostedMetrics, ROLE_METRICS_ADDRESS, serve};

use flyball::GroupVersionKind;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// The default buckets of Prometheus' library for Go, in seconds.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

type Labels<const N: usize> = [(&'static str, String); N];

/// The metrics of an operator.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    results: Family<Labels<2>, Gauge>,
    durations: Family<Labels<1>, Histogram, fn() -> Histogram>,
    /// Metrics that tasks define.
    pub(crate) of_roles: RoleMetrics,
}

/// The metrics of one kind.
#[derive(Debug)]
pub(crate) struct KindMetrics {
    succeeded: Gauge,
    failed: Gauge,
    durations: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self {
            results: Family::default(),
            durations: Family::new_with_constructor(histogram),
            of_roles: RoleMetrics::default(),
        }
    }

    pub(crate) fn register(self, registry: &mut Registry) {
        let version = Family::<Labels<1>, Gauge>::default();
        version.get_or_create(&[("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
        registry.register("ansible_operator_build_info", "Version of the operator", version);
        registry.register("ansible_operator_reconcile_result", "Reconciles, by result", self.results);
        registry.register("ansible_operator_reconciles", "Duration of reconciles in seconds", self.durations);
        registry.register_collector(Box::new(self.of_roles));
    }

    /// Returns the metrics of a kind.
    pub(crate) fn of(&self, kind: &GroupVersionKind) -> KindMetrics {
        let kind = format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind);
        let result =
            |result: &str| self.results.get_or_create_owned(&[("GVK", kind.clone()), ("result", result.to_owned())]);
        KindMetrics {
            succeeded: result("succeeded"),
            failed: result("failed"),
            durations: self.durations.get_or_create_owned(&[("GVK", kind.clone())]),
        }
    }
}

impl KindMetrics {
    pub(crate) fn succeeded(&self) {
        self.succeeded.inc();
    }

    pub(crate) fn failed(&self) {
        self.failed.inc();
    }

    pub(crate) fn took(&self, duration: Duration) {
        self.durations.observe(duration.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text;

    #[test]
    fn metrics_have_the_names_of_operator_sdk() {
        let (metrics, mut registry) = (Metrics::new(), Registry::default());
        let shops = metrics.of(&GroupVersionKind::new("shop.example.com", "v1", "Shop"));
        metrics.register(&mut registry);
        shops.succeeded();
        shops.took(Duration::from_millis(30));
        let mut found = String::new();
        text::encode(&mut found, &registry).unwrap();
        for line in [
            format!(r#"ansible_operator_build_info{{version="{}"}} 1"#, env!("CARGO_PKG_VERSION")),
            r#"ansible_operator_reconcile_result{GVK="shop.example.com/v1, Kind=Shop",result="succeeded"} 1"#
                .to_owned(),
            r#"ansible_operator_reconcile_result{GVK="shop.example.com/v1, Kind=Shop",result="failed"} 0"#.to_owned(),
            r#"ansible_operator_reconciles_bucket{le="0.025",GVK="shop.example.com/v1, Kind=Shop"} 0"#.to_owned(),
            r#"ansible_operator_reconciles_bucket{le="0.05",GVK="shop.example.com/v1, Kind=Shop"} 1"#.to_owned(),
            r#"ansible_operator_reconciles_count{GVK="shop.example.com/v1, Kind=Shop"} 1"#.to_owned(),
        ] {
            assert!(found.lines().any(|known| known == line), "no {line} in\n{found}");
        }
    }
}
