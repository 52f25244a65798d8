//! Safety rules: namespaces and clusters that refuse experiments, and the blast radius of a plan.

use crate::api::{Cluster, Reference};
use crate::change::{Change, EXPERIMENT_ANNOTATION, PROTECTED_ANNOTATION, RUN_LABEL};
use crate::error::{Error, Result};
use crate::experiment::Risk;
use crate::operator::Operator;
use crate::text::clean;
use serde_json::Value;

/// Maximum number of objects that one experiment changes.
const MAX_CHANGES: usize = 50;

/// Namespaces of Kubernetes and of distributions.
fn is_system(namespace: &str) -> bool {
    namespace.starts_with("kube-") || namespace == "openshift" || namespace.starts_with("openshift-")
}

/// Fails if a namespace or the cluster refuses experiments. Returns the UID of the cluster.
///
/// # Errors
///
/// If one is marked, or is a namespace of the system.
pub async fn check_cluster(cluster: &Cluster, namespaces: impl IntoIterator<Item = &str>) -> Result<String> {
    let (uid, annotations) = cluster.identity().await?;
    if is_marked(&annotations) {
        return Err(Error::refused(format!(
            "the cluster is marked: its namespace kube-system has the annotation {PROTECTED_ANNOTATION}"
        )));
    }
    if uid.is_empty() {
        return Err(Error::refused("the cluster has no namespace kube-system, whose UID identifies it"));
    }
    for namespace in namespaces {
        if is_system(namespace) {
            let reason = format!("{} is a namespace of the system", clean(namespace));
            return Err(Error::refused(reason));
        }
        let found = cluster.get(&Reference::new("", "Namespace", None, namespace)).await?;
        let found = found.ok_or_else(|| Error::Target(format!("the namespace {} does not exist", clean(namespace))))?;
        if is_marked(&found["metadata"]["annotations"]) {
            return Err(Error::refused(format!(
                "the namespace {} has the annotation {PROTECTED_ANNOTATION}",
                clean(namespace)
            )));
        }
    }
    Ok(uid)
}

fn is_marked(annotations: &Value) -> bool {
    annotations[PROTECTED_ANNOTATION].as_str().is_some_and(|text| text != "false")
}

/// Marks a namespace or removes the mark; kube-system marks the whole cluster.
///
/// # Errors
///
/// If the API server rejects the change.
pub async fn protect(cluster: &Cluster, namespace: &str, is_protected: bool) -> Result<bool> {
    let reference = Reference::new("", "Namespace", None, namespace);
    let found = cluster.get(&reference).await?;
    let found = found.ok_or_else(|| Error::Target(format!("the namespace {} does not exist", clean(namespace))))?;
    if is_marked(&found["metadata"]["annotations"]) == is_protected {
        return Ok(false);
    }
    let path = format!("/metadata/annotations/{}", flyball_core::pointer::escape(PROTECTED_ANNOTATION));
    let value = is_protected.then(|| "true".into());
    let edit = crate::edit::Edit::set(&found, &path, value);
    let operations = edit.and_then(|edit| edit.inject(&found)).map_err(|error| Error::Target(error.to_string()))?;
    cluster.patch(&reference, &operations, false).await?;
    Ok(true)
}

/// Fails if a plan changes objects of others, or too many.
pub(crate) fn check_plan(operator: &Operator, changes: &[Change], risk: Risk) -> Result<()> {
    if changes.len() > MAX_CHANGES {
        let reason = format!("{} objects would change; an experiment changes at most {MAX_CHANGES}", changes.len());
        return Err(Error::refused(reason));
    }
    for change in changes {
        let object = change.object();
        match &object.namespace {
            Some(namespace) if is_system(namespace) || !operator.namespaces.contains(namespace) => {
                let reason = format!("{object} is outside of the operator's namespaces; pass --workload-namespace");
                return Err(Error::refused(reason));
            }
            Some(_) => {}
            None if is_cluster_change(operator, change, &object) => {}
            None => return Err(Error::refused(format!("{object} is an object of the whole cluster"))),
        }
        if object.is_secret() && risk < Risk::High && matches!(change, Change::Delete { .. }) {
            return Err(Error::refused(format!("the contents of {object} would be copied to the state file")));
        }
    }
    Ok(())
}

/// Returns true if a change without a namespace concerns only the operator.
fn is_cluster_change(operator: &Operator, change: &Change, object: &Reference) -> bool {
    let knows = |list: &[Value]| list.iter().any(|known| Reference::of(known) == *object);
    match change {
        Change::Edit { .. } => knows(&operator.bindings) || knows(&operator.webhooks) || knows(&operator.resources),
        // The conditions on the user are in the plan.
        Change::Create { object: created } => {
            let has_user = created.to_string().contains(&operator.user());
            let is_binding = object.kind == "ValidatingAdmissionPolicyBinding";
            object.group == "admissionregistration.k8s.io"
                && (has_user || is_binding)
                && created["metadata"]["labels"][RUN_LABEL].is_string()
        }
        Change::Delete { .. } => false,
    }
}

/// Fails if an object is part of another experiment.
pub(crate) fn check_free(object: &Value) -> Result<()> {
    match object["metadata"]["annotations"][EXPERIMENT_ANNOTATION].as_str() {
        Some(other) => Err(Error::refused(format!(
            "{} is part of the experiment {}: undo it with `flyball chaos undo`, or remove the annotation \
             {EXPERIMENT_ANNOTATION}",
            Reference::of(object),
            clean(other)
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn namespaces_of_the_system_are_refused() {
        for (namespace, expected) in
            [("kube-system", true), ("openshift-monitoring", true), ("kubernetes-operator", false), ("default", false)]
        {
            assert_eq!(is_system(namespace), expected, "{namespace}");
        }
        assert!(
            is_marked(&json!({PROTECTED_ANNOTATION: "true"})) && !is_marked(&json!({PROTECTED_ANNOTATION: "false"}))
        );
    }
}
