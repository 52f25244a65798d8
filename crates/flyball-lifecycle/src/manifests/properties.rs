//! Properties of a bundle that follow from its manifests and metadata, as in operator-registry.

use super::Manifests;
use crate::bundle::{Api, Property};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Annotation of a CSV with further properties.
const ANNOTATION: &str = "olm.properties";

/// Returns the properties of a bundle, sorted by type and value. Those that the metadata declares come first if they
/// are of a type that a bundle has once.
pub(crate) fn properties(
    manifests: &Manifests,
    package: &str,
    declared: &[Property],
    dependencies: &[Property],
) -> Vec<Property> {
    let csv = manifests.csv();
    let annotated = csv["metadata"]["annotations"][ANNOTATION].as_str();
    let annotated: Vec<Property> = annotated.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let mut properties = Vec::new();
    let own = declared.iter().chain(&annotated).find(|property| property.kind == "olm.package");
    properties.push(own.cloned().unwrap_or_else(|| package_property(csv, package)));
    let others = declared.iter().chain(&annotated).filter(|property| property.kind != "olm.package");
    properties.extend(others.cloned());
    properties.extend(provided(manifests).into_iter().map(|api| property("olm.gvk", json!(api))));
    properties.extend(required(csv).into_iter().map(|api| property("olm.gvk.required", json!(api))));
    properties.extend(dependencies.iter().map(of_dependency));
    let mut keyed: Vec<_> =
        properties.into_iter().map(|property| (property.kind.clone(), property.text().to_owned(), property)).collect();
    keyed.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    keyed.dedup_by(|one, other| one.0 == other.0 && one.1 == other.1);
    keyed.into_iter().map(|(_, _, property)| property).collect()
}

fn property(kind: &str, value: Value) -> Property {
    Property::new(kind, &value)
}

fn package_property(csv: &Value, package: &str) -> Property {
    let mut value = json!({"packageName": package, "version": csv["spec"]["version"].as_str().unwrap_or_default()});
    match &csv["spec"]["release"] {
        Value::String(release) if !release.is_empty() => value["release"] = json!(release),
        Value::Number(release) => value["release"] = json!(release.to_string()),
        _ => {}
    }
    property("olm.package", value)
}

/// Returns the property that a dependency requires: `olm.gvk` and `olm.package` become `….required`.
fn of_dependency(dependency: &Property) -> Property {
    let value = dependency.value();
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    match dependency.kind.as_str() {
        "olm.gvk" => property("olm.gvk.required", value),
        "olm.package" => {
            let value = json!({"packageName": text("packageName"), "versionRange": text("version")});
            property("olm.package.required", value)
        }
        _ => dependency.clone(),
    }
}

/// Returns the APIs of the CRDs and of the owned API services.
pub(crate) fn provided(manifests: &Manifests) -> BTreeSet<Api> {
    let mut apis = provided_api_services(manifests.csv());
    apis.extend(manifests.definitions().flat_map(definition_apis));
    apis
}

/// Returns the APIs of a CRD: one for each version.
pub(crate) fn definition_apis(definition: &Value) -> Vec<Api> {
    let text = |pointer| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let api = |version: &str| {
        let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
        Api { group, version: version.to_owned(), kind }
    };
    versions.filter_map(|version| version["name"].as_str()).map(api).collect()
}

/// Returns the APIs of the API services that a CSV owns.
pub(crate) fn provided_api_services(csv: &Value) -> BTreeSet<Api> {
    let owned = csv["spec"]["apiservicedefinitions"]["owned"].as_array();
    owned.into_iter().flatten().map(of_api_service).collect()
}

/// Returns the APIs that a CSV requires.
pub(crate) fn required(csv: &Value) -> BTreeSet<Api> {
    let list = |field: &str| csv["spec"][field]["required"].as_array().into_iter().flatten();
    let definitions = list("customresourcedefinitions").filter_map(definition_api);
    definitions.chain(list("apiservicedefinitions").map(of_api_service)).collect()
}

/// Returns the API of an owned or required CRD of a CSV; `None` if its name has no group.
pub(crate) fn definition_api(definition: &Value) -> Option<Api> {
    let text = |field: &str| definition[field].as_str().unwrap_or_default().to_owned();
    let group = definition["name"].as_str()?.split_once('.')?.1.to_owned();
    Some(Api { group, version: text("version"), kind: text("kind") })
}

fn of_api_service(service: &Value) -> Api {
    let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
    Api { group: text("group"), version: text("version"), kind: text("kind") }
}

/// Returns the value of `olm.csv.metadata`: the descriptive fields of a CSV.
pub fn csv_metadata(csv: &Value) -> Value {
    let mut metadata = Map::new();
    let spec = &csv["spec"];
    let fields = [
        ("annotations", &csv["metadata"]["annotations"]),
        ("apiServiceDefinitions", &spec["apiservicedefinitions"]),
        ("crdDescriptions", &spec["customresourcedefinitions"]),
        ("description", &spec["description"]),
        ("displayName", &spec["displayName"]),
        ("installModes", &spec["installModes"]),
        ("keywords", &spec["keywords"]),
        ("labels", &csv["metadata"]["labels"]),
        ("links", &spec["links"]),
        ("maintainers", &spec["maintainers"]),
        ("maturity", &spec["maturity"]),
        ("minKubeVersion", &spec["minKubeVersion"]),
        ("nativeAPIs", &spec["nativeAPIs"]),
        ("provider", &spec["provider"]),
    ];
    for (name, value) in fields {
        // Go writes structs even if they are empty.
        let is_struct = matches!(name, "apiServiceDefinitions" | "crdDescriptions" | "provider");
        match value {
            Value::Null if is_struct => drop(metadata.insert(name.to_owned(), json!({}))),
            Value::Null => {}
            Value::String(text) if text.is_empty() => {}
            value => drop(metadata.insert(name.to_owned(), value.clone())),
        }
    }
    metadata.into()
}

/// Returns the names and images that a bundle refers to, sorted by image: those that its CSV lists, those of its
/// deployments, and its own.
pub fn related_images(csv: &Value, bundle_image: &str) -> Vec<(String, String)> {
    let mut images: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, image: &str| {
        if !image.is_empty() && images.iter().all(|(_, known)| known != image) {
            images.push((name.to_owned(), image.to_owned()));
        }
    };
    for related in csv["spec"]["relatedImages"].as_array().into_iter().flatten() {
        add(related["name"].as_str().unwrap_or_default(), related["image"].as_str().unwrap_or_default());
    }
    add("", bundle_image);
    for deployment in csv.pointer("/spec/install/spec/deployments").and_then(Value::as_array).into_iter().flatten() {
        for list in ["containers", "initContainers"] {
            let containers = deployment["spec"]["template"]["spec"][list].as_array();
            for container in containers.into_iter().flatten() {
                add("", container["image"].as_str().unwrap_or_default());
            }
        }
    }
    images.sort_by(|one, other| one.1.cmp(&other.1));
    images
}
