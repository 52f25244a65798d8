//! A single collection of a cluster, by lists.

use super::watch::{Collection, WORKLOADS, controller};
use super::{Event, is_custom};
use crate::meter::Subject;
use crate::observation::Observation;
use flyball::{Client, Resource};
use http::Request;
use http::header::ACCEPT;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use kube::{Api, ResourceExt};
use serde::Deserialize;

/// Objects of one response.
const PAGE: u32 = 500;
/// Rounds of reading owners of owners.
const MAX_OWNER_ROUNDS: usize = 20_000;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

#[derive(Deserialize)]
struct MetadataList {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(default)]
    items: Vec<PartialObjectMeta>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

/// Collects all objects of a namespace, or of all, with their owners.
///
/// # Errors
///
/// If pods or claims cannot be listed. Nodes, workloads and owners that may not be read are skipped.
pub async fn collect_once(client: &Client, collection: &Collection, namespace: Option<&str>) -> kube::Result<()> {
    let scoped = |namespace: Option<&str>| namespace.map(str::to_owned);
    for (group, version, kind) in WORKLOADS {
        if let Err(error) = list_owners(client, collection, (group, version, kind), namespace).await {
            tracing::debug!(%error, kind, "cannot list owners");
        }
    }
    let (pods, claims) =
        (api::<Pod>(client, scoped(namespace)), api::<PersistentVolumeClaim>(client, scoped(namespace)));
    list(&pods, collection, Subject::Pod, Observation::of_pod).await?;
    list(&claims, collection, Subject::Claim, Observation::of_claim).await?;
    if namespace.is_none() {
        let nodes = list(&Api::<Node>::all(client.clone()), collection, Subject::Node, Observation::of_node).await;
        if let Err(error) = nodes {
            tracing::debug!(%error, "cannot list nodes");
        }
    }
    collection.collector.lock().synced(Subject::Node);
    for _ in 0..MAX_OWNER_ROUNDS {
        let unknown = collection.collector.lock().unknown_owners();
        // A workload that was not listed is gone or hidden.
        for (_, owner) in unknown.iter().filter(|(_, owner)| !is_custom(&owner.group)) {
            collection.collector.lock().owners.insert(&owner.uid, None);
        }
        if unknown.is_empty() {
            break;
        }
        let _ = collection.read_owners(client).await;
    }
    Ok(())
}

fn api<T>(client: &Client, namespace: Option<String>) -> Api<T>
where
    T: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), &namespace),
        None => Api::all(client.clone()),
    }
}

async fn list<T: Resource + Clone + std::fmt::Debug>(
    api: &Api<T>,
    collection: &Collection,
    subject: Subject,
    observe: fn(&T, i64) -> Observation,
) -> kube::Result<()> {
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&parameters).await?;
        let now = collection.now();
        let mut collector = collection.collector.lock();
        for object in &page.items {
            let observed = observe(object, now);
            let uid = object.uid().unwrap_or_default();
            collector.add(subject, &uid, now, Event::Observed(Box::new(observed)));
        }
        drop(collector);
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => parameters = parameters.continue_token(&next),
            None => break,
        }
    }
    collection.collector.lock().synced(subject);
    Ok(())
}

/// Lists the metadata of a kind of workloads.
async fn list_owners(
    client: &Client,
    collection: &Collection,
    (group, version, kind): (&str, &str, &str),
    namespace: Option<&str>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let path = <kube::core::DynamicObject as kube::Resource>::url_path(&resource, namespace);
    let mut next = String::new();
    loop {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &PAGE.to_string()).append_pair("continue", &next);
        let request = Request::get(format!("{path}?{}", query.finish())).header(ACCEPT, METADATA).body(Vec::new())?;
        let page: MetadataList = client.request(request).await?;
        let mut collector = collection.collector.lock();
        for object in &page.items {
            let uid = object.metadata.uid.clone().unwrap_or_default();
            collector.owners.insert(&uid, controller(&object.metadata));
        }
        drop(collector);
        if page.metadata.next.is_empty() {
            return Ok(());
        }
        next = page.metadata.next;
    }
}
