//! Explanations for users: why a Subscription has its version, and why it does not progress.
//!
//! The explanation is computed from the objects of a namespace and the contents of its catalogs, by the same functions
//! as the controller's decisions. It performs no I/O, so it works for any cluster whose objects can be read.

mod attempt;
mod cause;
mod operator;
mod reasons;
mod remedy;
mod selection;

pub use cause::{Cause, Severity};
pub use operator::{diagnose_csv, severity};
pub use selection::{CandidateReport, NextVersion, RequirementReport, Selection};

use super::view::{Tracked, View};
use super::{Subscriptions, planning};
use crate::api::{CatalogSource, ClusterServiceVersion, InstallPlan, OperatorCondition, OperatorGroup, Subscription};
use crate::contents::CatalogContents;
use crate::resolution::Isolation;
use crate::source::{CatalogClient, Loaded, Sources};
use kube::ResourceExt;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The objects of a namespace that affect its Subscriptions.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The namespace.
    pub namespace: String,
    /// The namespace whose CatalogSources all namespaces see.
    pub global_namespace: String,
    /// The Subscriptions of the namespace.
    pub subscriptions: Vec<Subscription>,
    /// Its ClusterServiceVersions; copies are ignored.
    pub csvs: Vec<ClusterServiceVersion>,
    /// Its InstallPlans.
    pub plans: Vec<InstallPlan>,
    /// Its OperatorGroups.
    pub groups: Vec<OperatorGroup>,
    /// Its OperatorConditions.
    pub conditions: Vec<OperatorCondition>,
    /// The CatalogSources of the namespace and of the global one, and their contents.
    pub catalogs: Vec<(CatalogSource, Result<Loaded, String>)>,
    /// CatalogSources that cannot be read with the permissions of the user, as `namespace/name`. They may exist or not.
    pub hidden_catalogs: BTreeSet<String>,
}

/// The explanation of a Subscription.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// The name of the Subscription.
    pub subscription: String,
    /// Its namespace.
    pub namespace: String,
    /// The package.
    pub package: String,
    /// The channel; empty for the default channel.
    pub channel: String,
    /// The CatalogSource, as `namespace/name`.
    pub catalog: String,
    /// The installed ClusterServiceVersion; empty if there is none.
    pub installed: String,
    /// The ClusterServiceVersion that is being installed; empty if there is none.
    pub installing: String,
    /// True if nothing prevents or delays the Subscription.
    pub healthy: bool,
    /// Reasons that prevent or delay it, the most severe first.
    pub causes: Vec<Cause>,
    /// The selection of the next version; absent if it was not attempted.
    pub selection: Option<Selection>,
}

/// A snapshot in the form of the controller.
struct Case<'s> {
    snapshot: &'s Snapshot,
    controller: Subscriptions,
    view: View,
}

impl<'s> Case<'s> {
    fn new(snapshot: &'s Snapshot) -> Self {
        // No bundle is unpacked: resolution does not depend on the objects of bundles.
        let client: Arc<dyn CatalogClient> = Arc::new(Sources::default());
        let contents = Arc::new(CatalogContents::of(client, &snapshot.catalogs));
        let named = |csv: &ClusterServiceVersion| (csv.name_any(), csv.clone());
        let tracked = |object: &Subscription| Tracked { status: object.status.clone(), object: object.clone() };
        let mut subscriptions: Vec<Tracked> = snapshot.subscriptions.iter().map(tracked).collect();
        subscriptions.sort_by(|one, other| one.name().cmp(other.name()));
        let view = View {
            namespace: snapshot.namespace.clone(),
            subscriptions,
            csvs: snapshot.csvs.iter().filter(|csv| csv.copied_from().is_none()).map(named).collect(),
            plans: snapshot.plans.iter().map(|plan| (plan.name_any(), plan.clone())).collect(),
            groups: snapshot.groups.clone(),
            sources: snapshot.visible().map(|(source, _)| source.clone()).collect(),
        };
        let global_namespace = snapshot.global_namespace.clone();
        let controller = Subscriptions { contents, global_namespace, isolation: Isolation::default() };
        Self { snapshot, controller, view }
    }
}

impl Snapshot {
    /// Returns true if the CatalogSource of a Subscription cannot be read.
    fn is_hidden(&self, subscription: &Subscription) -> bool {
        let spec = &subscription.spec;
        self.hidden_catalogs.contains(&format!("{}/{}", spec.source_namespace, spec.source))
    }

    /// Returns the CatalogSources that the namespace can use.
    fn visible(&self) -> impl Iterator<Item = &(CatalogSource, Result<Loaded, String>)> {
        let hides_global = self.groups.iter().any(super::view::excludes_global);
        self.catalogs.iter().filter(move |(source, _)| {
            let namespace = source.namespace().unwrap_or_default();
            namespace == self.namespace || namespace == self.global_namespace && !hides_global
        })
    }
}

/// Explains a Subscription; `None` if there is none of this name.
pub fn diagnose(snapshot: &Snapshot, subscription: &str) -> Option<Diagnosis> {
    let case = Case::new(snapshot);
    let index = case.view.subscriptions.iter().position(|tracked| tracked.name() == subscription)?;
    let tracked = &case.view.subscriptions[index];
    let mut causes = reasons::of_namespace(&case, tracked);
    let (requests, problems) = planning::requests(&case.controller, &case.view);
    let is_hidden = snapshot.is_hidden(&tracked.object) && problems.contains_key(&index);
    if let Some(problem) = problems.get(&index) {
        causes.push(match is_hidden {
            true => reasons::of_hidden_catalog(tracked, problem),
            false => reasons::of_catalog(&case, tracked, problem),
        });
    }
    causes.extend(reasons::of_conditions(&case, tracked, is_hidden));
    causes.extend(reasons::of_plan(&case, tracked));
    causes.extend(reasons::of_operator(&case, tracked));
    causes.extend(reasons::of_rollout(&case, tracked));
    causes.extend(reasons::of_upgrade_path(&case, tracked));
    causes.extend(reasons::of_pins(&case, tracked));
    let mut selection = selection::select(&case, index, requests);
    // The causes name a catalog that does not exist: the facts would only repeat that it has no packages.
    let lacks_catalog = case.view.source_of(&tracked.object).is_none();
    if let Some(failed) = selection.take_if(|selection| lacks_catalog && !selection.facts.is_empty()) {
        let is_source = |cause: &&mut Cause| cause.field == "spec.source";
        if let Some((cause, remedy)) = causes.iter_mut().find(is_source).zip(tried(&failed)) {
            cause.remedy = remedy;
        }
    }
    if let Some(failure) = selection.as_ref().filter(|selection| !selection.facts.is_empty()) {
        causes.push(Cause {
            severity: Severity::Blocking,
            object: format!("Subscription {}/{subscription}", case.view.namespace),
            field: "spec".to_owned(),
            message: failure.facts.join("; "),
            remedy: failure.remedies.first().cloned().unwrap_or_default(),
        });
    }
    causes.sort_by_key(|cause| cause.severity);
    let (spec, status) = (&tracked.object.spec, &tracked.status);
    let installing = if status.current_csv == status.installed_csv { "" } else { &*status.current_csv };
    Some(Diagnosis {
        subscription: subscription.to_owned(),
        namespace: case.view.namespace.clone(),
        package: spec.package.clone(),
        channel: spec.channel.clone(),
        catalog: format!("{}/{}", spec.source_namespace, spec.source),
        installed: status.installed_csv.clone(),
        installing: installing.to_owned(),
        healthy: causes.iter().all(|cause| cause.severity == Severity::Notice),
        causes,
        selection,
    })
}

/// Returns the catalogs that have the package: each one was tried.
fn tried(selection: &Selection) -> Option<String> {
    let other = selection.remedies.iter().filter(|remedy| remedy.starts_with("set spec.source: "));
    let all: Vec<&str> = other.map(String::as_str).collect();
    (!all.is_empty()).then(|| all.join("; or "))
}

/// The requests of the other Subscriptions, by index, as resolution needs them.
type Requests = BTreeMap<usize, crate::resolution::Subscription>;
