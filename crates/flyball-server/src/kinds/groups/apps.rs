//! Kinds of `apps`.

use crate::kinds::kind::{Checks, Kind, Subresource as Sub};
use crate::kinds::{apps, printers, workload};
use flyball_core::names::dns_label;

const GROUP: &str = "apps";

pub(super) const KINDS: &[Kind] = &[
    Kind::new(GROUP, "v1", "ControllerRevision", "controllerrevisions")
        .printed(printers::workload::controller_revision)
        .checks(Checks::Whole)
        .validate(apps::controller_revision),
    Kind::new(GROUP, "v1", "DaemonSet", "daemonsets")
        .printed(printers::workload::daemon_set)
        .default(workload::daemon_set)
        .warn(apps::warn)
        .prepare(apps::prepare_daemon_set)
        .validate(apps::daemon_set)
        .short(&["ds"])
        .category("all")
        .generation()
        .subresources(&[Sub::STATUS]),
    Kind::new(GROUP, "v1", "Deployment", "deployments")
        .status_keeps_labels()
        .generation_counts_annotations()
        .printed(printers::workload::deployment)
        .default(workload::deployment)
        .warn(apps::warn_of_deployment)
        .validate(apps::deployment)
        .short(&["deploy"])
        .category("all")
        .generation()
        .subresources(&[Sub::SCALE, Sub::STATUS]),
    Kind::new(GROUP, "v1", "ReplicaSet", "replicasets")
        .printed(printers::workload::replica_set)
        .default(workload::replica_set)
        .warn(apps::warn)
        .validate(apps::replica_set)
        .short(&["rs"])
        .category("all")
        .generation()
        .subresources(&[Sub::SCALE, Sub::STATUS]),
    Kind::new(GROUP, "v1", "StatefulSet", "statefulsets")
        .printed(printers::workload::stateful_set)
        .default(workload::stateful_set)
        .name_rule(dns_label)
        .prepare(apps::prepare_stateful_set)
        .warn(apps::warn_of_stateful_set)
        .validate(apps::stateful_set)
        .short(&["sts"])
        .category("all")
        .generation()
        .subresources(&[Sub::SCALE, Sub::STATUS]),
];
