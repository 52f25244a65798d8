//! Creation order of the objects of a release.
//!
//! Objects are created in Helm's order of kinds, each without waiting for the previous one to be ready, as by `helm
//! install`. CRDs are waited for, because their custom resources cannot be created before. A chart may declare
//! further dependencies, as in
//! [HIP-0025](https://github.com/helm/community/blob/main/hips/hip-0025.md): objects with the annotation
//! `helm.sh/resource-group` are created together, after all groups in `helm.sh/depends-on/resource-groups` are ready.
//! (The API server rejects the name of that second annotation, so it is removed before objects are sent.)

use crate::annotation::DEPENDS_ON;
use crate::isolation::is_in_namespace;
use crate::kinds::Kinds;
use crate::resources::{ManifestError, Owner, Resource, is_kept};
use flyball::{Children, Context, Error, Kind, Result};
use kube::api::{Api, PostParams};
use kube::core::DynamicObject;
use std::collections::{BTreeMap, BTreeSet};

/// The annotation with the group of an object.
const GROUP: &str = "helm.sh/resource-group";
/// The stage of CRDs.
const DEFINITIONS: &str = "definitions";
/// The stage of objects without a group.
const DEFAULT_STAGE: &str = "objects";

/// Stages of a release.
const MAX_STAGES: usize = 1_000;
/// Kinds whose objects contain data or other objects, which a deletion would lose.
const CONTAINERS: [&str; 4] = ["CustomResourceDefinition", "Namespace", "PersistentVolume", "PersistentVolumeClaim"];
/// Limit of groups in the message about a cycle.
const MAX_NAMED_GROUPS: usize = 20;

/// A stage: its name, its dependencies, and its objects.
#[derive(Debug, PartialEq)]
struct Stage<'a> {
    name: String,
    after: BTreeSet<String>,
    resources: Vec<&'a Resource>,
}

/// Creates the objects of a release as far as their stages permit, and returns the condition that it waits for. With
/// `waits_for_all`, all objects must be ready.
pub(crate) async fn apply(
    cx: &Context<DynamicObject>,
    owner: &Owner<'_>,
    kinds: &Kinds,
    resources: &[Resource],
    waits_for_all: bool,
) -> Result<Option<String>> {
    let stages = stages(resources).map_err(|problem| Error::from(problem).terminal())?;
    let mut children = Children::new();
    for stage in &stages {
        children = children.stage(&stage.name).after(&stage.after);
        children = declare(cx, owner, kinds, &stage.resources, children).await?;
    }
    let rollout = cx.apply_all(&children).await?;
    let mut awaited: Vec<&String> = stages.iter().flat_map(|stage| &stage.after).collect();
    if waits_for_all {
        awaited.extend(stages.iter().map(|stage| &stage.name));
    }
    let are_ready = awaited.into_iter().all(|stage| rollout.is_stage_ready(stage));
    Ok((!are_ready).then(|| rollout.waiting().join("; ")))
}

/// Deletes the object whose change the API server rejected, if it would accept the object as a new one; returns what to
/// wait for.
///
/// Objects that contain data or other objects are not deleted, nor those that the uninstallation keeps.
pub(crate) async fn delete_unchangeable(
    cx: &Context<DynamicObject>,
    owner: &Owner<'_>,
    kinds: &Kinds,
    resources: &[Resource],
    error: &Error,
) -> Result<Option<String>> {
    let details = error.status().filter(|status| status.code == 422).and_then(|status| status.details.as_ref());
    let Some(details) = details else { return Ok(None) };
    let is_rejected = |resource: &&Resource| (resource.name(), &*resource.kind) == (&*details.name, &*details.kind);
    for resource in resources.iter().filter(is_rejected) {
        let kind = kinds.declared(resource).map_err(|error| Error::from(error).terminal())?;
        let live = cx.dynamic(kind).get(&resource.key(kind, owner.namespace)).await?;
        let is_deletable =
            |live: &DynamicObject| owner.has(live) && !is_kept(live) && !CONTAINERS.contains(&kind.name());
        let Some(live) = live.filter(is_deletable) else { continue };
        if is_valid(cx, owner, kind, resource).await? {
            cx.delete(&live).await?;
            let (kind, name) = (kind.name(), resource.name());
            tracing::warn!(release = owner.release, kind, name, "deleted: its change was rejected, and is forced");
            return Ok(Some(format!("{kind} {name} is being deleted, because its change was rejected")));
        }
    }
    Ok(None)
}

/// Returns true if the API server would accept an object as a new one: it rejects only the name, which exists.
async fn is_valid(cx: &Context<DynamicObject>, owner: &Owner<'_>, kind: &Kind, resource: &Resource) -> Result<bool> {
    let (object, _) = owner.build_object(resource, kind).map_err(|error| Error::from(error).terminal())?;
    let api: Api<DynamicObject> = match object.metadata.namespace.as_deref() {
        Some(namespace) => Api::namespaced_with(cx.client().clone(), namespace, &kind.api_resource()),
        None => Api::all_with(cx.client().clone(), &kind.api_resource()),
    };
    let options = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&options, &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(false),
        other => other.map(|_| true).map_err(Error::from),
    }
}

/// Corrects the objects of a release in order, without waiting.
pub(crate) async fn repair(
    cx: &Context<DynamicObject>,
    owner: &Owner<'_>,
    kinds: &Kinds,
    resources: &[Resource],
) -> Result<()> {
    let all: Vec<&Resource> = resources.iter().collect();
    let children = declare(cx, owner, kinds, &all, Children::new().stage(DEFAULT_STAGE)).await?;
    cx.apply_all(&children).await.map(drop)
}

/// Creates the CRDs in a chart's directory `crds` that do not exist; returns the CRD that is not established. They are
/// neither changed nor deleted afterwards, as by
/// [Helm](https://helm.sh/docs/chart_best_practices/custom_resource_definitions/).
pub(crate) async fn create_crds(
    cx: &Context<DynamicObject>,
    kinds: &Kinds,
    definitions: &[Resource],
) -> Result<Option<String>> {
    for definition in definitions {
        let kind = kinds.declared(definition).map_err(|error| Error::from(error).terminal())?;
        let live = match cx.dynamic(kind).get(&definition.key(kind, "")).await? {
            Some(live) => live,
            None => {
                let object = serde_json::from_value::<DynamicObject>(definition.object.clone())?;
                cx.create_unowned(&object).await?
            }
        };
        if !is_established(&live) {
            return Ok(Some(format!("CustomResourceDefinition {} is not established", definition.name())));
        }
    }
    Ok(None)
}

/// Returns true if a CRD is established: the API server serves its kind.
pub(crate) fn is_established(definition: &DynamicObject) -> bool {
    let mut conditions = definition.data["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

async fn declare(
    cx: &Context<DynamicObject>,
    owner: &Owner<'_>,
    kinds: &Kinds,
    resources: &[&Resource],
    mut children: Children,
) -> Result<Children> {
    let terminal = |error: ManifestError| Error::from(error).terminal();
    for resource in resources {
        let kind = kinds.declared(resource).map_err(terminal)?;
        let (object, owned) = owner.build_object(resource, kind).map_err(terminal)?;
        let live = match cx.dynamic(kind).get(&resource.key(kind, owner.namespace)).await {
            Ok(live) => live,
            // The release may define the kind. Without its CRD there are no objects of the kind.
            Err(error) if error.status().is_some_and(|status| status.code == 404) => None,
            Err(error) => return Err(error),
        };
        if let Some(live) = &live {
            owner.check(kind, live, is_in_namespace(resource, kind, owner.namespace))?;
        }
        children = if owned { children.child(&object) } else { children.unowned(&object) };
        children = match live {
            Some(live) if owner.may_adopt(&live) => children.adopting(),
            Some(live) => children.rejecting_with(owner.rejection(kind, &live.metadata)),
            None => children,
        };
    }
    Ok(children)
}

/// Sorts objects into stages, each after its dependencies.
fn stages(resources: &[Resource]) -> Result<Vec<Stage<'_>>, String> {
    let mut stages: BTreeMap<String, Stage<'_>> = BTreeMap::new();
    for resource in resources {
        let is_definition = resource.kind == "CustomResourceDefinition";
        let name = match resource.annotation(GROUP) {
            _ if is_definition => DEFINITIONS.to_owned(),
            Some(group) => format!("group {group}"),
            None => DEFAULT_STAGE.to_owned(),
        };
        let stage = Stage { name: name.clone(), after: BTreeSet::new(), resources: Vec::new() };
        let stage = stages.entry(name).or_insert(stage);
        stage.resources.push(resource);
        if let Some(depends_on) = resource.annotation(DEPENDS_ON).filter(|_| !is_definition) {
            let groups: Vec<String> = serde_json::from_str(depends_on).map_err(|error| {
                format!("{}: annotation {DEPENDS_ON} must be a JSON list of strings: {error}", resource.path)
            })?;
            stage.after.extend(groups.into_iter().map(|group| format!("group {group}")));
        }
    }
    // Dependencies on groups that do not exist are ignored, as in the proposal.
    let names: BTreeSet<String> = stages.keys().cloned().collect();
    for stage in stages.values_mut() {
        stage.after.retain(|name| names.contains(name) && *name != stage.name);
        if stage.name != DEFINITIONS && names.contains(DEFINITIONS) {
            stage.after.insert(DEFINITIONS.into());
        }
    }
    if stages.len() > MAX_STAGES {
        return Err(format!("more than {MAX_STAGES} groups of annotation {GROUP}"));
    }
    let mut next: BTreeSet<String> =
        stages.values().filter(|stage| stage.after.is_empty()).map(|stage| stage.name.clone()).collect();
    let mut pending: BTreeMap<String, usize> =
        stages.values().map(|stage| (stage.name.clone(), stage.after.len())).collect();
    let mut before: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for stage in stages.values() {
        for name in &stage.after {
            before.entry(name.clone()).or_default().push(stage.name.clone());
        }
    }
    let mut ordered: Vec<Stage<'_>> = Vec::new();
    while let Some(name) = next.pop_first() {
        for after in before.remove(&name).unwrap_or_default() {
            let waits = pending.entry(after.clone()).or_default();
            *waits = waits.saturating_sub(1);
            if *waits == 0 {
                next.insert(after);
            }
        }
        ordered.extend(stages.remove(&name));
    }
    if !stages.is_empty() {
        let cycle: Vec<&str> = stages.keys().map(String::as_str).take(MAX_NAMED_GROUPS).collect();
        return Err(format!("annotations {DEPENDS_ON} form a cycle: {}", cycle.join(", ")));
    }
    Ok(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(objects: &[(&str, &str, &str, &str)], expected: Result<&[&str], &str>) {
        let resources: Vec<Resource> = objects
            .iter()
            .flat_map(|(kind, name, group, depends_on)| {
                let mut annotations = json!({});
                for (annotation, value) in [(GROUP, group), (DEPENDS_ON, depends_on)] {
                    if !value.is_empty() {
                        annotations[annotation] = (*value).into();
                    }
                }
                let metadata = json!({"name": name, "annotations": annotations});
                Resource::of("t.yaml", &json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})).unwrap()
            })
            .collect();
        let found = stages(&resources).map(|stages| {
            let names = |stage: &Stage<'_>| stage.resources.iter().map(|r| r.name()).collect::<Vec<_>>().join(",");
            stages.iter().map(|stage| format!("{}: {}", stage.name, names(stage))).collect::<Vec<_>>()
        });
        let expected =
            expected.map(|lines| lines.iter().map(|line| (*line).to_owned()).collect()).map_err(str::to_owned);
        assert_eq!(found, expected);
    }

    #[test]
    fn number_of_groups_is_bounded() {
        let chain = |count: usize| -> Vec<Resource> {
            let object = |at: usize| {
                let notes = json!({GROUP: format!("{at:05}"), DEPENDS_ON: format!("[\"{:05}\"]", at + 1)});
                let metadata = json!({"name": format!("c{at}"), "annotations": notes});
                Resource::of("t.yaml", &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
            };
            (0..count).flat_map(|at| object(at).unwrap()).collect()
        };
        let objects = chain(MAX_STAGES);
        let sorted = stages(&objects).unwrap();
        assert_eq!((sorted.len(), sorted[0].name.as_str()), (MAX_STAGES, "group 00999"));
        assert!(stages(&chain(10_000)).unwrap_err().contains("more than 1000 groups"));
    }

    #[test]
    fn groups_wait_for_their_dependencies() {
        check(&[("Secret", "s", "", ""), ("Deployment", "d", "", "")], Ok(&["objects: s,d"]));
        check(
            &[
                ("Secret", "s", "", ""),
                ("Deployment", "front", "front", r#"["back"]"#),
                ("Deployment", "db", "db", ""),
                ("Deployment", "back", "back", r#"["db", "nobody"]"#),
                ("CustomResourceDefinition", "crd", "db", ""),
            ],
            Ok(&["definitions: crd", "group db: db", "group back: back", "group front: front", "objects: s"]),
        );
        check(
            &[("A", "a", "a", r#"["b"]"#), ("A", "b", "b", r#"["a"]"#)],
            Err("annotations helm.sh/depends-on/resource-groups form a cycle: group a, group b"),
        );
        check(
            &[("A", "a", "a", "b")],
            Err(
                "t.yaml: annotation helm.sh/depends-on/resource-groups must be a JSON list of strings: expected value at line 1 column 1",
            ),
        );
    }
}
