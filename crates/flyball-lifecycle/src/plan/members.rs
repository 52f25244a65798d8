//! The ClusterServiceVersions of a plan.

use super::resources::CSV;
use crate::api::{ClusterServiceVersion, InstallPlan};
use crate::installed::bundle_of;
use std::collections::{BTreeMap, BTreeSet};

/// Packages and dependencies of a plan, which are read once: its manifests are large.
#[derive(Debug, Default)]
pub(super) struct Members {
    packages: BTreeMap<String, String>,
    dependencies: BTreeSet<String>,
}

impl Members {
    pub(super) fn of(plan: &InstallPlan) -> Self {
        let mut members = Self::default();
        let mut known = BTreeSet::new();
        for step in &plan.status.plan {
            if step.resource.kind == "Subscription" {
                members.dependencies.insert(step.resolving.clone());
            }
            if step.resource.kind == CSV && known.insert(&step.resource.name) {
                let csv = serde_json::from_str::<ClusterServiceVersion>(&step.resource.manifest).ok();
                let package = csv.and_then(|csv| bundle_of(&csv).packages().next().map(str::to_owned));
                members.packages.extend(package.map(|package| (step.resource.name.clone(), package)));
            }
        }
        members
    }

    /// Returns the package of a ClusterServiceVersion.
    pub(super) fn package(&self, csv: &str) -> Option<&str> {
        self.packages.get(csv).map(String::as_str)
    }

    /// Returns true if the plan creates the Subscription to a ClusterServiceVersion.
    pub(super) fn is_dependency(&self, csv: &str) -> bool {
        self.dependencies.contains(csv)
    }
}
