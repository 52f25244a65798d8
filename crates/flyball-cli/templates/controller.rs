//! Controller for `{{kind}}`.

use crate::api::{{module}}::{{{type}}, {{kind}}Status};
use flyball::{Action, Condition, Context, Controller, Reconcile, Result};
use k8s_openapi::api::core::v1::{{child}};
use kube::ResourceExt;
use kube::core::ObjectMeta;

/// Reconciles each `{{kind}}`.
#[derive(Debug)]
pub struct {{kind}}Reconciler;

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller() -> Controller<{{kind}}Reconciler> {
    Controller::new({{kind}}Reconciler).owns::<{{child}}>()
}

impl Reconcile for {{kind}}Reconciler {
    type Resource = {{type}};

    /// Brings the cluster to the state that the `{{kind}}` describes.
    ///
    /// Called when the `{{kind}}` or an object that it owns may have changed, and possibly more often. It must be
    /// idempotent: apply the desired state regardless of the actual state.
    async fn reconcile(&self, {{variable}}: &{{type}}, cx: &Context<{{type}}>) -> Result<Action> {
        let applied = self.apply({{variable}}, cx).await;
        let ready = match &applied {
            Ok(child) => Condition::new("Ready", true, "Applied").message(format!("{{child}} {} exists", child.name_any())),
            Err(error) => Condition::new("Ready", false, "ApplyFailed").message(error.to_string()),
        };
        cx.set_status(&{{kind}}Status { conditions: vec![ready] }).await?;
        // Errors are logged and retried with backoff, see docs/reconcilers.md of Flyball.
        applied?;
        Ok(Action::done())
    }
}

impl {{kind}}Reconciler {
    /// Applies the objects of {{a_kind}}. Call other systems here as well, so that the status reports their errors.
    async fn apply(&self, {{variable}}: &{{type}}, cx: &Context<{{type}}>) -> Result<{{child}}> {
{{body}}    }
}
