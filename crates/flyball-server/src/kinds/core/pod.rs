//! Pods. `pod_spec` contains the rules shared with templates.

mod defaults;
mod row;
mod update;
pub(crate) mod usage;

use super::GROUP;
use crate::kinds::kind::{Checks, Deletion, Kind};
use crate::kinds::printer::Heading;
use crate::kinds::subresource::Subresource as Sub;
use flyball_core::Object;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Pod", "pods")
    .deletion(Deletion { grace: Some(grace), ..Deletion::AT_ONCE })
    .quota_usage(usage::usage)
    .printed(COLUMNS, row::of)
    .default(defaults::default)
    .checks(Checks::Whole)
    .warn(update::warn)
    .prepare(update::prepare)
    .validate(update::validate)
    .short(&["po"])
    .category("all")
    .generation()
    .deleted_as_object()
    .subresources(&[
        Sub::ATTACH,
        Sub::BINDING,
        Sub::EPHEMERAL,
        Sub::EVICTION,
        Sub::EXEC,
        Sub::LOG,
        Sub::PORT_FORWARD,
        Sub::POD_PROXY,
        Sub::RESIZE,
        Sub::STATUS,
    ])
    .paths(&[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Ready", "The aggregate readiness state of this pod for accepting traffic."),
    Heading::text("Status", "The aggregate status of the containers in this pod."),
    Heading::text(
        "Restarts",
        "The number of times the containers in this pod have been restarted and when the last container in this pod \
         has restarted.",
    ),
    Heading::AGE,
    Heading::text(
        "IP",
        "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet allocated.",
    )
    .wide(),
    Heading::text(
        "Node",
        "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for scheduling by \
         the scheduler defined in schedulerName. Once this field is set, the kubelet for this node becomes \
         responsible for the lifecycle of this pod. This field should not be used to express a desire for the pod to \
         be scheduled on a specific node. \
         https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename",
    )
    .wide(),
    Heading::text(
        "Nominated Node",
        "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled \
         right away as preemption victims receive their graceful termination periods. This field does not guarantee \
         that the pod will be scheduled on this node. Scheduler may decide to place the pod elsewhere if other nodes \
         become available sooner. Scheduler may also decide to give the resources on this node to a higher priority \
         pod that is created after preemption. As a result, this field may be different than PodSpec.nodeName when \
         the pod is scheduled.",
    )
    .wide(),
    Heading::text(
        "Readiness Gates",
        "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all its \
         containers are ready AND all conditions specified in the readiness gates have status equal to \"True\" More \
         info: https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates",
    )
    .wide(),
];

/// Returns the grace period of a deleted pod, in seconds.
fn grace(pod: &Object, requested: Option<i64>) -> i64 {
    let text = |path: &[&str]| pod.at(path).and_then(Value::as_str).unwrap_or_default();
    // Pods that are not running need no grace period.
    if text(&["spec", "nodeName"]).is_empty() || matches!(text(&["status", "phase"]), "Failed" | "Succeeded") {
        return 0;
    }
    let own = pod.at(&["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
    match requested.or(own).unwrap_or(0) {
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}
