//! Deletes jobs some time after they have ended.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/ttlafterfinished/>.

use super::job::end;
use crate::workload::pods;
use flyball::{Action, Context, Controller, Reconcile, Result};
use flyball_core::time::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};

/// Creates the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    Controller::new(EndedJobs)
}

struct EndedJobs;

impl EndedJobs {
    /// Returns the remaining lifetime of a job, `None` if it is unlimited or the job has not finished.
    fn rest(job: &Job, cx: &Context<Job>) -> Option<SignedDuration> {
        let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
        let (_, since) = end(job)?;
        Some(SignedDuration::from_secs(ttl.into()) - cx.now().duration_since(since?))
    }
}

impl Reconcile for EndedJobs {
    type Resource = Job;

    async fn reconcile(&self, job: &Job, cx: &Context<Job>) -> Result<Action> {
        let Some(rest) = Self::rest(job, cx).filter(|_| !pods::is_deleting(job)) else { return Ok(Action::done()) };
        if rest > SignedDuration::ZERO {
            return Ok(Action::requeue_after(rest.unsigned_abs()));
        }
        // Its TTL may have been extended meanwhile.
        let jobs = Api::<Job>::namespaced(cx.client().clone(), cx.key().namespace().unwrap_or_default());
        let Some(job) = jobs.get_opt(cx.key().name()).await?.filter(|now| now.metadata.uid == job.metadata.uid) else {
            return Ok(Action::done());
        };
        match Self::rest(&job, cx) {
            Some(rest) if rest > SignedDuration::ZERO => return Ok(Action::requeue_after(rest.unsigned_abs())),
            Some(_) => {}
            None => return Ok(Action::done()),
        }
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            preconditions: Some(Preconditions {
                uid: job.metadata.uid,
                resource_version: job.metadata.resource_version,
            }),
            ..DeleteParams::default()
        };
        match jobs.delete(cx.key().name(), &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Action::done()),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Action::done()),
        }
    }
}
