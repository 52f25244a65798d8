//! Controller for `{{kind}}` in `{{api_version}}`, a kind that this project does not define.

{{uses}}

/// Reconciles each `{{kind}}`.
#[derive(Debug)]
pub struct {{kind}}Reconciler;

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller() -> Controller<{{kind}}Reconciler> {
    Controller::new({{kind}}Reconciler)
}

impl Reconcile for {{kind}}Reconciler {
    type Resource = {{type}};

    /// Brings the cluster to the state that the `{{kind}}` describes.
    ///
    /// Called when the `{{kind}}` may have changed, and possibly more often. It must be idempotent: compare the actual
    /// state with the desired state and apply the difference.
    async fn reconcile(&self, _{{variable}}: &{{type}}, _cx: &Context<{{type}}>) -> Result<Action> {
        Ok(Action::done())
    }
}
