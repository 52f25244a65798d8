//! Looks after each `{{kind}}` of `{{api_version}}`, whose types come from elsewhere.

use {{path}};
use flyball::{Action, Context, Controller, Reconcile, Result};
use kube::ResourceExt;

/// Reconciles {{plural}}.
#[derive(Debug)]
pub struct {{kind}}Reconciler;

/// Makes the controller. The operator's permissions follow from what is declared here.
pub fn controller() -> Controller<{{kind}}Reconciler> {
    Controller::new({{kind}}Reconciler)
}

impl Reconcile for {{kind}}Reconciler {
    type Resource = {{type}};

    /// Is called when a `{{kind}}` may have changed, and may be called at any time: it looks at what is there and does what is
    /// missing, whatever was the case before.
    async fn reconcile(&self, {{variable}}: &{{type}}, cx: &Context<{{type}}>) -> Result<Action> {
        tracing::debug!(name = {{variable}}.name_any(), "seen");
        Ok(Action::done())
    }
}
