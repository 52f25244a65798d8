//! Forgets to restart a pod after a change of its configuration: only the status says that the pod is out of date. Seen
//! in Orange-OpenSource/nifikop #130.

use crate::suite::Bug;
use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
use flyball_explore::{Explorer, Oracle, Scenario};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

const SAMPLE: &str = "
apiVersion: flows.example.com/v1
kind: Router
metadata: {name: edge}
spec: {config: routes=1}
";
const CHANGED: &str = "
apiVersion: flows.example.com/v1
kind: Router
metadata: {name: edge}
spec: {config: routes=2}
";
/// Annotation of a pod with the configuration that it read at its start.
const CONFIG: &str = "flows.example.com/config";

/// Desired state of a `Router`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "flows.example.com", version = "v1", kind = "Router", namespaced, status = "RouterStatus")]
#[serde(rename_all = "camelCase")]
pub(crate) struct RouterSpec {
    /// Configuration, which the pod reads at its start.
    config: String,
}

/// Observed state of a `Router`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RouterStatus {
    /// True from a change of the configuration until the restart of the pod.
    #[serde(default)]
    config_out_of_sync: bool,
}

struct Routers<const FIXED: bool>;

impl<const FIXED: bool> Reconcile for Routers<FIXED> {
    type Resource = Router;

    async fn reconcile(&self, router: &Router, cx: &Context<Router>) -> Result<Action> {
        let (name, config) = (router.name_any(), &router.spec.config);
        let mut out_of_sync = router.status.as_ref().is_some_and(|status| status.config_out_of_sync);
        let map: Option<ConfigMap> = cx.get(&cx.sibling(&name)).await?;
        let current = map.and_then(|map| map.data?.remove("config"));
        if current.as_ref() != Some(config) {
            cx.apply(&config_map(router)?).await?;
            out_of_sync = current.is_some();
            cx.set_status(&RouterStatus { config_out_of_sync: out_of_sync }).await?;
        }
        match cx.get::<Pod>(&cx.sibling(&name)).await? {
            None => {
                // The configuration of a pod never changes, so an existing one is not changed by a stale router.
                cx.create(&pod(router)?).await?;
                cx.set_status(&RouterStatus { config_out_of_sync: false }).await?;
            }
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => {}
            Some(pod) => {
                if FIXED {
                    out_of_sync = pod.annotations().get(CONFIG) != Some(config);
                    cx.set_status(&RouterStatus { config_out_of_sync: out_of_sync }).await?;
                }
                if out_of_sync {
                    cx.delete(&pod).await?;
                }
            }
        }
        Ok(Action::done())
    }
}

fn config_map(router: &Router) -> Result<ConfigMap> {
    let metadata = json!({"name": router.name_any()});
    Ok(serde_json::from_value(json!({"metadata": metadata, "data": {"config": router.spec.config}}))?)
}

fn pod(router: &Router) -> Result<Pod> {
    let name = router.name_any();
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {CONFIG: router.spec.config}},
        "spec": {
            "containers": [{
                "name": "router",
                "image": "registry.example.com/router:1",
                "volumeMounts": [{"name": "config", "mountPath": "/etc/router"}],
            }],
            "volumes": [{"name": "config", "configMap": {"name": name}}],
        },
    }))?)
}

fn operator<const FIXED: bool>() -> Operator {
    let controller = Controller::new(Routers::<FIXED>).owns::<ConfigMap>().owns::<Pod>();
    Operator::new("router-operator").crd(Router::crd()).controller(controller)
}

fn explorer<const FIXED: bool>() -> Explorer {
    Explorer::of(operator::<FIXED>).scenario(Scenario::new("change").apply(SAMPLE).settle().apply(CHANGED).settle())
}

pub(crate) const BUG: Bug = Bug {
    buggy: explorer::<false>,
    fixed: explorer::<true>,
    oracle: Oracle::Convergence,
    object: "pods/edge",
    schedule: "change; seed=1; steps=1,2,3; patch:configmaps/edge#2 crash-after",
};
