//! Publishes the addresses of the pods behind services, as endpoint slices and endpoints.
//!
//! See <https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/>.

mod legacy;
mod mirror;
mod slices;

pub(super) use legacy::{controller as legacy, leftovers};
pub(super) use mirror::controller as mirror;
pub(super) use slices::controller as slices;

use crate::workload::owners::Selector;
use crate::workload::pods::{OnNode, is_over, ready_since};
use crate::workload::selection::{Selects, selecting};
use flyball::{Caches, Context, ObjectKey, Resource, Result};
use flyball_core::time::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, Node, ObjectReference, Pod, PodSpec, PodStatus, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

const HEADLESS: &str = "service.kubernetes.io/headless";
const TRIGGERED: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Maximum size of the labels that are copied to each slice, and of the annotations. The number of labels of an object
/// is not limited, and it may have many slices.
const MAX_COPIED_BYTES: usize = 16 * 1024;

/// Copies labels or annotations in the order of their names, as far as there is room.
fn copied(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut room = MAX_COPIED_BYTES;
    let has_room = |(name, value): &(&String, &String)| match room.checked_sub(name.len() + value.len()) {
        Some(rest) => {
            room = rest;
            true
        }
        None => false,
    };
    all.iter().take_while(has_room).map(|(name, value)| (name.clone(), value.clone())).collect()
}

impl Selects for Service {
    fn selector(&self) -> Option<Selector> {
        let spec = self.spec.as_ref().filter(|spec| spec.type_.as_deref() != Some("ExternalName"))?;
        Selector::equal(spec.selector.as_ref()?).filter(|selector| !selector.is_empty())
    }
}

/// Finds the services that have pods on a node, for controllers with the indexes [`OnNode`] and [`BySelector`].
fn services_on(node: &Node, caches: &Caches) -> Result<Vec<ObjectKey>> {
    let mut found = Vec::new();
    let name = node.name_any();
    for (_, key) in caches.range_by::<OnNode>(&name..=&name)? {
        if let Some(pod) = caches.get::<Pod>(&key)? {
            found.extend(selecting::<Service>(&pod, caches)?);
        }
    }
    Ok(found)
}

/// Lists the pods that serve a service and have an address.
async fn pods_of<K: Resource>(service: &Service, cx: &Context<K>) -> Result<Vec<Pod>> {
    let Some(selector) = service.selector() else { return Ok(Vec::new()) };
    let serves = |pod: &Pod| selector.matches(pod) && !is_over(pod) && addresses(pod).next().is_some();
    cx.filter_map(cx.key().namespace(), |pod| Some(pod).filter(serves).map(required_fields)).await
}

/// Keeps only the fields of a pod that endpoints depend on: pods may be large, and a service may have many.
fn required_fields(pod: Pod) -> Pod {
    let containers = |all: Vec<Container>| {
        let ports = |of: Container| Container {
            name: of.name,
            ports: of.ports,
            restart_policy: of.restart_policy,
            ..Container::default()
        };
        all.into_iter().map(ports).collect()
    };
    let spec = pod.spec.map(|spec| PodSpec {
        containers: containers(spec.containers),
        init_containers: spec.init_containers.map(containers),
        hostname: spec.hostname,
        subdomain: spec.subdomain,
        node_name: spec.node_name,
        ..PodSpec::default()
    });
    let status = pod.status.map(|status| PodStatus {
        conditions: status.conditions,
        phase: status.phase,
        pod_ip: status.pod_ip,
        pod_ips: status.pod_ips,
        ..PodStatus::default()
    });
    let metadata = ObjectMeta {
        name: pod.metadata.name,
        namespace: pod.metadata.namespace,
        uid: pod.metadata.uid,
        creation_timestamp: pod.metadata.creation_timestamp,
        deletion_timestamp: pod.metadata.deletion_timestamp,
        ..ObjectMeta::default()
    };
    Pod { metadata, spec, status }
}

fn addresses(pod: &Pod) -> impl Iterator<Item = &str> {
    let status = pod.status.as_ref();
    let many = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten().map(|ip| ip.ip.as_str());
    let one = status.and_then(|status| status.pod_ip.as_deref());
    let one = one.filter(|one| !many.clone().any(|ip| ip == *one));
    one.into_iter().chain(many).filter(|ip| !ip.is_empty())
}

fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ip.as_deref() == Some("None")
}

/// Returns the port at which a pod serves a port of a service.
fn target(pod: &Pod, port: &ServicePort) -> Option<i32> {
    match port.target_port.as_ref() {
        None => Some(port.port),
        Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let protocol = |protocol: &Option<String>| protocol.clone().unwrap_or_else(|| "TCP".into());
            let spec = pod.spec.as_ref()?;
            let sidecars = spec.init_containers.iter().flatten();
            let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
            let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
            let mut named = ports.filter(|port| port.name.as_ref() == Some(name));
            named.find(|of| protocol(&of.protocol) == protocol(&port.protocol)).map(|of| of.container_port)
        }
    }
}

fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: pod.namespace(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Returns the host name of a pod of a headless service.
fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.clone().filter(|hostname| !hostname.is_empty())?;
    (spec.subdomain.as_ref() == service.metadata.name.as_ref()).then_some(hostname)
}

/// Returns the times at which pods changed, in order.
fn changes(pods: &[Pod]) -> Vec<Timestamp> {
    let changed = pods.iter().filter_map(|pod| match ready_condition(pod) {
        Some(since) => since,
        None => pod.creation_timestamp().map(|time| time.0),
    });
    let mut changed: Vec<Timestamp> = changed.collect();
    changed.sort();
    changed
}

/// Returns the trigger time of a service's endpoints: the earliest change of a pod since the last published one.
fn trigger(changes: &[Timestamp], service: &Service, last: Option<&str>) -> Option<Timestamp> {
    let created = service.creation_timestamp().map(|time| time.0)?;
    let last = last.and_then(flyball_core::time::parse_rfc3339).unwrap_or(created);
    changes.get(changes.partition_point(|time| *time <= last)).copied()
}

/// Returns a key of ports, which are not ordered themselves. Each pod may have ports of its own.
fn port_key(ports: &[impl Serialize]) -> String {
    serde_json::to_string(ports).unwrap_or_default()
}

/// The slices that exist, by address family and by ports.
struct KnownSlices {
    slices: Vec<Option<EndpointSlice>>,
    by_ports: BTreeMap<(String, String), VecDeque<usize>>,
    by_family: BTreeMap<String, VecDeque<usize>>,
}

impl KnownSlices {
    fn new(slices: impl Iterator<Item = EndpointSlice>) -> Self {
        let slices: Vec<Option<EndpointSlice>> = slices.map(Some).collect();
        let (mut by_ports, mut by_family) =
            (BTreeMap::<_, VecDeque<usize>>::new(), BTreeMap::<_, VecDeque<usize>>::new());
        for (at, slice) in slices.iter().enumerate() {
            let Some(slice) = slice else { continue };
            let (family, ports) = (slice.address_type.clone(), port_key(slice.ports.as_deref().unwrap_or_default()));
            by_ports.entry((family.clone(), ports)).or_default().push_back(at);
            by_family.entry(family).or_default().push_back(at);
        }
        Self { slices, by_ports, by_family }
    }

    /// Removes and returns the first slice of a family with these ports.
    fn remove(&mut self, family: &str, ports: &[EndpointPort]) -> Option<EndpointSlice> {
        let places = self.by_ports.get_mut(&(family.to_owned(), port_key(ports)))?;
        std::iter::from_fn(|| places.pop_front()).find_map(|at| self.slices[at].take())
    }

    /// Removes and returns the first slice of a family.
    fn remove_any(&mut self, family: &str) -> Option<EndpointSlice> {
        let places = self.by_family.get_mut(family)?;
        std::iter::from_fn(|| places.pop_front()).find_map(|at| self.slices[at].take())
    }

    /// Returns the slices that were not removed.
    fn rest(self) -> impl Iterator<Item = EndpointSlice> {
        self.slices.into_iter().flatten()
    }
}

/// Returns the transition time of a pod's `Ready` condition, if any.
fn ready_condition(pod: &Pod) -> Option<Option<Timestamp>> {
    if let Some(since) = ready_since(pod) {
        return Some(since);
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some(ready.last_transition_time.as_ref().map(|time| time.0))
}
