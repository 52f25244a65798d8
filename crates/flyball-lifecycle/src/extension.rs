//! The APIs of OLM v1: ClusterCatalogs and ClusterExtensions, on the same engine.
//!
//! A ClusterExtension is an operator that is installed once in a cluster. Its bundle is the newest one that the
//! catalogs, its range of versions and the upgrade paths allow. It is installed as any other: by an InstallPlan with
//! the same checks and a ClusterServiceVersion, in an OperatorGroup that belongs to the extension. As in OLM v1,
//! nothing else is installed for it: bundles with dependencies are refused.
//!
//! The extension has the permissions of its bundle, which an administrator grants by creating it; `spec.serviceAccount`
//! is accepted and has no effect, as in recent versions of OLM v1.

mod catalogs;
mod installation;
mod selection;
mod status;

pub(crate) use catalogs::{ClusterCatalogs, controller as catalog_controller};

use crate::api::{
    CatalogFilter, ClusterCatalog, ClusterExtension, ClusterServiceVersion, ClusterServiceVersionPhase as Phase, GROUP,
    InstallPlan, InstallPlanPhase, OperatorGroup,
};
use crate::bundle::Bundle;
use crate::contents::CatalogContents;
use crate::install::Definition;
use crate::installed::{bundle_of, to_stay};
use crate::patch::{change_status, merge_patch};
use crate::rules::rule;
use catalogs::{source_of, visible};
use flyball::{Action, Channel, Context, Controller, ObjectKey, Reconcile, Result};
use installation::{EXTENSION, Selected};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use selection::{CatalogView, select};
use serde_json::json;
use status::State;
use std::sync::Arc;

/// Finalizer of ClusterExtensions, which removes the operator before its CRDs are collected.
const CLEANUP: &str = "olm.flyball.dev/extension-cleanup";

/// The reconciler of ClusterExtensions.
pub(crate) struct ClusterExtensions {
    pub(crate) contents: Arc<CatalogContents>,
}

type Cx = Context<ClusterExtension>;

impl Reconcile for ClusterExtensions {
    type Resource = ClusterExtension;

    const FINALIZER: Option<&'static str> = Some(CLEANUP);

    async fn reconcile(&self, extension: &ClusterExtension, cx: &Cx) -> Result<Action> {
        let csvs = csvs_of(extension, cx).await?;
        let stay = to_stay(&csvs.iter().collect::<Vec<_>>());
        let installed = stay.first().copied();
        let state = self.advance(extension, installed, &csvs, cx).await?;
        cx.set_status(&status::status_of(&state, installed, &csvs)).await?;
        Ok(if matches!(state, State::Retrying(_)) { Action::requeue() } else { Action::done() })
    }

    async fn finalize(&self, extension: &ClusterExtension, cx: &Cx) -> Result<Action> {
        // Otherwise a plan that is being executed creates them again.
        for plan in unfinished_plans(extension, cx).await? {
            cx.delete(&plan).await?;
        }
        let csvs = csvs_of(extension, cx).await?;
        // CRDs go first, with the custom resources, while the operator can clean up.
        let mut is_gone = true;
        for csv in &csvs {
            for owned in &csv.spec.crds.owned {
                let Some(definition) = cx.get::<Definition>(&ObjectKey::new(None, &owned.name)).await? else {
                    continue;
                };
                let is_own = installation::is_installed_by(&definition.metadata, csv);
                if !is_own || is_shared(&definition, &csvs, cx).await? {
                    continue;
                }
                is_gone = false;
                if definition.metadata.deletion_timestamp.is_none() {
                    cx.delete(&definition).await?;
                }
            }
        }
        if is_gone {
            for csv in csvs.iter().filter(|csv| csv.metadata.deletion_timestamp.is_none()) {
                cx.delete(csv).await?;
            }
        }
        Ok(if is_gone && csvs.is_empty() { Action::done() } else { Action::requeue() })
    }
}

impl ClusterExtensions {
    /// Executes the next step.
    async fn advance(
        &self,
        extension: &ClusterExtension,
        installed: Option<&ClusterServiceVersion>,
        csvs: &[ClusterServiceVersion],
        cx: &Cx,
    ) -> Result<State> {
        let Some(filter) = &extension.spec.source.catalog else {
            return Ok(State::Waiting("spec.source.catalog is missing".into()));
        };
        let dying = csvs.iter().find(|csv| csv.metadata.deletion_timestamp.is_some());
        if let Some(csv) = dying.filter(|_| installed.is_none()) {
            // The version that it replaces, if any, is installed again.
            return Ok(State::Waiting(format!("{} is being deleted", csv.name_any())));
        }
        let catalogs = visible(filter, cx).await?;
        let states: Vec<_> = catalogs.iter().map(|of| (of, self.contents.state(&source_of(of)))).collect();
        let is_loading = states.iter().any(|(_, state)| state.is_unknown());
        let views: Vec<CatalogView<'_>> = states
            .iter()
            .filter_map(|(catalog, state)| {
                let content = state.content.as_deref()?;
                Some(CatalogView { name: catalog.metadata.name.as_deref()?, priority: catalog.spec.priority, content })
            })
            .collect();
        let bundle = installed.map(bundle_of);
        let selection = select(filter, &views, bundle.as_deref());
        let wanted = selection.as_ref().ok().map(|chosen| chosen.bundle.name());
        let plans = unfinished_plans(extension, cx).await?.into_iter();
        let (incomplete, mut unfinished): (Vec<_>, Vec<_>) =
            plans.partition(|plan| plan.status.phase == InstallPlanPhase::None);
        if let Some(plan) = unfinished.pop() {
            let is_obsolete = !is_loading && is_obsolete(&plan, extension, wanted);
            return progress(&plan, is_obsolete, csvs, cx).await;
        }
        if let Some(why) = installed.and_then(|csv| unready(csv, wanted)) {
            return Ok(State::Waiting(why));
        }
        if is_loading {
            // The first load of a catalog triggers the next reconcile.
            return Ok(State::Waiting("a ClusterCatalog is being loaded".to_owned()));
        }
        let chosen = match selection {
            Ok(chosen) => chosen,
            Err(why) => return Ok(State::Retrying(why.to_string())),
        };
        if bundle.as_ref().is_some_and(|bundle| bundle.name() == chosen.bundle.name()) {
            return Ok(State::Succeeded);
        }
        let catalog = catalogs.iter().find(|catalog| catalog.metadata.name.as_deref() == Some(chosen.catalog));
        let Some(catalog) = catalog else { return Ok(State::Waiting(String::new())) };
        let manifests = match self.contents.manifests(chosen.bundle, &source_of(catalog), cx.client()).await {
            Ok(manifests) => manifests,
            Err(why) => return Ok(State::Retrying(format!("bundle {}: {why}", chosen.bundle.name()))),
        };
        let selected = Selected { chosen: &chosen, filter, manifests, replaces: bundle.as_deref().map(Bundle::name) };
        match installation::problem(extension, &selected) {
            Some(why) => Ok(State::Blocked(why)),
            None => self.plan(extension, &selected, installed, incomplete, cx).await,
        }
    }

    /// Creates the OperatorGroup and the InstallPlan, or completes one without steps: its creator crashed, or its
    /// status was refused. A new one would trigger the next attempt at once, without backoff.
    async fn plan(
        &self,
        extension: &ClusterExtension,
        selected: &Selected<'_>,
        installed: Option<&ClusterServiceVersion>,
        incomplete: Vec<InstallPlan>,
        cx: &Cx,
    ) -> Result<State> {
        let namespace = &extension.spec.namespace;
        let groups: Vec<OperatorGroup> = cx.list(Some(namespace)).await?;
        let name = extension.name_any();
        let owner = installation::owner_of(extension);
        if let Some(other) = groups.iter().find(|group| group.owner_references() != [owner.clone()]) {
            let other = other.name_any();
            return Ok(State::Blocked(format!(
                "namespace {namespace} has OperatorGroup {other} of others: use a namespace of its own for \
                 ClusterExtension {name}"
            )));
        }
        cx.apply_unowned(&installation::group(extension)).await?;
        // Otherwise each of two versions would replace the other after a rollback.
        if let Some(csv) = installed.filter(|csv| csv.spec.replaces == selected.chosen.bundle.name()) {
            merge_patch(cx, csv, "", &json!({"spec": {"replaces": null}})).await?;
        }
        let wanted = installation::plan(extension, selected);
        let is_wanted = |plan: &InstallPlan| plan.spec == wanted.spec && plan.annotations() == wanted.annotations();
        let (mut usable, others): (Vec<_>, Vec<_>) = incomplete.into_iter().partition(is_wanted);
        for plan in &others {
            cx.delete(plan).await?;
        }
        let plan = match usable.pop() {
            Some(plan) => plan,
            None => cx.create_unowned(&wanted).await?,
        };
        let status = installation::plan_status(extension, selected, Time(cx.now()))?;
        change_status(cx, &plan, &plan.status, &status).await?;
        Ok(State::Waiting(format!("{} is being installed", selected.chosen.bundle.name())))
    }
}

/// Returns the ClusterServiceVersions of an extension.
async fn csvs_of(extension: &ClusterExtension, cx: &Cx) -> Result<Vec<ClusterServiceVersion>> {
    let name = extension.name_any();
    let is_own = |csv: ClusterServiceVersion| {
        let is_own = csv.labels().get(EXTENSION) == Some(&name) && csv.copied_from().is_none();
        is_own.then_some(csv)
    };
    cx.filter_map(Some(&extension.spec.namespace), is_own).await
}

/// Returns true if a CRD was also installed with another ClusterServiceVersion, which stays.
async fn is_shared(definition: &Definition, own: &[ClusterServiceVersion], cx: &Cx) -> Result<bool> {
    for key in installation::installed_alongside(&definition.metadata) {
        let is_own = own.iter().any(|csv| ObjectKey::new(csv.namespace().as_deref(), &csv.name_any()) == key);
        if is_own {
            continue;
        }
        let other: Option<ClusterServiceVersion> = cx.get(&key).await?;
        if other.is_some_and(|csv| csv.metadata.deletion_timestamp.is_none()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the state of a plan that is being executed; a plan that is not needed any more is withdrawn.
async fn progress(plan: &InstallPlan, is_obsolete: bool, csvs: &[ClusterServiceVersion], cx: &Cx) -> Result<State> {
    let names = plan.spec.cluster_service_version_names.join(", ");
    if is_obsolete {
        withdraw(plan, csvs, cx).await?;
        // Its deletion triggers the next reconcile.
        return Ok(State::Waiting(format!("the installation of {names} is withdrawn")));
    }
    Ok(match plan.status.message.is_empty() {
        true => State::Waiting(format!("{names} is being installed")),
        false => State::Retrying(format!("{names}: {}", plan.status.message)),
    })
}

/// Returns the reason why the installed version is not ready, unless it has failed and another one is wanted.
fn unready(csv: &ClusterServiceVersion, wanted: Option<&str>) -> Option<String> {
    let is_replaceable = has_failed(csv) && wanted != csv.metadata.name.as_deref();
    if csv.status.phase == Phase::Succeeded || is_replaceable {
        return None;
    }
    let status = &csv.status;
    Some(format!("{}: {:?}, {}: {}", csv.name_any(), status.phase, status.reason, status.message))
}

/// Returns true if a ClusterServiceVersion has failed since it last succeeded, also while it is tried again.
fn has_failed(csv: &ClusterServiceVersion) -> bool {
    let mut phases = csv.status.conditions.iter().map(|entry| entry.phase).chain([csv.status.phase]);
    phases.rfind(|phase| matches!(phase, Phase::Succeeded | Phase::Failed)) == Some(Phase::Failed)
}

/// Returns true if an InstallPlan failed and does not install the current selection of an extension.
fn is_obsolete(plan: &InstallPlan, extension: &ClusterExtension, wanted: Option<&str>) -> bool {
    let planned = plan.spec.cluster_service_version_names.first().map(String::as_str);
    let is_changed = planned != wanted || installation::skips_checks(extension) != installation::is_unchecked(plan);
    plan.status.phase == InstallPlanPhase::Failed && is_changed
}

/// Deletes an InstallPlan, and those of its ClusterServiceVersions that were not installed yet.
async fn withdraw(plan: &InstallPlan, csvs: &[ClusterServiceVersion], cx: &Cx) -> Result<()> {
    let is_planned = |csv: &&ClusterServiceVersion| {
        plan.spec.cluster_service_version_names.contains(&csv.name_any())
            && matches!(csv.status.phase, Phase::None | Phase::Pending)
            && !has_run(csv)
    };
    for csv in csvs.iter().filter(is_planned) {
        cx.delete(csv).await?;
    }
    cx.delete(plan).await
}

/// Returns true if the objects of a ClusterServiceVersion were created.
fn has_run(csv: &ClusterServiceVersion) -> bool {
    csv.status.conditions.iter().any(|entry| matches!(entry.phase, Phase::Installing | Phase::Succeeded))
}

/// Returns the InstallPlans of an extension that are not complete.
async fn unfinished_plans(extension: &ClusterExtension, cx: &Cx) -> Result<Vec<InstallPlan>> {
    let uid = extension.uid().unwrap_or_default();
    let own = |plan: InstallPlan| {
        let is_own = plan.owner_references().iter().any(|owner| owner.uid == uid);
        let is_dying = plan.metadata.deletion_timestamp.is_some();
        (is_own && !is_dying && plan.status.phase != InstallPlanPhase::Complete).then_some(plan)
    };
    cx.filter_map(Some(&extension.spec.namespace), own).await
}

/// Creates the controller.
pub(crate) fn controller(
    reconciler: ClusterExtensions,
    wake: &Channel<ClusterExtension>,
) -> Controller<ClusterExtensions> {
    let of_csv = |csv: &ClusterServiceVersion| csv.labels().get(EXTENSION).map(|name| ObjectKey::new(None, name));
    Controller::new(reconciler)
        .name("clusterextension")
        .source(wake)
        .owns::<OperatorGroup>()
        .owns::<InstallPlan>()
        .owns::<ClusterServiceVersion>()
        .owns::<Definition>()
        .watches::<ClusterServiceVersion>(move |csv, _| Ok(of_csv(csv).into_iter().collect()))
        .watches_by_key::<ClusterCatalog>(|_, _| Ok(Vec::new()))
        .allows(rule(GROUP, &["installplans/status"], &["patch"]))
}

/// Returns true if a filter selects a catalog by its labels.
fn selects(filter: &CatalogFilter, catalog: &ClusterCatalog) -> bool {
    filter.selector.as_ref().is_none_or(|selector| {
        let selector = flyball_core::selector::LabelSelector::from_value(selector);
        selector.matches(|label| catalog.labels().get(label).map(String::as_str))
    })
}
