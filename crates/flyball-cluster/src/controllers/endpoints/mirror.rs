//! Mirrors user-created endpoints of services without selector to endpoint slices.
//!
//! See <https://kubernetes.io/docs/concepts/services-networking/service/#endpointslice-mirroring>.

use super::{KnownSlices, TRIGGERED, copied, port_key};
use flyball::{Action, Context, Controller, Reconcile, Result};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort as LegacyPort, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use std::collections::BTreeMap;

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpointslicemirroring-controller.k8s.io";
const SERVICE: &str = "kubernetes.io/service-name";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Maximum number of mirrored addresses per subset.
const MAX_ENDPOINTS: usize = 1000;
/// Maximum number of slices of an object: each set of ports has one, and each copies the labels.
const MAX_SLICES: usize = 100;

/// Creates the controller.
pub(in crate::controllers) fn controller() -> Controller<impl Reconcile> {
    Controller::new(Mirror)
        .owns::<EndpointSlice>()
        .watches_by_key::<Service>(|service, _| Ok(vec![service.clone()]))
        .replaces::<EndpointSlice>()
}

struct Mirror;

/// The ports and endpoints of a slice, and the family of its addresses.
#[derive(Clone, Debug, PartialEq)]
struct Content {
    family: &'static str,
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
}

impl Reconcile for Mirror {
    type Resource = Endpoints;

    async fn reconcile(&self, endpoints: &Endpoints, cx: &Context<Endpoints>) -> Result<Action> {
        let service = cx.get::<Service>(cx.key()).await?;
        let has_selector = |service: &Service| service.spec.as_ref().is_some_and(|spec| spec.selector.is_some());
        let is_mirrored = endpoints.labels().get(SKIP).is_none_or(|skip| skip != "true")
            && !endpoints.annotations().contains_key(LEADER)
            && service.is_some_and(|service| !has_selector(&service));
        let is_ours = |slice: &EndpointSlice| slice.labels().get(MANAGED_BY).is_some_and(|by| by == CONTROLLER);
        let mut known = KnownSlices::new(cx.children::<EndpointSlice>().await?.into_iter().filter(is_ours));
        for content in if is_mirrored { contents(endpoints) } else { Vec::new() } {
            let found = known.remove(content.family, &content.ports);
            let desired = slice(endpoints, content);
            let Some(mut changed) = found else {
                cx.create(&desired).await?;
                continue;
            };
            let before = changed.clone();
            changed.endpoints = desired.endpoints;
            changed.metadata.labels = desired.metadata.labels;
            changed.metadata.annotations = desired.metadata.annotations;
            if changed != before {
                cx.replace(&changed).await?;
            }
        }
        for slice in known.rest() {
            cx.delete(&slice).await?;
        }
        Ok(Action::done())
    }
}

fn slice(endpoints: &Endpoints, content: Content) -> EndpointSlice {
    let mut labels = copied(endpoints.labels());
    labels.insert(SERVICE.into(), endpoints.name_any());
    labels.insert(MANAGED_BY.into(), CONTROLLER.into());
    let mut annotations = endpoints.annotations().clone();
    annotations.retain(|name, _| !matches!(name.as_str(), TRIGGERED | LAST_APPLIED));
    let annotations = copied(&annotations);
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", endpoints.name_any())),
            labels: Some(labels),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            ..ObjectMeta::default()
        },
        address_type: content.family.into(),
        endpoints: Some(content.endpoints),
        ports: Some(content.ports).filter(|ports| !ports.is_empty()),
    }
}

/// Returns the contents of the slices: one for each set of ports and address family.
fn contents(endpoints: &Endpoints) -> Vec<Content> {
    let mut contents: Vec<Content> = Vec::new();
    let mut places: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports: Vec<EndpointPort> = subset.ports.iter().flatten().map(port).collect();
        let key = port_key(&ports);
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let not_ready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        for (address, ready) in ready.chain(not_ready).take(MAX_ENDPOINTS) {
            let family = if address.ip.contains(':') { "IPv6" } else { "IPv4" };
            let at = match places.get(&(family, key.clone())) {
                Some(at) => *at,
                None if contents.len() == MAX_SLICES => continue,
                None => {
                    contents.push(Content { family, ports: ports.clone(), endpoints: Vec::new() });
                    places.insert((family, key.clone()), contents.len() - 1);
                    contents.len() - 1
                }
            };
            if contents[at].endpoints.len() < MAX_ENDPOINTS {
                contents[at].endpoints.push(endpoint(address, ready));
            }
        }
    }
    contents
}

fn port(port: &LegacyPort) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".into())),
        app_protocol: port.app_protocol.clone(),
    }
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|hostname| !hostname.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn number_and_size_of_slices_are_bounded() {
        let labels: BTreeMap<String, String> = (0..10_000).map(|n| (format!("label-{n:05}"), "x".repeat(60))).collect();
        let subset = |n: i32| json!({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": n}]});
        let subsets: Vec<_> = (1..=5000).map(subset).collect();
        let metadata = json!({"name": "e", "labels": labels, "annotations": labels});
        let endpoints: Endpoints = serde_json::from_value(json!({"metadata": metadata, "subsets": subsets})).unwrap();
        let contents = contents(&endpoints);
        assert_eq!(contents.len(), MAX_SLICES);
        let slice = slice(&endpoints, contents[0].clone());
        assert!(serde_json::to_string(&slice).unwrap().len() < 3 * crate::controllers::endpoints::MAX_COPIED_BYTES);
        assert_eq!(slice.labels()[SERVICE], "e");
        assert_eq!(slice.labels()["label-00000"], labels["label-00000"]);
    }
}
