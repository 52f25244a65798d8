//! Keeps its finalizer as long as the referenced Service exists: the test for an object that is not found is inverted.
//! Seen in netbirdio/kubernetes-operator #191.

use crate::objects::{api, rule};
use crate::suite::Bug;
use flyball::{Action, Context, Controller, Error, ObjectKey, Operator, Reconcile, Result};
use flyball_explore::{Explorer, Oracle};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const SAMPLE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: mesh.example.com/v1
kind: Exposure
metadata: {name: public}
spec: {service: web}
";
/// Annotation of an exposed Service.
const EXPOSED: &str = "mesh.example.com/exposed";

/// Desired state of an `Exposure`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "mesh.example.com", version = "v1", kind = "Exposure", namespaced)]
pub(crate) struct ExposureSpec {
    /// Name of the exposed Service.
    service: String,
}

struct Exposures<const FIXED: bool>;

impl<const FIXED: bool> Reconcile for Exposures<FIXED> {
    type Resource = Exposure;
    const FINALIZER: Option<&'static str> = Some("mesh.example.com/exposure");

    async fn reconcile(&self, exposure: &Exposure, cx: &Context<Exposure>) -> Result<Action> {
        let name = &exposure.spec.service;
        let service: Option<Service> = cx.get(&cx.sibling(name)).await?;
        let service = service.ok_or_else(|| Error::from(format!("there is no service {name}")).wait())?;
        if !service.metadata.annotations.is_some_and(|annotations| annotations.contains_key(EXPOSED)) {
            annotate(name, json!("true"), cx).await?;
        }
        Ok(Action::done())
    }

    async fn finalize(&self, exposure: &Exposure, cx: &Context<Exposure>) -> Result<Action> {
        let name = &exposure.spec.service;
        let found = match annotate(name, Value::Null, cx).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => false,
            result => result.map(|()| true)?,
        };
        if found && !FIXED {
            return Err(format!("service {name} exists").into());
        }
        Ok(Action::done())
    }
}

/// Sets the annotation of a Service, or removes it.
async fn annotate(service: &str, value: Value, cx: &Context<Exposure>) -> kube::Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {EXPOSED: value}}}));
    let changed: Service = api(cx).patch(service, &PatchParams::default(), &patch).await?;
    cx.record_write(&changed);
    Ok(())
}

fn operator<const FIXED: bool>() -> Operator {
    let controller = Controller::new(Exposures::<FIXED>)
        .refers_to::<Service>(|exposure| vec![ObjectKey::new(None, &exposure.spec.service)])
        .allows(rule("", "services", &["patch"]));
    Operator::new("exposure-operator").crd(Exposure::crd()).controller(controller)
}

fn explorer<const FIXED: bool>() -> Explorer {
    Explorer::of(operator::<FIXED>).sample(SAMPLE)
}

pub(crate) const BUG: Bug = Bug {
    buggy: explorer::<false>,
    fixed: explorer::<true>,
    oracle: Oracle::Finalizers,
    object: "mesh.example.com/exposures/public",
    schedule: "delete/reverse; seed=1; without=/spec/ports; without=/spec/selector",
};
