//! Sets the rules of aggregated cluster roles to those of the cluster roles that their selectors match.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles>.

use flyball::{Action, Context, Controller, Index, Reconcile, Result};
use flyball_core::LabelSelector;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

const NAME: &str = "clusterrole-aggregation-controller";

pub(super) fn controller() -> Controller<impl Reconcile> {
    Controller::new(Aggregation).index::<AggregatedRoles>().watches_by_key::<ClusterRole>(|_, caches| {
        Ok(caches.range_by::<AggregatedRoles>(..)?.into_iter().map(|(_, role)| role).collect())
    })
}

/// The cluster roles that aggregate others. Each change of a role may concern them.
struct AggregatedRoles;

impl Index for AggregatedRoles {
    type Resource = ClusterRole;
    type Value = ();

    fn values(role: &ClusterRole) -> Vec<()> {
        role.aggregation_rule.iter().map(|_| ()).collect()
    }
}

struct Aggregation;

impl Reconcile for Aggregation {
    type Resource = ClusterRole;

    async fn reconcile(&self, role: &ClusterRole, cx: &Context<ClusterRole>) -> Result<Action> {
        if role.aggregation_rule.is_none() {
            return Ok(Action::done());
        }
        let rules = aggregate(role, &cx.list::<ClusterRole>(None).await?)?;
        if rules != role.rules.clone().unwrap_or_default() {
            let desired = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": role.name_any()}, "rules": rules,
            });
            let roles: Api<ClusterRole> = Api::all(cx.client().clone());
            let written =
                roles.patch(&role.name_any(), &PatchParams::apply(NAME).force(), &Patch::Apply(desired)).await?;
            cx.record_write(&written);
        }
        Ok(Action::done())
    }
}

/// Collects the rules of the roles that are selected, each rule once: by selector, then by name.
fn aggregate(role: &ClusterRole, all: &[ClusterRole]) -> Result<Vec<PolicyRule>> {
    let rule = role.aggregation_rule.as_ref().and_then(|rule| rule.cluster_role_selectors.as_ref());
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in rule.into_iter().flatten() {
        let selector = LabelSelector::from_value(&serde_json::to_value(selector)?);
        for other in all.iter().filter(|other| other.name_any() != role.name_any()) {
            if selector.matches(|key| other.labels().get(key).map(String::as_str)) {
                let new = other.rules.iter().flatten().filter(|rule| !rules.contains(rule)).cloned();
                let new: Vec<PolicyRule> = new.collect();
                rules.extend(new);
            }
        }
    }
    Ok(rules)
}
