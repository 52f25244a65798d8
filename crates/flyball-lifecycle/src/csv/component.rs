//! Operators: all objects of a package in one place, found by a label.

use super::index::{ByOperator, operators};
use crate::api::{
    ClusterServiceVersion, ComponentReference, InstallPlan, Operator, OperatorCondition, Subscription, labels,
};
use crate::install::{Definition, content_hash};
use crate::patch::{merge_patch, object};
use crate::rules::rule;
use flyball::{Action, Caches, Context, Controller, Kind, ObjectKey, Predicate, Reconcile, Resource, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;

/// Operators of a namespace in addition to one for each Subscription: they stay while their CRDs exist.
const MAX_LEFT_BEHIND: usize = 50;
/// Longest name in a label key.
const MAX_LABEL: usize = 63;

/// Returns the name of the Operator of a package in a namespace.
fn operator_name(package: &str, namespace: &str) -> String {
    let name = format!("{package}.{namespace}");
    match name.len() <= MAX_LABEL {
        true => name,
        false => {
            let hash = content_hash(&name).to_lowercase();
            let start: String = name.chars().take(MAX_LABEL - 17).collect();
            format!("{}-{}", start.trim_end_matches(['.', '-']), &hash[..16])
        }
    }
}

/// Returns the label of the components of the Operator of a package in a namespace.
pub(crate) fn label_of(package: &str, namespace: &str) -> String {
    component_label(&operator_name(package, namespace))
}

fn component_label(operator: &str) -> String {
    format!("{}{operator}", labels::COMPONENT_PREFIX)
}

/// Creates the Operator of each Subscription, and labels the Subscription, its InstallPlan, its ClusterServiceVersion
/// and its CRDs. Other controllers label the objects that they create.
struct Subscribed;

impl Reconcile for Subscribed {
    type Resource = Subscription;

    async fn reconcile(&self, subscription: &Subscription, cx: &Context<Subscription>) -> Result<Action> {
        if subscription.spec.package.is_empty() {
            return Ok(Action::done());
        }
        let namespace = subscription.namespace().unwrap_or_default();
        let name = operator_name(&subscription.spec.package, &namespace);
        let label = component_label(&name);
        if may_exist(&name, &namespace, cx).await? {
            cx.apply_unowned(&object(json!({
                "apiVersion": "operators.coreos.com/v1", "kind": "Operator", "metadata": {"name": name}, "spec": {},
            }))?)
            .await?;
        }
        mark(subscription, &label, cx).await?;
        let status = &subscription.status;
        if let Some(plan) = status.install_plan_ref.as_ref().and_then(|reference| reference.name.as_deref())
            && let Some(plan) = cx.get::<InstallPlan>(&cx.sibling(plan)).await?
        {
            mark(&plan, &label, cx).await?;
        }
        for csv in [&status.installed_csv, &status.current_csv] {
            let Some(csv) = cx.get::<ClusterServiceVersion>(&cx.sibling(csv)).await? else { continue };
            let is_deleting = csv.metadata.deletion_timestamp.is_some();
            if csv.copied_from().is_some() || is_deleting || !csv.may_be_of(&subscription.spec.package) {
                continue;
            }
            mark(&csv, &label, cx).await?;
            let own = format!("{namespace}/{}", csv.name_any());
            for crd in &csv.spec.crds.owned {
                let definition = cx.get::<Definition>(&ObjectKey::new(None, &crd.name)).await?;
                if let Some(definition) =
                    definition.filter(|definition| installed_alongside(definition).any(|of| of == own))
                {
                    mark(&definition, &label, cx).await?;
                }
            }
        }
        Ok(Action::done())
    }
}

/// Returns true if an Operator exists or may be created. Operators are cluster-scoped, those with CRDs stay, and
/// everyone who may write a Subscription chooses their names, so their number is limited.
async fn may_exist(name: &str, namespace: &str, cx: &Context<Subscription>) -> Result<bool> {
    if cx.get::<Operator>(&ObjectKey::new(None, name)).await?.is_some() {
        return Ok(true);
    }
    // A long name does not contain its namespace.
    let suffix = format!(".{namespace}");
    let within = name.ends_with(&suffix).then_some(namespace);
    let beside = |other: Operator| (within.is_none() || other.name_any().ends_with(&suffix)).then_some(());
    let operators = cx.filter_map(None, beside).await?.len();
    let subscriptions = cx.filter_map(within, |_: Subscription| Some(())).await?.len();
    let is_allowed = operators < subscriptions + MAX_LEFT_BEHIND;
    if !is_allowed {
        tracing::warn!(operator = name, operators, "too many Operators for this namespace: delete those not in use");
    }
    Ok(is_allowed)
}

/// Adds the label of an Operator to an object.
async fn mark<T: Resource>(object: &T, label: &str, cx: &Context<Subscription>) -> Result<()> {
    if object.meta().deletion_timestamp.is_some() || object.labels().contains_key(label) {
        return Ok(());
    }
    merge_patch(cx, object, "", &json!({"metadata": {"labels": {label: ""}}})).await?;
    Ok(())
}

/// Returns the controller that creates Operators for Subscriptions.
pub(super) fn subscription_controller() -> Controller<impl Reconcile> {
    Controller::new(Subscribed)
        .name("subscription-operators")
        .dynamic(&Kind::new(crate::api::GROUP, "v1", "Operator").cluster_scoped())
        .owns()
        .refers_to::<InstallPlan>(|subscription| {
            let plan = subscription.status.install_plan_ref.as_ref().and_then(|plan| plan.name.as_deref());
            plan.map(|plan| ObjectKey::new(None, plan)).into_iter().collect()
        })
        .refers_to::<ClusterServiceVersion>(|subscription| {
            let status = &subscription.status;
            let names = [&status.installed_csv, &status.current_csv].into_iter().filter(|name| !name.is_empty());
            names.map(|name| ObjectKey::new(None, name)).collect()
        })
        .watches::<Definition>(subscriptions_of)
        .filter::<Definition>(Predicate::annotations().or(Predicate::labels()))
        .watches::<Operator>(|operator, caches| {
            let key =
                |key: &ObjectKey| operator.name_any().ends_with(&format!(".{}", key.namespace().unwrap_or_default()));
            Ok(caches.keys::<Subscription>(None)?.into_iter().filter(key).collect())
        })
        .allows(rule(crate::api::GROUP, &["subscriptions", "installplans", "clusterserviceversions"], &["patch"]))
        .allows(rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["patch"]))
}

/// Returns the Subscriptions in the namespaces whose InstallPlans applied a CRD.
fn subscriptions_of(definition: &Definition, caches: &Caches) -> Result<Vec<ObjectKey>> {
    let mut keys = Vec::new();
    for (namespace, _) in installed_alongside(definition).filter_map(|of| of.split_once('/')) {
        keys.extend(caches.keys::<Subscription>(Some(namespace))?);
    }
    Ok(keys)
}

/// Returns the ClusterServiceVersions that InstallPlans applied a CRD with, as `namespace/name`.
fn installed_alongside(definition: &Definition) -> impl Iterator<Item = &str> {
    let annotations = definition.annotations().iter();
    annotations
        .filter(|(name, _)| name.starts_with(labels::INSTALLED_ALONGSIDE_PREFIX))
        .map(|(_, value)| value.as_str())
}

/// Lists the components of an Operator in its status, and deletes it after the last one: no Subscription and no
/// ClusterServiceVersion has it, and none of its CRDs exists.
struct Operators;

impl Reconcile for Operators {
    type Resource = Operator;

    async fn reconcile(&self, operator: &Operator, cx: &Context<Operator>) -> Result<Action> {
        let name = operator.name_any();
        let mut refs = Vec::new();
        collect::<ClusterRole>(&name, &mut refs, cx).await?;
        collect::<ClusterRoleBinding>(&name, &mut refs, cx).await?;
        collect::<ClusterServiceVersion>(&name, &mut refs, cx).await?;
        collect::<ConfigMap>(&name, &mut refs, cx).await?;
        collect::<Definition>(&name, &mut refs, cx).await?;
        collect::<Deployment>(&name, &mut refs, cx).await?;
        collect::<InstallPlan>(&name, &mut refs, cx).await?;
        collect::<OperatorCondition>(&name, &mut refs, cx).await?;
        collect::<Role>(&name, &mut refs, cx).await?;
        collect::<RoleBinding>(&name, &mut refs, cx).await?;
        collect::<Secret>(&name, &mut refs, cx).await?;
        collect::<Service>(&name, &mut refs, cx).await?;
        collect::<ServiceAccount>(&name, &mut refs, cx).await?;
        collect::<Subscription>(&name, &mut refs, cx).await?;
        // One that has had no components yet was created by a user, or its Subscription is not labeled yet.
        let had_components = operator.status.components.as_ref().is_some_and(|components| !components.refs.is_empty());
        if refs.is_empty() && had_components && !is_subscribed(&name, cx).await? {
            let preconditions = Preconditions { uid: operator.uid(), resource_version: None };
            let params = DeleteParams::background().preconditions(preconditions);
            return match Api::<Operator>::all(cx.client().clone()).delete(&name, &params).await {
                // It was deleted, or created again.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Action::done()),
                deleted => Ok(deleted.map(|_| Action::done())?),
            };
        }
        let selector = json!({"matchExpressions": [{"key": component_label(&name), "operator": "Exists"}]});
        cx.set_status(&json!({"components": {"labelSelector": selector, "refs": refs}})).await?;
        Ok(Action::done())
    }
}

/// Returns true if a Subscription has the Operator, even if it is not labeled.
async fn is_subscribed(operator: &str, cx: &Context<Operator>) -> Result<bool> {
    let has = |subscription: Subscription| {
        let name = operator_name(&subscription.spec.package, &subscription.namespace().unwrap_or_default());
        (name == operator && !subscription.spec.package.is_empty()).then_some(())
    };
    Ok(!cx.filter_map(None, has).await?.is_empty())
}

/// Adds references to the components of a kind.
async fn collect<T: Resource>(
    operator: &str,
    refs: &mut Vec<ComponentReference>,
    cx: &Context<Operator>,
) -> Result<()> {
    let reference = |object: T| {
        Some(ComponentReference {
            api_version: T::api_version(&()).into_owned(),
            kind: T::kind(&()).into_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            conditions: Vec::new(),
        })
    };
    refs.extend(cx.filter_map_by::<ByOperator<T>, _>(&operator.to_owned(), reference).await?);
    Ok(())
}

/// Returns the controller of Operators.
pub(super) fn controller() -> Controller<impl Reconcile> {
    fn labeled<T: Resource>(controller: Controller<Operators>) -> Controller<Operators> {
        controller
            .index::<ByOperator<T>>()
            .watches::<T>(|object, _| {
                Ok(operators(object.meta()).iter().map(|name| ObjectKey::new(None, name)).collect())
            })
            .filter::<T>(Predicate::labels())
    }
    let controller = Controller::new(Operators).allows(rule(crate::api::GROUP, &["operators"], &["delete"]));
    let controller = labeled::<ClusterRole>(controller);
    let controller = labeled::<ClusterRoleBinding>(controller);
    let controller = labeled::<ClusterServiceVersion>(controller);
    let controller = labeled::<ConfigMap>(controller);
    let controller = labeled::<Definition>(controller);
    let controller = labeled::<Deployment>(controller);
    let controller = labeled::<InstallPlan>(controller);
    let controller = labeled::<OperatorCondition>(controller);
    let controller = labeled::<Role>(controller);
    let controller = labeled::<RoleBinding>(controller);
    let controller = labeled::<Secret>(controller);
    let controller = labeled::<Service>(controller);
    let controller = labeled::<ServiceAccount>(controller);
    labeled::<Subscription>(controller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::ObjectMeta;

    #[test]
    fn names_fit_into_labels() {
        assert_eq!(operator_name("memo", "demo-a"), "memo.demo-a");
        let long = operator_name(&"p".repeat(80), "demo");
        assert!(long.len() <= MAX_LABEL, "{long}");
        assert_ne!(long, operator_name(&"p".repeat(80), "other"));
    }

    #[test]
    fn components_name_their_operators() {
        let meta: ObjectMeta = serde_json::from_value(json!({"labels": {
            "operators.coreos.com/memo.demo": "", "olm.managed": "true",
        }}))
        .unwrap();
        assert_eq!(operators(&meta), ["memo.demo"]);
    }
}
