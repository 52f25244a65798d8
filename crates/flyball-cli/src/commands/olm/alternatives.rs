//! Versions of packages with which a CRD can be changed, if an InstallPlan cannot change it to that of its bundle.
//!
//! Each version that is named was tried: resolution selects it, and its CRD breaks nothing that is stored. Images of
//! bundles are not pulled; of these, only the versions of the CRD are known.

use super::breaking;
use super::unread::Unread;
use crate::cluster::connection::Connection;
use crate::error::Result;
use flyball_lifecycle::api::labels::{ROLLBACK, VERSIONS};
use flyball_lifecycle::api::{InstallPlan, Subscription};
use flyball_lifecycle::content::{Package, PackageBundle};
use flyball_lifecycle::diagnosis::{Snapshot, diagnose};
use flyball_lifecycle::manifests::Manifests;
use flyball_lifecycle::parse_tolerant;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Limit of the resolutions that are tried for a CRD.
const MAX_TRIALS: usize = 8;
/// Limit of the bundles whose objects are examined for a CRD.
const MAX_EXAMINED: usize = 24;
/// Limit of the other operators that are examined.
const MAX_OTHERS: usize = 3;

/// Returns remedies for a plan that cannot change a CRD: another version of its own operator, or of another one that
/// uses the CRD. `users` has these as `PACKAGE.NAMESPACE`.
pub(super) async fn remedies(
    connection: &Connection,
    snapshot: &Snapshot,
    plan: &InstallPlan,
    new: &Value,
    users: &[String],
    unread: &mut Unread,
) -> Result<Vec<String>> {
    let stored = stored_versions(connection, new).await;
    let mut remedies = Vec::new();
    for subscription in snapshot.subscriptions.iter().filter(|of| refers(of, plan)) {
        let Some(package) = package_of(snapshot, subscription) else { continue };
        let current = &subscription.status.current_csv;
        if !package.bundles.get(current).is_some_and(|bundle| has(bundle, new)) {
            continue;
        }
        let others = newest_first(package).into_iter().filter(|bundle| bundle.name() != current).take(MAX_EXAMINED);
        let fits = |bundle: &&PackageBundle| has(bundle, new) && stored.is_subset(&versions_of(bundle, new));
        let mut found = None;
        for bundle in others.filter(fits).take(MAX_TRIALS) {
            let Some(channel) = selecting_channel(snapshot, plan, subscription, package, bundle) else { continue };
            if is_accepted(connection, bundle, new, unread).await? {
                found = Some(install(snapshot, subscription, bundle, &channel));
                break;
            }
        }
        let name = &package.name;
        remedies.push(found.unwrap_or_else(|| format!("no other version of package {name} in its catalog helps")));
    }
    let own = snapshot.subscriptions.iter().filter(|of| refers(of, plan));
    let own = own.map(|of| (of.spec.package.as_str(), snapshot.namespace.as_str())).collect();
    remedies.extend(of_others(snapshot, new, &stored, users, &own));
    Ok(remedies)
}

/// Returns the change that installs another version.
fn install(snapshot: &Snapshot, subscription: &Subscription, bundle: &PackageBundle, channel: &str) -> String {
    let (name, version) = (subscription.name_any(), &bundle.version);
    let channel = match channel == subscription.spec.channel {
        true => String::new(),
        false => format!("set spec.channel: {channel}, and "),
    };
    let namespace = &snapshot.namespace;
    format!("install {} instead, which works: {channel}flyball olm pin {name} {version} -n {namespace}", bundle.name())
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

/// Returns the stored versions of the CRD of the cluster; none if it cannot be read.
async fn stored_versions(connection: &Connection, new: &Value) -> BTreeSet<String> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": new["metadata"]["name"]},
    });
    let Ok(Some(found)) = connection.find(&definition).await else { return BTreeSet::new() };
    let stored = found["status"]["storedVersions"].as_array().into_iter().flatten();
    stored.filter_map(Value::as_str).map(str::to_owned).collect()
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

/// Returns true if the CRD of a bundle breaks nothing that is stored.
async fn is_accepted(
    connection: &Connection,
    bundle: &PackageBundle,
    definition: &Value,
    unread: &mut Unread,
) -> Result<bool> {
    let Some(manifests) = bundle.manifests() else { return Ok(true) };
    match manifests.as_ref().ok().and_then(|of| own(of, definition)) {
        Some(other) => Ok(breaking::changes(connection, std::slice::from_ref(other), unread).await?.is_empty()),
        None => Ok(false),
    }
}

/// Returns the CRD of the same name.
fn own<'m>(manifests: &'m Manifests, definition: &Value) -> Option<&'m Value> {
    manifests.definitions().find(|of| of["metadata"]["name"] == definition["metadata"]["name"])
}

/// Returns the channel in which a pin to the version of a bundle selects it: that of the Subscription, or another one.
fn selecting_channel(
    snapshot: &Snapshot,
    plan: &InstallPlan,
    subscription: &Subscription,
    package: &Package,
    bundle: &PackageBundle,
) -> Option<String> {
    let name = subscription.name_any();
    let own = subscription.spec.channel.as_str();
    let with_it = package.channels.values().filter(|channel| channel.entry(bundle.name()).is_some());
    let others = with_it.map(|channel| channel.name.as_str()).filter(|channel| *channel != own);
    let mut channels = std::iter::once(own).chain(others);
    let selects = |channel: &&str| {
        let mut changed = snapshot.clone();
        changed.plans.retain(|other| other.name_any() != plan.name_any());
        let Some(pinned) = changed.subscriptions.iter_mut().find(|of| of.name_any() == name) else { return false };
        (*channel).clone_into(&mut pinned.spec.channel);
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
