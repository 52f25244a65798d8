//! Creates children of an object that is gone: the reconcile goes on after it removed the last finalizer. Seen in
//! pravega/zookeeper-operator #410.

use crate::finalizers::set_finalizer;
use crate::objects::{api, rule};
use crate::suite::Bug;
use flyball::{Action, Context, Controller, Event, Operator, Reconcile, Result};
use flyball_explore::{Explorer, Oracle};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::PostParams;
use kube::{CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Debug;

const FINALIZER: &str = "ensembles.example.com/sessions";
const SAMPLE: &str = "
apiVersion: ensembles.example.com/v1
kind: Ensemble
metadata: {name: quorum}
spec: {port: 2181}
";

/// Desired state of an `Ensemble`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "ensembles.example.com", version = "v1", kind = "Ensemble", namespaced)]
pub(crate) struct EnsembleSpec {
    /// Port of the clients.
    #[schemars(range(min = 1, max = 65535))]
    port: i32,
}

struct Ensembles<const FIXED: bool>;

impl<const FIXED: bool> Reconcile for Ensembles<FIXED> {
    type Resource = Ensemble;

    async fn reconcile(&self, ensemble: &Ensemble, cx: &Context<Ensemble>) -> Result<Action> {
        if ensemble.metadata.deletion_timestamp.is_some() {
            cx.event(Event::normal("Stopped", "no more sessions are accepted"));
            set_finalizer(ensemble, cx, FINALIZER, false).await?;
            if FIXED {
                return Ok(Action::done());
            }
        } else {
            set_finalizer(ensemble, cx, FINALIZER, true).await?;
        }
        let (name, port) = (ensemble.name_any(), ensemble.spec.port);
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": name},
            "data": {"clientPort": port.to_string()},
        }))?;
        ensure::<ConfigMap, FIXED>(map, ensemble, cx).await?;
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"selector": {"ensemble": name}, "ports": [{"port": port}]},
        }))?;
        ensure::<Service, FIXED>(service, ensemble, cx).await?;
        Ok(Action::done())
    }
}

/// Creates a child if it does not exist. The framework also checks that its owner exists.
async fn ensure<T, const FIXED: bool>(mut child: T, owner: &Ensemble, cx: &Context<Ensemble>) -> Result<()>
where
    T: flyball::Resource + Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize,
{
    if FIXED {
        cx.apply(&child).await?;
    } else if cx.get::<T>(&cx.sibling(&child.name_any())).await?.is_none() {
        child.meta_mut().owner_references = Some(owner.controller_owner_ref(&()).into_iter().collect());
        cx.record_write(&api::<_, T>(cx).create(&PostParams::default(), &child).await?);
    }
    Ok(())
}

fn operator<const FIXED: bool>() -> Operator {
    let controller = Controller::new(Ensembles::<FIXED>)
        .owns::<ConfigMap>()
        .owns::<Service>()
        .allows(rule("ensembles.example.com", "ensembles", &["patch"]))
        .while_deleting();
    Operator::new("ensemble-operator").crd(Ensemble::crd()).controller(controller)
}

fn explorer<const FIXED: bool>() -> Explorer {
    Explorer::of(operator::<FIXED>).sample(SAMPLE)
}

pub(crate) const BUG: Bug = Bug {
    buggy: explorer::<false>,
    fixed: explorer::<true>,
    oracle: Oracle::History,
    object: "configmaps/quorum",
    schedule: "default; seed=1; steps=1,2,3; watch:configmaps/quorum#1 hold=30",
};
