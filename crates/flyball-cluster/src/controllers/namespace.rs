//! Deletes the contents of terminating namespaces, and finalizes empty ones.
//!
//! See <https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/>.

use super::discovery::{self, Served};
use flyball::{Action, Backoff, Context, Controller, Reconcile, Result};
use flyball_core::time::rfc3339;
use http::Request;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, PostParams};
use kube::core::{DynamicObject, ObjectList, PartialObjectMeta};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Finalizer in `spec.finalizers` of every namespace, set by the API server.
const FINALIZER: &str = "kubernetes";
const MANAGER: &str = "kube-controller-manager";

/// Creates the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    // Remaining objects wait for their own finalizers, which trigger no event here.
    let backoff = Backoff { base_delay: Duration::from_millis(100), max_delay: Duration::from_secs(5) };
    Controller::new(Emptying).while_deleting().backoff(backoff)
}

struct Emptying;

impl Reconcile for Emptying {
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
struct Found {
    discovery: Option<String>,
    failures: Vec<String>,
    /// Number of remaining objects by `resource.group`.
    resources: BTreeMap<String, usize>,
    /// Number of objects by finalizer that they wait for.
    finalizers: BTreeMap<String, usize>,
}

impl Found {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the conditions as in the real server: type, status, reason and message.
    fn conditions(&self) -> [(&'static str, bool, &'static str, String); 5] {
        let all = |counts: &BTreeMap<String, usize>, word: &str| {
            let words = counts.iter().map(|(name, n)| format!("{name} {word} {n} resource instances"));
            words.collect::<Vec<_>>().join(", ")
        };
        let condition = |kind, trouble: Option<(&'static str, String)>, reason, message: &str| match trouble {
            Some((reason, message)) => (kind, true, reason, message),
            None => (kind, false, reason, message.to_owned()),
        };
        let failed = (!self.failures.is_empty()).then(|| {
            let (n, failures) = (self.failures.len(), self.failures.join(", "));
            ("ContentDeletionFailed", format!("Failed to delete all resource types, {n} remaining: {failures}"))
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
async fn empty(client: &kube::Client, namespace: &str) -> Found {
    let mut found = Found::default();
    let served = match discovery::served(client).await {
        Ok(served) => served,
        Err(error) => return Found { discovery: Some(error.to_string()), ..found },
    };
    for resource in served.iter().filter(|resource| resource.namespaced && resource.can(&["list", "deletecollection"]))
    {
        if let Err(error) = empty_of(client, namespace, resource, &mut found).await {
            found.failures.push(error.to_string());
        }
    }
    found
}

async fn empty_of(client: &kube::Client, namespace: &str, resource: &Served, found: &mut Found) -> kube::Result<()> {
    let path = resource.path(Some(namespace));
    if list(client, &path).await?.items.is_empty() {
        return Ok(());
    }
    let options = json!({"propagationPolicy": "Background"}).to_string().into_bytes();
    let delete = Request::delete(&path).header(http::header::CONTENT_TYPE, "application/json").body(options);
    client.request_text(delete.map_err(kube::Error::HttpError)?).await?;
    let rest = list(client, &path).await?;
    if !rest.items.is_empty() {
        let name = format!("{}.{}", resource.resource.resource, resource.resource.group);
        found.resources.insert(name, rest.items.len());
    }
    for finalizer in rest.items.iter().flat_map(|object| object.finalizers()) {
        *found.finalizers.entry(finalizer.clone()).or_default() += 1;
    }
    Ok(())
}

async fn list(client: &kube::Client, path: &str) -> kube::Result<ObjectList<PartialObjectMeta<DynamicObject>>> {
    let request = kube::core::Request::new(path).list_metadata(&ListParams::default());
    client.request(request.map_err(kube::Error::BuildRequest)?).await
}

/// Writes the conditions to the status.
async fn update_conditions(namespace: &Namespace, found: &Found, cx: &Context<Namespace>) -> Result<()> {
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
