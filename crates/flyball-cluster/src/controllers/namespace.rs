//! Deletes the contents of terminating namespaces, and finalizes empty ones.
//!
//! See <https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/>.

use super::discovery;
use flyball::{Action, Backoff, Context, Controller, Reconcile, Result};
use flyball_core::time::rfc3339;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use http::Request;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, PostParams};
use kube::core::ListMeta;
use kube::{Api, ResourceExt};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// Finalizer in `spec.finalizers` of every namespace, set by the API server.
const FINALIZER: &str = "kubernetes";
const MANAGER: &str = "kube-controller-manager";

/// Maximum number of namespaces that are emptied at the same time: most of the time they wait for responses.
const MAX_NAMESPACES: usize = 64;
/// Maximum number of resources that are emptied at the same time, so that slow ones do not delay others.
const MAX_RESOURCES: usize = 256;
/// Timeout of emptying one resource; the next reconcile continues.
const RESOURCE_TIMEOUT: Duration = Duration::from_mins(1);
/// Number of objects that are read, or deleted, by one request.
const PAGE_SIZE: u32 = 100;
/// Maximum number of pages that a reconcile deletes of a resource.
const MAX_PAGES: usize = 50;
/// Maximum number of failures, and of finalizers, in a condition.
const MAX_LISTED: usize = 20;

/// Creates the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    // Remaining objects wait for their own finalizers, which trigger no event here.
    let backoff = Backoff { base_delay: Duration::from_millis(100), max_delay: Duration::from_secs(5) };
    Controller::new(NamespaceReconciler).while_deleting().backoff(backoff).concurrency(MAX_NAMESPACES)
}

struct NamespaceReconciler;

impl Reconcile for NamespaceReconciler {
    type Resource = Namespace;

    async fn reconcile(&self, namespace: &Namespace, cx: &Context<Namespace>) -> Result<Action> {
        let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
        let ours = finalizers.is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == FINALIZER));
        if namespace.metadata.deletion_timestamp.is_none() || !ours {
            return Ok(Action::done());
        }
        let found = empty(cx.client(), &namespace.name_any()).await;
        update_conditions(namespace, &found, cx).await?;
        if !found.is_empty() {
            return Ok(Action::requeue());
        }
        finalize(cx.client(), namespace).await?;
        Ok(Action::done())
    }
}

/// Content that keeps a namespace from being deleted.
#[derive(Debug, Default, PartialEq)]
struct RemainingContent {
    discovery: Option<String>,
    failures: Vec<String>,
    /// Number of remaining objects by `resource.group`.
    resources: BTreeMap<String, usize>,
    /// Number of objects by finalizer that they wait for.
    finalizers: BTreeMap<String, usize>,
}

impl RemainingContent {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the conditions as in the real server: type, status, reason and message.
    fn conditions(&self) -> [(&'static str, bool, &'static str, String); 5] {
        let all = |counts: &BTreeMap<String, usize>, word: &str| {
            let words = counts.iter().map(|(name, n)| format!("{name} {word} {n} resource instances"));
            words.collect::<Vec<_>>().join(", ")
        };
        let condition = |kind, failure: Option<(&'static str, String)>, reason, message: &str| match failure {
            Some((reason, message)) => (kind, true, reason, message),
            None => (kind, false, reason, message.to_owned()),
        };
        let failed = (!self.failures.is_empty()).then(|| {
            let (n, listed) = (self.failures.len(), self.failures.len().min(MAX_LISTED));
            let (failures, more) = (self.failures[..listed].join(", "), if n > listed { ", …" } else { "" });
            ("ContentDeletionFailed", format!("Failed to delete all resource types, {n} remaining: {failures}{more}"))
        });
        let remaining = (!self.resources.is_empty()).then(|| {
            let text = format!("Some resources are remaining: {}", all(&self.resources, "has"));
            ("SomeResourcesRemain", text)
        });
        let finalizers = (!self.finalizers.is_empty()).then(|| {
            let text = all(&self.finalizers, "in");
            let text = format!("Some content in the namespace has finalizers remaining: {text}");
            ("SomeFinalizersRemain", text)
        });
        [
            condition(
                "NamespaceDeletionDiscoveryFailure",
                self.discovery.clone().map(|why| ("DiscoveryFailed", why)),
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                None,
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            condition(
                "NamespaceDeletionContentFailure",
                failed,
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            condition("NamespaceContentRemaining", remaining, "ContentRemoved", "All content successfully removed"),
            condition(
                "NamespaceFinalizersRemaining",
                finalizers,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
        ]
    }
}

/// Deletes all objects of a namespace; returns the remaining ones.
async fn empty(client: &kube::Client, namespace: &str) -> RemainingContent {
    let mut found = RemainingContent::default();
    let served = match discovery::served(client).await {
        Ok(served) => served,
        Err(error) => return RemainingContent { discovery: Some(error.to_string()), ..found },
    };
    let mut resources: Vec<BoxFuture<'_, (String, kube::Result<RemainingObjects>)>> = Vec::new();
    for resource in served {
        if resource.namespaced && resource.can(&["list", "deletecollection"]) {
            let name = format!("{}.{}", resource.resource.resource, resource.resource.group);
            let path = resource.path(Some(namespace));
            resources.push(Box::pin(async move { (name, empty_in_time(client, &path).await) }));
        }
    }
    // In the order of requests: conditions must not depend on the order of responses.
    let mut resources = stream::iter(resources).buffered(MAX_RESOURCES);
    while let Some((name, result)) = resources.next().await {
        match result {
            Ok(remaining) => found.add(name, remaining),
            Err(error) => found.failures.push(error.to_string()),
        }
    }
    found
}

/// Objects of a resource that remain after their deletion.
#[derive(Debug, Default)]
struct RemainingObjects {
    objects: usize,
    finalizers: BTreeMap<String, usize>,
}

/// Deletes the objects of a resource, and counts as remaining those for which there was no time.
async fn empty_in_time(client: &kube::Client, path: &str) -> kube::Result<RemainingObjects> {
    match timeout(RESOURCE_TIMEOUT, empty_of(client, path)).await {
        Ok(result) => result,
        Err(_) => count(client, path).await,
    }
}

/// Deletes the objects of a resource, page by page.
async fn empty_of(client: &kube::Client, path: &str) -> kube::Result<RemainingObjects> {
    let mut page = list(client, path, "").await?;
    if page.items().is_empty() {
        return Ok(RemainingObjects::default());
    }
    let mut start = String::new();
    for _ in 0..MAX_PAGES {
        if unless_expired(delete(client, path, &start).await)?.is_none() {
            break;
        }
        start = page.next();
        if start.is_empty() {
            break;
        }
        let Some(next) = unless_expired(list(client, path, &start).await)? else { break };
        page = next;
    }
    count(client, path).await
}

/// Returns `None` if the token of a page has expired: the next reconcile begins with the first page again.
fn unless_expired<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 410 => Ok(None),
        other => other.map(Some),
    }
}

/// Counts the objects of a resource. Finalizers are counted on as many pages as a reconcile deletes.
async fn count(client: &kube::Client, path: &str) -> kube::Result<RemainingObjects> {
    let mut remaining = RemainingObjects::default();
    let mut page = list(client, path, "").await?;
    remaining.add(&page);
    for _ in 1..MAX_PAGES {
        let next = page.next();
        if next.is_empty() {
            return Ok(remaining);
        }
        let Some(next) = unless_expired(list(client, path, &next).await)? else { break };
        page = next;
        remaining.add(&page);
    }
    let rest = page.metadata.remaining_item_count.unwrap_or(0);
    remaining.objects = remaining.objects.saturating_add(usize::try_from(rest).unwrap_or(0));
    Ok(remaining)
}

impl RemainingObjects {
    fn add(&mut self, page: &Page) {
        self.objects += page.items().len();
        for finalizer in page.items().iter().flat_map(|item| &item.metadata.finalizers) {
            add_limited(&mut self.finalizers, finalizer, 1);
        }
    }
}

impl RemainingContent {
    fn add(&mut self, resource: String, remaining: RemainingObjects) {
        if remaining.objects > 0 {
            self.resources.insert(resource, remaining.objects);
        }
        for (finalizer, objects) in &remaining.finalizers {
            add_limited(&mut self.finalizers, finalizer, *objects);
        }
    }
}

/// Adds to the count of a finalizer. Objects may have any number of different ones, of which some are reported.
fn add_limited(counts: &mut BTreeMap<String, usize>, finalizer: &str, objects: usize) {
    if let Some(count) = counts.get_mut(finalizer) {
        *count += objects;
    } else if counts.len() < MAX_LISTED {
        counts.insert(finalizer.to_owned(), objects);
    }
}

/// A page of a list, with the metadata that is used.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: ListMeta,
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    metadata: ItemMetadata,
}

#[derive(Default, Deserialize)]
struct ItemMetadata {
    #[serde(default)]
    finalizers: Vec<String>,
}

impl Page {
    fn items(&self) -> &[Item] {
        self.items.as_deref().unwrap_or_default()
    }

    /// Returns the token of the next page, empty on the last one.
    fn next(&self) -> String {
        self.metadata.continue_.clone().unwrap_or_default()
    }
}

/// Reads the page that begins at `start`.
async fn list(client: &kube::Client, path: &str, start: &str) -> kube::Result<Page> {
    let params = ListParams { continue_token: Some(start.to_owned()).filter(|start| !start.is_empty()), ..page_size() };
    let request = kube::core::Request::new(path).list_metadata(&params);
    client.request(request.map_err(kube::Error::BuildRequest)?).await
}

fn page_size() -> ListParams {
    ListParams::default().limit(PAGE_SIZE)
}

/// Deletes the objects of the page that begins at `start`. The response, which contains them, is not read.
async fn delete(client: &kube::Client, path: &str, start: &str) -> kube::Result<()> {
    let start = if start.is_empty() { String::new() } else { format!("&continue={start}") };
    let options = json!({"propagationPolicy": "Background"}).to_string().into_bytes();
    let request = Request::delete(format!("{path}?limit={PAGE_SIZE}{start}"));
    let request = request.header(http::header::CONTENT_TYPE, "application/json").body(options);
    client.request_stream(request.map_err(kube::Error::HttpError)?).await.map(drop)
}

/// Writes the conditions to the status.
async fn update_conditions(namespace: &Namespace, found: &RemainingContent, cx: &Context<Namespace>) -> Result<()> {
    let status = namespace.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.clone().unwrap_or_default();
    let now: Time = serde_json::from_value(rfc3339(cx.now()).into())?;
    for (kind, holds, reason, message) in found.conditions() {
        let holds = if holds { "True" } else { "False" };
        let known = conditions.iter().position(|condition| condition.type_ == kind);
        let since = known.map(|at| &conditions[at]).filter(|known| known.status == holds);
        let condition = NamespaceCondition {
            type_: kind.to_owned(),
            status: holds.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: since.map_or_else(|| Some(now.clone()), |since| since.last_transition_time.clone()),
        };
        match known {
            Some(at) => conditions[at] = condition,
            None => conditions.push(condition),
        }
    }
    if status.conditions.as_ref() == Some(&conditions) {
        return Ok(());
    }
    let mut changed = namespace.clone();
    changed.status.get_or_insert_default().conditions = Some(conditions);
    let namespaces: Api<Namespace> = Api::all(cx.client().clone());
    let params = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
    let written = namespaces.replace_status(&namespace.name_any(), &params, &changed).await?;
    cx.record_write(&written);
    Ok(())
}

/// Removes the finalizer `kubernetes` of a namespace, regardless of its resource version.
async fn finalize(client: &kube::Client, namespace: &Namespace) -> kube::Result<()> {
    let mut changed = namespace.clone();
    changed.metadata.resource_version = None;
    changed.metadata.managed_fields = None;
    let finalizers = changed.spec.get_or_insert_default().finalizers.get_or_insert_default();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.replace_subresource("finalize", &namespace.name_any(), &PostParams::default(), &changed).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(|_: Namespace| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Response, StatusCode};
    use kube::client::Body;
    use std::convert::Infallible;
    use tower::service_fn;

    #[tokio::test]
    async fn expired_page_ends_the_round() {
        // A server whose tokens have always expired.
        let response = |request: Request<Body>| {
            let is_continued = request.uri().query().is_some_and(|query| query.contains("continue="));
            let (code, body) = match (is_continued, request.method()) {
                (true, _) => (
                    410,
                    json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410,
                    "message": "the continue token is too old"}),
                ),
                (false, &Method::DELETE) => (200, json!({"kind": "Status", "status": "Success"})),
                (false, _) => (
                    200,
                    json!({"kind": "List", "metadata": {"continue": "token", "remainingItemCount": 7},
                    "items": [{"metadata": {"finalizers": ["example.com/a"]}}, {}]}),
                ),
            };
            let mut response = Response::new(Body::from(body.to_string().into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        };
        let client = kube::Client::new(service_fn(response), "default");
        let remaining = empty_of(&client, "/api/v1/namespaces/a/configmaps").await.unwrap();
        assert_eq!(remaining.objects, 9, "those of the first page, and of all others as its metadata says");
        assert_eq!(remaining.finalizers, BTreeMap::from([("example.com/a".to_owned(), 1)]));
        let expired = delete(&client, "/api/v1/namespaces/a/configmaps", "token").await;
        assert!(unless_expired(expired).unwrap().is_none());
    }
}
