//! The objects that install a ClusterExtension.

use super::selection::Chosen;
use crate::api::labels::{CRD_UPGRADE_SAFETY, INSTALLED_ALONGSIDE_PREFIX};
use crate::api::{
    Approval, CatalogFilter, ClusterExtension, ClusterServiceVersion, InstallMode, InstallModeType, InstallPlan,
    InstallPlanPhase, InstallPlanSpec, InstallPlanStatus, OperatorGroup, Step, UpgradeStrategy,
};
use crate::catalog::CatalogKey;
use crate::manifests::Manifests;
use crate::plan::{Chosen as PlannedBundle, steps};
use crate::resolution::Choice;
use flyball::{ObjectKey, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::{Resource, ResourceExt};
use serde_json::Value;
use std::sync::Arc;

/// Label of a ClusterServiceVersion: its ClusterExtension.
pub(super) const EXTENSION: &str = "olm.operatorframework.io/owner-name";
/// Value of the annotation of a plan whose CRDs are not checked, and of the field of an extension.
const UNCHECKED: &str = "None";
/// Properties by which a bundle depends on others.
const DEPENDENCIES: [&str; 3] = ["olm.gvk.required", "olm.package.required", "olm.constraint"];

/// A bundle with its objects.
pub(super) struct Selected<'s> {
    pub(super) chosen: &'s Chosen<'s>,
    pub(super) filter: &'s CatalogFilter,
    pub(super) manifests: Arc<Manifests>,
    /// The installed bundle.
    pub(super) replaces: Option<&'s str>,
}

/// Returns the namespace that the operator watches; `None` for all.
fn watch_namespace(extension: &ClusterExtension) -> Option<&str> {
    extension.spec.config.as_ref()?.inline.as_ref()?["watchNamespace"].as_str().filter(|name| !name.is_empty())
}

/// Returns the reason why a bundle cannot be installed by a ClusterExtension.
pub(super) fn problem(extension: &ClusterExtension, selected: &Selected<'_>) -> Option<String> {
    let bundle = selected.chosen.bundle;
    let dependency = bundle.properties().iter().find(|property| DEPENDENCIES.contains(&property.kind.as_str()));
    if let Some(property) = dependency {
        return Some(format!(
            "bundle {:?} has a dependency declared via property {:?}, which ClusterExtensions do not install: \
             use a Subscription",
            bundle.name(),
            property.kind
        ));
    }
    let csv: ClusterServiceVersion = match serde_json::from_value(selected.manifests.csv().clone()) {
        Ok(csv) => csv,
        Err(error) => return Some(format!("bundle {:?}: {error}", bundle.name())),
    };
    let supports = |mode| csv.spec.install_modes.contains(&InstallMode { mode, supported: true });
    match watch_namespace(extension) {
        None if supports(InstallModeType::AllNamespaces) => None,
        None => Some(format!(
            "bundle {:?} does not support the install mode AllNamespaces: set spec.config.inline.watchNamespace",
            bundle.name()
        )),
        Some(namespace) => {
            let is_own = namespace == extension.spec.namespace;
            let mode = if is_own { InstallModeType::OwnNamespace } else { InstallModeType::SingleNamespace };
            (!supports(mode)).then(|| format!("bundle {:?} does not support the install mode {mode}", bundle.name()))
        }
    }
}

pub(super) fn owner_of(extension: &ClusterExtension) -> OwnerReference {
    OwnerReference {
        api_version: ClusterExtension::api_version(&()).into_owned(),
        kind: "ClusterExtension".to_owned(),
        name: extension.name_any(),
        uid: extension.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Returns the OperatorGroup of an extension.
pub(super) fn group(extension: &ClusterExtension) -> OperatorGroup {
    let mut group = OperatorGroup::new(Some(&extension.spec.namespace), &extension.name_any());
    group.metadata.owner_references = Some(vec![owner_of(extension)]);
    // A version that failed must not prevent another one, as in OLM v1.
    group.spec.upgrade_strategy = UpgradeStrategy::FailForward;
    group.spec.target_namespaces = watch_namespace(extension).into_iter().map(str::to_owned).collect();
    group
}

/// Returns true if an extension disables the check of its CRDs.
pub(super) fn skips_checks(extension: &ClusterExtension) -> bool {
    let preflight = extension.spec.install.as_ref().and_then(|install| install.preflight.as_ref());
    let safety = preflight.and_then(|preflight| preflight.crd_upgrade_safety.as_ref());
    safety.is_some_and(|safety| safety.enforcement == UNCHECKED)
}

/// Returns true if the CRDs of a plan are not checked.
pub(super) fn is_unchecked(plan: &InstallPlan) -> bool {
    plan.annotations().get(CRD_UPGRADE_SAFETY).is_some_and(|value| value == UNCHECKED)
}

/// Returns an approved InstallPlan without its steps.
pub(super) fn plan(extension: &ClusterExtension, selected: &Selected<'_>) -> InstallPlan {
    let mut plan = InstallPlan::default();
    plan.metadata.namespace = Some(extension.spec.namespace.clone());
    plan.metadata.generate_name = Some(format!("{}-", extension.name_any()));
    plan.metadata.owner_references = Some(vec![owner_of(extension)]);
    if skips_checks(extension) {
        plan.annotations_mut().insert(CRD_UPGRADE_SAFETY.to_owned(), UNCHECKED.to_owned());
    }
    plan.spec = InstallPlanSpec {
        cluster_service_version_names: vec![selected.chosen.bundle.name().to_owned()],
        approval: Approval::Automatic,
        approved: true,
        ..InstallPlanSpec::default()
    };
    plan
}

/// Returns the status of the plan, with its steps.
pub(super) fn plan_status(
    extension: &ClusterExtension,
    selected: &Selected<'_>,
    now: Time,
) -> Result<InstallPlanStatus> {
    let Selected { chosen, filter, manifests, replaces } = selected;
    let bundle = PlannedBundle {
        choice: Choice {
            catalog: CatalogKey { namespace: String::new(), name: chosen.catalog.to_owned() },
            channel: chosen.channel.to_owned(),
            name: chosen.bundle.name().to_owned(),
            replaces: replaces.map(str::to_owned),
        },
        package: filter.package_name.clone(),
        is_subscribed: true,
        properties: chosen.bundle.properties().to_vec(),
        manifests: manifests.clone(),
    };
    let mut plan = steps(&extension.spec.namespace, &[bundle], Approval::Automatic)?;
    plan.iter_mut()
        .filter(|step| step.resource.kind == "ClusterServiceVersion")
        .for_each(|step| label(step, extension));
    Ok(InstallPlanStatus {
        phase: InstallPlanPhase::Installing,
        catalog_sources: vec![chosen.catalog.to_owned()],
        plan,
        start_time: Some(now),
        ..InstallPlanStatus::default()
    })
}

/// Adds the label of the extension to the object of a step.
fn label(step: &mut Step, extension: &ClusterExtension) {
    let Ok(mut object) = serde_json::from_str::<Value>(&step.resource.manifest) else { return };
    if !object["metadata"]["labels"].is_object() {
        object["metadata"]["labels"] = serde_json::json!({});
    }
    object["metadata"]["labels"][EXTENSION] = extension.name_any().into();
    step.resource.manifest = object.to_string();
}

/// Returns the ClusterServiceVersions that a CRD was installed with.
pub(super) fn installed_alongside(definition: &ObjectMeta) -> impl Iterator<Item = ObjectKey> {
    let annotations = definition.annotations.iter().flatten();
    let values = annotations.filter(|(name, _)| name.starts_with(INSTALLED_ALONGSIDE_PREFIX)).map(|(_, value)| value);
    values.filter_map(|value| value.split_once('/').map(|(namespace, name)| ObjectKey::new(Some(namespace), name)))
}

/// Returns true if a CRD was installed with a ClusterServiceVersion.
pub(super) fn is_installed_by(definition: &ObjectMeta, csv: &ClusterServiceVersion) -> bool {
    let key = ObjectKey::new(csv.namespace().as_deref(), &csv.name_any());
    installed_alongside(definition).any(|of| of == key)
}
