//! Brings the world in line with each `{{kind}}`.

use crate::api::{{module}}::{{{type}}, {{kind}}Status};
use flyball::{Action, Condition, Context, Controller, Reconcile, Result};
use k8s_openapi::api::core::v1::{{child}};
use kube::ResourceExt;
use kube::core::ObjectMeta;

/// Reconciles each `{{kind}}`.
#[derive(Debug)]
pub struct {{kind}}Reconciler;

/// Makes the controller. The operator's permissions follow from what is declared here.
pub fn controller() -> Controller<{{kind}}Reconciler> {
    Controller::new({{kind}}Reconciler).owns::<{{child}}>()
}

impl Reconcile for {{kind}}Reconciler {
    type Resource = {{type}};

    /// Is called when a `{{kind}}` or what it owns may have changed, and may be called at any time: it looks at what is
    /// desired and makes it so, whatever was the case before.
    async fn reconcile(&self, {{variable}}: &{{type}}, cx: &Context<{{type}}>) -> Result<Action> {
{{body}}        let ready = Condition::new("Ready", true, "Applied").message(format!("{{child}} {} is there", child.name_any()));
        cx.set_status(&{{kind}}Status { conditions: vec![ready] }).await?;
        Ok(Action::done())
    }
}
