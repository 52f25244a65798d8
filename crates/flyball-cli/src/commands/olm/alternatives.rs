//! Versions of packages with which a CRD can be changed, if an InstallPlan cannot change it to that of its bundle.
//!
//! Versions of the own operator are tried: resolution selects the named one. The remedy says whether its CRD was
//! compared with what is stored. Images of bundles are not pulled; of these, only the versions of the CRD are known.
//! Versions of other operators are not tried: those are named whose CRD has no other versions than the new one.

use super::breaking;
use super::unread::Unread;
use crate::cluster::connection::Connection;
use crate::error::Result;
use flyball_lifecycle::api::labels::{ROLLBACK, VERSIONS};
use flyball_lifecycle::api::{InstallPlan, Subscription};
use flyball_lifecycle::content::{Package, PackageBundle};
use flyball_lifecycle::diagnosis::{Snapshot, diagnose};
use flyball_lifecycle::install::with_conversions;
use flyball_lifecycle::manifests::Manifests;
use flyball_lifecycle::parse_tolerant;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Limit of the resolutions that are tried for a Subscription: of all its versions and channels.
const MAX_TRIALS: usize = 8;
/// Limit of the bundles whose objects are examined for a CRD.
const MAX_EXAMINED: usize = 24;
/// Limit of the other operators that are examined.
const MAX_OTHERS: usize = 3;

/// The remedies by other versions.
#[derive(Clone, Debug, Default)]
pub(super) struct Alternatives {
    /// Changes of Subscriptions.
    pub(super) remedies: Vec<String>,
    /// Packages without such a version.
    pub(super) absences: Vec<String>,
}

/// The effect of another CRD on what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing that is stored becomes invalid.
    Accepted,
    /// The CRD or what is stored was not read.
    Unknown(&'static str),
    /// Stored objects become invalid, or there is no such CRD.
    Rejected,
}

/// Returns remedies for a plan that cannot change a CRD: another version of its own operator, or of another one that
/// uses the CRD. `users` has these as `PACKAGE.NAMESPACE`. There are none if the CRD of the cluster cannot be read.
pub(super) async fn find(
    connection: &Connection,
    snapshot: &Snapshot,
    plan: &InstallPlan,
    new: &Value,
    users: &[String],
) -> Result<Alternatives> {
    let mut found = Alternatives::default();
    let Some(stored) = stored_versions(connection, new).await else { return Ok(found) };
    for subscription in snapshot.subscriptions.iter().filter(|of| refers(of, plan)) {
        let Some(package) = package_of(snapshot, subscription) else { continue };
        let current = &subscription.status.current_csv;
        if !package.bundles.get(current).is_some_and(|bundle| has(bundle, new)) {
            continue;
        }
        let others: Vec<_> = newest_first(package).into_iter().filter(|bundle| bundle.name() != current).collect();
        let (mut remedy, mut examined, mut trials) = (None, 0, 0);
        for bundle in others.iter().take(MAX_EXAMINED) {
            if has(bundle, new) && stored.is_subset(&versions_of(bundle, new)) {
                let of = (snapshot, plan, subscription);
                remedy = trial(connection, of, (package, bundle), new, &mut trials).await?;
                if remedy.is_none() && trials == MAX_TRIALS {
                    break;
                }
            }
            examined += 1;
            if remedy.is_some() {
                break;
            }
        }
        match remedy {
            Some(remedy) => found.remedies.push(remedy),
            None => found.absences.extend(absence(&package.name, examined, others.len())),
        }
    }
    let own = snapshot.subscriptions.iter().filter(|of| refers(of, plan));
    let own = own.map(|of| (of.spec.package.as_str(), snapshot.namespace.as_str())).collect();
    found.remedies.extend(of_others(snapshot, new, &stored, users, &own));
    Ok(found)
}

/// Returns the change that installs a version, unless this is impossible or breaks what is stored.
async fn trial(
    connection: &Connection,
    (snapshot, plan, subscription): (&Snapshot, &InstallPlan, &Subscription),
    (package, bundle): (&Package, &PackageBundle),
    new: &Value,
    trials: &mut usize,
) -> Result<Option<String>> {
    let selecting = selecting_channel((snapshot, plan, subscription), package, bundle, trials);
    let Some(channel) = selecting else { return Ok(None) };
    let verdict = verdict(connection, bundle, new).await?;
    Ok(install(snapshot, subscription, bundle, &channel, verdict))
}

/// Returns the change that installs another version, unless this is rejected.
fn install(
    snapshot: &Snapshot,
    subscription: &Subscription,
    bundle: &PackageBundle,
    channel: &str,
    verdict: Verdict,
) -> Option<String> {
    let effect = match verdict {
        Verdict::Accepted => "which works".to_owned(),
        Verdict::Unknown(why) => format!("which may work ({why})"),
        Verdict::Rejected => return None,
    };
    let (name, version) = (subscription.name_any(), &bundle.version);
    let channel = match channel == subscription.spec.channel {
        true => String::new(),
        false => format!("set spec.channel: {channel}, and "),
    };
    let channel = if is_started(subscription) { format!("remove spec.startingCSV, and {channel}") } else { channel };
    let namespace = &snapshot.namespace;
    Some(format!(
        "install {} instead, {effect}: {channel}flyball olm pin {name} {version} -n {namespace}",
        bundle.name()
    ))
}

/// Returns the message that a package has no version which helps. `examined` of its `others` were examined.
fn absence(package: &str, examined: usize, others: usize) -> Option<String> {
    match examined {
        _ if examined >= others => Some(format!("no other version of package {package} in its catalog helps")),
        0 => None,
        _ => Some(format!("none of the newest {examined} other versions of package {package} in its catalog helps")),
    }
}

/// Returns the versions of other operators whose CRD has only versions that the new one has: after a migration of the
/// stored objects, both can use it.
fn of_others(
    snapshot: &Snapshot,
    new: &Value,
    stored: &BTreeSet<String>,
    users: &[String],
    own: &BTreeSet<(&str, &str)>,
) -> Vec<String> {
    let versions = versions_in(new);
    if stored.is_subset(&versions) {
        return Vec::new();
    }
    let remedy = |user: &String| {
        let (package, namespace) = user.rsplit_once('.').filter(|of| !own.contains(of))?;
        let mut contents = snapshot.catalogs.iter().filter_map(|(_, loaded)| loaded.as_ref().ok());
        let package = contents.find_map(|loaded| loaded.content.package(package))?;
        let mut bundles = newest_first(package).into_iter().take(MAX_EXAMINED);
        let fits = |bundle: &&PackageBundle| has(bundle, new) && versions_of(bundle, new).is_subset(&versions);
        let bundle = bundles.find(fits)?;
        Some(format!(
            "change operator {} of namespace {namespace} to {}, whose CRD has no other versions than the new one, and \
             migrate the stored objects",
            package.name,
            bundle.name()
        ))
    };
    users.iter().take(MAX_OTHERS).filter_map(remedy).collect()
}

/// Returns true if a plan installs the version of a Subscription.
fn refers(subscription: &Subscription, plan: &InstallPlan) -> bool {
    let reference = subscription.status.install_plan_ref.as_ref();
    reference.is_some_and(|reference| reference.name.as_deref() == Some(&*plan.name_any()))
}

/// Returns the package of a Subscription, if its catalog was loaded.
fn package_of<'s>(snapshot: &'s Snapshot, subscription: &Subscription) -> Option<&'s Package> {
    let spec = &subscription.spec;
    let mut catalogs = snapshot.catalogs.iter();
    let (_, loaded) = catalogs.find(|(source, _)| {
        source.name_any() == spec.source && source.namespace().as_ref() == Some(&spec.source_namespace)
    })?;
    loaded.as_ref().ok()?.content.package(&spec.package)
}

fn newest_first(package: &Package) -> Vec<&PackageBundle> {
    let mut bundles: Vec<&PackageBundle> = package.bundles.values().collect();
    bundles.sort_by_key(|bundle| Reverse(parse_tolerant(&bundle.version)));
    bundles
}

/// Returns the stored versions of the CRD of the cluster; `None` if it cannot be read.
async fn stored_versions(connection: &Connection, new: &Value) -> Option<BTreeSet<String>> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": new["metadata"]["name"]},
    });
    // Remedies are only an addition to the cause, which says why the CRDs were not read.
    let found = connection.find(&definition).await.ok()??;
    let stored = found["status"]["storedVersions"].as_array()?;
    Some(stored.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Returns the names of the versions of a CRD.
fn versions_in(definition: &Value) -> BTreeSet<String> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    versions.filter_map(|version| version["name"].as_str()).map(str::to_owned).collect()
}

/// Returns the versions that the CRD of a bundle has; as its properties list them, if its objects are in an image.
fn versions_of(bundle: &PackageBundle, definition: &Value) -> BTreeSet<String> {
    if let Some(manifests) = bundle.manifests() {
        return manifests.ok().and_then(|of| Some(versions_in(own(&of, definition)?))).unwrap_or_default();
    }
    let (group, kind) = (&definition["spec"]["group"], &definition["spec"]["names"]["kind"]);
    let apis = bundle.properties().iter().filter(|property| property.kind == "olm.gvk").map(|of| of.value());
    let own = apis.filter(|api| api["group"] == *group && api["kind"] == *kind);
    own.filter_map(|api| api["version"].as_str().map(str::to_owned)).collect()
}

fn has(bundle: &PackageBundle, definition: &Value) -> bool {
    !versions_of(bundle, definition).is_empty()
}

/// Returns the effect of the CRD of a bundle on what is stored.
async fn verdict(connection: &Connection, bundle: &PackageBundle, definition: &Value) -> Result<Verdict> {
    let Some(manifests) = bundle.manifests() else {
        return Ok(Verdict::Unknown("its CRD is in the image of the bundle, which was not read"));
    };
    let Ok(manifests) = manifests else { return Ok(Verdict::Rejected) };
    let Some(other) = own(&manifests, definition) else { return Ok(Verdict::Rejected) };
    let other = with_conversions(manifests.csv(), [other.clone()], &connection.namespace);
    let mut unread = Unread::default();
    let changes = breaking::changes(connection, &other, &mut unread).await?;
    Ok(match (changes.is_empty(), unread.is_empty()) {
        (false, _) => Verdict::Rejected,
        (true, true) => Verdict::Accepted,
        (true, false) => Verdict::Unknown("you may not read all custom resources"),
    })
}

/// Returns the CRD of the same name.
fn own<'m>(manifests: &'m Manifests, definition: &Value) -> Option<&'m Value> {
    manifests.definitions().find(|of| of["metadata"]["name"] == definition["metadata"]["name"])
}

/// Returns true if a Subscription without an installed version names the first one, which excludes all others.
fn is_started(subscription: &Subscription) -> bool {
    !subscription.spec.starting_csv.is_empty() && subscription.status.installed_csv.is_empty()
}

/// Returns the channel in which a pin to the version of a bundle selects it: that of the Subscription, or another one.
fn selecting_channel(
    (snapshot, plan, subscription): (&Snapshot, &InstallPlan, &Subscription),
    package: &Package,
    bundle: &PackageBundle,
    trials: &mut usize,
) -> Option<String> {
    let name = subscription.name_any();
    let own = subscription.spec.channel.as_str();
    let with_it = package.channels.values().filter(|channel| channel.entry(bundle.name()).is_some());
    let others = with_it.map(|channel| channel.name.as_str()).filter(|channel| *channel != own);
    let mut channels = std::iter::once(own).chain(others).take(MAX_TRIALS.saturating_sub(*trials));
    let selects = |channel: &&str| {
        *trials += 1;
        let mut changed = snapshot.clone();
        changed.plans.retain(|other| other.name_any() != plan.name_any());
        let Some(pinned) = changed.subscriptions.iter_mut().find(|of| of.name_any() == name) else { return false };
        (*channel).clone_into(&mut pinned.spec.channel);
        if is_started(subscription) {
            pinned.spec.starting_csv.clear();
        }
        let status = &mut pinned.status;
        (status.install_plan_ref, status.current_csv) = (None, status.installed_csv.clone());
        let annotations = pinned.annotations_mut();
        annotations.remove(ROLLBACK);
        annotations.insert(VERSIONS.to_owned(), bundle.version.clone());
        let next = diagnose(&changed, &name).and_then(|diagnosis| diagnosis.selection?.next);
        next.is_some_and(|next| next.name == bundle.name())
    };
    channels.find(selects).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_is_limited_to_the_examined_versions() {
        let check = |examined: usize, others: usize, expected: Option<&str>| {
            assert_eq!(absence("memo", examined, others).as_deref(), expected);
        };
        check(3, 3, Some("no other version of package memo in its catalog helps"));
        check(24, 60, Some("none of the newest 24 other versions of package memo in its catalog helps"));
        check(0, 60, None);
    }
}
