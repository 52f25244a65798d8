//! Controller for `Foo`.

#![allow(clippy::disallowed_names, reason = "a variable has the name of its kind, Foo")]

use crate::api::foo_v1alpha1::{Foo, FooStatus};
use flyball::{Action, Context, Controller, Error, Event, Reconcile, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Resource, ResourceExt};
use serde_json::json;

/// Reconciles each `Foo`.
#[derive(Debug)]
pub struct FooReconciler;

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller() -> Controller<FooReconciler> {
    Controller::new(FooReconciler).owns::<Deployment>()
}

impl Reconcile for FooReconciler {
    type Resource = Foo;

    /// Brings the cluster to the state that the `Foo` describes.
    ///
    /// Called when the `Foo` or an object that it owns may have changed, and possibly more often.
    async fn reconcile(&self, foo: &Foo, cx: &Context<Foo>) -> Result<Action> {
        let name = &foo.spec.deployment_name;
        let found: Option<Deployment> = cx.get(&cx.sibling(name)).await?;
        if found.is_some_and(|found| !is_controlled(&found, foo)) {
            let message = format!("Resource {name:?} already exists and is not managed by Foo");
            cx.event(Event::warning("ErrResourceExists", message.as_str()));
            return Err(Error::from(message));
        }
        let deployment = cx.apply(&deployment(foo)?).await?;
        let available_replicas = deployment.status.and_then(|status| status.available_replicas).unwrap_or_default();
        let status = FooStatus { available_replicas };
        if foo.status.as_ref() != Some(&status) {
            cx.event(Event::normal("Synced", "Foo synced successfully"));
        }
        cx.set_status(&status).await?;
        Ok(Action::done())
    }
}

/// Returns true if this `Foo` is the controller of the Deployment.
fn is_controlled(deployment: &Deployment, foo: &Foo) -> bool {
    let mut owners = deployment.owner_references().iter();
    owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == foo.meta().uid.as_ref())
}

fn deployment(foo: &Foo) -> Result<Deployment> {
    let labels = json!({"app": "nginx", "controller": foo.name_any()});
    Ok(serde_json::from_value(json!({
        "metadata": {"name": foo.spec.deployment_name},
        "spec": {
            "replicas": foo.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    }))?)
}
