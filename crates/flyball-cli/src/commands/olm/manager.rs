//! The installation of the manager: its objects, and its process or Deployment.

use super::local::{self, LocalFlags, LocalManager};
use crate::cluster::connection::{Connection, ConnectionArgs, ContextArgs};
use crate::cluster::rollout::pod_problems;
use crate::commands::cluster::{LocalCluster, find_by_url};
use crate::error::{Result, ResultExt};
use crate::operator::installation::{Installation, TargetArgs};
use crate::operator::program::{Program, SourceArgs};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;

/// Kinds that only a manager in a pod needs.
const POD_KINDS: [&str; 3] = ["Deployment", "Service", "NetworkPolicy"];

/// Port of PackageManifests in the pod of the manager.
const PACKAGE_PORT: u16 = 6443;

/// A connection to a cluster, and the cluster itself if it runs on this machine.
pub(in crate::commands) struct ManagedCluster {
    pub(in crate::commands) connection: Connection,
    pub(super) local: Option<LocalCluster>,
}

impl ManagedCluster {
    pub(super) async fn connect(args: &ContextArgs) -> Result<Self> {
        let config = args.config().await?;
        let local = find_by_url(&config.cluster_url.to_string())?;
        let connection = args.connect().await?;
        Ok(Self { connection, local })
    }

    /// Connects with a default namespace.
    pub(in crate::commands) async fn connect_in(args: &ConnectionArgs) -> Result<Self> {
        let local = find_by_url(&args.config().await?.cluster_url.to_string())?;
        Ok(Self { connection: args.connect().await?, local })
    }

    /// Returns the process of the manager, if it runs beside the cluster.
    pub(super) fn process(&self) -> Result<Option<LocalManager>> {
        self.local.as_ref().map(|cluster| LocalManager::of(&cluster.name)).transpose()
    }
}

/// Returns the objects of a manager in a namespace.
pub(super) async fn installation(namespace: &str, image: Option<&str>) -> Result<Installation> {
    let mut args = vec![format!("--global-namespace={namespace}")];
    args.push(match image {
        Some(_) => format!("--package-port={PACKAGE_PORT}"),
        None => "--local-packages".to_owned(),
    });
    let target = TargetArgs { source: SourceArgs::of(Program::Lifecycle), name_prefix: None, args };
    Installation::load(&target, Some(namespace), image).await
}

/// Makes the container of the Deployment run the manager, since the image is that of flyball, and opens the port of
/// PackageManifests: only the API server has a certificate that is accepted there.
pub(super) fn set_command(objects: &mut [Value]) {
    let mut add = |kind: &str, list: &str, at: usize, values: Vec<Value>| {
        for object in objects.iter_mut().filter(|object| object["kind"] == kind) {
            if let Some(list) = object.pointer_mut(list).and_then(Value::as_array_mut) {
                let at = at.min(list.len());
                list.splice(at..at, values.clone());
            }
        }
    };
    let container = "/spec/template/spec/containers/0";
    add("Deployment", &format!("{container}/args"), 0, ["olm", "run"].map(Value::from).into());
    let port = json!({"name": "packages", "containerPort": PACKAGE_PORT, "protocol": "TCP"});
    add("Deployment", &format!("{container}/ports"), usize::MAX, vec![port]);
    let ingress = json!({"ports": [{"port": PACKAGE_PORT, "protocol": "TCP"}]});
    add("NetworkPolicy", "/spec/ingress", usize::MAX, vec![ingress]);
}

/// Returns the objects of an installation without those of the pod.
pub(super) fn without_pod(objects: Vec<Value>) -> Vec<Value> {
    let is_of_pod = |object: &Value| object["kind"].as_str().is_some_and(|kind| POD_KINDS.contains(&kind));
    objects.into_iter().filter(|object| !is_of_pod(object)).collect()
}

/// Returns the flags of a process.
pub(super) fn local_flags(installation: &Installation) -> LocalFlags {
    let namespace = installation.target.namespace.clone();
    let manager = vec![format!("--global-namespace={namespace}"), "--local-packages".to_owned()];
    LocalFlags { account: installation.target.account(), namespace, manager }
}

/// The kind of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::commands) enum ManagerKind {
    /// A process on this machine.
    Process,
    /// A Deployment of Flyball.
    Deployment,
    /// The original OLM.
    Olm,
    /// There is none, except perhaps a process in the foreground.
    None,
    /// The user may not read it.
    Unknown,
}

impl fmt::Display for ManagerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "process",
            Self::Deployment => "deployment",
            Self::Olm => "olm",
            Self::None => "none",
            Self::Unknown => "unknown",
        })
    }
}

/// The state of the manager.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) struct ManagerState {
    pub(in crate::commands) kind: ManagerKind,
    /// The process ID, or the name of the Deployment.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    pub(in crate::commands) ready: bool,
    /// The reason why it is not ready.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(in crate::commands) problem: String,
}

impl ManagerState {
    /// Creates the state of a manager that the user may not read.
    pub(super) fn unknown() -> Self {
        Self { kind: ManagerKind::Unknown, name: String::new(), ready: false, problem: String::new() }
    }

    pub(in crate::commands) fn is_unknown(&self) -> bool {
        self.kind == ManagerKind::Unknown
    }
}

/// Returns the state of the manager in a namespace.
pub(super) async fn state(place: &ManagedCluster, namespace: &str) -> Result<ManagerState> {
    if let Some(record) = place.process()?.map(|process| process.find()).transpose()?.flatten() {
        let ready = local::is_ready(&record).await;
        let problem = if ready { String::new() } else { format!("it is not ready: see {}", record.log.display()) };
        return Ok(ManagerState { kind: ManagerKind::Process, name: record.pid.to_string(), ready, problem });
    }
    let name = format!("{}-controller-manager", flyball_lifecycle::NAME);
    let deployments: Api<Deployment> = Api::namespaced(place.connection.client.clone(), namespace);
    let found = deployments.get_opt(&name).await.context(format!("cannot read Deployment {namespace}/{name}"))?;
    let Some(found) = found else {
        let problem = "no lifecycle manager runs".to_owned();
        return Ok(ManagerState { kind: ManagerKind::None, name: String::new(), ready: false, problem });
    };
    Ok(of_deployment(place, ManagerKind::Deployment, &found).await)
}

/// Returns the state of a manager in pods of a Deployment.
pub(super) async fn of_deployment(place: &ManagedCluster, kind: ManagerKind, deployment: &Deployment) -> ManagerState {
    let namespace = deployment.namespace().unwrap_or_default();
    let ready = is_available(deployment);
    let problem = match ready {
        true => String::new(),
        false if is_stopped(deployment) => "it is scaled to 0 replicas".to_owned(),
        false => format!("its pods are not ready{}", pod_problems(&place.connection, deployment, &namespace).await),
    };
    ManagerState { kind, name: format!("{namespace}/{}", deployment.name_any()), ready, problem }
}

pub(super) fn is_available(deployment: &Deployment) -> bool {
    deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default() > 0
}

/// Returns true if a Deployment has no pods on purpose.
pub(super) fn is_stopped(deployment: &Deployment) -> bool {
    deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_printed_and_serialized_alike() {
        for kind in [ManagerKind::Process, ManagerKind::Deployment, ManagerKind::Olm, ManagerKind::None] {
            assert_eq!(json!(kind), kind.to_string());
        }
    }
}
