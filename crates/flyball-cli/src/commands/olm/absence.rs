//! The most common cause for a Subscription without progress: no lifecycle manager runs. Two are a cause as well.

use super::manager::{self, ManagedCluster, ManagerKind, ManagerState};
use super::original::OriginalOlm;
use super::unread::Unread;
use crate::error::Result;
use flyball_core::Clock;
use flyball_core::time::SignedDuration;
use flyball_lifecycle::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase, Subscription};
use flyball_lifecycle::diagnosis::{Cause, Severity, Snapshot};
use kube::ResourceExt;

/// Time after which a manager has written the status of a new Subscription.
const FIRST_STATUS: SignedDuration = SignedDuration::from_secs(30);

/// Returns the state of the lifecycle manager, or of the original OLM.
pub(in crate::commands) async fn state(
    place: &ManagedCluster,
    namespace: &str,
    unread: &mut Unread,
) -> Result<ManagerState> {
    let part = format!("the Deployment of the lifecycle manager in namespace {namespace}: whether it runs is unknown");
    let state = unread.or_none(&part, manager::state(place, namespace).await)?.unwrap_or_else(ManagerState::unknown);
    if state.kind != ManagerKind::None {
        return Ok(state);
    }
    Ok(match OriginalOlm::find_readable(place, unread).await? {
        Some(original) => original.controller().cloned().unwrap_or(state),
        None => ManagerState::unknown(),
    })
}

/// Returns the notice that the original OLM acts on the same objects as a lifecycle manager.
pub(super) async fn second(place: &ManagedCluster, manager: &ManagerState) -> Option<Cause> {
    if !matches!(manager.kind, ManagerKind::Process | ManagerKind::Deployment) {
        return None;
    }
    // An explanation does not need the permission to list Deployments of all namespaces.
    let original = OriginalOlm::find(place).await.ok()?;
    rival(&original)
}

fn rival(original: &OriginalOlm) -> Option<Cause> {
    original.is_active().then(|| Cause {
        severity: Severity::Notice,
        object: original.names(),
        field: String::new(),
        message: "the original OLM runs beside the lifecycle manager: both install and remove the same operators"
            .to_owned(),
        remedy: format!("stop one of them; OLM: {}", original.stop_command()),
    })
}

/// Returns the cause that no manager acts on an object. It blocks what is not complete; an operator that runs is only
/// not upgraded.
pub(super) fn cause(manager: &ManagerState, snapshot: &Snapshot, name: &str) -> Option<Cause> {
    let subscription = snapshot.subscriptions.iter().find(|of| of.name_any() == name);
    let waited = subscription.filter(|of| is_new(of)).and_then(age).filter(|age| *age >= FIRST_STATUS);
    if manager.is_unknown() {
        let object = format!("Subscription {}/{name}", snapshot.namespace);
        return waited.map(|age| Cause {
            severity: Severity::Blocking,
            object,
            field: "status".to_owned(),
            message: format!(
                "it has no status {} s after it was created: no lifecycle manager seems to run",
                age.as_secs()
            ),
            remedy: "ask an administrator of the cluster to check: flyball olm status".to_owned(),
        });
    }
    if manager.ready {
        return None;
    }
    let is_complete = match subscription {
        Some(of) => !of.status.installed_csv.is_empty() && runs(snapshot, &of.status.current_csv),
        None => runs(snapshot, name),
    };
    const SEE_PODS: &str = "see its pods: flyball olm status, kubectl logs";
    const SEE_PODS_OF_OLM: &str = "see its pods: kubectl describe pods, kubectl logs";
    const INSTALL: &str = "install it: flyball olm install; or run it here: flyball olm run";
    let (object, remedy) = match manager.kind {
        ManagerKind::Deployment => (format!("Deployment {}", manager.name), SEE_PODS),
        ManagerKind::Olm => (format!("Deployment {} of OLM", manager.name), SEE_PODS_OF_OLM),
        ManagerKind::Process => (format!("Process {}", manager.name), "see its log"),
        ManagerKind::None | ManagerKind::Unknown => ("Lifecycle manager".to_owned(), INSTALL),
    };
    let effect = if is_complete { "nothing is upgraded" } else { "nothing acts on Subscriptions" };
    // A manager in the foreground, `flyball olm run`, leaves no trace but what it writes.
    let is_certain = manager.kind != ManagerKind::None || subscription.is_some_and(is_new);
    let unless = if is_certain { "" } else { ", unless it runs in the foreground: flyball olm run" };
    Some(Cause {
        severity: if is_complete || !is_certain { Severity::Notice } else { Severity::Blocking },
        object,
        field: String::new(),
        message: format!("{}{unless}: {effect}", manager.problem),
        remedy: remedy.to_owned(),
    })
}

fn runs(snapshot: &Snapshot, csv: &str) -> bool {
    let is_it = |of: &&ClusterServiceVersion| of.name_any() == csv;
    snapshot.csvs.iter().find(is_it).is_some_and(|csv| csv.status.phase == Phase::Succeeded)
}

/// Returns true if no manager has written the status of a Subscription.
fn is_new(subscription: &Subscription) -> bool {
    subscription.status.last_updated.is_none() && subscription.status.conditions.is_empty()
}

fn age(subscription: &Subscription) -> Option<SignedDuration> {
    let created = subscription.creation_timestamp()?;
    Some(Clock::system().now().duration_since(created.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn manager(kind: ManagerKind, ready: bool) -> ManagerState {
        let problem = if ready { String::new() } else { "no lifecycle manager runs".to_owned() };
        ManagerState { kind, name: String::new(), ready, problem }
    }

    #[test]
    fn missing_manager_blocks_what_is_not_complete() {
        let mut snapshot = Snapshot { namespace: "demo".to_owned(), ..Snapshot::default() };
        snapshot.subscriptions.push(Subscription::new(Some("demo"), "memo"));
        let none = manager(ManagerKind::None, false);
        let cause = |snapshot: &Snapshot, manager: &ManagerState| super::cause(manager, snapshot, "memo");
        let found = cause(&snapshot, &none).unwrap();
        assert_eq!(
            (found.severity, found.message.as_str()),
            (Severity::Blocking, "no lifecycle manager runs: nothing acts on Subscriptions")
        );
        assert!(found.remedy.contains("flyball olm install"));
        assert_eq!(cause(&snapshot, &manager(ManagerKind::Olm, true)), None);
        let found = cause(&snapshot, &manager(ManagerKind::Olm, false)).unwrap();
        assert_eq!(found.severity, Severity::Blocking);
        assert!(found.remedy.starts_with("see its pods: ") && !found.remedy.contains("install"), "{found:?}");
        assert_eq!(cause(&snapshot, &ManagerState::unknown()), None, "its age is unknown");

        snapshot.subscriptions[0].status.last_updated = Some(Time(Clock::system().now()));
        let found = cause(&snapshot, &none).unwrap();
        assert!(found.severity == Severity::Notice && found.message.contains("in the foreground"), "{found:?}");
        assert_eq!(cause(&snapshot, &manager(ManagerKind::Process, false)).unwrap().severity, Severity::Blocking);

        let mut csv = ClusterServiceVersion::new(Some("demo"), "memo.v1");
        csv.status.phase = Phase::Succeeded;
        snapshot.csvs.push(csv);
        let status = &mut snapshot.subscriptions[0].status;
        (status.current_csv, status.installed_csv) = ("memo.v1".to_owned(), "memo.v1".to_owned());
        assert_eq!(cause(&snapshot, &none).unwrap().severity, Severity::Notice);
    }
}
