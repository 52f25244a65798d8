//! Shrinks volumes: the size in the set is compared by inequality with a spec that may be out of date. Seen in
//! rabbitmq/cluster-operator #653.

use crate::objects::{STORAGE_CLASS, api, claim_size, owner_of, rule, stateful_set, template_size};
use crate::suite::Bug;
use flyball::{Action, Context, Controller, Error, Operator, Reconcile, Result};
use flyball_explore::{Explorer, Oracle, Scenario};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

const SAMPLE: &str = "
apiVersion: queues.example.com/v1
kind: Broker
metadata: {name: orders}
spec: {storage: 10}
";
const RESIZED: &str = "
apiVersion: queues.example.com/v1
kind: Broker
metadata: {name: orders}
spec: {storage: 15}
";

/// Desired state of a `Broker`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "queues.example.com", version = "v1", kind = "Broker", namespaced)]
pub(crate) struct BrokerSpec {
    /// Size of the volume in GiB, which can only grow.
    #[schemars(range(min = 1, max = 64))]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self >= oldSelf", "message": "volumes cannot shrink"}]))]
    storage: i32,
}

struct Brokers<const FIXED: bool>;

impl<const FIXED: bool> Reconcile for Brokers<FIXED> {
    type Resource = Broker;

    async fn reconcile(&self, broker: &Broker, cx: &Context<Broker>) -> Result<Action> {
        let (name, storage) = (broker.name_any(), broker.spec.storage);
        // Read from the API server, since the set may be deleted.
        let set = api::<Broker, StatefulSet>(cx).get_opt(&name).await?;
        let current = set.as_ref().map_or(storage, template_size);
        let deleted = if FIXED {
            if storage < current {
                return Err(Error::from("volumes cannot shrink").wait());
            }
            if storage > current && !is_current(broker, cx).await? {
                return Ok(Action::requeue());
            }
            storage > current
        } else {
            storage != current
        };
        // The template of a set cannot be changed: it is deleted without its pods, and created again.
        if let Some(set) = set.filter(|_| deleted) {
            let uid = Preconditions { uid: set.uid().filter(|_| FIXED), resource_version: None };
            api::<Broker, StatefulSet>(cx).delete(&name, &DeleteParams::orphan().preconditions(uid)).await?;
        }
        resize_claims(broker, cx).await?;
        if !deleted {
            let labels = json!({"broker": name});
            cx.apply(&stateful_set(&name, 1, storage, &labels, &labels)?).await?;
        }
        Ok(Action::done())
    }
}

async fn resize_claims(broker: &Broker, cx: &Context<Broker>) -> Result<()> {
    let (name, storage) = (broker.name_any(), broker.spec.storage);
    let claims: Api<PersistentVolumeClaim> = api(cx);
    for claim in cx.list::<PersistentVolumeClaim>(broker.namespace().as_deref()).await? {
        if claim.labels().get("broker") == Some(&name) && claim_size(&claim) != storage {
            let size = json!({"spec": {"resources": {"requests": {"storage": format!("{storage}Gi")}}}});
            claims.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(size)).await?;
        }
    }
    Ok(())
}

/// Returns true if the API server has this very spec.
async fn is_current(broker: &Broker, cx: &Context<Broker>) -> Result<bool> {
    let live = api::<Broker, Broker>(cx).get_opt(&broker.name_any()).await?;
    Ok(live.is_some_and(|live| live.uid() == broker.uid() && live.spec.storage == broker.spec.storage))
}

fn operator<const FIXED: bool>() -> Operator {
    let controller = Controller::new(Brokers::<FIXED>)
        .owns::<StatefulSet>()
        .owns::<PersistentVolumeClaim>()
        .watches(|claim: &PersistentVolumeClaim, _| Ok(owner_of(claim, "broker")))
        .allows(rule("queues.example.com", "brokers", &["get"]));
    Operator::new("broker-operator").crd(Broker::crd()).controller(controller)
}

fn explorer<const FIXED: bool>() -> Explorer {
    Explorer::of(operator::<FIXED>)
        .prerequisites(STORAGE_CLASS)
        .scenario(Scenario::new("resize").apply(SAMPLE).settle().apply(RESIZED).settle())
}

pub(crate) const BUG: Bug = Bug {
    buggy: explorer::<false>,
    fixed: explorer::<true>,
    oracle: Oracle::History,
    object: "apps/statefulsets/orders",
    schedule: "resize; seed=1; step:5 restart-stale=watch:apps/statefulsets/orders%233",
};
