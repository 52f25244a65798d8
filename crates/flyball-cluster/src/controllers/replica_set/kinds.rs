//! The two kinds with a number of pods.

use crate::workload::owners::Selector;
use crate::workload::selection::Selects;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{PodTemplateSpec, ReplicationController};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Desired pods of a set.
#[derive(Debug)]
pub(super) struct DesiredPods {
    pub(super) replicas: usize,
    pub(super) min_ready_seconds: Option<i32>,
    pub(super) template: PodTemplateSpec,
}

/// A kind with a number of pods. Its status is represented as that of a replica set.
pub(super) trait Replicates: Selects + Serialize {
    /// Status has `terminatingReplicas`.
    const TELLS_TERMINATING: bool;

    fn desired(&self) -> Option<DesiredPods>;
    fn status(&self) -> Option<ReplicaSetStatus>;
    fn with_status(&self, status: ReplicaSetStatus) -> Self;
}

fn count(replicas: Option<i32>) -> usize {
    usize::try_from(replicas.unwrap_or(1)).unwrap_or(0)
}

impl Selects for ReplicaSet {
    fn selector(&self) -> Option<Selector> {
        Selector::new(self.spec.as_ref().map(|spec| &spec.selector))
    }
}

impl Selects for ReplicationController {
    fn selector(&self) -> Option<Selector> {
        Selector::equal(self.spec.as_ref()?.selector.as_ref()?)
    }
}

impl Replicates for ReplicaSet {
    const TELLS_TERMINATING: bool = true;

    fn desired(&self) -> Option<DesiredPods> {
        let spec = self.spec.as_ref()?;
        let template = spec.template.clone().unwrap_or_default();
        Some(DesiredPods { replicas: count(spec.replicas), min_ready_seconds: spec.min_ready_seconds, template })
    }

    fn status(&self) -> Option<ReplicaSetStatus> {
        self.status.clone()
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        Self { status: Some(status), ..self.clone() }
    }
}

impl Replicates for ReplicationController {
    const TELLS_TERMINATING: bool = false;

    fn desired(&self) -> Option<DesiredPods> {
        let spec = self.spec.as_ref()?;
        let template = spec.template.clone().unwrap_or_default();
        Some(DesiredPods { replicas: count(spec.replicas), min_ready_seconds: spec.min_ready_seconds, template })
    }

    fn status(&self) -> Option<ReplicaSetStatus> {
        recast(self.status.as_ref()?)
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        Self { status: recast(&status), ..self.clone() }
    }
}

/// Converts between two status types with the same fields.
fn recast<T: DeserializeOwned>(status: &impl Serialize) -> Option<T> {
    serde_json::from_value(serde_json::to_value(status).ok()?).ok()
}
