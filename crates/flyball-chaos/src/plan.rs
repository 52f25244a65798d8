//! The changes of an experiment, from the objects of the operator.
//!
//! A plan reads the cluster and changes nothing, so a dry run is a plan that is printed.

mod admission;
mod workload;

use crate::api::{Cluster, Reference};
use crate::change::{Change, FINALIZER};
use crate::edit::Edit;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Fault, ObjectName};
use crate::guard;
use crate::network::NetworkFault;
use crate::operator::{Operator, is_account};
use flyball_core::names::is_subdomain;
use flyball_core::pointer::escape;
use serde_json::{Value, json};
use std::fmt;

/// Kinds whose deletion destroys data, or concerns the whole cluster.
const UNDELETABLE: &[&str] =
    &["PersistentVolumeClaim", "Namespace", "Node", "PersistentVolume", "CustomResourceDefinition"];

/// An experiment and the changes that it makes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The experiment.
    pub experiment: Experiment,
    /// The changes in order.
    pub changes: Vec<Change>,
    /// Changes while the fault is in place.
    pub later: Vec<Change>,
    /// Fault of an operator that runs as a process.
    pub process: Option<ProcessFault>,
}

/// A fault of an operator that runs as a process. It ends with this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessFault {
    /// Kills it.
    Kill,
    /// Disturbs its requests.
    Network(NetworkFault),
}

impl ProcessFault {
    fn of(fault: &Fault) -> Option<Self> {
        Some(match fault {
            Fault::PodKill { .. } => Self::Kill,
            Fault::NetworkPartition {} => Self::Network(NetworkFault::Partition),
            Fault::ApiLatency { delay } => Self::Network(NetworkFault::Latency(*delay)),
            Fault::ApiErrors { code, every } => Self::Network(NetworkFault::Errors { code: *code, every: *every }),
            Fault::LostResponses { every } => Self::Network(NetworkFault::LostResponses { every: *every }),
            Fault::WatchCut { interval } => Self::Network(NetworkFault::WatchCut(*interval)),
            _ => return None,
        })
    }
}

impl fmt::Display for ProcessFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill => f.write_str("kill the process"),
            Self::Network(fault) => write!(f, "network of the process: {fault:?}"),
        }
    }
}

/// Plans an experiment of a run.
///
/// # Errors
///
/// If it does not apply to the operator, or a safety rule forbids it.
pub async fn plan(cluster: &Cluster, operator: &Operator, experiment: &Experiment, run: &str) -> Result<Plan> {
    let planner = Planner { cluster, operator, run, name: &experiment.name };
    let fault = &experiment.spec.fault;
    if operator.is_process()
        && let Some(process) = ProcessFault::of(fault)
    {
        let (changes, later) = (Vec::new(), Vec::new());
        return Ok(Plan { experiment: experiment.clone(), changes, later, process: Some(process) });
    }
    planner.check_kind(fault)?;
    let (changes, later) = match fault {
        Fault::Upgrade { template, interrupted } => planner.upgrade(template, *interrupted).await?,
        fault => (planner.changes(fault).await?, Vec::new()),
    };
    for change in changes.iter().chain(&later) {
        if let Change::Edit { object, .. } = change
            && let Some(live) = cluster.get(object).await?
        {
            guard::check_free(&live)?;
        }
    }
    guard::check_plan(operator, &changes, fault.risk())?;
    guard::check_plan(operator, &later, fault.risk())?;
    Ok(Plan { experiment: experiment.clone(), changes, later, process: None })
}

/// Part of an experiment that creates objects: their labels name the run.
struct Planner<'a> {
    cluster: &'a Cluster,
    operator: &'a Operator,
    run: &'a str,
    name: &'a str,
}

impl Planner<'_> {
    async fn changes(&self, fault: &Fault) -> Result<Vec<Change>> {
        match fault {
            Fault::PodKill { all } => self.kill(*all).await,
            Fault::FieldDrift { object, path, value } => self.drift(object, path, value.clone()).await,
            Fault::ConfigDrift { name, namespace, key, value } => {
                let object = ObjectName {
                    group: Some(String::new()),
                    kind: "ConfigMap".to_owned(),
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                self.drift(&object, &format!("/data/{}", escape(key)), Some(json!(value))).await
            }
            Fault::LabelStomping { object, label, value } => {
                let path = format!("/metadata/labels/{}", escape(label));
                let object = self.operator.object(self.cluster, object).await?;
                one_edit(&object, &path, value.as_deref().map(Into::into))
            }
            Fault::OwnerRefOrphan { object } => {
                let object = self.operator.object(self.cluster, object).await?;
                let edit = Edit::remove_items(&object, "/metadata/ownerReferences", |_| true);
                let edit = edit.ok_or_else(|| not_applicable(format!("{} has no owner", Reference::of(&object))))?;
                Ok(vec![Change::edit(&object, vec![edit])])
            }
            Fault::FinalizerBlock { object } => {
                let object = self.deletable(object).await?;
                let edit = Edit::append_item("/metadata/finalizers", json!(FINALIZER));
                Ok(vec![Change::edit(&object, vec![edit]), Change::delete(&object)])
            }
            Fault::ResourceDeletion { object } => Ok(vec![Change::delete(&self.deletable(object).await?)]),
            Fault::SecretDeletion { name, namespace } => self.delete_secret(name, namespace.as_deref()).await,
            Fault::LeaderElectionDisrupt { steal } => self.disrupt_lease(*steal).await,
            Fault::RBACRevoke { binding } => self.revoke(binding.as_deref()).await,
            Fault::NetworkPartition {} => Ok(vec![self.partition()]),
            Fault::QuotaExhaustion {} => self.exhaust_quota().await,
            Fault::PDBBlock {} => Ok(vec![self.block_evictions()]),
            Fault::WriteRejection { operations } => self.reject_writes(operations),
            Fault::WebhookLatency { delay, url } => self.delay_writes(*delay, url),
            Fault::WebhookDisrupt { action, name } => self.disrupt_webhooks(*action, name.as_deref()).await,
            Fault::DeploymentScaleZero {} => one_edit(&self.operator.deployment, "/spec/replicas", Some(json!(0))),
            Fault::ImageCorrupt { container } => {
                self.edit_container(container.as_deref(), "image", json!("registry.invalid/flyball-chaos:none"))
            }
            Fault::CrashLoopInject { container } => {
                self.edit_container(container.as_deref(), "command", json!(["/flyball-chaos-no-such-program"]))
            }
            Fault::Upgrade { .. }
            | Fault::ApiLatency { .. }
            | Fault::ApiErrors { .. }
            | Fault::LostResponses { .. }
            | Fault::WatchCut { .. } => Ok(Vec::new()),
        }
    }

    /// Fails if a fault is one of Deployments, and the operator is a process, or the other way around.
    fn check_kind(&self, fault: &Fault) -> Result<()> {
        let concerns_objects = matches!(
            fault,
            Fault::FieldDrift { .. }
                | Fault::ConfigDrift { .. }
                | Fault::LabelStomping { .. }
                | Fault::OwnerRefOrphan { .. }
                | Fault::FinalizerBlock { .. }
                | Fault::ResourceDeletion { .. }
                | Fault::SecretDeletion { .. }
        );
        let concerns_proxy =
            !matches!(fault, Fault::PodKill { .. } | Fault::NetworkPartition {}) && ProcessFault::of(fault).is_some();
        let name = fault.name();
        match self.operator.is_process() {
            true if !concerns_objects => Err(not_applicable(format!("{name} needs an operator with a Deployment"))),
            false if concerns_proxy => Err(not_applicable(format!(
                "{name} needs an operator that runs as a process, whose requests pass a proxy: --exec"
            ))),
            _ => Ok(()),
        }
    }

    async fn drift(&self, object: &ObjectName, path: &str, value: Option<Value>) -> Result<Vec<Change>> {
        let object = self.operator.object(self.cluster, object).await?;
        if Reference::of(&object).is_secret() {
            let problem = "contents of Secrets are not read; use SecretDeletion or LabelStomping";
            return Err(Error::refused(format!("{}: {problem}", Reference::of(&object))));
        }
        one_edit(&object, path, value)
    }

    async fn deletable(&self, object: &ObjectName) -> Result<Value> {
        let found = self.operator.object(self.cluster, object).await?;
        let reference = Reference::of(&found);
        if UNDELETABLE.contains(&reference.kind.as_str()) || reference.namespace.is_none() {
            return Err(Error::refused(format!("the deletion of {reference} would destroy data")));
        }
        if reference.is_secret() {
            return Err(Error::refused(format!("{reference}: use SecretDeletion, which copies it to the state file")));
        }
        let is_resource = self.operator.resources.iter().any(|one| Reference::of(one) == reference);
        if is_resource {
            return Err(Error::refused(format!(
                "{reference} is a custom resource: its deletion would delete its data"
            )));
        }
        if !found["metadata"]["deletionTimestamp"].is_null() {
            return Err(not_applicable(format!("{reference} is being deleted already")));
        }
        Ok(found)
    }

    async fn delete_secret(&self, name: &str, namespace: Option<&str>) -> Result<Vec<Change>> {
        let object = ObjectName {
            group: Some(String::new()),
            kind: "Secret".to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        let found = self.operator.object(self.cluster, &object).await?;
        let reference = Reference::of(&found);
        let complete = self.cluster.read_all_fields(&reference).await?;
        let complete = complete.ok_or_else(|| not_applicable(format!("{reference} does not exist")))?;
        if complete["type"] == "kubernetes.io/service-account-token" {
            return Err(Error::refused(format!("{reference} is the token of a service account")));
        }
        Ok(vec![Change::delete(&complete)])
    }

    /// Reads objects again, since they may have changed since the operator was found.
    async fn live(&self, objects: &[Value]) -> Result<Vec<Value>> {
        let mut live = Vec::new();
        for object in objects {
            live.extend(self.cluster.get(&Reference::of(object)).await?);
        }
        Ok(live)
    }

    async fn disrupt_lease(&self, steal: bool) -> Result<Vec<Change>> {
        if self.operator.leases.is_empty() {
            return Err(not_applicable("no pod of the operator holds a lease".to_owned()));
        }
        let change = |lease: &Value| match steal {
            true => one_edit(lease, "/spec/holderIdentity", Some(json!("flyball-chaos"))),
            false => Ok(vec![Change::delete(lease)]),
        };
        let leases = self.live(&self.operator.leases).await?;
        Ok(leases.iter().map(change).collect::<Result<Vec<_>>>()?.concat())
    }

    async fn revoke(&self, name: Option<&str>) -> Result<Vec<Change>> {
        let Operator { namespace, account, bindings, .. } = self.operator;
        self.check_account()?;
        let fits = |binding: &&Value| name.is_none_or(|name| binding["metadata"]["name"] == name);
        let change = |binding: &Value| {
            let edit = Edit::remove_items(binding, "/subjects", |subject| is_account(subject, namespace, account))?;
            Some(Change::edit(binding, vec![edit]))
        };
        let bindings = self.live(bindings).await?;
        let changes: Vec<Change> = bindings.iter().filter(fits).filter_map(change).collect();
        match changes.is_empty() {
            true => Err(not_applicable("no binding names the service account of the operator".to_owned())),
            false => Ok(changes),
        }
    }

    /// Fails if other workloads use the service account.
    fn check_account(&self) -> Result<()> {
        let Operator { namespace, account, .. } = self.operator;
        // Both become part of an expression.
        if !is_subdomain(namespace) || !is_subdomain(account) {
            return Err(Error::refused("the name of the service account is not valid"));
        }
        match self.operator.account_users.first() {
            Some(other) => Err(Error::refused(format!(
                "{other} uses the service account {} as well",
                crate::text::clean(&self.operator.account)
            ))),
            None => Ok(()),
        }
    }

    /// Returns the metadata of a created object.
    fn metadata(&self, namespace: Option<&str>, suffix: &str) -> Value {
        let mut metadata = json!({
            "name": format!("flyball-chaos-{}-{suffix}", self.run),
            "labels": {(crate::change::RUN_LABEL): self.run, "app.kubernetes.io/managed-by": "flyball-chaos"},
            "annotations": {(crate::change::EXPERIMENT_ANNOTATION): format!("{}/{}", self.run, self.name)},
        });
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        metadata
    }
}

fn not_applicable(problem: String) -> Error {
    Error::NotApplicable(problem)
}

fn one_edit(object: &Value, path: &str, after: Option<Value>) -> Result<Vec<Change>> {
    let edit = Edit::set(object, path, after);
    let edit = edit.map_err(|error| not_applicable(format!("{}: {error}", Reference::of(object))))?;
    Ok(vec![Change::edit(object, vec![edit])])
}
