//! Controller for `Operation`: each one is carried out once.
//!
//! | Phase | Meaning |
//! |---|---|
//! | `Pending` | the request was never sent; the instance is not ready |
//! | `Running` | the request may have been sent; its key is stored |
//! | `Succeeded`, `Failed` | it has ended, and the phase never changes again |
//!
//! The key of the request is the UID of the operation. It is stored in the status before the request is sent, which
//! also confirms that the operation still exists. So a request that is repeated after a crash has the same key, and
//! the cloud returns the state of the first one.

use crate::api::instance_v1alpha1::{Instance, InstanceStatus};
use crate::api::operation_v1alpha1::{Operation, OperationStatus, OperationType, Phase};
use crate::cloud::{BoxError, Cloud, Error, MachineState, Task, TaskState};
use crate::status::holds_for;
use flyball::{Action, Condition, Context, Controller, Event, ObjectKey, Reconcile, Result};
use flyball_core::time::{parse_rfc3339, rfc3339};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::{Resource, ResourceExt};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which the state of a request is read.
const PROGRESS: Duration = Duration::from_secs(5);

/// Reconciles each `Operation`.
#[derive(Debug)]
pub struct OperationReconciler<C> {
    cloud: Arc<C>,
}

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller<C: Cloud, E: Into<BoxError>>(
    connect: impl FnOnce() -> Result<Arc<C>, E> + Send + 'static,
) -> Controller<OperationReconciler<C>> {
    Controller::deferred(|| connect().map(|cloud| OperationReconciler { cloud }))
        .refers_to::<Instance>(|operation| vec![ObjectKey::new(None, &operation.spec.instance)])
        .allows(PolicyRule {
            api_groups: Some(vec![Operation::group(&()).into()]),
            resources: Some(vec![Operation::plural(&()).into()]),
            verbs: vec!["delete".into()],
            ..PolicyRule::default()
        })
}

impl<C: Cloud> Reconcile for OperationReconciler<C> {
    type Resource = Operation;

    async fn reconcile(&self, operation: &Operation, cx: &Context<Operation>) -> Result<Action> {
        let status = operation.status.clone().unwrap_or_default();
        let (machine, status) = match (status.phase, &status.machine_id) {
            (Some(Phase::Succeeded | Phase::Failed), _) => return expire(operation, &status, cx).await,
            (Some(Phase::Running), Some(machine)) => (machine.clone(), status),
            _ => match self.request(operation, cx).await? {
                ControlFlow::Continue(requested) => requested,
                ControlFlow::Break(action) => return Ok(action),
            },
        };
        let task = match operation.spec.kind {
            OperationType::Reboot => Task::Reboot,
            OperationType::Rebuild => Task::Rebuild,
        };
        let key = operation.uid().unwrap_or_default();
        let end = match self.cloud.run_task(&key, &machine, task).await {
            Ok(TaskState::Running) => return Ok(Action::requeue_after(PROGRESS)),
            // The instance became ready, and the machine is busy again: its state ends by itself.
            Err(Error::WrongState { state, .. }) if state.is_busy() => return Ok(Action::requeue_after(PROGRESS)),
            Ok(TaskState::Succeeded) => End { phase: Phase::Succeeded, reason: "Done", why: String::new() },
            Ok(TaskState::Failed(why)) => End { phase: Phase::Failed, reason: "TaskFailed", why },
            Err(error @ Error::WrongState { .. }) => End::failed("WrongState", &error),
            Err(error @ (Error::NotFound(_) | Error::Rejected(_))) => End::failed("Rejected", &error),
            Err(error) => return Err(error.into()),
        };
        self.finish(operation, status, end, cx).await
    }
}

/// The end of an operation.
struct End {
    phase: Phase,
    reason: &'static str,
    why: String,
}

impl End {
    fn failed(reason: &'static str, why: &dyn ToString) -> Self {
        Self { phase: Phase::Failed, reason, why: why.to_string() }
    }
}

impl<C: Cloud> OperationReconciler<C> {
    /// Stores that an operation is requested, if its instance is ready; returns the machine and the status.
    async fn request(
        &self,
        operation: &Operation,
        cx: &Context<Operation>,
    ) -> Result<ControlFlow<Action, (String, OperationStatus)>> {
        let name = &operation.spec.instance;
        let pending = async |reason: &str, why: String| {
            let condition = Condition::unknown("Succeeded", reason).message(why.as_str());
            let (phase, message, conditions) = (Some(Phase::Pending), Some(why), vec![condition]);
            cx.set_status(&OperationStatus { phase, message, conditions, ..OperationStatus::default() }).await?;
            Ok(ControlFlow::Break(Action::done()))
        };
        // The cache may be older than the last change of the instance, such as a shutdown before the operation.
        let instances = Api::<Instance>::namespaced(cx.client().clone(), cx.key().namespace().unwrap_or_default());
        let Some(instance) = instances.get_opt(name).await? else {
            return pending("InstanceNotFound", format!("there is no instance {name}")).await;
        };
        let status = instance.status.as_ref();
        let is_ready = |status: &&InstanceStatus| holds_for(&status.conditions, "Ready", instance.metadata.generation);
        let Some((machine, known)) =
            status.filter(is_ready).and_then(|status| Some((status.machine_id.clone()?, status)))
        else {
            return pending("InstanceNotReady", format!("instance {name} is not ready")).await;
        };
        let is_stopped = known.state.as_deref() == Some(&*MachineState::Stopped.to_string());
        if instance.metadata.deletion_timestamp.is_some() {
            let end = End::failed("InstanceDeleted", &format!("instance {name} is being deleted"));
            return self.finish(operation, OperationStatus::default(), end, cx).await.map(ControlFlow::Break);
        }
        if operation.spec.kind == OperationType::Reboot && is_stopped {
            let end = End::failed("WrongState", &format!("instance {name} is Stopped: only running ones are rebooted"));
            return self.finish(operation, OperationStatus::default(), end, cx).await.map(ControlFlow::Break);
        }
        let requested = OperationStatus {
            phase: Some(Phase::Running),
            request_id: operation.uid(),
            machine_id: Some(machine.clone()),
            start_time: Some(rfc3339(cx.now())),
            conditions: vec![Condition::unknown("Succeeded", "Requested")],
            ..OperationStatus::default()
        };
        cx.set_status(&requested).await?;
        Ok(ControlFlow::Continue((machine, requested)))
    }

    /// Stores the end of an operation.
    async fn finish(
        &self,
        operation: &Operation,
        status: OperationStatus,
        end: End,
        cx: &Context<Operation>,
    ) -> Result<Action> {
        let End { phase, reason, why } = end;
        let kind = operation.spec.kind;
        let condition = Condition::new("Succeeded", phase == Phase::Succeeded, reason).message(why.as_str());
        let ended = OperationStatus {
            phase: Some(phase),
            completion_time: Some(rfc3339(cx.now())),
            message: Some(why.clone()).filter(|why| !why.is_empty()),
            conditions: vec![condition],
            ..status
        };
        cx.set_status(&ended).await?;
        cx.event(match phase {
            Phase::Failed => Event::warning("Failed", format!("{kind:?} failed: {why}")),
            _ => Event::normal("Succeeded", format!("{kind:?} of {} is done", operation.spec.instance)),
        });
        Ok(requeue_at_expiry(operation, Duration::ZERO))
    }
}

/// Deletes an operation some time after its end, if it says so.
async fn expire(operation: &Operation, status: &OperationStatus, cx: &Context<Operation>) -> Result<Action> {
    let ended = status.completion_time.as_deref().and_then(parse_rfc3339);
    let age = ended.map(|ended| Duration::try_from(cx.now().duration_since(ended)).unwrap_or_default());
    let age = age.unwrap_or(Duration::MAX);
    let ttl = operation.spec.ttl_seconds_after_finished.map(|ttl| Duration::from_secs(ttl.into()));
    if ttl.is_none_or(|ttl| age < ttl) {
        return Ok(requeue_at_expiry(operation, age));
    }
    // The TTL may have changed since the operation was read.
    let (uid, resource_version) = (operation.uid(), operation.resource_version());
    let preconditions = Some(Preconditions { uid, resource_version });
    let params = DeleteParams { preconditions, ..DeleteParams::background() };
    let operations = Api::<Operation>::namespaced(cx.client().clone(), cx.key().namespace().unwrap_or_default());
    match operations.delete(cx.key().name(), &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Action::done()),
        result => result.map(|_| Action::done()).map_err(Into::into),
    }
}

/// Requeues an operation at the time at which it is deleted.
fn requeue_at_expiry(operation: &Operation, age: Duration) -> Action {
    let ttl = operation.spec.ttl_seconds_after_finished.map(|ttl| Duration::from_secs(ttl.into()));
    ttl.map_or_else(Action::done, |ttl| Action::requeue_after(ttl.saturating_sub(age)))
}
