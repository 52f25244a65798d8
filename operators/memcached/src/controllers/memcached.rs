//! Controller for `Memcached`.

use crate::api::memcached_v1alpha1::{Memcached, MemcachedStatus};
use flyball::{Action, Condition, Context, Controller, ObjectKey, Reconcile, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

/// Label selector for the pods of all `Memcached` objects.
pub const SELECTOR: &str = "app.kubernetes.io/name=memcached";
/// Label of a pod with the name of its `Memcached`.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// Reconciles each `Memcached`.
#[derive(Debug)]
pub struct MemcachedReconciler;

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller() -> Controller<MemcachedReconciler> {
    Controller::new(MemcachedReconciler).owns::<Deployment>().watches::<Pod>(|pod, _| {
        let instance = pod.labels().get(INSTANCE);
        Ok(instance.map(|name| ObjectKey::new(pod.namespace().as_deref(), name)).into_iter().collect())
    })
}

impl Reconcile for MemcachedReconciler {
    type Resource = Memcached;

    /// Brings the cluster to the state that the `Memcached` describes.
    ///
    /// Called when the `Memcached` or an object that it owns may have changed, and possibly more often.
    async fn reconcile(&self, memcached: &Memcached, cx: &Context<Memcached>) -> Result<Action> {
        let (size, name) = (memcached.spec.size, memcached.name_any());
        let deployment = cx.apply(&deployment(memcached)?).await?;
        let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or_default();
        let pods = cx.list::<Pod>(memcached.namespace().as_deref()).await?;
        // The cache lists objects sorted by name, so the status is stable.
        let nodes = pods.iter().filter(|pod| pod.labels().get(INSTANCE) == Some(&name)).map(Pod::name_any).collect();
        let available = Condition::new("Available", ready == size, if ready == size { "Ready" } else { "NotReady" })
            .message(format!("{ready} of {size} pods are ready"));
        cx.set_status(&MemcachedStatus { nodes, conditions: vec![available] }).await?;
        Ok(Action::done())
    }
}

fn deployment(memcached: &Memcached) -> Result<Deployment> {
    let labels = json!({"app.kubernetes.io/name": "memcached", INSTANCE: memcached.name_any()});
    Ok(serde_json::from_value(json!({
        "metadata": {"name": memcached.name_any()},
        "spec": {
            "replicas": memcached.spec.size,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{
                        "name": "memcached",
                        "image": "memcached:1.6-alpine",
                        "command": ["memcached", "-m=64", "-o", "modern", "-v"],
                        "ports": [{"name": "memcached", "containerPort": memcached.spec.container_port}],
                    }],
                },
            },
        },
    }))?)
}
