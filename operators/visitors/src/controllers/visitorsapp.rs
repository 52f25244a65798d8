//! The reconciler: applies the tiers of a site one after the other. Each tier has a module of its own.

mod backend;
mod database;
mod frontend;
mod tier;

use crate::api::visitorsapp_v1::{VisitorsApp, VisitorsAppStatus};
use flyball::{Action, Children, Context, Controller, Reconcile, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use ring::rand::{SecureRandom, SystemRandom};

/// Reconciles each `VisitorsApp`.
#[derive(Debug)]
pub struct VisitorsAppReconciler {
    new_password: fn() -> String,
}

/// Returns the controller, which creates the passwords of new databases with `new_password`. The operator's RBAC rules
/// are derived from this declaration.
pub fn controller(new_password: fn() -> String) -> Controller<VisitorsAppReconciler> {
    Controller::new(VisitorsAppReconciler { new_password }).owns::<Deployment>().owns::<Secret>().owns::<Service>()
}

impl Reconcile for VisitorsAppReconciler {
    type Resource = VisitorsApp;

    async fn reconcile(&self, app: &VisitorsApp, cx: &Context<VisitorsApp>) -> Result<Action> {
        let credentials = database::credentials(app, cx, self.new_password).await?;
        let children = database::add_stage(Children::new(), app, &credentials)?;
        let children = backend::add_stage(children, app, &credentials)?;
        let children = frontend::add_stage(children, app)?;
        let rollout = cx.apply_all(&children).await?;
        let status = VisitorsAppStatus {
            backend_image: backend::IMAGE.into(),
            frontend_image: frontend::IMAGE.into(),
            conditions: vec![rollout.condition("Ready")],
        };
        cx.set_status(&status).await?;
        Ok(Action::done())
    }
}

/// Generates a password with randomness of the operating system.
///
/// # Panics
///
/// Panics if the operating system provides no randomness.
pub fn random_password() -> String {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).expect("the operating system provides random bytes");
    bytes.map(|byte| format!("{byte:02x}")).concat()
}
