//! The reason why the pods of an operator do not start on the copy of a cluster.

use crate::cluster::rollout::pod_problem;
use crate::error::{Result, ResultExt};
use flyball_lifecycle::api::ClusterServiceVersion;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

/// Returns the first problem of the pods of an operator: they cannot be created or scheduled, or their containers do
/// not start.
pub(super) async fn problem(client: &Client, csv: &ClusterServiceVersion) -> Result<Option<String>> {
    let namespace = csv.namespace().unwrap_or_default();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    for planned in &csv.spec.install.spec.deployments {
        let name = &planned.name;
        let found = deployments.get_opt(name).await.context(format!("cannot read Deployment {name} of the copy"))?;
        let Some(deployment) = found else { continue };
        if let Some(problem) = refused(&deployment) {
            return Ok(Some(format!("Deployment {name}: {problem}")));
        }
        if let Some(problem) = of_pods(client, &namespace, &deployment).await? {
            return Ok(Some(format!("Deployment {name}: {problem}")));
        }
    }
    Ok(None)
}

/// Returns the reason why the pods of a Deployment cannot be created.
fn refused(deployment: &Deployment) -> Option<String> {
    let conditions = deployment.status.as_ref()?.conditions.iter().flatten();
    let mut failed = conditions.filter(|condition| condition.type_ == "ReplicaFailure" && condition.status == "True");
    failed.next().and_then(|condition| condition.message.clone())
}

/// Returns a problem of a pod of a Deployment, with the newest warning about it.
async fn of_pods(client: &Client, namespace: &str, deployment: &Deployment) -> Result<Option<String>> {
    let owned_by = |owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference], uid: &str| {
        owners.iter().any(|owner| owner.uid == uid)
    };
    let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);
    let sets = sets.list(&ListParams::default()).await.context("cannot list the ReplicaSets of the copy")?;
    let uid = deployment.uid().unwrap_or_default();
    let sets: Vec<String> =
        sets.iter().filter(|set| owned_by(set.owner_references(), &uid)).filter_map(ResourceExt::uid).collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default()).await.context("cannot list the pods of the copy")?;
    for pod in pods.iter().filter(|pod| sets.iter().any(|set| owned_by(pod.owner_references(), set))) {
        let Some(problem) = pod_problem(pod) else { continue };
        match warning(client, namespace, pod).await? {
            Some(warning) => return Ok(Some(format!("{problem}; {warning}"))),
            None if is_starting(pod) => {}
            None => return Ok(Some(problem)),
        }
    }
    Ok(None)
}

/// Returns true if the containers of a pod are being created: this is no problem as long as there is no warning.
fn is_starting(pod: &Pod) -> bool {
    let states = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut waiting = states.filter_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    waiting.all(|reason| matches!(reason, "ContainerCreating" | "PodInitializing"))
        && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

/// Returns the newest warning about a pod, such as that a Secret to mount does not exist.
async fn warning(client: &Client, namespace: &str, pod: &Pod) -> Result<Option<String>> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let events = events.list(&ListParams::default()).await.context("cannot list the events of the copy")?;
    let is_its = |event: &&Event| event.type_.as_deref() == Some("Warning") && event.involved_object.uid == pod.uid();
    let newest = events.items.iter().filter(is_its).max_by_key(|event| event.metadata.creation_timestamp.clone());
    Ok(newest.and_then(|event| event.message.clone()))
}
