//! Conditions of a Subscription.

use crate::api::{SubscriptionCondition, SubscriptionStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub(super) const CATALOG_SOURCES_UNHEALTHY: &str = "CatalogSourcesUnhealthy";
pub(super) const INSTALL_PLAN_MISSING: &str = "InstallPlanMissing";
pub(super) const INSTALL_PLAN_PENDING: &str = "InstallPlanPending";
pub(super) const INSTALL_PLAN_FAILED: &str = "InstallPlanFailed";
pub(super) const RESOLUTION_FAILED: &str = "ResolutionFailed";
pub(super) const BUNDLE_UNPACKING: &str = "BundleUnpacking";
pub(super) const BUNDLE_UNPACK_FAILED: &str = "BundleUnpackFailed";
pub(super) const ROLLOUT_HELD: &str = "RolloutHeld";
pub(super) const UPGRADE_PATH_MISSING: &str = "UpgradePathMissing";
pub(super) const PACKAGE_DEPRECATED: &str = "PackageDeprecated";
pub(super) const CHANNEL_DEPRECATED: &str = "ChannelDeprecated";
pub(super) const BUNDLE_DEPRECATED: &str = "BundleDeprecated";
pub(super) const DEPRECATED: &str = "Deprecated";

/// Sets a condition; its time changes with its status, reason or message.
pub(super) fn set(status: &mut SubscriptionStatus, condition: SubscriptionCondition, now: &Time) {
    let known = status.conditions.iter_mut().find(|known| known.kind == condition.kind);
    // As in OLM, conditions of resolution have no time.
    let is_timed = ![RESOLUTION_FAILED, BUNDLE_UNPACKING, BUNDLE_UNPACK_FAILED].contains(&condition.kind.as_str());
    let fresh = SubscriptionCondition { last_transition_time: is_timed.then(|| now.clone()), ..condition };
    match known {
        Some(known) => {
            let is_same =
                (&known.status, &known.reason, &known.message) == (&fresh.status, &fresh.reason, &fresh.message);
            if !is_same {
                *known = fresh;
            }
        }
        None => status.conditions.push(fresh),
    }
}

/// Creates a condition.
pub(super) fn condition(kind: &str, holds: bool, reason: &str, message: impl Into<String>) -> SubscriptionCondition {
    SubscriptionCondition {
        kind: kind.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.into(),
        ..SubscriptionCondition::default()
    }
}

/// Sets a condition that is true if there is a reason and a message, and removes it otherwise.
pub(super) fn set_or_remove(status: &mut SubscriptionStatus, kind: &str, why: Option<(&str, String)>, now: &Time) {
    match why {
        Some((reason, message)) => set(status, condition(kind, true, reason, message), now),
        None => status.conditions.retain(|known| known.kind != kind),
    }
}
