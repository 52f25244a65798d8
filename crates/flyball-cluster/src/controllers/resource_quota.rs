//! Computes the usage of a namespace's quotas.
//!
//! Admission adds new objects to the usage; this controller recomputes it after deletions, and when a quota changes.
//! See <https://kubernetes.io/docs/concepts/policy/resource-quotas/>.

use super::discovery::{self, ServedResource};
use crate::workload::{owners, pods};
use flyball::{Action, Caches, Context, Controller, ObjectKey, Predicate, Reconcile, Resource, Result};
use flyball_core::{GroupResource, Object};
use flyball_server::quota::{self, Amounts};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, ResourceQuotaStatus, Secret, Service,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Recount interval for watched kinds, in case a change has no event.
const RECOUNT_WATCHED: Duration = Duration::from_mins(5);
/// Recount interval for kinds without a watch, whose deletions are not reported.
const RECOUNT_UNWATCHED: Duration = Duration::from_secs(10);

/// Number of objects that are read by one request.
const PAGE_SIZE: u32 = 100;

/// The resources that are watched.
const WATCHED: [(&str, &str); 13] = [
    ("", "configmaps"),
    ("", "persistentvolumeclaims"),
    ("", "pods"),
    ("", "replicationcontrollers"),
    ("", "resourcequotas"),
    ("", "secrets"),
    ("", "services"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
];

/// Creates the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    let controller = Controller::new(Quotas)
        .watches_by_key::<Pod>(quotas_beside)
        .filter::<Pod>(Predicate::new(|old, new| pods::is_over(old) != pods::is_over(new)))
        .watches_by_key::<Service>(quotas_beside)
        .watches_by_key::<PersistentVolumeClaim>(quotas_beside);
    let controller = counted::<PartialObjectMeta<ConfigMap>>(counted::<PartialObjectMeta<Secret>>(controller));
    let controller = counted::<ReplicationController>(controller);
    let controller = counted::<Deployment>(counted::<ReplicaSet>(counted::<StatefulSet>(controller)));
    counted::<DaemonSet>(counted::<Job>(counted::<CronJob>(controller))).replaces::<ResourceQuota>()
}

/// Watches a kind of which only the number of objects matters.
fn counted<T: Resource>(controller: Controller<Quotas>) -> Controller<Quotas> {
    controller.watches_by_key::<T>(quotas_beside).filter::<T>(Predicate::never())
}

fn quotas_beside(object: &ObjectKey, caches: &Caches) -> Result<Vec<ObjectKey>> {
    caches.keys::<ResourceQuota>(object.namespace())
}

struct Quotas;

impl Reconcile for Quotas {
    type Resource = ResourceQuota;

    async fn reconcile(&self, quota: &ResourceQuota, cx: &Context<ResourceQuota>) -> Result<Action> {
        let Some(hard) = quota.spec.as_ref().and_then(|spec| spec.hard.clone()) else { return Ok(Action::done()) };
        let is_watched = |name: &String| {
            let resource = counted_by(name);
            WATCHED.contains(&(&*resource.group, &*resource.resource))
        };
        let recount = if hard.keys().all(is_watched) { RECOUNT_WATCHED } else { RECOUNT_UNWATCHED };
        let (used, result) = count(quota, &hard, cx).await?;
        let status = ResourceQuotaStatus { hard: Some(hard), used: Some(used) };
        if quota.status.as_ref() != Some(&status) {
            // On a conflict, admission has changed the usage meanwhile: the counts may be outdated.
            owners::tolerate(cx.replace_status(&ResourceQuota { status: Some(status), ..quota.clone() }).await)?;
        }
        result.map(|()| Action::requeue_after(recount))
    }
}

/// Computes the usage of all limits of the quota. If objects of one resource cannot be read, its usage remains
/// unchanged, and the first error is returned as well.
async fn count(
    quota: &ResourceQuota,
    hard: &BTreeMap<String, Quantity>,
    cx: &Context<ResourceQuota>,
) -> Result<(BTreeMap<String, Quantity>, Result<()>)> {
    let spec = serde_json::to_value(&quota.spec)?;
    let zero = |name: &String| (name.clone(), flyball_core::Quantity::ZERO);
    let mut sums: Amounts = hard.keys().map(zero).collect();
    let resources: BTreeSet<GroupResource> = hard.keys().map(|name| counted_by(name)).collect();
    let (mut failed, mut result) = (BTreeSet::new(), Ok(()));
    let served = discovery::served(cx.client()).await?;
    for served in served.iter().filter(|served| served.namespaced && served.can(&["list"])) {
        if !resources.contains(&served.resource) {
            continue;
        }
        let add = |object: &Object| {
            if !quota::applies_to(&spec, &served.resource, object) {
                return;
            }
            for (name, amount) in quota::usage(&served.resource, object, cx.now()) {
                if let Some(sum) = sums.get_mut(&name) {
                    *sum = sum.plus(&amount);
                }
            }
        };
        if let Err(error) = read_all(served, cx, add).await {
            failed.insert(served.resource.clone());
            result = result.and(Err(error));
        }
    }
    let before = quota.status.as_ref().and_then(|status| status.used.as_ref());
    let mut used = BTreeMap::new();
    for (name, sum) in sums {
        if !failed.contains(&counted_by(&name)) {
            used.insert(name, Quantity(sum.to_string()));
        } else if let Some(known) = before.and_then(|before| before.get(&name)) {
            used.insert(name, known.clone());
        }
    }
    Ok((used, result))
}

/// Returns the resource that a limit of a quota counts.
fn counted_by(name: &str) -> GroupResource {
    let core = |plural: &str| GroupResource::new("", plural);
    if let Some(counted) = name.strip_prefix("count/") {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return GroupResource::new(group, plural);
    }
    match name {
        "configmaps" | "pods" | "replicationcontrollers" | "resourcequotas" | "secrets" | "services" => core(name),
        "services.loadbalancers" | "services.nodeports" => core("services"),
        "persistentvolumeclaims" | "requests.storage" => core("persistentvolumeclaims"),
        _ if name.contains(".storageclass.storage.k8s.io/") => core("persistentvolumeclaims"),
        _ => core("pods"),
    }
}

/// Reads the objects of a namespace from the API server, since the usage must be exact, page by page, since there may
/// be very many.
async fn read_all(served: &ServedResource, cx: &Context<ResourceQuota>, mut add: impl FnMut(&Object)) -> Result<()> {
    let path = served.path(cx.key().namespace());
    let mut continue_token = None;
    loop {
        let params = ListParams { continue_token, ..ListParams::default().limit(PAGE_SIZE) };
        let request = kube::core::Request::new(&path);
        let request = match quota::reads_content(&served.resource) {
            true => request.list(&params),
            false => request.list_metadata(&params),
        };
        let mut page: Value = cx.client().request(request.map_err(kube::Error::BuildRequest)?).await?;
        for item in page["items"].as_array_mut().into_iter().flatten() {
            if let Ok(object) = Object::try_from(item.take()) {
                add(&object);
            }
        }
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => continue_token = Some(next.to_owned()),
            _ => return Ok(()),
        }
    }
}
