//! Bundles that a Subscription would not install: the outcome of `flyball bundle run` is known at once.

use crate::error::{Error, Result};
use flyball_lifecycle::api::labels::{ROLLBACK, VERSIONS};
use flyball_lifecycle::api::{ClusterServiceVersion, Subscription};
use flyball_lifecycle::manifests::BundleFolder;
use flyball_lifecycle::{VersionRange, parse_tolerant};
use kube::ResourceExt;

/// Refuses a bundle that is older than the installed version, or that the annotations of the Subscription exclude.
pub(super) fn check(
    subscription: &Subscription,
    installed: Option<&ClusterServiceVersion>,
    bundle: &BundleFolder,
) -> Result<()> {
    check_version(subscription, installed, bundle.manifests.name(), bundle.manifests.version())
}

fn check_version(
    subscription: &Subscription,
    installed: Option<&ClusterServiceVersion>,
    name: &str,
    version: &str,
) -> Result<()> {
    let (own, namespace) = (subscription.name_any(), subscription.namespace().unwrap_or_default());
    if installed.is_some_and(|installed| installed.name_any() == name) {
        return Ok(());
    }
    let version = parse_tolerant(version);
    let older_than = installed.filter(|installed| parse_tolerant(&installed.spec.version) > version);
    if let Some(installed) = older_than.filter(|_| version.is_some()) {
        return Err(Error::new(format!("{name} is older than {}, which is installed", installed.name_any()))
            .hint(format!("if it was installed before: flyball olm rollback {own} -n {namespace} --to {name}"))
            .hint("otherwise create a bundle with a higher version: flyball bundle create --bundle-version VERSION"));
    }
    let remedy = format!("let it upgrade again: flyball olm pin {own} -n {namespace} --remove");
    let annotations = subscription.annotations();
    if let Some(target) = annotations.get(ROLLBACK).filter(|target| *target != name) {
        let what =
            format!("Subscription {namespace}/{own} stays at {target} after a rollback: {name} is not installed");
        return Err(Error::new(what).hint(remedy));
    }
    let range = annotations.get(VERSIONS).and_then(|text| Some((text, VersionRange::parse(text).ok()?)));
    match range.zip(version) {
        Some(((text, range), version)) if !range.includes(&version) => {
            let what = format!("Subscription {namespace}/{own} installs only versions {text}: {name} is not installed");
            Err(Error::new(what).hint(remedy))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn versions_that_are_never_installed_are_refused() {
        let installed: ClusterServiceVersion = serde_json::from_value(json!({
            "metadata": {"name": "memo.v1.1.0"}, "spec": {"version": "1.1.0"},
        }))
        .unwrap();
        let check = |annotations: Value, version: &str, expected: Option<(&str, &str)>| {
            let subscription: Subscription = serde_json::from_value(json!({
                "metadata": {"name": "memo", "namespace": "demo", "annotations": annotations}, "spec": {},
            }))
            .unwrap();
            let name = format!("memo.v{version}");
            match (check_version(&subscription, Some(&installed), &name, version), expected) {
                (Ok(()), None) => {}
                (Err(error), Some((what, hint))) => {
                    assert!(error.to_string().contains(what), "{error}");
                    assert!(error.hints().iter().any(|of| of.contains(hint)), "{:?}", error.hints());
                }
                (found, expected) => panic!("{version}: {found:?} instead of {expected:?}"),
            }
        };
        check(json!({}), "1.2.0", None);
        check(json!({}), "1.1.0", None);
        let older = ("memo.v1.0.0 is older than memo.v1.1.0", "flyball olm rollback memo -n demo --to memo.v1.0.0");
        check(json!({}), "1.0.0", Some(older));
        let held = json!({ROLLBACK: "memo.v1.1.0"});
        check(held.clone(), "1.2.0", Some(("stays at memo.v1.1.0", "flyball olm pin memo -n demo --remove")));
        check(held, "1.1.0", None);
        check(json!({VERSIONS: "<1.2.0"}), "1.2.0", Some(("only versions <1.2.0", "--remove")));
        check(json!({VERSIONS: "<2.0.0"}), "1.2.0", None);
    }
}
