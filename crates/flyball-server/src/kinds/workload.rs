//! Defaults of what makes pods.

use super::fill::Fields;
use super::pod;
use flyball_core::Object;
use serde_json::{Value, json};

fn template(workload: &mut Object) {
    workload.inner_or_new("spec").inner("template").into_iter().for_each(pod::template);
}

pub(super) fn deployment(deployment: &mut Object) {
    template(deployment);
    let spec = deployment.inner_or_new("spec");
    spec.fill("replicas", 1);
    spec.fill("revisionHistoryLimit", 10);
    spec.fill("progressDeadlineSeconds", 600);
    let strategy = spec.inner_or_new("strategy");
    strategy.fill("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let rolling = strategy.inner_or_new("rollingUpdate");
        rolling.fill_absent("maxUnavailable", "25%");
        rolling.fill_absent("maxSurge", "25%");
    }
}

pub(super) fn replica_set(set: &mut Object) {
    template(set);
    set.inner_or_new("spec").fill("replicas", 1);
}

pub(super) fn replication_controller(controller: &mut Object) {
    template(controller);
    let labels = controller.at(&["spec", "template", "metadata", "labels"]).cloned();
    let spec = controller.inner_or_new("spec");
    spec.fill("replicas", 1);
    let Some(labels) = labels.filter(Value::is_object) else { return };
    if spec.get("selector").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty) {
        spec.set("selector", labels.clone());
    }
    label(controller, labels);
}

/// Gives the labels of its pods to what has none.
fn label(object: &mut Object, labels: Value) {
    if object.labels().is_none_or(serde_json::Map::is_empty) {
        object.metadata_mut().insert("labels".into(), labels);
    }
}

pub(super) fn daemon_set(set: &mut Object) {
    template(set);
    set.metadata_mut().inner_or_new("annotations").fill(super::apps::TEMPLATES, "0");
    let spec = set.inner_or_new("spec");
    spec.fill("revisionHistoryLimit", 10);
    let strategy = spec.inner_or_new("updateStrategy");
    strategy.fill("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let rolling = strategy.inner_or_new("rollingUpdate");
        rolling.fill_absent("maxUnavailable", 1);
        rolling.fill_absent("maxSurge", 0);
    }
}

pub(super) fn stateful_set(set: &mut Object) {
    template(set);
    let spec = set.inner_or_new("spec");
    spec.fill("podManagementPolicy", "OrderedReady");
    let strategy = spec.inner_or_new("updateStrategy");
    if strategy.text("type").is_empty() {
        strategy.set("type", "RollingUpdate");
        strategy.fill("rollingUpdate", json!({}));
    }
    if strategy.text("type") == "RollingUpdate"
        && let Some(rolling) = strategy.inner("rollingUpdate")
    {
        rolling.fill("partition", 0);
    }
    let retention = spec.inner_or_new("persistentVolumeClaimRetentionPolicy");
    retention.fill("whenDeleted", "Retain");
    retention.fill("whenScaled", "Retain");
    spec.fill("replicas", 1);
    spec.fill("revisionHistoryLimit", 10);
    for claim in spec.each("volumeClaimTemplates") {
        claim.fill("apiVersion", "v1");
        claim.fill("kind", "PersistentVolumeClaim");
        claim.inner_or_new("spec").fill("volumeMode", "Filesystem");
        claim.inner_or_new("status").fill("phase", "Pending");
    }
}

pub(super) fn job(job: &mut Object) {
    job_spec(job.inner_or_new("spec"));
    let labels = job.at(&["spec", "template", "metadata", "labels"]).filter(|labels| labels.is_object()).cloned();
    if let Some(labels) = labels {
        label(job, labels);
    }
    let spec = job.inner_or_new("spec");
    if !spec.has("completions") && !spec.has("parallelism") {
        spec.set("completions", 1);
    }
    spec.fill("parallelism", 1);
    let tries = if spec.has("backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    spec.fill("backoffLimit", tries);
    spec.fill("completionMode", "NonIndexed");
    spec.fill("suspend", false);
    let replaced = if spec.has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.fill("podReplacementPolicy", replaced);
    spec.fill("manualSelector", false);
}

/// Handles the fields that jobs and templates of jobs have in common.
fn job_spec(spec: &mut serde_json::Map<String, Value>) {
    spec.inner("template").into_iter().for_each(pod::template);
    if let Some(policy) = spec.inner("podFailurePolicy") {
        for rule in policy.each("rules") {
            rule.each("onPodConditions").for_each(|pattern| pattern.fill("status", "True"));
        }
    }
}

pub(super) fn cron_job(job: &mut Object) {
    let spec = job.inner_or_new("spec");
    if let Some(template) = spec.inner("jobTemplate").and_then(|template| template.inner("spec")) {
        job_spec(template);
    }
    spec.fill("concurrencyPolicy", "Allow");
    spec.fill("suspend", false);
    spec.fill("successfulJobsHistoryLimit", 3);
    spec.fill("failedJobsHistoryLimit", 1);
}

pub(super) fn pod_template(object: &mut Object) {
    object.inner("template").into_iter().for_each(pod::template);
}
