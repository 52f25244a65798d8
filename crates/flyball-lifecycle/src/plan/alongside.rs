//! Annotations of a CRD, or of another cluster-scoped object, that name the ClusterServiceVersions that it was
//! installed with.
//!
//! Plans of several namespaces share a CRD. Each one adds its own annotations by a merge patch, so that it keeps those
//! that another one writes at the same time. Annotations of operators that are gone are removed, unless the CRD has
//! changed in the meantime. The apply of the CRD does not contain these annotations: it would remove those of others.

use super::actor::{Actor, encoded, path_of};
use super::resources::{CSV, resource};
use crate::api::labels::INSTALLED_ALONGSIDE_PREFIX;
use crate::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase, GROUP, InstallPlan, InstallPlanPhase};
use crate::install::content_hash;
use flyball::{Context, ObjectKey};
use serde_json::{Map, Value, json};

/// Attempts to remove annotations of operators that are gone. The next plan removes what is left.
const ATTEMPTS: usize = 3;

/// Removes the annotations from an object that is applied: a bundle cannot claim that others installed it.
pub(super) fn remove_users(object: &mut Value) {
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|name, _| !name.starts_with(INSTALLED_ALONGSIDE_PREFIX));
    }
}

/// Records that a plan applied an object with a ClusterServiceVersion, beside those of `others`, as `namespace/name`.
/// `known` is the object before, `applied` the one after.
pub(super) async fn record(
    path: &str,
    csv: &ObjectKey,
    others: &[String],
    (known, applied): (Option<&Value>, &Value),
    manager: &Actor<'_>,
    cx: &Context<InstallPlan>,
) -> kube::Result<()> {
    let name_of = |user: &String| format!("{INSTALLED_ALONGSIDE_PREFIX}{}", &content_hash(user)[..16]);
    let value = format!("{}/{}", csv.namespace().unwrap_or_default(), csv.name());
    let own = name_of(&value);
    // An earlier version of the manager applied the annotations, so that the apply without them removed them.
    let before = known.into_iter().flat_map(users).map(|(name, value)| (name.clone(), value.clone()));
    let others = others.iter().map(|user| (name_of(user), Value::from(user.as_str())));
    let current_users: Map<String, Value> = others.chain([(own.clone(), value.into())]).collect();
    let added: Map<String, Value> = before.chain(current_users.clone()).collect();
    let mut current = applied.clone();
    for _ in 0..ATTEMPTS {
        let patch = changes(&current, &added, &own, manager, cx).await?;
        if patch.is_null() {
            return Ok(());
        }
        match manager.merge(path, &patch).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            merged => return merged.map(drop),
        }
        match manager.get(path).await? {
            Some(changed) => current = changed,
            None => return Ok(()),
        }
    }
    // The users before may be gone.
    manager.merge(path, &json!({"metadata": {"annotations": current_users}})).await.map(drop)
}

/// Returns the patch that adds annotations, and removes those of operators that are gone, unless the object has
/// changed; null if it has the right ones.
async fn changes(
    current: &Value,
    added: &Map<String, Value>,
    own: &str,
    manager: &Actor<'_>,
    cx: &Context<InstallPlan>,
) -> kube::Result<Value> {
    let mut wanted: Map<String, Value> = users(current).map(|(name, value)| (name.clone(), value.clone())).collect();
    wanted.extend(added.clone());
    let (mut patch, mut removes) = (Map::new(), false);
    for (name, value) in wanted {
        let known = &current["metadata"]["annotations"][&name];
        if name == own || stays(&value, manager, cx).await? {
            if *known != value {
                patch.insert(name, value);
            }
        } else if !known.is_null() {
            patch.insert(name, Value::Null);
            removes = true;
        }
    }
    Ok(match (patch.is_empty(), removes) {
        (true, _) => Value::Null,
        (false, false) => json!({"metadata": {"annotations": patch}}),
        (false, true) => {
            let version = &current["metadata"]["resourceVersion"];
            json!({"metadata": {"resourceVersion": version, "annotations": patch}})
        }
    })
}

fn users(definition: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let annotations = definition["metadata"]["annotations"].as_object().into_iter().flatten();
    annotations.filter(|(name, _)| name.starts_with(INSTALLED_ALONGSIDE_PREFIX))
}

/// Returns true if an annotation names a ClusterServiceVersion that exists and is not being replaced, or that a plan
/// will create: plans apply CRDs first.
async fn stays(value: &Value, manager: &Actor<'_>, cx: &Context<InstallPlan>) -> kube::Result<bool> {
    let Some((namespace, name)) = value.as_str().and_then(|value| value.split_once('/')) else { return Ok(false) };
    let is_current = |csv: &ClusterServiceVersion| {
        csv.metadata.deletion_timestamp.is_none() && !matches!(csv.status.phase, Phase::Replacing | Phase::Deleting)
    };
    let key = ObjectKey::new(Some(namespace), name);
    if let Ok(Some(csv)) = cx.get::<ClusterServiceVersion>(&key).await {
        return Ok(is_current(&csv));
    }
    // The caches may not contain yet what the plan of another namespace does. The plan is read first: it creates the
    // ClusterServiceVersion before it is complete.
    if is_planned(namespace, name, manager).await? {
        return Ok(true);
    }
    let Some(csvs) = resource(GROUP, CSV) else { return Ok(false) };
    let csv = manager.get(&path_of(csvs, "v1alpha1", namespace, name)).await?;
    let csv = csv.and_then(|csv| serde_json::from_value::<ClusterServiceVersion>(csv).ok());
    Ok(csv.is_some_and(|csv| is_current(&csv)))
}

/// Returns true if a plan that is not complete contains a ClusterServiceVersion.
async fn is_planned(namespace: &str, name: &str, manager: &Actor<'_>) -> kube::Result<bool> {
    let path = format!("/apis/{GROUP}/v1alpha1/namespaces/{}/installplans", encoded(namespace));
    let list = manager.get(&path).await?;
    let contains = |plan: &Value| {
        let names = plan["spec"]["clusterServiceVersionNames"].as_array().into_iter().flatten();
        let phase = serde_json::from_value::<InstallPlanPhase>(plan["status"]["phase"].clone()).unwrap_or_default();
        phase != InstallPlanPhase::Complete && names.into_iter().any(|planned| planned == name)
    };
    Ok(list.is_some_and(|list| list["items"].as_array().into_iter().flatten().any(contains)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apply_contains_no_user() {
        let name = format!("{INSTALLED_ALONGSIDE_PREFIX}1");
        let mut definition = json!({"metadata": {"annotations": {name: "a/b", "note": "c/d"}}});
        remove_users(&mut definition);
        assert_eq!(definition, json!({"metadata": {"annotations": {"note": "c/d"}}}));
        let mut plain = json!({"metadata": {"name": "a"}});
        remove_users(&mut plain);
        assert_eq!(plain["metadata"]["name"], "a");
    }
}
