//! The check of a plan before its first step.

use super::actor::{Actor, encoded, message_of, path_of};
use super::conversion::conversions_of;
use super::definition::{Tested, lost_version, no_longer_served, rejected_fields, rejection, tested_versions};
use super::error::ExecutionError;
use super::members::Members;
use super::ownership::{Line, differs, is_installed, is_owned, planned};
use super::prepare::{is_managers, prepared};
use super::resources::{is_definition, resource};
use super::sharing::{Sharing, check_account, conflict, sharing};
use crate::api::labels::CRD_UPGRADE_SAFETY;
use crate::api::{InstallPlan, OperatorGroup, Step, is_extension};
use flyball::Context;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::Value;
use std::collections::BTreeSet;

/// Custom resources in one page of a list.
const PAGE: usize = 200;

/// Checks that all steps can be executed.
pub(super) async fn check(
    (plan, members): (&InstallPlan, &Members),
    objects: &[Value],
    group: &OperatorGroup,
    manager: &Actor<'_>,
    installer: &Actor<'_>,
    cx: &Context<InstallPlan>,
) -> Result<(), ExecutionError> {
    let namespace = plan.namespace().unwrap_or_default();
    let check = Check { plan, manager, installer, is_unchecked: is_unchecked(plan), cx };
    let is_of_all_namespaces = group.targets_all();
    let (new_kinds, conversions) = (new_kinds(plan, objects), conversions_of(plan, objects));
    for (step, object) in plan.status.plan.iter().zip(objects) {
        let (group, kind) = (&step.resource.group, &step.resource.kind);
        let Some(resource) = resource(group, kind) else {
            let text = format!("{kind} {}: kind of group {group:?} is not supported in bundles", step.resource.name);
            return Err(ExecutionError::new(text));
        };
        let path = path_of(resource, &step.resource.version, &namespace, &step.resource.name);
        let object = prepared((plan, members), step, resource, object);
        if !resource.is_namespaced {
            let old = manager.get(&path).await.map_err(|error| ExecutionError::at_step(step, &error))?;
            if let Some(old) = old {
                if is_definition(group, kind) && !check.is_unchecked {
                    let conversion = (step.resolving.clone(), step.resource.name.clone());
                    // Otherwise the operator is not installed, or its conversion is refused, after the CRD has changed.
                    let is_converted = conversions.contains(&conversion)
                        && is_of_all_namespaces
                        && (!installer.is_limited() || installer.apply(&path, &object, true).await.is_ok());
                    check.definition(&old, &object, is_converted).await.map_err(ExecutionError::new)?;
                }
                check.ownership(step, &path, &old, &object).await?;
            }
        }
        // A role has to exist before it can be bound.
        let is_binding = ["RoleBinding", "ClusterRoleBinding"].contains(&kind.as_str());
        if is_binding || new_kinds.contains(&(group.clone(), kind.clone())) {
            continue;
        }
        let actor = if is_managers(step) { manager } else { installer };
        actor.apply(&path, &object, true).await.map_err(|error| ExecutionError::at_step(step, &error))?;
    }
    Ok(())
}

/// Returns true if the CRDs of a plan are not checked: only a ClusterExtension can disable the check.
fn is_unchecked(plan: &InstallPlan) -> bool {
    let owns = |owner: &OwnerReference| is_extension(owner) && owner.controller == Some(true);
    plan.annotations().get(CRD_UPGRADE_SAFETY).is_some_and(|value| value == "None")
        && plan.owner_references().iter().any(owns)
}

/// Returns group and kind of the CRDs in a plan: their objects cannot be tried before they exist.
fn new_kinds(plan: &InstallPlan, objects: &[Value]) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let steps = plan.status.plan.iter().zip(objects);
    let definitions = steps.filter(|(step, _)| is_definition(&step.resource.group, &step.resource.kind));
    definitions.map(|(_, object)| (text(&object["spec"]["group"]), text(&object["spec"]["names"]["kind"]))).collect()
}

/// The common input of the checks of steps.
struct Check<'c> {
    plan: &'c InstallPlan,
    manager: &'c Actor<'c>,
    installer: &'c Actor<'c>,
    is_unchecked: bool,
    cx: &'c Context<InstallPlan>,
}

impl Check<'_> {
    /// Checks that a cluster-scoped object belongs to nobody else.
    async fn ownership(&self, step: &Step, path: &str, old: &Value, new: &Value) -> Result<(), ExecutionError> {
        let at_step = |error: kube::Error| ExecutionError::at_step(step, &error);
        let failed = |error: flyball::Error| ExecutionError::of(&error, &[]);
        let what = format!("{} {}", step.resource.kind, step.resource.name);
        let line = Line::read(self.plan, &step.resolving, self.cx).await.map_err(failed)?;
        let is_definition = is_definition(&step.resource.group, &step.resource.kind);
        let is_managed = if is_definition { is_installed(old) } else { is_owned(old) };
        if !is_managed {
            let applied = self.manager.apply(path, new, true).await.map_err(at_step)?;
            return match differs(old, &applied) {
                true => Err(ExecutionError::new(format!(
                    "{what} exists, was not installed by the lifecycle manager, and differs from that of bundle {}: \
                     delete it, or apply that of the bundle",
                    step.resolving
                ))),
                false => Ok(()),
            };
        }
        if !is_definition {
            let csv = planned(self.plan, &step.resolving).unwrap_or_default();
            let others = line.other_owners(old, self.cx).await.map_err(failed)?;
            let namespace = self.plan.namespace().unwrap_or_default();
            let found = sharing(&others, (&namespace, &csv), path, (old, new), self.manager).await.map_err(at_step)?;
            return match found {
                Sharing::Conflict { user, is_same_package } => Err(conflict(step, &user, is_same_package)),
                // A role has to exist before it can be bound.
                Sharing::With { users, object: Some(object), .. } if step.resource.kind != "ClusterRoleBinding" => {
                    check_account(step, path, &object, &users, self.installer).await
                }
                Sharing::Alone | Sharing::With { .. } => Ok(()),
            };
        }
        let users = line.other_users(old, self.cx).await.map_err(failed)?;
        if users.is_empty() {
            return Ok(());
        }
        if let Some(version) = no_longer_served(old, new).filter(|_| !self.is_unchecked) {
            return Err(ExecutionError::new(format!(
                "{what}: new CRD no longer serves version {version}, and was also installed with \
                 ClusterServiceVersion {}: upgrade or uninstall these first",
                users.join(", ")
            )));
        }
        // CRDs are those of the manager, but a limited account does not change the API of operators elsewhere.
        if self.installer.is_limited() {
            let applied = self.manager.apply(path, new, true).await.map_err(at_step)?;
            if differs(old, &applied) {
                self.installer.apply(path, new, true).await.map_err(at_step)?;
            }
        }
        Ok(())
    }

    /// Checks that no custom resource becomes invalid, and no stored one is lost.
    async fn definition(&self, old: &Value, new: &Value, is_converted: bool) -> Result<(), String> {
        let own_namespace = self.plan.namespace().unwrap_or_default();
        if let Some(reason) = lost_version(old, new) {
            return Err(reason);
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, group) = (text(&old["metadata"]["name"]), text(&old["spec"]["group"]));
        let (kind, plural) = (text(&old["spec"]["names"]["kind"]), text(&old["spec"]["names"]["plural"]));
        for Tested { version, read_as, schema } in tested_versions(old, new, is_converted) {
            let collection = format!("/apis/{}/{}/{}", encoded(&group), encoded(read_as), encoded(&plural));
            let mut page = String::new();
            // The administrators of this namespace may not see objects of others.
            let (mut hidden, mut fields) = (0, BTreeSet::new());
            loop {
                let list = self.manager.get(&format!("{collection}?limit={PAGE}{page}")).await;
                let Some(list) = list.map_err(|error| message_of(&error))? else { break };
                for object in list["items"].as_array().into_iter().flatten() {
                    let namespace = text(&object["metadata"]["namespace"]);
                    if namespace != own_namespace {
                        let rejected = rejected_fields(object, schema);
                        hidden += usize::from(!rejected.is_empty());
                        fields.extend(rejected);
                        continue;
                    }
                    let Some(reason) = rejection(object, schema) else { continue };
                    let key = format!("{namespace}/{}", text(&object["metadata"]["name"]));
                    return Err(format!(
                        "error validating existing CRs against new CRD's schema for {name:?}: error validating \
                         {group}/{version}, Kind={kind} {key:?}: {reason}"
                    ));
                }
                match list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                    Some(token) => page = format!("&continue={}", encoded(token)),
                    None => break,
                }
            }
            if hidden > 0 {
                let fields: Vec<String> = fields.into_iter().collect();
                return Err(format!(
                    "error validating existing CRs against new CRD's schema for {name:?}: {hidden} of \
                     {group}/{version}, Kind={kind} outside of namespace {own_namespace:?}: updated validation is too \
                     restrictive: {}",
                    fields.join(", ")
                ));
            }
        }
        Ok(())
    }
}
