//! Resolution of the Subscriptions of a namespace, and the InstallPlan for what is not planned yet.

use super::Subscriptions;
use super::adoption::references;
use super::approval::{self, Group};
use super::conditions::{BUNDLE_UNPACK_FAILED, BUNDLE_UNPACKING, RESOLUTION_FAILED, set_or_remove};
use super::selected::Selected;
use super::view::{Tracked, View};
use super::withdrawal::{users, withdraw};
use crate::api::labels::VERSIONS;
use crate::api::{
    Approval, ClusterServiceVersion, ClusterServiceVersionPhase, InstallPlan, InstallPlanPhase, InstallPlanSpec,
    InstallPlanStatus, SubscriptionState, UpgradeStrategy,
};
use crate::catalog::{CatalogKey, Catalogs};
use crate::installed::{bundle_of, to_stay};
use crate::patch::change_status;
use crate::plan::{Chosen, mark, steps};
use crate::resolution::{self, Choice, Installed, Isolation, Request, Resolution, resolve as solve};
use crate::version::VersionRange;
use flyball::{Action, Context, Result};
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::{Resource, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};

/// Resolves the Subscriptions, and creates an InstallPlan if there is something new to install.
pub(super) async fn resolve(of: &Subscriptions, view: &mut View, cx: &Context<Namespace>) -> Result<Action> {
    let now = Time(cx.now());
    if let Some(problem) = group_problem(view) {
        let why = ("ErrorPreventedResolution", problem);
        view.subscriptions.iter_mut().for_each(|tracked| {
            set_or_remove(&mut tracked.status, RESOLUTION_FAILED, Some(why.clone()), &now);
        });
        return Ok(Action::done());
    }
    // The first load of a catalog triggers the next reconcile.
    let waits = view.sources.iter().filter_map(|source| of.contents.remaining_wait(source, cx.now()));
    if let Some(rest) = waits.max() {
        return Ok(Action::requeue_after(rest));
    }
    let catalogs = of.contents.catalogs(&view.sources.iter().collect::<Vec<_>>());
    let (mut requests, problems) = requests(of, view);
    let retry = super::rollout::limit(view, &mut requests, &catalogs, cx).await?;
    let installed = installed(view);
    let owners: BTreeSet<usize> = requests.keys().copied().collect();
    let subscriptions: Vec<resolution::Subscription> = requests.into_values().collect();
    let blocks = of.isolation == Isolation::Namespace && !problems.is_empty();
    let resolution = if blocks {
        Resolution::default()
    } else {
        solve(&Request {
            namespace: &view.namespace,
            catalogs: &catalogs,
            subscriptions: &subscriptions,
            installed: &installed,
            isolation: of.isolation,
        })
    };
    report(view, &problems, &resolution, blocks, &now);
    let resolved = if blocks { BTreeSet::new() } else { resolved(view, &owners, &resolution) };
    let selected = select(view, &catalogs, resolution.choices);
    let withdrawn = withdrawn(view, &resolved, &selected);
    let divides = of.isolation == Isolation::Subscription;
    let fresh = unplanned(view, &catalogs, selected, divides);
    let groups = approval::groups(view, &catalogs, fresh, divides);
    delete_incomplete(view, &groups, &withdrawn, cx).await?;
    let mut action = retry.map_or_else(Action::done, Action::requeue_after);
    for group in &groups {
        let needs = approval::needs(&catalogs, &group.choices);
        let read = read(of, view, &group.choices, &needs, cx).await?;
        if read.iter().any(Option::is_none) {
            action = Action::requeue();
            if of.isolation == Isolation::Namespace {
                continue;
            }
        }
        let (group, chosen) = approval::readable(group, read, &needs);
        if !chosen.is_empty() {
            plan(view, &group, &chosen, &owners, cx).await?;
        }
    }
    Ok(action)
}

/// Returns the reason why the operators of a namespace have no target namespaces.
pub(super) fn group_problem(view: &View) -> Option<String> {
    let names: Vec<String> = view.groups.iter().map(ResourceExt::name_any).collect();
    let namespace = &view.namespace;
    match names.len() {
        0 => Some(format!(
            "namespace {namespace} has no OperatorGroup: create one, which selects the namespaces of its operators"
        )),
        1 => None,
        _ => {
            Some(format!("namespace {namespace} has several OperatorGroups: {}: delete all but one", names.join(", ")))
        }
    }
}

/// Returns the Subscriptions to resolve, and the reasons why others cannot be resolved.
pub(super) fn requests(
    of: &Subscriptions,
    view: &View,
) -> (BTreeMap<usize, resolution::Subscription>, BTreeMap<usize, String>) {
    let (mut requests, mut problems) = (BTreeMap::new(), BTreeMap::new());
    let broken = |source: &crate::api::CatalogSource| {
        let state = of.contents.state(source);
        let unknown = state.is_unknown().then(|| "its first load has not ended".to_owned());
        let error = state.error.or(unknown).filter(|_| state.content.is_none())?;
        let (name, namespace) = (source.name_any(), source.namespace().unwrap_or_default());
        Some(format!("error using catalogsource {namespace}/{name}: {error}"))
    };
    // OLM resolves nothing while one of the catalogs cannot be read.
    let any = (of.isolation == Isolation::Namespace).then(|| view.sources.iter().find_map(broken)).flatten();
    for (index, tracked) in view.subscriptions.iter().enumerate() {
        let problem = any.clone().or_else(|| view.source_of(&tracked.object).and_then(broken));
        if let Some(problem) = problem {
            problems.insert(index, problem);
        } else if !waits(view, tracked) {
            match request(view, tracked) {
                Ok(request) => drop(requests.insert(index, request)),
                Err(problem) => drop(problems.insert(index, problem)),
            }
        }
    }
    (requests, problems)
}

pub(super) fn request(view: &View, tracked: &Tracked) -> Result<resolution::Subscription, String> {
    let spec = &tracked.object.spec;
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    let versions = tracked.object.annotations().get(VERSIONS).map(|text| {
        VersionRange::parse(text).map_err(|error| format!("annotation {VERSIONS} is not a range of versions: {error}"))
    });
    let installed = some(&tracked.status.installed_csv).filter(|name| view.csvs.contains_key(name));
    Ok(resolution::Subscription {
        name: tracked.name().to_owned(),
        catalog: CatalogKey { namespace: spec.source_namespace.clone(), name: spec.source.clone() },
        package: spec.package.clone(),
        channel: some(&spec.channel),
        starting_csv: some(&spec.starting_csv),
        installed_csv: installed,
        versions: versions.transpose()?,
        target: super::rollback::target(&tracked.object).map(str::to_owned),
    })
}

/// Returns true if a Subscription cannot change its version now: an InstallPlan is being executed, its installed
/// version is not ready, or was deleted.
pub(super) fn waits(view: &View, tracked: &Tracked) -> bool {
    let status = &tracked.status;
    if status.current_csv.is_empty() {
        return false;
    }
    // A rollback also leaves a version that is not ready; not one that is still being installed.
    let goes_back = super::rollback::target(&tracked.object).is_some_and(|target| target != status.current_csv);
    match view.plan_of(status).map(|plan| plan.status.phase) {
        Some(InstallPlanPhase::None | InstallPlanPhase::Planning | InstallPlanPhase::Installing) => return true,
        Some(InstallPlanPhase::RequiresApproval | InstallPlanPhase::Failed)
            if !view.csvs.contains_key(&status.current_csv) =>
        {
            return false;
        }
        _ => {}
    }
    if goes_back && view.csvs.contains_key(&status.current_csv) {
        return false;
    }
    let fails_forward = view.groups.iter().any(|group| group.spec.upgrade_strategy == UpgradeStrategy::FailForward);
    let is_ready = |csv: &ClusterServiceVersion| match csv.status.phase {
        ClusterServiceVersionPhase::Succeeded => true,
        ClusterServiceVersionPhase::Failed => fails_forward,
        _ => false,
    };
    !view.csvs.get(&status.current_csv).is_some_and(is_ready)
}

/// Returns the bundles that are installed, or that InstallPlans are about to install.
pub(super) fn installed(view: &View) -> Vec<Installed> {
    let is_running = |plan: &&InstallPlan| plan.status.phase == InstallPlanPhase::Installing;
    let planned: Vec<ClusterServiceVersion> = view
        .plans
        .values()
        .filter(is_running)
        .flat_map(|plan| &plan.status.plan)
        .filter(|step| step.resource.kind == "ClusterServiceVersion" && !view.csvs.contains_key(&step.resource.name))
        .filter_map(|step| serde_json::from_str(&step.resource.manifest).ok())
        .collect();
    let all: Vec<&ClusterServiceVersion> = view.csvs.values().chain(&planned).collect();
    to_stay(&all).into_iter().map(bundle_of).collect()
}

/// Sets the condition about resolution of each Subscription.
fn report(view: &mut View, problems: &BTreeMap<usize, String>, resolution: &Resolution, blocks: bool, now: &Time) {
    for (index, tracked) in view.subscriptions.iter_mut().enumerate() {
        let problem = problems.get(&index).or_else(|| problems.values().next().filter(|_| blocks));
        let failure =
            resolution.failures.iter().find(|failure| failure.subscriptions.iter().any(|name| name == tracked.name()));
        let why = match (problem, failure) {
            (Some(problem), _) => Some(("ErrorPreventedResolution", problem.clone())),
            (None, Some(failure)) => Some(("ConstraintsNotSatisfiable", failure.explanation.to_string())),
            (None, None) => None,
        };
        set_or_remove(&mut tracked.status, RESOLUTION_FAILED, why, now);
    }
}

/// Finds the package and the Subscription of each choice.
fn select(view: &View, catalogs: &Catalogs, choices: Vec<Choice>) -> Vec<Selected> {
    let package_of = |choice: &Choice| {
        let entries = &catalogs.get(&choice.catalog)?.entries;
        let entry = entries.iter().find(|entry| entry.channel == choice.channel && entry.name() == choice.name)?;
        Some(entry.package.clone())
    };
    let selected = |choice: Choice| {
        let package = package_of(&choice)?;
        let is_of = |tracked: &Tracked| {
            let spec = &tracked.object.spec;
            (&spec.package, &spec.source, &spec.source_namespace)
                == (&package, &choice.catalog.name, &choice.catalog.namespace)
        };
        Some(Selected { subscription: view.subscriptions.iter().position(is_of), choice, package })
    };
    choices.into_iter().filter_map(selected).collect()
}

/// Returns the choices that no pending InstallPlan contains. If one of the Subscriptions of a plan has another choice
/// now, all of its choices are planned again; so are those of a failed plan that can be divided.
fn unplanned(view: &View, catalogs: &Catalogs, selected: Vec<Selected>, divides: bool) -> Vec<Selected> {
    let names: BTreeSet<&str> = selected.iter().map(|selected| selected.choice.name.as_str()).collect();
    let is_valid = |plan: &&InstallPlan| {
        let waits = [InstallPlanPhase::RequiresApproval, InstallPlanPhase::Failed].contains(&plan.status.phase);
        waits
            && plan.spec.cluster_service_version_names.iter().all(|name| names.contains(name.as_str()))
            && !approval::is_partly_approved(plan, view)
            && !(divides && approval::is_divisible(plan, catalogs, &selected))
    };
    let referenced = view.subscriptions.iter().filter_map(|tracked| view.plan_of(&tracked.status));
    let planned: BTreeSet<String> =
        referenced.filter(is_valid).flat_map(|plan| plan.spec.cluster_service_version_names.clone()).collect();
    selected.into_iter().filter(|selected| !planned.contains(&selected.choice.name)).collect()
}

/// Returns true if a plan has no steps yet and is for these choices: its creator crashed.
fn is_unfinished(plan: &InstallPlan, fresh: &[Selected]) -> bool {
    let names: BTreeSet<&str> = fresh.iter().map(|selected| selected.choice.name.as_str()).collect();
    let planned: BTreeSet<&str> = plan.spec.cluster_service_version_names.iter().map(String::as_str).collect();
    plan.status.phase == InstallPlanPhase::None && planned == names
}

/// Returns the Subscriptions whose resolution succeeded, or that have a pin, which may leave no version.
fn resolved(view: &View, requested: &BTreeSet<usize>, resolution: &Resolution) -> BTreeSet<usize> {
    let fails = |index: &usize| {
        let tracked = &view.subscriptions[*index];
        let is_pinned = tracked.object.annotations().contains_key(VERSIONS);
        let of = |name: &String| name == tracked.name();
        !is_pinned && resolution.failures.iter().any(|failure| failure.subscriptions.iter().any(of))
    };
    requested.iter().copied().filter(|index| !fails(index)).collect()
}

/// Returns the plans that wait or fail, and whose Subscriptions no longer permit their versions, as after a pin.
fn withdrawn(view: &View, resolved: &BTreeSet<usize>, selected: &[Selected]) -> BTreeSet<String> {
    let names: BTreeSet<&str> = selected.iter().map(|selected| selected.choice.name.as_str()).collect();
    let is_withdrawn = |name: &str, plan: &InstallPlan| {
        let waits = match plan.status.phase {
            InstallPlanPhase::RequiresApproval => !plan.spec.approved,
            InstallPlanPhase::Failed => true,
            _ => false,
        };
        let is_wanted = |csv: &String| names.contains(csv.as_str()) || view.csvs.contains_key(csv);
        let users = users(view, name);
        waits
            && !users.is_empty()
            && users.iter().all(|index| resolved.contains(index))
            && !plan.spec.cluster_service_version_names.iter().any(is_wanted)
    };
    view.plans.iter().filter(|(name, plan)| is_withdrawn(name, plan)).map(|(name, _)| name.clone()).collect()
}

/// Deletes plans without steps that are not for these choices, plans whose choices were planned again, and plans that
/// were withdrawn.
async fn delete_incomplete(
    view: &mut View,
    groups: &[Group],
    withdrawn: &BTreeSet<String>,
    cx: &Context<Namespace>,
) -> Result<()> {
    let fresh = groups.iter().flat_map(|group| &group.choices);
    let again: BTreeSet<usize> = fresh.filter_map(|selected| selected.subscription).collect();
    let replanned = |plan: &InstallPlan| {
        let waits = [InstallPlanPhase::RequiresApproval, InstallPlanPhase::Failed].contains(&plan.status.phase);
        waits && users(view, &plan.name_any()).iter().any(|index| again.contains(index))
    };
    let is_stale = |plan: &InstallPlan| match plan.status.phase {
        InstallPlanPhase::None => !groups.iter().any(|group| is_unfinished(plan, &group.choices)),
        _ => withdrawn.contains(&plan.name_any()) || replanned(plan),
    };
    let stale: Vec<String> =
        view.plans.iter().filter(|(_, plan)| is_stale(plan)).map(|(name, _)| name.clone()).collect();
    for name in stale {
        // Those that are planned again are set to their new plans, unless a bundle cannot be read.
        for index in users(view, &name) {
            withdraw(view, index);
        }
        if let Some(plan) = view.plans.remove(&name) {
            cx.delete(&plan).await?;
        }
    }
    Ok(())
}

/// Reads the objects of the chosen bundles; `None` for those that could not be read, which the Subscriptions that need
/// them report.
async fn read(
    of: &Subscriptions,
    view: &mut View,
    fresh: &[Selected],
    needs: &[BTreeSet<usize>],
    cx: &Context<Namespace>,
) -> Result<Vec<Option<Chosen>>> {
    let now = Time(cx.now());
    let mut read = Vec::new();
    let mut problems: BTreeMap<usize, String> = BTreeMap::new();
    for (position, selected) in fresh.iter().enumerate() {
        let needing = fresh.iter().zip(needs).filter(|(_, needs)| needs.contains(&position));
        let concerned: Vec<usize> = needing.filter_map(|(selected, _)| selected.subscription).collect();
        let source = view.sources.iter().find(|source| crate::contents::key_of(source) == selected.choice.catalog);
        let source = source.cloned();
        let content = source.as_ref().and_then(|source| of.contents.state(source).content);
        let bundle = content.as_ref().and_then(|content| content.bundle(&selected.package, &selected.choice.name));
        let (Some(source), Some(bundle)) = (&source, bundle) else {
            read.push(None);
            continue;
        };
        let manifests = match of.contents.known_manifests(bundle) {
            Some(manifests) => Ok(manifests),
            None => {
                let why = Some(("UnpackingInProgress", format!("unpacking bundle image {}", bundle.image)));
                for index in &concerned {
                    set_or_remove(&mut view.subscriptions[*index].status, BUNDLE_UNPACKING, why.clone(), &now);
                }
                view.write(cx).await?;
                of.contents.manifests(bundle, source, cx.client()).await
            }
        };
        for index in concerned {
            set_or_remove(&mut view.subscriptions[index].status, BUNDLE_UNPACKING, None, &now);
            if let Err(error) = &manifests {
                problems.entry(index).or_insert_with(|| format!("bundle {}: {error}", bundle.name()));
            }
        }
        read.push(manifests.ok().map(|manifests| Chosen {
            choice: selected.choice.clone(),
            package: selected.package.clone(),
            is_subscribed: selected.subscription.is_some(),
            properties: bundle.properties().to_vec(),
            manifests,
        }));
    }
    for index in fresh.iter().filter_map(|selected| selected.subscription) {
        let why = problems.remove(&index).map(|problem| ("BundleUnpackFailed", problem));
        set_or_remove(&mut view.subscriptions[index].status, BUNDLE_UNPACK_FAILED, why, &now);
    }
    Ok(read)
}

/// Creates the InstallPlan, and lists its steps.
///
/// As in OLM, the plan belongs to all Subscriptions that were resolved, so that it remains while one of them exists.
async fn plan(
    view: &mut View,
    group: &Group,
    chosen: &[Chosen],
    owners: &BTreeSet<usize>,
    cx: &Context<Namespace>,
) -> Result<()> {
    let fresh = &group.choices;
    super::rollback::unlink(view, &fresh.iter().map(|selected| &selected.choice).collect::<Vec<_>>(), cx).await?;
    let is_manual =
        |index: usize| view.subscriptions[index].object.spec.install_plan_approval == Some(Approval::Manual);
    let approval = if fresh.iter().filter_map(|selected| selected.subscription).any(is_manual) {
        Approval::Manual
    } else {
        Approval::Automatic
    };
    let steps = steps(&view.namespace, chosen, approval)?;
    let unfinished = view.plans.values().find(|plan| is_unfinished(plan, fresh)).cloned();
    let plan = match unfinished {
        Some(plan) => plan,
        None => {
            let generation = view.plans.values().map(|plan| plan.spec.generation).max().unwrap_or_default() + 1;
            let names = fresh.iter().map(|selected| selected.choice.name.clone()).collect();
            let owners = owners.iter().map(|index| owner_of(&view.subscriptions[*index])).collect();
            let mut plan = new_plan(&view.namespace, owners, generation, approval, names);
            plan.spec.approved |= group.is_approved;
            mark(&mut plan, &super::rollback::targets(view, fresh));
            cx.create_unowned(&plan).await?
        }
    };
    let sources: BTreeSet<String> = fresh.iter().map(|selected| selected.choice.catalog.name.clone()).collect();
    let is_approved = plan.spec.approved;
    let status = InstallPlanStatus {
        phase: if is_approved { InstallPlanPhase::Installing } else { InstallPlanPhase::RequiresApproval },
        catalog_sources: sources.into_iter().collect(),
        plan: steps,
        start_time: is_approved.then(|| Time(cx.now())),
        attenuated_service_account_ref: service_account(view),
        ..InstallPlanStatus::default()
    };
    let plan: InstallPlan = change_status(cx, &plan, &plan.status, &status).await?;
    let (reference, old_reference) = references(&plan);
    for selected in fresh {
        let Some(index) = selected.subscription else { continue };
        let status = &mut view.subscriptions[index].status;
        status.current_csv = selected.choice.name.clone();
        status.install_plan_generation = plan.spec.generation;
        (status.install_plan_ref, status.install_plan) = (Some(reference.clone()), Some(old_reference.clone()));
        status.state = SubscriptionState::UpgradePending;
    }
    view.plans.insert(plan.name_any(), plan);
    Ok(())
}

fn new_plan(
    namespace: &str,
    owners: Vec<OwnerReference>,
    generation: i64,
    approval: Approval,
    names: Vec<String>,
) -> InstallPlan {
    let mut plan = InstallPlan::default();
    plan.metadata.namespace = Some(namespace.to_owned());
    plan.metadata.generate_name = Some("install-".to_owned());
    plan.metadata.owner_references = Some(owners);
    plan.spec = InstallPlanSpec {
        cluster_service_version_names: names,
        approval,
        approved: approval == Approval::Automatic,
        generation,
        ..InstallPlanSpec::default()
    };
    plan
}

fn owner_of(tracked: &Tracked) -> OwnerReference {
    OwnerReference {
        api_version: crate::api::Subscription::api_version(&()).into_owned(),
        kind: "Subscription".to_owned(),
        name: tracked.name().to_owned(),
        uid: tracked.object.uid().unwrap_or_default(),
        controller: Some(false),
        block_owner_deletion: Some(false),
    }
}

/// Returns the service account whose permissions limit the plan.
fn service_account(view: &View) -> Option<ObjectReference> {
    let name = &view.groups.first()?.spec.service_account_name;
    (!name.is_empty()).then(|| ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ServiceAccount".to_owned()),
        namespace: Some(view.namespace.clone()),
        name: Some(name.clone()),
        ..ObjectReference::default()
    })
}
