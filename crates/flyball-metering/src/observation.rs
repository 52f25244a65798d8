//! The state of objects that is metered, in plain types.
//!
//! Times come from the objects themselves where they have them, so that state is exact to the second even if it is
//! observed late. Clocks of several machines write them: a time lies between the creation of its object and its
//! observation, other times are replaced by the nearer of the two.

use crate::meter::{Meter, bounded};
use flyball_core::Quantity;
use k8s_openapi::api::core::v1::{Container, Node, PersistentVolumeClaim, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use std::collections::BTreeMap;

/// Longest name, label and detail that is stored.
const MAX_TEXT_CHARS: usize = 253;

/// A reference to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReference {
    /// API group.
    pub group: String,
    /// API version with its group.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// True for the controller of the object.
    pub is_controller: bool,
}

/// A pod, claim or node, as it was observed.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// UID.
    pub uid: String,
    /// Namespace; empty for nodes.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Node of a pod.
    pub node: String,
    /// Storage class and volume of a claim, as JSON.
    pub detail: String,
    /// Operator that manages it, from its label `app.kubernetes.io/managed-by`.
    pub operator: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Owners.
    pub owners: Vec<OwnerReference>,
    /// Claims that a pod mounts.
    pub claims: Vec<String>,
    /// Begin in seconds; none if nothing counts yet.
    pub since: Option<i64>,
    /// End in seconds, of a pod that has ended.
    pub until: Option<i64>,
    /// Values by meter.
    pub values: BTreeMap<Meter, i64>,
}

impl Observation {
    fn of(metadata: &ObjectMeta) -> Self {
        let text = |text: &Option<String>| short(text.as_deref().unwrap_or_default());
        let labels = metadata.labels.clone().unwrap_or_default();
        let owners = metadata.owner_references.iter().flatten().take(16).map(|owner| OwnerReference {
            group: short(owner.api_version.split_once('/').map_or("", |(group, _)| group)),
            api_version: short(&owner.api_version),
            kind: short(&owner.kind),
            name: short(&owner.name),
            uid: short(&owner.uid),
            is_controller: owner.controller == Some(true),
        });
        Self {
            uid: text(&metadata.uid),
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            node: String::new(),
            detail: String::new(),
            operator: short(labels.get("app.kubernetes.io/managed-by").map_or("", String::as_str)),
            owners: owners.collect(),
            labels,
            claims: Vec::new(),
            since: None,
            until: None,
            values: BTreeMap::new(),
        }
    }

    /// Observes a pod. It counts from the time at which it is bound to a node until all of its containers have ended.
    pub fn of_pod(pod: &Pod, now: i64) -> Self {
        let mut observed = Self::of(&pod.metadata);
        let (spec, status) = (pod.spec.clone().unwrap_or_default(), pod.status.clone().unwrap_or_default());
        let created = created(&pod.metadata, now);
        observed.node = short(spec.node_name.as_deref().unwrap_or_default());
        let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        observed.claims = volumes.take(64).map(|claim| short(&claim.claim_name)).collect();
        if !observed.node.is_empty() {
            let conditions = status.conditions.iter().flatten();
            let mut bound =
                conditions.filter(|condition| condition.type_ == "PodScheduled" && condition.status == "True");
            let bound = bound.next().and_then(|condition| seconds(condition.last_transition_time.as_ref()));
            observed.since = Some(bound.unwrap_or(created).clamp(created, now.max(created)));
        }
        if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            let containers =
                status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
            let ended =
                containers.filter_map(|status| status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
            let ended = ended.filter_map(|time| seconds(Some(time))).max();
            let since = observed.since.unwrap_or(created);
            observed.until = Some(ended.unwrap_or(now).clamp(since, now.max(since)));
        }
        let requests =
            |resource: &'static str| pod_amount(&spec, |requirements| requirements.requests.as_ref()?.get(resource));
        let limits =
            |resource: &'static str| pod_amount(&spec, |requirements| requirements.limits.as_ref()?.get(resource));
        observed.values = BTreeMap::from([
            (Meter::PodPresence, 1),
            (Meter::PodCpuRequest, micro(requests("cpu"))),
            (Meter::PodCpuLimit, micro(limits("cpu"))),
            (Meter::PodMemoryRequest, whole_number(requests("memory"))),
            (Meter::PodMemoryLimit, whole_number(limits("memory"))),
        ]);
        observed
    }

    /// Observes a claim. It counts from its creation.
    pub fn of_claim(claim: &PersistentVolumeClaim, now: i64) -> Self {
        let mut observed = Self::of(&claim.metadata);
        let (spec, status) = (claim.spec.clone().unwrap_or_default(), claim.status.clone().unwrap_or_default());
        observed.since = Some(created(&claim.metadata, now).min(now));
        let request = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage"));
        let capacity = status.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
        let phase = status.phase.as_deref().unwrap_or("Pending");
        let is = |name: &str| i64::from(phase == name);
        observed.values = BTreeMap::from([
            (Meter::ClaimRequest, whole_number(request.map(parse))),
            (Meter::ClaimCapacity, whole_number(capacity.map(parse))),
            (Meter::ClaimPending, is("Pending")),
            (Meter::ClaimBound, is("Bound")),
            (Meter::ClaimLost, is("Lost")),
        ]);
        let detail = [("storageclass", spec.storage_class_name), ("volume", spec.volume_name)];
        let detail = detail.into_iter().filter_map(|(name, value)| Some((name, short(&value?))));
        observed.detail = serde_json::json!(detail.collect::<BTreeMap<_, _>>()).to_string();
        observed
    }

    /// Observes a node. It counts from its creation.
    pub fn of_node(node: &Node, now: i64) -> Self {
        let mut observed = Self::of(&node.metadata);
        let status = node.status.clone().unwrap_or_default();
        observed.since = Some(created(&node.metadata, now).min(now));
        let amount =
            |amounts: &Option<BTreeMap<String, QuantityText>>, name: &str| amounts.as_ref()?.get(name).map(parse);
        observed.values = BTreeMap::from([
            (Meter::NodeCpuCapacity, micro(amount(&status.capacity, "cpu"))),
            (Meter::NodeCpuAllocatable, micro(amount(&status.allocatable, "cpu"))),
            (Meter::NodeMemoryCapacity, whole_number(amount(&status.capacity, "memory"))),
            (Meter::NodeMemoryAllocatable, whole_number(amount(&status.allocatable, "memory"))),
        ]);
        observed
    }

    /// Returns the controller, or the first owner if there is none.
    pub fn owner(&self) -> Option<&OwnerReference> {
        self.owners.iter().find(|owner| owner.is_controller).or_else(|| self.owners.first())
    }
}

/// Shortens a text of others to the length of a name.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}

fn seconds(time: Option<&Time>) -> Option<i64> {
    time.map(|time| time.0.as_second())
}

fn created(metadata: &ObjectMeta, now: i64) -> i64 {
    seconds(metadata.creation_timestamp.as_ref()).unwrap_or(now).clamp(0, now.max(0))
}

/// Parses an amount; invalid text counts as 0, since the API server rejects it.
fn parse(text: &QuantityText) -> Quantity {
    text.0.parse().unwrap_or(Quantity::ZERO)
}

/// Returns millionths of CPU cores. Requests have whole thousandths.
fn micro(amount: Option<Quantity>) -> i64 {
    amount.map_or(0, |amount| bounded(i128::from(amount.milli_value()) * 1000))
}

fn whole_number(amount: Option<Quantity>) -> i64 {
    amount.map_or(0, |amount| bounded(amount.value().into()))
}

/// Returns the amount of a pod as the scheduler reserves it: the sum of containers and sidecars, or the largest init
/// container with the sidecars before it, and the overhead. Resources of the pod itself take precedence. See
/// <https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers>.
fn pod_amount<'s>(
    spec: &'s k8s_openapi::api::core::v1::PodSpec,
    read: impl Fn(&'s ResourceRequirements) -> Option<&'s QuantityText> + Copy,
) -> Option<Quantity> {
    if let Some(amount) = spec.resources.as_ref().and_then(read) {
        return Some(parse(amount));
    }
    let of = |container: &'s Container| container.resources.as_ref().and_then(read).map_or(Quantity::ZERO, parse);
    let mut sum = spec.containers.iter().map(of).fold(Quantity::ZERO, |sum, amount| sum.plus(&amount));
    let (mut sidecars, mut largest) = (Quantity::ZERO, Quantity::ZERO);
    for container in spec.init_containers.iter().flatten() {
        let amount = of(container);
        let needed = sidecars.plus(&amount);
        largest = largest.max(needed);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = needed;
        }
    }
    sum = sum.plus(&sidecars).max(largest);
    Some(sum)
}
