//! Looks after each `{{kind}}` of `{{api_version}}`, whose types come from elsewhere.

{{uses}}

/// Reconciles each `{{kind}}`.
#[derive(Debug)]
pub struct {{kind}}Reconciler;

/// Makes the controller. The operator's permissions follow from what is declared here.
pub fn controller() -> Controller<{{kind}}Reconciler> {
    Controller::new({{kind}}Reconciler)
}

impl Reconcile for {{kind}}Reconciler {
    type Resource = {{type}};

    /// Is called when a `{{kind}}` may have changed, and may be called at any time: it looks at what is there and does what is
    /// missing, whatever was the case before. As yet that is nothing.
    async fn reconcile(&self, _{{variable}}: &{{type}}, _cx: &Context<{{type}}>) -> Result<Action> {
        Ok(Action::done())
    }
}
