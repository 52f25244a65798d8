//! Brings the world in line with each `Foo`.

use crate::api::foo_v1alpha1::{Foo, FooStatus};
use flyball::{Action, Context, Controller, Error, Event, Reconcile, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Resource, ResourceExt};
use serde_json::json;

/// Reconciles each `Foo`.
#[derive(Debug)]
pub struct FooReconciler;

/// Makes the controller. The operator's permissions follow from what is declared here.
pub fn controller() -> Controller<FooReconciler> {
    Controller::new(FooReconciler).owns::<Deployment>()
}

impl Reconcile for FooReconciler {
    type Resource = Foo;

    /// Is called when a `Foo` or what it owns may have changed, and may be called at any time: it looks at what is
    /// desired and makes it so, whatever was the case before.
    async fn reconcile(&self, wanted: &Foo, cx: &Context<Foo>) -> Result<Action> {
        let name = &wanted.spec.deployment_name;
        let found: Option<Deployment> = cx.get(&cx.sibling(name)).await?;
        if found.is_some_and(|found| !is_controlled(&found, wanted)) {
            let message = format!("Resource {name:?} already exists and is not managed by Foo");
            cx.event(Event::warning("ErrResourceExists", message.as_str()));
            return Err(Error::from(message));
        }
        let deployment = cx.apply(&deployment(wanted)?).await?;
        let available_replicas = deployment.status.and_then(|status| status.available_replicas).unwrap_or_default();
        let status = FooStatus { available_replicas };
        if wanted.status.as_ref() != Some(&status) {
            cx.event(Event::normal("Synced", "Foo synced successfully"));
        }
        cx.set_status(&status).await?;
        Ok(Action::done())
    }
}

/// Tells whether a Deployment is that of this `Foo`, as its controller reference says.
fn is_controlled(deployment: &Deployment, wanted: &Foo) -> bool {
    let mut owners = deployment.owner_references().iter();
    owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == wanted.meta().uid.as_ref())
}

fn deployment(wanted: &Foo) -> Result<Deployment> {
    let labels = json!({"app": "nginx", "controller": wanted.name_any()});
    Ok(serde_json::from_value(json!({
        "metadata": {"name": wanted.spec.deployment_name},
        "spec": {
            "replicas": wanted.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    }))?)
}
