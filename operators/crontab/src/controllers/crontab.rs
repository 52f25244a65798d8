//! Brings about what each `CronTab` of `stable.example.com/v1` says, whose types come from elsewhere.

use crate::api::crontab_v1::{CronTab, CronTabSpec};
use flyball::{Action, Context, Controller, Reconcile, Result};
use k8s_openapi::api::batch::v1::CronJob;
use kube::ResourceExt;
use serde_json::json;

/// Reconciles each `CronTab`.
#[derive(Debug)]
pub struct CronTabReconciler;

/// Makes the controller. The operator's permissions follow from what is declared here.
pub fn controller() -> Controller<CronTabReconciler> {
    Controller::new(CronTabReconciler).owns::<CronJob>()
}

impl Reconcile for CronTabReconciler {
    type Resource = CronTab;

    /// Makes a `CronJob` of it. Its definition demands nothing, so that one without a time or an image is left alone.
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
