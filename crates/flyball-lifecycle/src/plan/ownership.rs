//! Owners of cluster-scoped objects: a plan changes only those of its own operators.

use super::resources::CSV;
use crate::api::labels::{INSTALLED_ALONGSIDE_PREFIX, OWNER, OWNER_KIND, OWNER_NAMESPACE};
use crate::api::{ClusterServiceVersion, InstallPlan};
use flyball::{Context, ObjectKey, Result};
use kube::ResourceExt;
use serde_json::Value;
use std::collections::BTreeSet;

/// A ClusterServiceVersion of a plan, and those that it replaces, directly or not.
pub(super) struct Line {
    namespace: String,
    names: BTreeSet<String>,
}

impl Line {
    pub(super) async fn read(plan: &InstallPlan, csv: &str, cx: &Context<InstallPlan>) -> Result<Self> {
        let namespace = plan.namespace().unwrap_or_default();
        let mut names = BTreeSet::new();
        let mut next = csv.to_owned();
        while !next.is_empty() && names.insert(next.clone()) {
            let csv = match planned(plan, &next) {
                Some(csv) => Some(csv),
                None => cx.get::<ClusterServiceVersion>(&ObjectKey::new(Some(&namespace), &next)).await?,
            };
            next = csv.map(|csv| csv.spec.replaces).unwrap_or_default();
        }
        Ok(Self { namespace, names })
    }

    /// Returns the ClusterServiceVersion of this name, if it exists and is another one.
    async fn other(&self, user: &str, cx: &Context<InstallPlan>) -> Result<Option<ClusterServiceVersion>> {
        let Some((namespace, name)) = user.split_once('/') else { return Ok(None) };
        if namespace == self.namespace && self.names.contains(name) {
            return Ok(None);
        }
        let csv = cx.get::<ClusterServiceVersion>(&ObjectKey::new(Some(namespace), name)).await?;
        Ok(csv.filter(|csv| csv.metadata.deletion_timestamp.is_none()))
    }

    /// Returns the other ClusterServiceVersions that own or share an object, in the order of their names.
    pub(super) async fn other_owners(
        &self,
        object: &Value,
        cx: &Context<InstallPlan>,
    ) -> Result<Vec<ClusterServiceVersion>> {
        let label = |name: &str| object["metadata"]["labels"][name].as_str().unwrap_or_default();
        let owner = is_owned(object).then(|| format!("{}/{}", label(OWNER_NAMESPACE), label(OWNER)));
        let users: BTreeSet<String> = installed_alongside(object).map(str::to_owned).chain(owner).collect();
        let mut others = Vec::new();
        for user in users {
            others.extend(self.other(&user, cx).await?);
        }
        Ok(others)
    }

    /// Returns the other ClusterServiceVersions that a CRD was installed with, as `namespace/name`.
    pub(super) async fn other_users(&self, definition: &Value, cx: &Context<InstallPlan>) -> Result<Vec<String>> {
        let mut users = Vec::new();
        for user in installed_alongside(definition) {
            if self.other(user, cx).await?.is_some() {
                users.push(user.to_owned());
            }
        }
        Ok(users)
    }
}

/// Returns a ClusterServiceVersion that a plan installs.
pub(super) fn planned(plan: &InstallPlan, name: &str) -> Option<ClusterServiceVersion> {
    let step = plan.status.plan.iter().find(|step| step.resource.kind == CSV && step.resource.name == name)?;
    serde_json::from_str(&step.resource.manifest).ok()
}

/// Returns true if the labels of a cluster-scoped object name a ClusterServiceVersion as its owner.
pub(super) fn is_owned(object: &Value) -> bool {
    object["metadata"]["labels"][OWNER_KIND] == CSV
}

/// Returns true if a CRD was installed by the manager.
pub(super) fn is_installed(definition: &Value) -> bool {
    installed_alongside(definition).next().is_some()
}

/// Returns the ClusterServiceVersions that a CRD was installed with, as `namespace/name`.
pub(super) fn installed_alongside(definition: &Value) -> impl Iterator<Item = &str> {
    let annotations = definition["metadata"]["annotations"].as_object().into_iter().flatten();
    annotations.filter(|(name, _)| name.starts_with(INSTALLED_ALONGSIDE_PREFIX)).filter_map(|(_, value)| value.as_str())
}

/// Returns true if two objects differ in more than their metadata and status.
pub(super) fn differs(one: &Value, other: &Value) -> bool {
    let content = |object: &Value| {
        let mut content = object.clone();
        if let Some(fields) = content.as_object_mut() {
            for field in ["apiVersion", "kind", "metadata", "status"] {
                fields.remove(field);
            }
        }
        content
    };
    content(one) != content(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_and_status_are_no_difference() {
        let role =
            |name: &str, rules: Value| json!({"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
        assert!(!differs(&role("a", json!([])), &role("b", json!([]))));
        assert!(differs(&role("a", json!([])), &role("a", json!([{"verbs": ["*"]}]))));
    }

    #[test]
    fn definitions_of_the_manager_have_its_annotation() {
        let definition = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        assert!(!is_installed(&definition(json!({"note": "a/b"}))) && !is_installed(&json!({})));
        let name = format!("{INSTALLED_ALONGSIDE_PREFIX}1");
        assert!(is_installed(&definition(json!({name: "a/b"}))));
    }
}
