//! Forgets volumes of a resize that a crash interrupts: the set that shows the old size is deleted first. Seen in
//! rabbitmq/cluster-operator #782.

use crate::objects::{STORAGE_CLASS, api, claim_size, owner_of, stateful_set, template_size};
use crate::suite::Bug;
use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
use flyball_explore::{Explorer, Oracle, Scenario};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

const SAMPLE: &str = "
apiVersion: search.example.com/v1
kind: Index
metadata: {name: shop}
spec: {storage: 10}
";
const RESIZED: &str = "
apiVersion: search.example.com/v1
kind: Index
metadata: {name: shop}
spec: {storage: 15}
";

/// Desired state of an `Index`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "search.example.com", version = "v1", kind = "Index", plural = "indexes", namespaced)]
pub(crate) struct IndexSpec {
    /// Size of the volume in GiB, which can only grow.
    #[schemars(range(min = 1, max = 64))]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self >= oldSelf", "message": "volumes cannot shrink"}]))]
    storage: i32,
}

struct Indexes<const FIXED: bool>;

impl<const FIXED: bool> Reconcile for Indexes<FIXED> {
    type Resource = Index;

    async fn reconcile(&self, index: &Index, cx: &Context<Index>) -> Result<Action> {
        let (name, storage) = (index.name_any(), index.spec.storage);
        let set: Option<StatefulSet> = cx.get(&cx.sibling(&name)).await?;
        if set.as_ref().is_some_and(|set| set.metadata.deletion_timestamp.is_some()) {
            return Ok(Action::done());
        }
        if FIXED {
            grow_claims(index, cx).await?;
        }
        // The template of a set cannot be changed: it is deleted without its pods. The deletion triggers the next
        // reconcile, which creates it again.
        if let Some(set) = set.filter(|set| storage > template_size(set)) {
            let same = Preconditions { uid: set.uid(), resource_version: None };
            api::<Index, StatefulSet>(cx).delete(&name, &DeleteParams::orphan().preconditions(same)).await?;
            if !FIXED {
                grow_claims(index, cx).await?;
            }
            return Ok(Action::done());
        }
        let labels = json!({"index": name});
        cx.apply(&stateful_set(&name, 1, storage, &labels, &labels)?).await?;
        Ok(Action::done())
    }
}

async fn grow_claims(index: &Index, cx: &Context<Index>) -> Result<()> {
    let (name, storage) = (index.name_any(), index.spec.storage);
    let claims: Api<PersistentVolumeClaim> = api(cx);
    for claim in cx.list::<PersistentVolumeClaim>(index.namespace().as_deref()).await? {
        if claim.labels().get("index") == Some(&name) && claim_size(&claim) < storage {
            let size = json!({"spec": {"resources": {"requests": {"storage": format!("{storage}Gi")}}}});
            claims.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(size)).await?;
        }
    }
    Ok(())
}

fn operator<const FIXED: bool>() -> Operator {
    let controller = Controller::new(Indexes::<FIXED>)
        .owns::<StatefulSet>()
        .owns::<PersistentVolumeClaim>()
        .watches(|claim: &PersistentVolumeClaim, _| Ok(owner_of(claim, "index")));
    Operator::new("index-operator").crd(Index::crd()).controller(controller)
}

fn explorer<const FIXED: bool>() -> Explorer {
    Explorer::of(operator::<FIXED>)
        .prerequisites(STORAGE_CLASS)
        .scenario(Scenario::new("resize").apply(SAMPLE).settle().apply(RESIZED).settle())
}

pub(crate) const BUG: Bug = Bug {
    buggy: explorer::<false>,
    fixed: explorer::<true>,
    oracle: Oracle::Convergence,
    object: "persistentvolumeclaims/data-shop-0",
    schedule: "resize; seed=1; steps=1,2,3; watch:persistentvolumeclaims/data-shop-0#1 hold=30",
};
