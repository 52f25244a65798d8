//! The copy of a cluster on which an upgrade is rehearsed.

use super::catalogs::LoadedCatalogs;
use super::copy::CopiedObjects;
use crate::cluster::kinds::{Kind, Kinds};
use crate::cluster::wait::{POLL_INTERVAL, poll_until};
use crate::commands::olm::pods;
use crate::commands::olm::refusal::Refusal;
use crate::error::{Error, Result, ResultExt};
use crate::render::progress::Progress;
use flyball_cluster::{Cluster, Controllers, Nodes, Options};
use flyball_core::metadata::SERVER_MANAGED_FIELDS;
use flyball_lifecycle::api::labels::ROLLBACK;
use flyball_lifecycle::api::{
    ClusterServiceVersion, ClusterServiceVersionPhase as Phase, InstallPlan, InstallPlanPhase, Subscription, crds,
};
use flyball_lifecycle::diagnosis::Snapshot;
use flyball_lifecycle::source::Sources;
use flyball_lifecycle::{Settings, operator};
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Kinds that determine permissions and schemas or are confidential, with their groups.
const PROTECTED: [(&str, &str); 4] = [
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("", "Secret"),
];
/// Kinds that controllers write continuously, and that are irrelevant to an upgrade.
const IGNORED: [&str; 11] = [
    "Event",
    "Lease",
    "Pod",
    "ReplicaSet",
    "Node",
    "Endpoints",
    "EndpointSlice",
    "ControllerRevision",
    "CSINode",
    "InstallPlan",
    "Operator",
];
/// Metadata that belongs to the cluster, beside that of the API server.
const CLUSTER_FIELDS: [&str; 2] = ["ownerReferences", "deletionTimestamp"];
/// Timeout of a CRD to be served.
const SERVED_TIMEOUT: Duration = Duration::from_secs(10);

/// A control plane with copies of objects, and the lifecycle manager.
pub(super) struct Stage {
    pub(super) client: Client,
    namespace: String,
    /// Objects that could not be copied.
    pub(super) skipped: Vec<String>,
    manager: Settings,
}

/// The rehearsed change; the next upgrade if it has no fields.
pub(super) struct Change<'c> {
    pub(super) target: Option<&'c str>,
    pub(super) channel: Option<&'c str>,
}

/// The state of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Complete,
    /// Failed. The manager tries again, since the reason may only be temporary.
    Refused,
}

/// The end of an upgrade.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    /// The ClusterServiceVersion.
    pub(super) to: String,
    pub(super) succeeded: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
}

impl Stage {
    /// Starts a control plane, and creates the objects.
    pub(super) async fn start(
        copied: &CopiedObjects,
        snapshot: &Snapshot,
        sources: Sources,
        global: &str,
    ) -> Result<Self> {
        let cluster = Cluster::new(Options::system().context("cannot start a control plane")?);
        let client = cluster.admin();
        let mut settings = Settings::new(Arc::new(LoadedCatalogs::new(snapshot, sources)));
        global.clone_into(&mut settings.global_namespace);
        let namespace = snapshot.namespace.clone();
        let mut stage = Self { client: client.clone(), namespace, skipped: Vec::new(), manager: settings };
        Nodes::new("node", 1).add_to(&client).await.context("cannot add a node")?;
        // Ends with this process: a command rehearses one upgrade.
        tokio::spawn(async move { cluster.run(&Controllers::all()).await });
        stage.create_all(copied).await?;
        Ok(stage)
    }

    async fn create_all(&mut self, copied: &CopiedObjects) -> Result<()> {
        let mut definitions: Vec<Value> = Vec::new();
        for crd in crds() {
            let mut definition = serde_json::to_value(crd).context("a CRD is not JSON")?;
            definition["apiVersion"] = "apiextensions.k8s.io/v1".into();
            definition["kind"] = "CustomResourceDefinition".into();
            definitions.push(definition);
        }
        let is_definition = |object: &&Value| object["kind"] == "CustomResourceDefinition";
        definitions.extend(copied.0.iter().filter(is_definition).cloned());
        let kinds = Kinds::discover(&self.client).await?;
        for object in &definitions {
            self.create(&kinds, object).await?;
        }
        let kinds = self.served(&definitions).await?;
        let mut uids = BTreeMap::new();
        for object in copied.0.iter().filter(|object| !is_definition(object)) {
            if let Some(uid) = self.create(&kinds, object).await? {
                uids.insert(object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(), uid);
            }
        }
        for object in &copied.0 {
            self.own(&kinds, object, &uids).await?;
        }
        Ok(())
    }

    /// Waits until the kinds of definitions are served.
    async fn served(&self, definitions: &[Value]) -> Result<Kinds> {
        let found = poll_until(SERVED_TIMEOUT, POLL_INTERVAL, async || {
            let kinds = Kinds::discover(&self.client).await?;
            let is_served = |definition: &Value| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let spec = &definition["spec"];
                kinds.of(&format!("{}/v1", text(&spec["group"])), &text(&spec["names"]["kind"])).is_some()
            };
            Ok(if definitions.iter().all(is_served) { Ok(kinds) } else { Err(()) })
        });
        found.await?.map_err(|()| Error::new("the CRDs of the cluster are not served on the copy"))
    }

    /// Creates an object with its status, and returns its UID. An object that is rejected is skipped.
    async fn create(&mut self, kinds: &Kinds, object: &Value) -> Result<Option<String>> {
        let Some((kind, namespace, name)) = key(kinds, object) else { return Ok(None) };
        let mut body = object.clone();
        if let Some(metadata) = body["metadata"].as_object_mut() {
            let fields = SERVER_MANAGED_FIELDS.iter().chain(&CLUSTER_FIELDS);
            fields.for_each(|field| drop(metadata.remove(*field)));
        }
        let path = kind.path(namespace.as_deref(), None);
        let created = match self.send(Method::POST, &path, "application/json", &body).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let path = kind.path(namespace.as_deref(), Some(&name));
                self.send(Method::GET, &path, "application/json", &Value::Null)
                    .await
                    .context(format!("cannot read {path}"))?
            }
            Err(kube::Error::Api(status)) => {
                self.skipped.push(format!("{} {name}: {}", kind.kind, status.message));
                return Ok(None);
            }
            created => created.context(format!("cannot create {} {name}", kind.kind))?,
        };
        let status = match object["kind"].as_str() {
            // The rest is that of this control plane.
            Some("CustomResourceDefinition") => json!({"storedVersions": object["status"]["storedVersions"]}),
            _ => object["status"].clone(),
        };
        if status.as_object().is_some_and(|fields| !fields.is_empty() && !fields.values().all(Value::is_null)) {
            let path = format!("{}/status", kind.path(namespace.as_deref(), Some(&name)));
            // A kind without a status, or another owner of it, is no problem.
            let _ = self.send(Method::PATCH, &path, "application/merge-patch+json", &json!({"status": status})).await;
        }
        Ok(created["metadata"]["uid"].as_str().map(str::to_owned))
    }

    /// Sets the owners of an object, which have other UIDs on the copy.
    async fn own(&self, kinds: &Kinds, object: &Value, uids: &BTreeMap<String, String>) -> Result<()> {
        let owners = object["metadata"]["ownerReferences"].as_array();
        let Some((owners, (kind, namespace, name))) = owners.zip(key(kinds, object)) else { return Ok(()) };
        let renamed = |owner: &Value| {
            let mut owner = owner.clone();
            owner["uid"] = uids.get(owner["uid"].as_str()?)?.as_str().into();
            Some(owner)
        };
        let owners: Vec<Value> = owners.iter().filter_map(renamed).collect();
        let path = kind.path(namespace.as_deref(), Some(&name));
        let body = json!({"metadata": {"ownerReferences": owners}});
        match self.send(Method::PATCH, &path, "application/merge-patch+json", &body).await {
            // It was skipped.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            sent => sent.map(drop).context(format!("cannot change {} {name}", kind.kind)),
        }
    }

    /// Sends a request.
    pub(super) async fn send(&self, method: Method, path: &str, content: &str, body: &Value) -> kube::Result<Value> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, content);
        self.client.request(request.body(body).map_err(kube::Error::HttpError)?).await
    }

    /// Returns all objects by their keys, without those that are irrelevant to an upgrade.
    pub(super) async fn objects(&self) -> Result<BTreeMap<String, Value>> {
        let kinds = Kinds::discover(&self.client).await?;
        let mut found = BTreeMap::new();
        for kind in kinds.all().iter().filter(|kind| kind.can_list && !IGNORED.contains(&kind.kind.as_str())) {
            let version = kind.api_version();
            let group = version.split_once('/').map_or("", |(group, _)| group);
            for object in kind.list(&self.client, None, "").await? {
                let metadata = &object["metadata"];
                let namespace = metadata["namespace"].as_str().map(|name| format!("{name}/")).unwrap_or_default();
                let name = format!("{namespace}{}", metadata["name"].as_str().unwrap_or_default());
                let mut key = format!("{} {name}", kind.kind);
                if is_shadowing(group, &kind.kind) || found.contains_key(&key) {
                    key = format!("{}.{group} {name}", kind.kind);
                }
                found.insert(key, object);
            }
        }
        Ok(found)
    }

    /// Runs the manager until the Subscription has another version, or cannot get one.
    pub(super) async fn upgrade(
        &self,
        subscription: &Subscription,
        change: &Change<'_>,
        timeout: Duration,
    ) -> Result<Outcome> {
        let (client, operator) = (self.client.clone(), operator(&self.manager));
        let mut running = JoinSet::new();
        running.spawn(async move {
            if let Err(error) = operator.run(client, pending()).await {
                tracing::error!(%error, "the manager exited");
            }
        });
        let name = subscription.name_any();
        let subscriptions: Api<Subscription> = Api::namespaced(self.client.clone(), &self.namespace);
        // One upgrade: the plan of the next one waits.
        let mut body = json!({"spec": {"installPlanApproval": "Manual"}});
        if let Some(target) = change.target {
            body["metadata"] = json!({"annotations": {ROLLBACK: target}});
        }
        if let Some(channel) = change.channel {
            body["spec"]["channel"] = channel.into();
        }
        let patched = subscriptions.patch(&name, &PatchParams::default(), &Patch::Merge(&body)).await;
        patched.context(format!("cannot change Subscription {name} on the copy"))?;
        let before = subscription.status.installed_csv.clone();
        let mut progress = Progress::new("the upgrade is played");
        let mut to = change.target.unwrap_or_default().to_owned();
        // With another channel, a version that is planned already is not the one to rehearse.
        let planned = subscription.status.current_csv.clone();
        let is_stale = |csv: &str| csv == before || change.channel.is_some() && csv == planned;
        let mut refusal = Refusal::default();
        let ended = poll_until(timeout, POLL_INTERVAL, async || {
            let current = subscriptions.get(&name).await.context(format!("cannot read Subscription {name}"))?;
            if to.is_empty() && !is_stale(&current.status.current_csv) {
                to.clone_from(&current.status.current_csv);
            }
            let (outcome, state) = self.observe(&current, &before, &to).await?;
            progress.show(format!("{to}: {}", outcome.message));
            let is_final = match state {
                State::Complete => true,
                State::Refused => refusal.persists(&outcome.message, Instant::now()),
                State::Running => {
                    refusal.clear();
                    false
                }
            };
            Ok(if is_final { Ok(outcome) } else { Err(outcome) })
        });
        Ok(match ended.await? {
            Ok(outcome) => outcome,
            Err(outcome) => {
                let message = match outcome.to.is_empty() {
                    true => "there is no other version to install".to_owned(),
                    false => format!("not complete after {} s: {}", timeout.as_secs(), outcome.message),
                };
                Outcome { message, ..outcome }
            }
        })
    }

    /// Returns the result so far of the upgrade to a version, and its state.
    async fn observe(&self, subscription: &Subscription, before: &str, to: &str) -> Result<(Outcome, State)> {
        let failed = subscription.status.conditions.iter().find(|condition| {
            condition.status == "True" && matches!(&*condition.kind, "ResolutionFailed" | "BundleUnpackFailed")
        });
        if let Some(condition) = failed.filter(|_| to.is_empty()) {
            let message = with_reason(&condition.reason, &condition.message);
            return Ok((Outcome { message, ..Outcome::default() }, State::Refused));
        }
        if to.is_empty() {
            return Ok((Outcome::default(), State::Running));
        }
        let to = to.to_owned();
        if let Some(refusal) = self.approve(&to).await? {
            return Ok((Outcome { to, succeeded: false, message: refusal }, State::Refused));
        }
        let csvs: Api<ClusterServiceVersion> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(csv) = csvs.get_opt(&to).await.context(format!("cannot read ClusterServiceVersion {to}"))? else {
            return Ok((Outcome { to, ..Outcome::default() }, State::Running));
        };
        let message = match csv.status.phase {
            Phase::Succeeded => String::new(),
            phase => format!("{phase:?}, {}", with_reason(&csv.status.reason, &csv.status.message)),
        };
        if csv.status.phase != Phase::Succeeded
            && let Some((message, state)) = self.start_problem(&csv, before).await?
        {
            return Ok((Outcome { to, succeeded: false, message }, state));
        }
        let is_replaced =
            before.is_empty() || csvs.get_opt(before).await.context("cannot read the old version")?.is_none();
        let succeeded = csv.status.phase == Phase::Succeeded;
        let state = match csv.status.phase {
            Phase::Succeeded if is_replaced => State::Complete,
            Phase::Failed => State::Refused,
            _ => State::Running,
        };
        Ok((Outcome { to, succeeded, message }, state))
    }

    /// Returns the reason why a version does not start: the one that it replaces is not ready, or its own pods. Only
    /// a problem of pods can be final.
    async fn start_problem(&self, csv: &ClusterServiceVersion, before: &str) -> Result<Option<(String, State)>> {
        let csvs: Api<ClusterServiceVersion> = Api::namespaced(self.client.clone(), &self.namespace);
        let old = match before.is_empty() {
            true => None,
            false => csvs.get_opt(before).await.context("cannot read the old version")?,
        };
        let is_ready = |old: &ClusterServiceVersion| {
            matches!(old.status.phase, Phase::Succeeded | Phase::Replacing | Phase::Deleting)
        };
        if let Some(old) = old.filter(|old| !is_ready(old)) {
            let state = format!("{:?}, {}", old.status.phase, with_reason(&old.status.reason, &old.status.message));
            let (why, state) = match pods::problem(&self.client, &old).await? {
                Some(problem) => (problem.to_string(), State::Refused),
                None => (state, State::Running),
            };
            return Ok(Some((format!("it waits until {before} is ready: {why}"), state)));
        }
        let problem = match csv.status.phase {
            Phase::Installing | Phase::Failed => pods::problem(&self.client, csv).await?,
            _ => None,
        };
        Ok(problem.map(|problem| (problem.to_string(), State::Refused)))
    }

    /// Approves the InstallPlan of a version; returns the reason why it is refused, if it is.
    async fn approve(&self, csv: &str) -> Result<Option<String>> {
        let plans: Api<InstallPlan> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = plans.list(&ListParams::default()).await.context("cannot list the InstallPlans of the copy")?;
        let is_its = |plan: &&InstallPlan| plan.spec.cluster_service_version_names.iter().any(|name| name == csv);
        for plan in all.items.iter().filter(is_its).filter(|plan| plan.status.phase != InstallPlanPhase::Complete) {
            if plan.status.phase == InstallPlanPhase::RequiresApproval && !plan.spec.approved {
                let body = json!({"spec": {"approved": true}});
                let approved = plans.patch(&plan.name_any(), &PatchParams::default(), &Patch::Merge(&body)).await;
                approved.context("cannot approve the InstallPlan on the copy")?;
            }
            if plan.status.phase == InstallPlanPhase::Failed || !plan.status.message.is_empty() {
                return Ok(Some(plan.status.message.clone()));
            }
        }
        Ok(None)
    }
}

/// Returns true for a custom kind with the name of a protected one: its objects must not take the place of those.
fn is_shadowing(group: &str, kind: &str) -> bool {
    PROTECTED.iter().any(|(of, name)| *name == kind && *of != group)
}

/// Returns a message with its reason, if there is one.
fn with_reason(reason: &str, message: &str) -> String {
    [reason, message].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")
}

/// Returns the kind, the namespace and the name of an object, if the kind is served.
fn key<'k>(kinds: &'k Kinds, object: &Value) -> Option<(&'k Kind, Option<String>, String)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let kind = kinds.of(object["apiVersion"].as_str()?, object["kind"].as_str()?)?;
    Some((kind, text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_kinds_do_not_take_the_place_of_protected_ones() {
        let check = |group: &str, kind: &str, expected: bool| {
            assert_eq!(is_shadowing(group, kind), expected, "{kind}.{group}");
        };
        check("rbac.authorization.k8s.io", "ClusterRole", false);
        check("", "Secret", false);
        check("evil.example.com", "ClusterRole", true);
        check("evil.example.com", "Secret", true);
        check("demo.flyball.dev", "Memo", false);
    }

    #[test]
    fn a_missing_reason_leaves_no_colon() {
        assert_eq!(with_reason("", "no more"), "no more");
        assert_eq!(with_reason("Failed", "no more"), "Failed: no more");
        assert_eq!(with_reason("Failed", ""), "Failed");
    }
}
