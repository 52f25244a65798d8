//! `Endpoints`: one object for each service, with the service's name.

use super::{
    HEADLESS, TRIGGERED, addresses, changes, hostname, is_headless, pods_of, port_key, reference, services_of, target,
    trigger,
};
use crate::workload::pods::{is_deleting, is_ready, node};
use flyball::{Action, Context, Controller, Reconcile, Result};
use flyball_core::time::rfc3339;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpoint-controller";

/// Creates the controller that writes them.
pub(in crate::controllers) fn controller() -> Controller<impl Reconcile> {
    Controller::new(EndpointsReconciler)
        .owns::<Endpoints>()
        .watches_by_key::<Endpoints>(|endpoints, _| Ok(vec![endpoints.clone()]))
        .watches::<Pod>(services_of)
        .replaces::<Endpoints>()
}

/// Creates the controller that deletes those whose service is gone.
pub(in crate::controllers) fn leftovers() -> Controller<impl Reconcile> {
    Controller::new(OrphanedEndpointsReconciler)
        .owns::<Endpoints>()
        .watches_by_key::<Service>(|service, _| Ok(vec![service.clone()]))
}

struct EndpointsReconciler;

impl Reconcile for EndpointsReconciler {
    type Resource = Service;

    async fn reconcile(&self, service: &Service, cx: &Context<Service>) -> Result<Action> {
        let (Some(spec), Some(_)) = (&service.spec, super::selector(service)) else { return Ok(Action::done()) };
        let pods = pods_of(service, cx).await?;
        let subsets = subsets(service, spec, &pods);
        let known = cx.get::<Endpoints>(cx.key()).await?;
        let mut labels = service.labels().clone();
        labels.remove(HEADLESS);
        if is_headless(spec) {
            labels.insert(HEADLESS.into(), String::new());
        }
        labels.insert(MANAGED_BY.into(), CONTROLLER.into());
        if let Some(known) = &known
            && known.subsets.clone().unwrap_or_default() == subsets
            && *known.labels() == labels
        {
            return Ok(Action::done());
        }
        let last = known.as_ref().and_then(|known| known.annotations().get(TRIGGERED).cloned());
        let triggered = match known {
            Some(_) => trigger(&changes(&pods), service, last.as_deref()),
            None => service.creation_timestamp().map(|time| time.0),
        };
        let is_new = known.is_none();
        let metadata = ObjectMeta { name: service.metadata.name.clone(), ..ObjectMeta::default() };
        let mut endpoints = known.unwrap_or(Endpoints { metadata, subsets: None });
        endpoints.subsets = (!subsets.is_empty()).then_some(subsets);
        endpoints.metadata.labels = Some(labels);
        endpoints.annotations_mut().remove(TRIGGERED);
        if let Some(time) = triggered {
            endpoints.annotations_mut().insert(TRIGGERED.into(), rfc3339(time));
        }
        if is_new {
            cx.create_unowned(&endpoints).await?;
        } else {
            cx.replace(&endpoints).await?;
        }
        Ok(Action::done())
    }
}

/// Groups the addresses of pods by their ports.
fn subsets(service: &Service, spec: &ServiceSpec, pods: &[Pod]) -> Vec<EndpointSubset> {
    let is_v6 = spec.ip_families.as_ref().and_then(|families| families.first()).is_some_and(|family| family == "IPv6");
    let always = spec.publish_not_ready_addresses == Some(true);
    let mut subsets: Vec<EndpointSubset> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| always || !is_deleting(*pod)) {
        let Some(ip) = addresses(pod).find(|ip| ip.contains(':') == is_v6) else { continue };
        let address = EndpointAddress {
            ip: ip.to_owned(),
            hostname: hostname(pod, service),
            node_name: node(pod).map(str::to_owned),
            target_ref: Some(reference(pod)),
        };
        let ports = ports(spec, pod);
        let at = *places.entry(port_key(ports.as_deref().unwrap_or_default())).or_insert_with(|| {
            subsets.push(EndpointSubset { ports, ..EndpointSubset::default() });
            subsets.len() - 1
        });
        let subset = &mut subsets[at];
        let list = if always || is_ready(pod) { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        list.get_or_insert_default().push(address);
    }
    for subset in &mut subsets {
        for list in [&mut subset.addresses, &mut subset.not_ready_addresses] {
            list.iter_mut().for_each(|list| list.sort_by(|a, b| a.ip.cmp(&b.ip)));
        }
    }
    subsets
}

/// Returns the ports of a pod, `None` if the service has none, as a headless one may.
fn ports(spec: &ServiceSpec, pod: &Pod) -> Option<Vec<EndpointPort>> {
    let ports = spec.ports.iter().flatten().filter_map(|port| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
        let (name, app_protocol) = (port.name.clone().filter(|name| !name.is_empty()), port.app_protocol.clone());
        Some(EndpointPort { name, port: target(pod, port)?, protocol: Some(protocol), app_protocol })
    });
    Some(ports.collect()).filter(|ports: &Vec<_>| !ports.is_empty())
}

struct OrphanedEndpointsReconciler;

impl Reconcile for OrphanedEndpointsReconciler {
    type Resource = Endpoints;

    async fn reconcile(&self, endpoints: &Endpoints, cx: &Context<Endpoints>) -> Result<Action> {
        let is_ours = endpoints.labels().get(MANAGED_BY).is_some_and(|by| by == CONTROLLER);
        if is_ours && cx.get::<Service>(cx.key()).await?.is_none() {
            let services = Api::<Service>::namespaced(cx.client().clone(), cx.key().namespace().unwrap_or_default());
            if services.get_opt(cx.key().name()).await?.is_none() {
                cx.delete(endpoints).await?;
            }
        }
        Ok(Action::done())
    }
}
