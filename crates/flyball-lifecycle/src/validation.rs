//! The rules that a bundle must follow to be installed, and to be published on OperatorHub.
//!
//! They are those of the validators in `operator-framework/api` (bundle, operatorhub, community and good practices), in
//! our own words: each finding has its place and its remedy. The rules are pure; the CLI also uses an API server.
//! See <https://k8s-operatorhub.github.io/community-operators/packaging-required-criteria/>.

mod bundle;
mod csv;
mod finding;
mod hub;
mod practice;

pub use finding::{Finding, Severity};

use crate::manifests::BundleFolder;
use finding::Findings;

/// The capability levels of OperatorHub, from 1 to 5.
pub const CAPABILITIES: [&str; 5] =
    ["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"];
pub use hub::{CATEGORIES, ICON_MEDIA_TYPES};

/// Returns the violated rules of a bundle, errors first.
pub fn validate_bundle(folder: &BundleFolder) -> Vec<Finding> {
    let mut findings = Findings::default();
    csv::check(folder.manifests.csv(), &mut findings);
    bundle::check(folder, &mut findings);
    hub::check(folder, &mut findings);
    practice::check(folder, &mut findings);
    findings.sorted()
}

#[cfg(test)]
mod tests;
