//! Annotations of a CRD, or of another cluster-scoped object, that name the ClusterServiceVersions that it was
//! installed with.
//!
//! Plans of several namespaces share a CRD. Each one adds its own annotations by a merge patch, so that it keeps those
//! that another one writes at the same time. Annotations of operators that are gone are removed, unless the CRD has
//! changed in the meantime. The apply of the CRD does not contain these annotations: it would remove those of others.
//! A ClusterRole or ClusterRoleBinding that is shared also has annotations with what each of them needs.

use super::actor::{Actor, encoded, path_of};
use super::resources::{CSV, resource};
use crate::api::labels::{INSTALLED_ALONGSIDE_PREFIX, NEEDS_PREFIX};
use crate::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase, GROUP, InstallPlan, InstallPlanPhase};
use crate::csv::{needs_annotation, user_annotation};
use flyball::{Context, ObjectKey};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Attempts to remove annotations of operators that are gone. The next plan removes what is left.
const ATTEMPTS: usize = 3;
/// Limit of the recorded needs of an object, in bytes: all annotations together may have 256 KiB. Without them, the
/// object keeps all permissions.
const MAX_NEEDS: usize = 96 << 10;

/// The ClusterServiceVersions that share an object with that of a plan.
#[derive(Debug, Default)]
pub(super) struct Users<'u> {
    /// The others, as `namespace/name`.
    pub(super) others: &'u [String],
    /// The rules or subjects that each user needs, also that of the plan.
    pub(super) needs: BTreeMap<String, Value>,
    /// True if one that is being replaced stays a user until it is deleted. Then it leaves the object itself.
    pub(super) stay_while_replaced: bool,
}

/// Removes the annotations from an object that is applied: a bundle cannot claim that others installed it.
pub(super) fn remove_users(object: &mut Value) {
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|name, _| !name.starts_with(INSTALLED_ALONGSIDE_PREFIX) && !name.starts_with(NEEDS_PREFIX));
    }
}

/// Records that a plan applied an object with a ClusterServiceVersion, beside those of others. `known` is the object
/// before, `applied` the one after. Returns the object with the annotations.
pub(super) async fn record(
    path: &str,
    csv: &ObjectKey,
    users_of: &Users<'_>,
    (known, applied): (Option<&Value>, &Value),
    manager: &Actor<'_>,
    cx: &Context<InstallPlan>,
) -> kube::Result<Value> {
    let value = format!("{}/{}", csv.namespace().unwrap_or_default(), csv.name());
    let own = user_annotation(&value);
    // An earlier version of the manager applied the annotations, so that the apply without them removed them.
    let before = known.into_iter().flat_map(users).map(|(name, value)| (name.clone(), value.clone()));
    let others = users_of.others.iter().map(|user| (user_annotation(user), Value::from(user.as_str())));
    let current_users: Map<String, Value> = others.chain([(own.clone(), value.into())]).collect();
    let added: Map<String, Value> = before.chain(current_users.clone()).collect();
    let mut current = applied.clone();
    for _ in 0..ATTEMPTS {
        let patch = changes(&current, (&added, &own), users_of, manager, cx).await?;
        if patch.is_null() {
            return Ok(current);
        }
        match manager.merge(path, &patch).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            merged => return merged,
        }
        match manager.get(path).await? {
            Some(changed) => current = changed,
            None => return Ok(current),
        }
    }
    // The users before may be gone.
    manager.merge(path, &json!({"metadata": {"annotations": current_users}})).await
}

/// Returns the patch that adds annotations, and removes those of operators that are gone, unless the object has
/// changed; null if it has the right ones.
async fn changes(
    current: &Value,
    (added, own): (&Map<String, Value>, &str),
    users_of: &Users<'_>,
    manager: &Actor<'_>,
    cx: &Context<InstallPlan>,
) -> kube::Result<Value> {
    let annotations = &current["metadata"]["annotations"];
    let mut wanted: Map<String, Value> = users(current).map(|(name, value)| (name.clone(), value.clone())).collect();
    wanted.extend(added.clone());
    let needs = needs(users_of);
    let (mut patch, mut removes) = (Map::new(), false);
    for (name, value) in wanted {
        let user = value.as_str().unwrap_or_default();
        let needs_name = needs_annotation(user);
        if name == own || stays(user, users_of.stay_while_replaced, manager, cx).await? {
            let recorded = &annotations[&needs_name];
            let needed = needs.get(user).map_or(Value::Null, |needed| needed.as_str().into());
            if *recorded != needed && (name == own || recorded.is_null()) {
                patch.insert(needs_name, needed);
            }
            if annotations[&name] != value {
                patch.insert(name, value);
            }
            continue;
        }
        for name in [name, needs_name] {
            if !annotations[&name].is_null() {
                patch.insert(name, Value::Null);
                removes = true;
            }
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

/// Returns the needs to record, as JSON; none if they are too large together.
fn needs<'u>(users_of: &'u Users<'_>) -> BTreeMap<&'u str, String> {
    let needs: BTreeMap<&str, String> =
        users_of.needs.iter().map(|(user, needs)| (user.as_str(), needs.to_string())).collect();
    if needs.values().map(String::len).sum::<usize>() <= MAX_NEEDS { needs } else { BTreeMap::new() }
}

fn users(definition: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let annotations = definition["metadata"]["annotations"].as_object().into_iter().flatten();
    annotations.filter(|(name, _)| name.starts_with(INSTALLED_ALONGSIDE_PREFIX))
}

/// Returns true if an annotation names a ClusterServiceVersion that exists and is not being replaced, or that a plan
/// will create: plans apply CRDs first.
async fn stays(
    user: &str,
    stay_while_replaced: bool,
    manager: &Actor<'_>,
    cx: &Context<InstallPlan>,
) -> kube::Result<bool> {
    let Some((namespace, name)) = user.split_once('/') else { return Ok(false) };
    let is_current = |csv: &ClusterServiceVersion| {
        let is_replaced = matches!(csv.status.phase, Phase::Replacing | Phase::Deleting);
        csv.metadata.deletion_timestamp.is_none() && (stay_while_replaced || !is_replaced)
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
    fn large_needs_are_not_recorded() {
        let users = |rules: usize| {
            let needs = Value::from(vec![json!({"verbs": ["get"]}); rules]);
            Users { needs: BTreeMap::from([("a/one".to_owned(), needs)]), ..Users::default() }
        };
        assert_eq!(needs(&users(2)).len(), 1);
        assert!(needs(&users(10_000)).is_empty());
    }

    #[test]
    fn apply_contains_no_user() {
        let name = format!("{INSTALLED_ALONGSIDE_PREFIX}1");
        let needs = format!("{NEEDS_PREFIX}1");
        let mut definition = json!({"metadata": {"annotations": {name: "a/b", needs: "[]", "note": "c/d"}}});
        remove_users(&mut definition);
        assert_eq!(definition, json!({"metadata": {"annotations": {"note": "c/d"}}}));
        let mut plain = json!({"metadata": {"name": "a"}});
        remove_users(&mut plain);
        assert_eq!(plain["metadata"]["name"], "a");
    }
}
