//! Endpoint slices: the addresses of a service's pods, grouped by ports, with up to a hundred per slice.

use super::{
    HEADLESS, KnownSlices, TRIGGERED, addresses, changes, hostname, is_headless, pods_of, port_key, reference,
    services_of, services_on, target, trigger,
};
use crate::workload::pods::{OnNode, is_deleting, is_ready, node};
use flyball::{Action, Context, Controller, ObjectKey, Reconcile, Result};
use flyball_core::time::{Timestamp, rfc3339};
use k8s_openapi::api::core::v1::{Node, Pod, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use std::collections::BTreeMap;

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpointslice-controller.k8s.io";
const SERVICE: &str = "kubernetes.io/service-name";
/// Maximum number of endpoints of a slice.
const MAX_ENDPOINTS: usize = 100;

/// Creates the controller.
pub(in crate::controllers) fn controller() -> Controller<impl Reconcile> {
    Controller::new(Slices)
        .owns::<EndpointSlice>()
        .watches::<Pod>(services_of)
        .watches::<Node>(services_on)
        .index::<OnNode>()
        .replaces::<EndpointSlice>()
}

struct Slices;

/// The ports and endpoints of a slice, and the family of its addresses.
#[derive(Clone, Debug, PartialEq)]
struct Content {
    family: String,
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
}

impl Reconcile for Slices {
    type Resource = Service;

    async fn reconcile(&self, service: &Service, cx: &Context<Service>) -> Result<Action> {
        let Some(spec) = &service.spec else { return Ok(Action::done()) };
        let is_ours = |slice: &EndpointSlice| slice.labels().get(MANAGED_BY).is_some_and(|by| by == CONTROLLER);
        let known = cx.children::<EndpointSlice>().await?.into_iter().filter(is_ours);
        if super::selector(service).is_none() {
            // Without a selector, the user manages the endpoints.
            let is_external = spec.type_.as_deref() == Some("ExternalName");
            for slice in known.filter(|_| is_external) {
                cx.delete(&slice).await?;
            }
            return Ok(Action::done());
        }
        let pods = pods_of(service, cx).await?;
        let (mut known, changes) = (KnownSlices::new(known), changes(&pods));
        let contents = contents(service, spec, &pods, cx).await?;
        for content in contents {
            let slice = known.remove(&content.family, &content.ports).or_else(|| known.remove_any(&content.family));
            match slice {
                Some(slice) => {
                    let last = slice.annotations().get(TRIGGERED).map(String::as_str);
                    let triggered = trigger(&changes, service, last);
                    update(service, slice, content, triggered, cx).await?;
                }
                None => {
                    let triggered = service.creation_timestamp().map(|time| time.0);
                    cx.create(&self::slice(service, content, triggered)).await?;
                }
            }
        }
        for slice in known.rest() {
            cx.delete(&slice).await?;
        }
        Ok(Action::done())
    }
}

fn ports(slice: &EndpointSlice) -> Vec<EndpointPort> {
    slice.ports.clone().unwrap_or_default()
}

async fn update(
    service: &Service,
    slice: EndpointSlice,
    content: Content,
    triggered: Option<Timestamp>,
    cx: &Context<Service>,
) -> Result<()> {
    let is_same = slice.endpoints.clone().unwrap_or_default() == content.endpoints && ports(&slice) == content.ports;
    let desired = self::slice(service, content, triggered);
    if is_same && slice.metadata.labels == desired.metadata.labels {
        return Ok(());
    }
    let mut changed = slice.clone();
    (changed.endpoints, changed.ports) = (desired.endpoints, desired.ports);
    changed.metadata.labels = desired.metadata.labels;
    changed.annotations_mut().remove(TRIGGERED);
    changed.annotations_mut().extend(desired.metadata.annotations.unwrap_or_default());
    cx.replace(&changed).await?;
    Ok(())
}

fn slice(service: &Service, content: Content, triggered: Option<Timestamp>) -> EndpointSlice {
    let mut labels = service.labels().clone();
    labels.remove(HEADLESS);
    if service.spec.as_ref().is_some_and(is_headless) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(SERVICE.into(), service.name_any());
    labels.insert(MANAGED_BY.into(), CONTROLLER.into());
    let triggered = triggered.map(|time| BTreeMap::from([(TRIGGERED.to_owned(), rfc3339(time))]));
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", service.name_any())),
            labels: Some(labels),
            annotations: triggered,
            ..ObjectMeta::default()
        },
        address_type: content.family,
        endpoints: Some(content.endpoints).filter(|endpoints| !endpoints.is_empty()),
        ports: Some(content.ports).filter(|ports| !ports.is_empty()),
    }
}

/// Returns the contents of a service's slices; at least one for each family, so that clients can watch it.
async fn contents(service: &Service, spec: &ServiceSpec, pods: &[Pod], cx: &Context<Service>) -> Result<Vec<Content>> {
    let mut nodes: BTreeMap<&str, Option<Node>> = BTreeMap::new();
    for name in pods.iter().filter_map(node) {
        if !nodes.contains_key(name) {
            nodes.insert(name, cx.get::<Node>(&ObjectKey::new(None, name)).await?);
        }
    }
    let families = spec.ip_families.clone().filter(|families| !families.is_empty());
    let mut contents = Vec::new();
    for family in families.unwrap_or_else(|| vec!["IPv4".into()]) {
        let mut groups: Vec<Content> = Vec::new();
        // The last group of each ports: the others are full.
        let mut last: BTreeMap<String, usize> = BTreeMap::new();
        for pod in pods {
            let ips: Vec<String> =
                addresses(pod).filter(|ip| ip.contains(':') == (family == "IPv6")).map(str::to_owned).collect();
            let node = node(pod).and_then(|name| nodes.get(name)?.as_ref());
            let is_lost = node.is_none() && self::node(pod).is_some() && spec.publish_not_ready_addresses != Some(true);
            if ips.is_empty() || is_lost {
                continue;
            }
            let (ports, endpoint) = (ports_of(spec, pod), endpoint(service, spec, pod, node, ips));
            let at = last.entry(port_key(&ports)).or_insert(usize::MAX);
            match groups.get_mut(*at).filter(|group| group.endpoints.len() < MAX_ENDPOINTS) {
                Some(group) => group.endpoints.push(endpoint),
                None => {
                    *at = groups.len();
                    groups.push(Content { family: family.clone(), ports, endpoints: vec![endpoint] });
                }
            }
        }
        if groups.is_empty() {
            groups.push(Content { family, ports: Vec::new(), endpoints: Vec::new() });
        }
        contents.extend(groups);
    }
    Ok(contents)
}

fn ports_of(spec: &ServiceSpec, pod: &Pod) -> Vec<EndpointPort> {
    let ports = spec.ports.iter().flatten();
    let ports = ports.filter_map(|port| {
        let name = port.name.clone().unwrap_or_default();
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
        let number = target(pod, port)?;
        let app_protocol = port.app_protocol.clone();
        Some(EndpointPort { name: Some(name), port: Some(number), protocol: Some(protocol), app_protocol })
    });
    ports.collect()
}

fn endpoint(service: &Service, spec: &ServiceSpec, pod: &Pod, node: Option<&Node>, addresses: Vec<String>) -> Endpoint {
    let (serving, terminating) = (is_ready(pod), is_deleting(pod));
    let ready = spec.publish_not_ready_addresses == Some(true) || serving && !terminating;
    let zone = node.and_then(|node| node.labels().get("topology.kubernetes.io/zone").cloned());
    Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: hostname(pod, service),
        node_name: self::node(pod).map(str::to_owned),
        target_ref: Some(reference(pod)),
        zone,
        ..Endpoint::default()
    }
}
