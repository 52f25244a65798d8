//! The template history of a stateful set or a daemon set, stored as controller revisions.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#revision-history>.

use crate::workload::{owners, pods};
use flyball::{Context, Resource, Result};
use k8s_openapi::Resource as _;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use serde_json::{Value, json};

/// Data of a revision: a patch that sets the template.
fn data(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or(Value::Null);
    template["$patch"] = "replace".into();
    json!({"spec": {"template": template}})
}

/// Returns the template of a revision.
pub(super) fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// The revisions of a set.
#[derive(Debug)]
pub(super) struct History {
    /// The revision of the current template, with the highest number.
    pub(super) update: ControllerRevision,
    /// All others, oldest first.
    pub(super) past: Vec<ControllerRevision>,
    pub(super) collisions: i32,
}

impl History {
    /// Returns a revision by its name.
    pub(super) fn find(&self, name: &str) -> Option<&ControllerRevision> {
        [&self.update].into_iter().chain(&self.past).find(|revision| revision.name_any() == name)
    }
}

/// Finds or creates the revision of a template; a reused one becomes the latest. Its hash is stored in `label`.
pub(super) async fn sync<K: Resource>(
    set: &K,
    selector: &owners::Selector,
    template: &PodTemplateSpec,
    collisions: i32,
    label: &str,
    cx: &Context<K>,
) -> Result<History> {
    let mut past: Vec<ControllerRevision> = owners::claim(set, selector, cx).await?;
    past.sort_by_key(|revision| (revision.revision, revision.creation_timestamp(), revision.name_any()));
    let (data, next) = (data(template), past.last().map_or(0, |last| last.revision).saturating_add(1));
    let same = past.iter().rposition(|revision| revision.data.as_ref().is_some_and(|known| known.0 == data));
    if let Some(at) = same {
        let is_latest = at + 1 == past.len();
        let mut update = past.remove(at);
        if !is_latest {
            update.revision = next;
            update = cx.replace(&update).await?;
        }
        return Ok(History { update, past, collisions });
    }
    let mut labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
    let mut collisions = collisions;
    loop {
        let hash = pods::hash(&data, Some(collisions));
        labels.insert(label.into(), hash.clone());
        let revision = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(format!("{}-{hash}", set.meta().name.as_deref().unwrap_or_default())),
                labels: Some(labels.clone()),
                annotations: set.meta().annotations.clone(),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(data.clone())),
            revision: next,
        };
        match cx.create(&revision).await {
            Ok(update) => return Ok(History { update, past, collisions }),
            Err(error) if error.status().is_some_and(kube::core::Status::is_already_exists) && collisions < 100 => {
                tracing::debug!(kind = ControllerRevision::KIND, %error, "hashes collide");
                collisions += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Deletes the oldest unused revisions beyond the history limit.
pub(super) async fn truncate<K: Resource>(
    history: &History,
    limit: Option<i32>,
    used: impl Fn(&str) -> bool,
    cx: &Context<K>,
) -> Result<()> {
    let unused: Vec<_> = history.past.iter().filter(|revision| !used(&revision.name_any())).collect();
    let excess = unused.len().saturating_sub(usize::try_from(limit.unwrap_or(10)).unwrap_or(0));
    for revision in &unused[..excess] {
        cx.delete(*revision).await?;
    }
    Ok(())
}
