//! The replica sets of a deployment as its revision history: the new one, their revisions, and the history limit.

use super::{DESIRED, HASH, MAX, REVISION, Rollout, revision};
use crate::workload::{owners, pods};
use flyball::{Error, Result};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use std::collections::BTreeMap;

const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotations that are not copied between a deployment and its replica sets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];
/// Maximum length of the revision history annotation.
const MAX_HISTORY_BYTES: usize = 2000;

/// Splits replica sets into the one with the deployment's template and the others.
pub(super) fn split(deployment: &Deployment, mut sets: Vec<ReplicaSet>) -> (Option<ReplicaSet>, Vec<ReplicaSet>) {
    sets.sort_by_key(|set| (set.creation_timestamp(), set.name_any()));
    let template = deployment.spec.as_ref().map(|spec| &spec.template);
    let new = sets.iter().position(|set| is_of(set, template));
    let new = new.map(|at| sets.remove(at));
    (new, sets)
}

/// Returns true if a replica set has this template.
fn is_of(set: &ReplicaSet, template: Option<&PodTemplateSpec>) -> bool {
    let without_hash = |template: &PodTemplateSpec| {
        let mut template = template.clone();
        let metadata = template.metadata.get_or_insert_default();
        metadata.labels.get_or_insert_default().remove(HASH);
        metadata.annotations.get_or_insert_default();
        metadata.creation_timestamp = None;
        template
    };
    let own = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    own.map(without_hash) == template.map(without_hash)
}

impl Rollout<'_> {
    /// Sets the revision of the new replica set, and creates it if `create` is set.
    pub(super) async fn sync_revision(&mut self, create: bool) -> Result<()> {
        let next = self.old.iter().map(revision).max().unwrap_or(0).saturating_add(1);
        match self.new.take() {
            Some(set) => {
                let mut changed = set.clone();
                self.annotate(&mut changed, next, true);
                let min_ready = self.spec().min_ready_seconds;
                if let Some(spec) = &mut changed.spec {
                    spec.min_ready_seconds = min_ready;
                }
                let set = if changed == set { set } else { self.cx.replace(&changed).await? };
                if super::status::find(&self.deployment, "Progressing").is_none() {
                    let message = format!("Found new replica set \"{}\"", set.name_any());
                    self.progress("True", "FoundNewReplicaSet", message);
                }
                self.new = Some(set);
            }
            None if create => self.create(next).await?,
            None => return Ok(()),
        }
        if let Some(revision) = self.new.as_ref().and_then(|set| set.annotations().get(REVISION)) {
            self.deployment.annotations_mut().insert(REVISION.into(), revision.clone());
        }
        Ok(())
    }

    async fn create(&mut self, revision: i64) -> Result<()> {
        let spec = self.spec().clone();
        let collisions = self.deployment.status.as_ref().and_then(|status| status.collision_count);
        let hash = pods::hash(&spec.template, collisions);
        let label = |labels: &mut Option<BTreeMap<String, String>>| {
            labels.get_or_insert_default().insert(HASH.to_owned(), hash.clone());
        };
        let (mut template, mut selector) = (spec.template.clone(), spec.selector.clone());
        label(&mut template.metadata.get_or_insert_default().labels);
        label(&mut selector.match_labels);
        let metadata = ObjectMeta {
            name: Some(format!("{}-{hash}", self.deployment.name_any())),
            namespace: self.deployment.namespace(),
            labels: template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()),
            ..ObjectMeta::default()
        };
        let replicas = self.growth(0);
        let set = ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        };
        let mut set = ReplicaSet { metadata, spec: Some(set), status: None };
        self.annotate(&mut set, revision, false);
        let set = match self.cx.create(&set).await {
            Ok(set) => set,
            Err(error) if error.status().is_some_and(kube::core::Status::is_already_exists) => {
                return self.collide(&set.name_any(), error).await;
            }
            Err(error) => {
                let text = error.to_string();
                self.progress("False", "ReplicaSetCreateError", text);
                self.write_status().await?;
                return Err(error);
            }
        };
        let name = set.name_any();
        self.progress("True", "NewReplicaSetCreated", format!("Created new replica set \"{name}\""));
        self.new = Some(set);
        if replicas > 0 {
            self.publish(format!("Scaled up replica set {name} from 0 to {replicas}")).await;
        }
        Ok(())
    }

    /// Increments the collision count: the hash names a replica set of another template.
    async fn collide(&mut self, name: &str, error: Error) -> Result<()> {
        let there = self.cx.get::<ReplicaSet>(&self.cx.sibling(name)).await?;
        let ours =
            there.filter(|set| owners::controls(&self.deployment, set) && is_of(set, Some(&self.spec().template)));
        if ours.is_some() {
            self.new = ours;
            return Ok(());
        }
        let count = self.deployment.status.get_or_insert_default().collision_count.get_or_insert_default();
        *count += 1;
        self.write_status().await?;
        Err(error)
    }

    /// Sets the annotations of the new replica set.
    fn annotate(&self, set: &mut ReplicaSet, next: i64, exists: bool) {
        let before = set.annotations().get(REVISION).cloned();
        let own = self.deployment.annotations().iter().filter(|(name, _)| !NOT_COPIED.contains(&name.as_str()));
        let annotations = set.annotations_mut();
        annotations.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        if before.as_ref().and_then(|revision| revision.parse().ok()).unwrap_or(0) < next {
            annotations.insert(REVISION.into(), next.to_string());
            if let Some(before) = before.filter(|_| exists) {
                let past = annotations.get(HISTORY).filter(|past| !past.is_empty());
                let mut past = past.map_or_else(|| before.clone(), |past| format!("{past},{before}"));
                while past.len() > MAX_HISTORY_BYTES {
                    let Some((_, later)) = past.split_once(',') else { break };
                    past = later.to_owned();
                }
                annotations.insert(HISTORY.into(), past);
            }
        }
        if !exists {
            self.annotate_sizes(annotations);
        }
    }

    pub(super) fn annotate_sizes(&self, annotations: &mut BTreeMap<String, String>) {
        annotations.insert(DESIRED.into(), self.desired().to_string());
        annotations.insert(MAX.into(), self.desired().saturating_add(self.bounds().surge).to_string());
    }

    /// Deletes the oldest unused replica sets beyond the history limit.
    pub(super) async fn clean_up(&self) -> Result<()> {
        let limit = self.spec().revision_history_limit.unwrap_or(i32::MAX);
        let mut old: Vec<&ReplicaSet> = self.old.iter().filter(|set| !pods::is_deleting(*set)).collect();
        old.sort_by_key(|set| revision(set));
        let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for set in &old[..excess] {
            if super::replicas(set) == 0 && !super::has_pods(set) {
                self.cx.delete(*set).await?;
            }
        }
        Ok(())
    }
}
