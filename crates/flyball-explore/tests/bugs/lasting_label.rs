//! Leaves removed labels on its child, because it merges the desired ones into those of the live object; or removes
//! those of others, because it replaces them. Seen in zilliztech/milvus-operator #232 and seaweedfs-operator #371.

use crate::suite::Bug;
use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
use flyball_explore::{Explorer, Oracle};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Toleration;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SAMPLE: &str = "
apiVersion: sites.example.com/v1
kind: Site
metadata: {name: docs}
spec:
  labels: {team: writers}
  annotations: {contact: docs@example.com}
  tolerations: [spot]
";

/// Adds labels, annotations and tolerations to those of the live object.
const MERGE: u8 = 0;
/// Replaces labels, annotations and tolerations.
const REPLACE: u8 = 1;
/// Applies labels, annotations and tolerations with a field manager.
const APPLY: u8 = 2;

/// Desired state of a `Site`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "sites.example.com", version = "v1", kind = "Site", namespaced)]
pub(crate) struct SiteSpec {
    /// Labels of the Deployment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// Annotations of the Deployment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    /// Keys of the taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tolerations: Vec<String>,
}

struct Sites<const UPDATE: u8>;

impl<const UPDATE: u8> Reconcile for Sites<UPDATE> {
    type Resource = Site;

    async fn reconcile(&self, site: &Site, cx: &Context<Site>) -> Result<Action> {
        let desired = deployment(site)?;
        let live: Option<Deployment> = cx.get(&cx.sibling(&site.name_any())).await?;
        let Some(live) = live.filter(|_| UPDATE != APPLY) else {
            cx.apply(&desired).await?;
            return Ok(Action::done());
        };
        let changed = updated::<UPDATE>(&live, desired);
        if changed != live {
            cx.replace(&changed).await?;
        }
        Ok(Action::done())
    }
}

/// Returns the live object with the desired labels, annotations and tolerations.
fn updated<const UPDATE: u8>(live: &Deployment, mut desired: Deployment) -> Deployment {
    let mut changed = live.clone();
    let new = tolerations(&mut desired).and_then(Option::take).unwrap_or_default();
    let (metadata, desired) = (&mut changed.metadata, desired.metadata);
    let maps = [(&mut metadata.labels, desired.labels), (&mut metadata.annotations, desired.annotations)];
    for (old, new) in maps {
        let mut all = old.take().filter(|_| UPDATE == MERGE).unwrap_or_default();
        all.extend(new.unwrap_or_default());
        *old = Some(all).filter(|all| !all.is_empty());
    }
    if let Some(old) = tolerations(&mut changed) {
        let mut all = old.take().filter(|_| UPDATE == MERGE).unwrap_or_default();
        for toleration in new {
            if !all.contains(&toleration) {
                all.push(toleration);
            }
        }
        *old = Some(all).filter(|all| !all.is_empty());
    }
    changed
}

fn tolerations(deployment: &mut Deployment) -> Option<&mut Option<Vec<Toleration>>> {
    Some(&mut deployment.spec.as_mut()?.template.spec.as_mut()?.tolerations)
}

fn deployment(site: &Site) -> Result<Deployment> {
    let (name, spec) = (site.name_any(), &site.spec);
    let labels = json!({"site": name});
    let tolerations: Vec<Value> =
        spec.tolerations.iter().map(|key| json!({"key": key, "operator": "Exists"})).collect();
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": spec.labels, "annotations": spec.annotations},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "server", "image": "registry.example.com/server:1"}],
                    "tolerations": tolerations,
                },
            },
        },
    }))?)
}

fn operator<const UPDATE: u8>() -> Operator {
    let controller = Controller::new(Sites::<UPDATE>).owns::<Deployment>().replaces::<Deployment>();
    Operator::new("site-operator").crd(Site::crd()).controller(controller)
}

fn explorer<const UPDATE: u8>() -> Explorer {
    Explorer::of(operator::<UPDATE>).sample(SAMPLE)
}

pub(crate) const MERGED: Bug = Bug {
    buggy: explorer::<MERGE>,
    fixed: explorer::<APPLY>,
    oracle: Oracle::PathIndependence,
    object: "apps/deployments/docs",
    schedule: "path/site/annotations%3dabsent; seed=1; without=/spec/labels",
};

pub(crate) const REPLACED: Bug = Bug {
    buggy: explorer::<REPLACE>,
    fixed: explorer::<APPLY>,
    oracle: Oracle::Quiescence,
    object: "apps/deployments/docs",
    schedule: "default; seed=1",
};
