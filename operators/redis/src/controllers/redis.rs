//! Controller for `Redis`.

use crate::api::redis_v1alpha1::{Redis, RedisStatus};
use flyball::{Action, Children, Context, Controller, Reconcile, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

/// Reconciles each `Redis`.
#[derive(Debug)]
pub struct RedisReconciler;

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller() -> Controller<RedisReconciler> {
    Controller::new(RedisReconciler).owns::<Pod>()
}

impl Reconcile for RedisReconciler {
    type Resource = Redis;

    /// Brings the cluster to the state that the `Redis` describes.
    ///
    /// Called when the `Redis` or an object that it owns may have changed, and possibly more often.
    async fn reconcile(&self, redis: &Redis, cx: &Context<Redis>) -> Result<Action> {
        let pods: Vec<String> = (0..redis.spec.size).map(|number| format!("{}-{number}", redis.name_any())).collect();
        let mut children = Children::new();
        for name in &pods {
            // A stage for each pod reports whether it is ready. Stages do not wait for each other.
            children = children.stage(name).after::<String>([]).child(&pod(redis, name)?);
        }
        let rollout = cx.apply_all(&children).await?;
        let ready = pods.iter().filter(|pod| rollout.is_stage_ready(pod)).count();
        let ready = i32::try_from(ready).unwrap_or(i32::MAX);
        cx.set_status(&RedisStatus { pods, ready, conditions: vec![rollout.condition("Ready")] }).await?;
        Ok(Action::done())
    }
}

fn pod(redis: &Redis, name: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app.kubernetes.io/instance": redis.name_any()}},
        "spec": {"containers": [{"name": "redis", "image": redis.spec.image, "ports": [{"containerPort": 6379}]}]},
    }))?)
}
