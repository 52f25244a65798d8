//! Creates too many pods: it counts those in the cache, which may not have observed its own writes, and gives them
//! random names. Seen in ray-project/kuberay #715.

use crate::objects::api;
use crate::suite::Bug;
use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
use flyball_explore::{Explorer, Oracle};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

const SAMPLE: &str = "
apiVersion: batch.example.com/v1
kind: Pool
metadata: {name: workers}
spec: {size: 3}
";

/// Desired state of a `Pool`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "batch.example.com", version = "v1", kind = "Pool", namespaced)]
pub(crate) struct PoolSpec {
    /// Number of pods.
    #[schemars(range(min = 0, max = 10))]
    size: usize,
}

struct Pools<const FIXED: bool>;

impl<const FIXED: bool> Reconcile for Pools<FIXED> {
    type Resource = Pool;

    async fn reconcile(&self, pool: &Pool, cx: &Context<Pool>) -> Result<Action> {
        let (name, size) = (pool.name_any(), pool.spec.size);
        let mut pods = cx.children::<Pod>().await?;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        if FIXED {
            for ordinal in 0..size {
                cx.apply(&pod(json!({"name": format!("{name}-{ordinal}")}))?).await?;
            }
            let is_surplus = |pod: &Pod| !(0..size).any(|ordinal| pod.name_any() == format!("{name}-{ordinal}"));
            pods.retain(is_surplus);
        } else {
            let api: Api<Pod> = api(cx);
            for _ in pods.len()..size {
                let owners = [pool.controller_owner_ref(&())];
                let metadata = json!({"generateName": format!("{name}-"), "ownerReferences": owners});
                api.create(&PostParams::default(), &pod(metadata)?).await?;
            }
            if pods.len() < size {
                return Ok(Action::requeue_after(Duration::from_secs(2)));
            }
            pods.truncate(pods.len() - size);
        }
        for pod in &pods {
            cx.delete(pod).await?;
        }
        Ok(Action::done())
    }
}

fn pod(metadata: Value) -> Result<Pod> {
    let containers = json!([{"name": "worker", "image": "registry.example.com/worker:1"}]);
    Ok(serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": containers}}))?)
}

fn operator<const FIXED: bool>() -> Operator {
    let controller = Controller::new(Pools::<FIXED>).owns::<Pod>();
    Operator::new("pool-operator").crd(Pool::crd()).controller(controller)
}

fn explorer<const FIXED: bool>() -> Explorer {
    Explorer::of(operator::<FIXED>).nodes(0).sample(SAMPLE)
}

pub(crate) const BUG: Bug = Bug {
    buggy: explorer::<false>,
    fixed: explorer::<true>,
    oracle: Oracle::History,
    object: "pods/workers-*",
    schedule: "default; seed=1; watch:pods/workers-*1#1 hold=30",
};
