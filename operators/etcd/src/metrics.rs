//! The metrics for dashboards and alerts, see `config/alerts.yaml`.

use crate::api::etcdbackup_v1beta2::EtcdBackup;
use crate::api::etcdcluster_v1beta2::EtcdCluster;
use crate::plan::{Step, View};
use flyball_core::time::Timestamp;
use kube::ResourceExt;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Namespace and name of a cluster.
type Labels = [(&'static str, String); 2];
/// Namespace and name of a cluster, and the step.
type StepLabels = [(&'static str, String); 3];

/// The metrics of all clusters. Clones share the values.
#[derive(Clone, Debug, Default)]
pub struct ClusterMetrics {
    members: Family<Labels, Gauge>,
    well: Family<Labels, Gauge>,
    available: Family<Labels, Gauge>,
    bytes: Family<Labels, Gauge>,
    bytes_in_use: Family<Labels, Gauge>,
    last_backup: Family<Labels, Gauge>,
    steps: Family<StepLabels, Counter>,
    known: Arc<Mutex<BTreeSet<Labels>>>,
    counted: Arc<Mutex<BTreeSet<StepLabels>>>,
}

fn labels(cluster: &EtcdCluster) -> Labels {
    [("namespace", cluster.namespace().unwrap_or_default()), ("name", cluster.name_any())]
}

impl ClusterMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let mut gauge =
            |name: &str, help: &str, gauge: &Family<Labels, Gauge>| registry.register(name, help, gauge.clone());
        gauge("etcd_cluster_members", "Members of etcd", &self.members);
        gauge("etcd_cluster_members_well", "Members that respond and follow a leader", &self.well);
        gauge("etcd_cluster_available", "1 if clients can read and write", &self.available);
        gauge("etcd_cluster_database_bytes", "Size of the largest database file", &self.bytes);
        gauge("etcd_cluster_database_in_use_bytes", "Used part of that file", &self.bytes_in_use);
        gauge("etcd_cluster_last_backup_timestamp_seconds", "Time of the last backup", &self.last_backup);
        registry.register("etcd_cluster_steps", "Executed steps, by name", self.steps.clone());
    }

    /// Records the state of a cluster.
    pub(crate) fn record(&self, cluster: &EtcdCluster, view: &View, available: bool, backups: &[EtcdBackup]) {
        let labels = labels(cluster);
        self.known.lock().insert(labels.clone());
        let set = |gauge: &Family<Labels, Gauge>, value: i64| {
            gauge.get_or_create(&labels).set(value);
        };
        let members = view.membership.as_ref().map_or(0, |membership| membership.members.len());
        set(&self.members, members as i64);
        set(&self.well, view.well().count() as i64);
        set(&self.available, available.into());
        let largest = view.pods.iter().filter_map(|pod| pod.status.as_ref()).max_by_key(|status| status.db_size);
        set(&self.bytes, largest.map_or(0, |status| status.db_size as i64));
        set(&self.bytes_in_use, largest.map_or(0, |status| status.db_size_in_use as i64));
        let dates = backups.iter().filter_map(|backup| backup.status.as_ref()).map(|status| &status.last_success_date);
        if let Some(last) = dates.filter_map(|date| date.parse::<Timestamp>().ok()).max() {
            set(&self.last_backup, last.as_second());
        }
    }

    /// Counts a step.
    pub(crate) fn count_step(&self, cluster: &EtcdCluster, step: &Step) {
        let [namespace, name] = labels(cluster);
        let labels = [namespace, name, ("step", step.name().to_owned())];
        self.steps.get_or_create(&labels).inc();
        self.counted.lock().insert(labels);
    }

    /// Removes the metrics of all other clusters.
    pub(crate) fn retain(&self, clusters: &[EtcdCluster]) {
        let there: BTreeSet<Labels> = clusters.iter().map(labels).collect();
        self.known.lock().retain(|labels| {
            let is_there = there.contains(labels);
            if !is_there {
                let gauges =
                    [&self.members, &self.well, &self.available, &self.bytes, &self.bytes_in_use, &self.last_backup];
                for gauge in gauges {
                    gauge.remove(labels);
                }
            }
            is_there
        });
        self.counted.lock().retain(|labels| {
            let is_there = there.contains(&labels[..2]);
            if !is_there {
                self.steps.remove(labels);
            }
            is_there
        });
    }
}
