//! Facts that follow from the statuses of containers.

use crate::workload::resources::is_sidecar;
use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, ContainerStatus, PodSpec, PodStatus};

/// Returns the end of a container, if it has ended.
pub(super) fn ended(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

/// Returns true if a container is restarted after it exited with this code.
pub(super) fn restarts(spec: &PodSpec, container: &Container, code: i32) -> bool {
    let is_init = spec.init_containers.iter().flatten().any(|init| init.name == container.name);
    match container.restart_policy.as_deref().or(spec.restart_policy.as_deref()).unwrap_or("Always") {
        "Never" => false,
        "OnFailure" => code != 0,
        // Init containers run to completion.
        _ => code != 0 || !is_init || is_sidecar(container),
    }
}

/// Returns true if any container of a pod was ever started.
pub(super) fn has_begun(status: &PodStatus) -> bool {
    let all = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    all.into_iter().any(|status| status.container_id.is_some())
}

/// Returns true if any main container was ever started.
pub(super) fn has_begun_main(status: &PodStatus) -> bool {
    status.container_statuses.iter().flatten().any(|status| status.container_id.is_some())
}
