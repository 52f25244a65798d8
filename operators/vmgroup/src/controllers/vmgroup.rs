//! The reconciler of `VmGroup`s, which are groups of machines in vCenter.
//!
//! One reconcile is one pass of [`crate::converge`], so that spec changes take effect in the next pass. Errors are
//! retried with backoff, except those that require a change by the user, which wait for the next resync.

use crate::api::vmgroup_v1alpha1::{Phase, VmGroup, VmGroupStatus};
use crate::converge::{self, Group, Groups, Plan, Progress};
use crate::vsphere::{Hardware, Vcenter};
use flyball::{Action, Context, Controller, Event, Reconcile, Result};
use kube::ResourceExt;
use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

/// Message of a group in its desired state.
const SUCCESS: &str = "successfully reconciled VmGroup";
/// Requeue delay after a complete pass.
const NEXT_PASS: Duration = Duration::from_millis(100);
/// Requeue delay if another operation has to end first.
const REQUEUE_DELAY: Duration = Duration::from_secs(5);
/// Timeout of a reconcile. Its operations have timeouts of their own, so it is never reached.
const DEADLINE: Duration = Duration::from_secs(30 * 60);

/// Reconciles each `VmGroup` with a vCenter.
#[derive(Debug)]
pub struct VmGroupReconciler<V> {
    groups: Groups<V>,
    resync: Duration,
}

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller<V: Vcenter + 'static>(reconciler: VmGroupReconciler<V>) -> Controller<VmGroupReconciler<V>> {
    deferred_controller(|| Ok::<_, Infallible>(reconciler))
}

/// Returns the controller, which creates its reconciler when it starts.
pub fn deferred_controller<V: Vcenter + 'static, E>(
    make: impl FnOnce() -> Result<VmGroupReconciler<V>, E> + Send + 'static,
) -> Controller<VmGroupReconciler<V>>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    Controller::deferred(make).deadline(DEADLINE)
}

impl<V: Vcenter + 'static> VmGroupReconciler<V> {
    /// Reconciles with `groups`, and reconciles each group again after `resync` to detect changes in vCenter.
    pub fn new(groups: Groups<V>, resync: Duration) -> Self {
        Self { groups, resync }
    }

    /// Executes a plan; `None` if no operation remains.
    async fn advance(
        &self,
        object: &VmGroup,
        cx: &Context<VmGroup>,
        plan: Result<Plan, converge::Error>,
    ) -> Result<Option<Action>> {
        let mut plan = match plan {
            Ok(plan) if plan.is_done() => return Ok(None),
            Ok(plan) => plan,
            Err(error) => return self.fail(object, cx, None, error).await.map(Some),
        };
        if let Some(obstacle) = plan.obstacle.take() {
            return self.fail(object, cx, Some(plan.running), obstacle).await.map(Some);
        }
        let message = plan.to_string();
        cx.event(Event::normal("Progressing", message.as_str()));
        cx.set_status(&status(object, Phase::Pending, Some(plan.running), message)).await?;
        match self.groups.carry_out(&plan).await {
            Ok(Progress::Made) => Ok(Some(Action::requeue_after(NEXT_PASS))),
            Ok(Progress::Awaited) => Ok(Some(Action::requeue_after(REQUEUE_DELAY))),
            Err(error) => self.fail(object, cx, Some(plan.running), error).await.map(Some),
        }
    }

    async fn fail(
        &self,
        object: &VmGroup,
        cx: &Context<VmGroup>,
        running: Option<usize>,
        error: converge::Error,
    ) -> Result<Action> {
        let lasting = error.is_permanent();
        let error = flyball::Error::from(error);
        cx.event(Event::warning("Failed", error.to_string()));
        cx.set_status(&status(object, Phase::Error, running, error.to_string())).await?;
        if lasting { Ok(Action::requeue_after(self.resync)) } else { Err(error) }
    }
}

impl<V: Vcenter + 'static> Reconcile for VmGroupReconciler<V> {
    type Resource = VmGroup;
    const FINALIZER: Option<&'static str> = Some("vm.codeconnect.vmworld.com/finalizer");

    async fn reconcile(&self, object: &VmGroup, cx: &Context<VmGroup>) -> Result<Action> {
        let group = desired(object);
        let folder = match self.groups.find_folder(&group).await {
            // A new folder would remain.
            Ok(None) if !cx.confirm_exists().await? => return Ok(Action::done()),
            Ok(None) => self.groups.create_folder(&group).await,
            Ok(Some(folder)) => Ok(folder),
            Err(error) => Err(error),
        };
        let plan = match folder {
            Ok(folder) => self.groups.plan_in(&group, &folder).await,
            Err(error) => Err(error),
        };
        if let Some(action) = self.advance(object, cx, plan).await? {
            return Ok(action);
        }
        cx.set_status(&status(object, Phase::Running, Some(group.replicas), SUCCESS.into())).await?;
        Ok(Action::requeue_after(self.resync))
    }

    async fn finalize(&self, object: &VmGroup, cx: &Context<VmGroup>) -> Result<Action> {
        let plan = self.groups.plan_teardown(&desired(object)).await;
        Ok(self.advance(object, cx, plan).await?.unwrap_or_else(Action::done))
    }
}

fn desired(object: &VmGroup) -> Group {
    Group {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        replicas: usize::try_from(object.spec.replicas).unwrap_or_default(),
        template: object.spec.template.clone(),
        hardware: Hardware { cpus: object.spec.cpu, memory_mib: i64::from(object.spec.memory) * 1024 },
    }
}

fn status(object: &VmGroup, phase: Phase, running: Option<usize>, message: String) -> VmGroupStatus {
    VmGroupStatus {
        phase: Some(phase),
        current_replicas: running.and_then(|n| i32::try_from(n).ok()),
        desired_replicas: Some(object.spec.replicas),
        last_message: Some(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object() -> VmGroup {
        let object = json!({
            "apiVersion": "vm.codeconnect.vmworld.com/v1alpha1",
            "kind": "VmGroup",
            "metadata": {"namespace": "default", "name": "vg-1", "uid": "1"},
            "spec": {"cpu": 2, "memory": 4, "replicas": 3, "template": "t"},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn object_is_converted_to_a_group() {
        let group = desired(&object());
        assert_eq!((group.folder().as_str(), group.uid.as_str(), group.replicas), ("default-vg-1", "1", 3));
        assert_eq!(group.hardware, Hardware { cpus: 2, memory_mib: 4096 });
    }

    #[test]
    fn status_contains_known_values() {
        let serialized =
            |running| serde_json::to_value(status(&object(), Phase::Pending, running, "m".into())).unwrap();
        let known = json!({"phase": "PENDING", "currentReplicas": 2, "desiredReplicas": 3, "lastMessage": "m"});
        assert_eq!(serialized(Some(2)), known);
        let unknown = json!({"phase": "PENDING", "desiredReplicas": 3, "lastMessage": "m"});
        assert_eq!(serialized(None), unknown);
    }
}
