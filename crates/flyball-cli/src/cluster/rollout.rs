//! Ordered application of objects to a cluster, and wait for readiness.

use crate::cluster::apply::{Outcome, reset_conversion};
use crate::cluster::connection::Connection;
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::error::{Error, Result, ResultExt};
use crate::render::output::Output;
use crate::render::progress::Progress;
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// Flags for applying objects.
#[derive(Args, Debug)]
pub(crate) struct RolloutArgs {
    /// Apply CRDs even if they break stored objects
    #[arg(long)]
    pub(crate) force: bool,
    /// Take over fields of other managers in case of conflicts
    #[arg(long)]
    force_conflicts: bool,
    /// Validate with the API server without storing anything
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Output>,
}

/// Result for one object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AppliedObject {
    pub(crate) object: String,
    pub(crate) outcome: Outcome,
}

/// Applies objects in order. The first failure ends it, because later objects may depend on earlier ones.
pub(crate) async fn apply_in_order(
    connection: &Connection,
    objects: &[Value],
    how: &RolloutArgs,
) -> Result<Vec<AppliedObject>> {
    let mut applied: Vec<AppliedObject> = Vec::new();
    // Namespaces that a dry run does not create, so that objects in them cannot be validated.
    let mut missing_namespaces: BTreeSet<&str> = BTreeSet::new();
    for object in objects {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let (object, outcome) = match how.dry_run && missing_namespaces.contains(namespace) {
            true => (connection.resolve(object).await?.1, Outcome::Created),
            false => {
                if !how.dry_run {
                    remove_webhook_url(connection, object).await?;
                }
                let outcome = connection.apply_with(object, how.force_conflicts, how.dry_run).await;
                let (description, outcome) = outcome.map_err(|error| add_hints(error, applied.len()))?;
                if how.dry_run && object["kind"] == "Namespace" && outcome == Outcome::Created {
                    missing_namespaces.extend(object["metadata"]["name"].as_str());
                }
                (description, outcome)
            }
        };
        if how.output.is_none() {
            let style = if outcome == Outcome::Unchanged { Style::Faint } else { Style::Good };
            let dry = if how.dry_run { " (dry run)" } else { "" };
            print_line(&format!("{object} {}{dry}", paint(style, outcome.as_str())));
        }
        applied.push(AppliedObject { object, outcome });
    }
    Ok(applied)
}

/// Removes the webhook URL of an operator that ran outside of the cluster: a configuration has either a URL or a
/// service.
async fn remove_webhook_url(connection: &Connection, object: &Value) -> Result<()> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let conversion = kind == "CustomResourceDefinition" && object["spec"]["conversion"].is_object();
    if !conversion && !kind.ends_with("WebhookConfiguration") {
        return Ok(());
    }
    // A missing object has no URL.
    let Some(found) = connection.find(object).await? else { return Ok(()) };
    if conversion && found["spec"]["conversion"]["webhook"]["clientConfig"]["url"].is_string() {
        let (definitions, description, _) = connection.resolve(object).await?;
        reset_conversion(&definitions, &found).await.context(format!("cannot change {description}"))?;
    }
    let webhooks = found["webhooks"].as_array();
    if webhooks.into_iter().flatten().any(|webhook| webhook["clientConfig"]["url"].is_string()) {
        connection.delete(object).await?;
    }
    Ok(())
}

/// Adds a hint to an error of the API server.
fn add_hints(error: Error, before: usize) -> Error {
    let error = match error.code() {
        Some(401 | 403) => {
            error.hint("the user of this kubeconfig lacks the permission: request it, or pass another --context")
        }
        Some(404) => error.hint("if the operator is limited to a namespace, create that namespace first"),
        Some(409) => error.hint("another manager owns these fields; pass --force-conflicts to take them over"),
        Some(413) => error.hint("the object is larger than the API server accepts"),
        _ => error,
    };
    match before {
        0 => error,
        1 => error.hint("1 object was applied before; run the command again after fixing this"),
        count => error.hint(format!("{count} objects were applied before; run the command again after fixing this")),
    }
}

/// Waits until all pods of a Deployment are updated and ready.
pub(crate) async fn until_ready(connection: &Connection, object: &Value, wait: Duration, quiet: bool) -> Result<()> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let deployments: Api<Deployment> = Api::namespaced(connection.client.clone(), namespace);
    let described = format!("Deployment {namespace}/{name}");
    let mut progress = Progress::new(&format!("{described}: waiting for its pods"));
    let ready = poll_until(wait, POLL_INTERVAL, async || {
        let deployment = deployments.get(name).await.context(format!("cannot read {described}"))?;
        let state = State::of(&deployment);
        let summary = state.summary();
        progress.show(format!("{described}: {summary}"));
        Ok(match (state.is_ready(), state.failed) {
            (true, _) => Ok(Ok(summary)),
            (false, Some(why)) => Ok(Err((why, deployment))),
            (false, None) => Err((format!("it is not ready after {} s", wait.as_secs()), deployment)),
        })
    });
    let ready = ready.await?.flatten();
    drop(progress);
    let (why, deployment) = match ready {
        Ok(_) if quiet => return Ok(()),
        Ok(summary) => {
            print_line(&format!("{described} {}", paint(Style::Good, &summary)));
            return Ok(());
        }
        Err(problem) => problem,
    };
    let problems = pod_problems(connection, &deployment, namespace).await;
    Err(Error::new(format!("{described}: {why}{problems}")).hint(format!(
        "see its logs: flyball logs deployment/{name} -n {namespace}; for a cluster without nodes: flyball cluster node add"
    )))
}

/// Progress of a Deployment.
struct State {
    desired: i32,
    updated: i32,
    available: i32,
    all: i32,
    seen: bool,
    failed: Option<String>,
}

impl State {
    fn of(deployment: &Deployment) -> Self {
        let status = deployment.status.clone().unwrap_or_default();
        let failed = |condition: &DeploymentCondition| {
            (condition.type_ == "Progressing" && condition.status == "False")
                || (condition.type_ == "ReplicaFailure" && condition.status == "True")
        };
        let conditions = status.conditions.unwrap_or_default();
        let failed = conditions.into_iter().find(failed);
        Self {
            desired: deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
            updated: status.updated_replicas.unwrap_or(0),
            available: status.available_replicas.unwrap_or(0),
            all: status.replicas.unwrap_or(0),
            seen: status.observed_generation >= deployment.metadata.generation,
            failed: failed.map(|failed| failed.message.or(failed.reason).unwrap_or_default()),
        }
    }

    fn is_ready(&self) -> bool {
        let Self { desired, updated, available, all, .. } = self;
        self.seen && updated >= desired && all == updated && available >= updated
    }

    fn summary(&self) -> String {
        let Self { desired, available, .. } = self;
        if self.is_ready() { format!("ready {available}/{desired}") } else { format!("{available} of {desired} ready") }
    }
}

/// Describes the reasons why pods of a Deployment are not ready.
pub(crate) async fn pod_problems(connection: &Connection, deployment: &Deployment, namespace: &str) -> String {
    let labels = deployment.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone()).unwrap_or_default();
    let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let pods: Api<Pod> = Api::namespaced(connection.client.clone(), namespace);
    let Ok(list) = pods.list(&ListParams::default().labels(&selector.join(","))).await else { return String::new() };
    let mut problems: Vec<String> = list.items.iter().filter_map(pod_problem).collect();
    problems.dedup();
    problems.iter().map(|problem| format!("; {problem}")).collect()
}

pub(crate) fn pod_problem(pod: &Pod) -> Option<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = pod.status.as_ref()?;
    let unscheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let waiting = status.container_statuses.iter().flatten().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let message = waiting.message.as_deref().map(|message| format!(" ({message})")).unwrap_or_default();
        Some(format!("pod {name} is waiting: {}{message}", waiting.reason.as_deref()?))
    });
    let unplaced = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
    match unscheduled {
        Some(condition) => {
            Some(format!("pod {name} is not scheduled: {}", condition.message.as_deref().unwrap_or("no node fits")))
        }
        None if unplaced => Some(format!("pod {name} is waiting for a node")),
        None => waiting,
    }
}
