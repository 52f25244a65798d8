//! Controller for `CronTab` in `stable.example.com/v1`, a kind that this project does not define.

use crate::api::crontab_v1::{CronTab, CronTabSpec};
use flyball::{Action, Context, Controller, Reconcile, Result};
use k8s_openapi::api::batch::v1::CronJob;
use kube::ResourceExt;
use serde_json::json;

/// Reconciles each `CronTab`.
#[derive(Debug)]
pub struct CronTabReconciler;

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller() -> Controller<CronTabReconciler> {
    Controller::new(CronTabReconciler).owns::<CronJob>()
}

impl Reconcile for CronTabReconciler {
    type Resource = CronTab;

    /// Applies a `CronJob`. The CRD requires no fields, so a `CronTab` without a schedule or an image is ignored.
    async fn reconcile(&self, crontab: &CronTab, cx: &Context<CronTab>) -> Result<Action> {
        let CronTabSpec { cron_spec: Some(schedule), image: Some(image), replicas } = &crontab.spec else {
            return Ok(Action::done());
        };
        let job: CronJob = serde_json::from_value(json!({
            "metadata": {"name": crontab.name_any()},
            "spec": {
                "schedule": schedule,
                "jobTemplate": {"spec": {
                    "parallelism": replicas.unwrap_or(1),
                    "template": {"spec": {
                        "restartPolicy": "OnFailure",
                        "containers": [{"name": "task", "image": image}],
                    }},
                }},
            },
        }))?;
        cx.apply(&job).await?;
        Ok(Action::done())
    }
}
