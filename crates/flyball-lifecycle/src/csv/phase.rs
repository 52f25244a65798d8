//! Changes of the phase of a ClusterServiceVersion.

use super::observe::Cx;
use super::status;
use crate::api::{
    ClusterServiceVersion, ClusterServiceVersionPhase as Phase, ClusterServiceVersionStatus, RequirementStatus,
};
use crate::patch::merge_patch;
use flyball::{Action, Event, Result};
use std::time::Duration;

/// Time until the next step. The next reconcile waits for the caches anyway.
pub(super) const NEXT_STEP: Duration = Duration::from_millis(1);
/// Time until an installation that lacks permissions is tried again: no change in the caches shows that they were
/// granted.
pub(super) const PERMISSION_PERIOD: Duration = Duration::from_secs(60);

/// Changes the phase, and reports it as an event.
pub(super) async fn enter(
    csv: &ClusterServiceVersion,
    phase: Phase,
    reason: &str,
    message: &str,
    requirements: Option<Vec<RequirementStatus>>,
    cx: &Cx,
) -> Result<Action> {
    let mut wanted = csv.status.clone();
    // OLM shows requirements once they were checked.
    if let Some(requirements) = requirements.filter(|_| csv.status.phase != Phase::None) {
        wanted.requirement_status = requirements;
    }
    status::enter(&mut wanted, phase, reason, message, cx.now());
    write_status(csv, &wanted, cx).await
}

pub(super) async fn write_status(
    csv: &ClusterServiceVersion,
    wanted: &ClusterServiceVersionStatus,
    cx: &Cx,
) -> Result<Action> {
    merge_patch(cx, csv, "status", &status::patch(wanted)).await?;
    cx.event(match wanted.phase {
        Phase::Failed => Event::warning(&wanted.reason, &wanted.message),
        _ => Event::normal(&wanted.reason, &wanted.message),
    });
    let is_denied = wanted.reason == "InstallComponentFailedNoRetry";
    Ok(Action::requeue_after(if is_denied { PERMISSION_PERIOD } else { NEXT_STEP }))
}
