//! Failures that are final for a user: the lifecycle manager tries again without end, but with the same result.

use flyball_lifecycle::api::{
    ClusterServiceVersion, ClusterServiceVersionPhase as Phase, InstallPlan, InstallPlanPhase, Subscription,
};
use kube::ResourceExt;
use std::time::Duration;
use tokio::time::Instant;

/// Time after which a failure with the same reason is final: the manager tries plans again after 1, 2 and 4 seconds.
const REFUSAL_TIME: Duration = Duration::from_secs(4);

/// A reason for a failure, and the time since which it has been the same.
#[derive(Debug, Default)]
pub(in crate::commands) struct Refusal(Option<(String, Instant)>);

impl Refusal {
    /// Returns true if the reason has not changed for a time in which the manager has tried several times.
    pub(in crate::commands) fn persists(&mut self, reason: &str, now: Instant) -> bool {
        match &self.0 {
            Some((known, since)) if known == reason => now.duration_since(*since) >= REFUSAL_TIME,
            _ => {
                self.0 = Some((reason.to_owned(), now));
                false
            }
        }
    }

    /// Records that there is no failure.
    pub(in crate::commands) fn clear(&mut self) {
        self.0 = None;
    }
}

/// Returns the reason why the InstallPlan of a version fails.
pub(in crate::commands) fn plan_problem(plans: &[InstallPlan], target: &str) -> Option<String> {
    let is_its = |plan: &&InstallPlan| {
        plan.status.phase != InstallPlanPhase::Complete
            && plan.spec.cluster_service_version_names.iter().any(|name| name == target)
    };
    let plan = plans.iter().filter(is_its).max_by_key(|plan| plan.spec.generation)?;
    let message = plan.status.message.trim_start_matches("retrying execution due to error: ");
    (!message.is_empty()).then(|| format!("InstallPlan {}: {message}", plan.name_any()))
}

/// Returns the reason why a version has failed.
pub(in crate::commands) fn operator_problem(csv: Option<&ClusterServiceVersion>) -> Option<String> {
    let status = &csv.filter(|csv| csv.status.phase == Phase::Failed)?.status;
    Some(format!("{:?}, {}: {}", status.phase, status.reason, status.message))
}

/// Returns the failure that a Subscription reports.
pub(in crate::commands) fn failure_of(subscription: &Subscription) -> Option<String> {
    let failed = subscription.status.conditions.iter().find(|condition| {
        condition.status == "True" && matches!(&*condition.kind, "ResolutionFailed" | "BundleUnpackFailed")
    })?;
    Some(format!("{}: {}", failed.reason, failed.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_failure_that_stays_is_final() {
        let (start, mut refusal) = (Instant::now(), Refusal::default());
        assert!(!refusal.persists("conflict", start));
        assert!(!refusal.persists("conflict", start + REFUSAL_TIME / 2));
        assert!(!refusal.persists("denied", start + REFUSAL_TIME), "another reason begins again");
        assert!(refusal.persists("denied", start + REFUSAL_TIME * 2));
        refusal.clear();
        assert!(!refusal.persists("denied", start + REFUSAL_TIME * 3));
    }
}
