//! The normal form of objects and states, as in the recordings; see `tests/data/behavior/README.md`.

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::LazyLock;

/// Metadata that is left out.
const LEFT_OUT: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "observedGeneration"];

static TIME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$").unwrap());
static NAME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|install-[a-z0-9]{5}\b").unwrap());

/// The manifests of all bundles, by bundle, and by kind and name.
static BUNDLES: LazyLock<HashMap<String, Vec<Value>>> = LazyLock::new(read_bundles);

fn read_bundles() -> HashMap<String, Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/behavior/catalog/bundles");
    let entries = |path: &Path| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let read = |path: &Path| serde_saphyr::from_str::<Value>(&std::fs::read_to_string(path).unwrap()).unwrap();
    let of = |bundle: std::path::PathBuf| {
        let name = bundle.file_name().unwrap().to_string_lossy().into_owned();
        (name, entries(&bundle).iter().map(|path| read(path)).collect())
    };
    entries(&folder).into_iter().map(of).collect()
}

/// Returns a manifest of a bundle.
pub(crate) fn manifest(bundle: &str, kind: &str) -> Option<&'static Value> {
    BUNDLES.get(bundle)?.iter().find(|manifest| manifest["kind"] == kind)
}

/// Placeholders for UIDs and generated names.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<String, String>, usize);

impl Names {
    /// Adds an object.
    pub(crate) fn add(&mut self, key: &str, uid: &str) {
        if let Some((_, name)) = key.strip_prefix("InstallPlan ").and_then(|key| key.split_once('/'))
            && !self.0.contains_key(name)
        {
            self.1 += 1;
            self.0.insert(name.to_owned(), format!("install-<{}>", self.1));
        }
        let key = self.replace(key).replacen(' ', "/", 1);
        self.0.insert(uid.to_owned(), format!("<uid:{key}>"));
    }

    pub(crate) fn replace(&self, text: &str) -> String {
        let known = |found: &Captures<'_>| self.0.get(&found[0]).cloned().unwrap_or_else(|| found[0].to_owned());
        NAME.replace_all(text, known).into_owned()
    }

    /// Replaces names and times in a value, and removes what is left out.
    pub(crate) fn replace_in(&self, value: &Value) -> Value {
        match value {
            Value::String(text) if TIME.is_match(text) => "<time>".into(),
            Value::String(text) => self.replace(text).into(),
            Value::Array(list) => list.iter().map(|value| self.replace_in(value)).collect(),
            Value::Object(fields) => {
                let kept = fields.iter().filter(|(name, value)| !LEFT_OUT.contains(&name.as_str()) && !value.is_null());
                kept.map(|(name, value)| (self.replace(name), self.replace_in(value))).collect()
            }
            other => other.clone(),
        }
    }

    /// Returns an object in its normal form.
    pub(crate) fn object(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|name, value| !(["annotations", "labels"].contains(&name.as_str()) && *value == json!({})));
        }
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        reduce(&kind, &mut object);
        self.replace_in(&object)
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// Removes the condition `Ready`, which OLM does not set, and a status that has nothing else.
fn remove_ready(object: &mut Value) {
    let Some(status) = object.get_mut("status") else { return };
    let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return };
    conditions.retain(|condition| condition["type"] != "Ready");
    if conditions.is_empty() {
        remove(status, "conditions");
    }
    if status.as_object().is_some_and(|fields| fields.keys().all(|name| name == "lastUpdated")) {
        remove(object, "status");
    }
}

/// Reduces an object to the fields that the recordings contain. [`NORMALIZED`](super::differences::NORMALIZED) lists
/// the parts of it that are differences from OLM.
fn reduce(kind: &str, object: &mut Value) {
    match kind {
        "ClusterServiceVersion" => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            object["spec"] = as_in_bundle(&object["spec"], manifest(&name, kind).map(|manifest| &manifest["spec"]));
            remove(&mut object["status"], "conditions");
        }
        "CustomResourceDefinition" => reduce_definition(object),
        "InstallPlan" => reduce_plan(object),
        "Deployment" => {
            remove(object, "status");
            remove(&mut object["metadata"]["annotations"], "deployment.kubernetes.io/revision");
        }
        "Service" => {
            remove(object, "status");
            object["spec"]["clusterIP"] = "<cluster-ip>".into();
            object["spec"]["clusterIPs"] = json!(["<cluster-ip>"]);
        }
        "Secret" => object["data"].as_object_mut().into_iter().flat_map(Map::values_mut).for_each(|value| {
            *value = "<data>".into();
        }),
        "Namespace" => remove(object, "spec"),
        "CatalogSource" | "OperatorGroup" => remove_ready(object),
        "Operator" => {
            let refs = object["status"]["components"]["refs"].as_array_mut();
            refs.into_iter().flatten().for_each(|reference| remove(reference, "conditions"));
        }
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                if !webhook["clientConfig"]["caBundle"].is_null() {
                    webhook["clientConfig"]["caBundle"] = "<ca>".into();
                }
            }
        }
        _ => {}
    }
}

/// Returns a marker, with the fields that differ from those of the bundle.
fn as_in_bundle(spec: &Value, original: Option<&Value>) -> Value {
    let Some(original) = original.and_then(Value::as_object) else { return spec.clone() };
    let mut reduced = Map::from_iter([("<as in bundle>".to_owned(), true.into())]);
    for (name, value) in spec.as_object().into_iter().flatten() {
        if original.get(name) != Some(value) {
            reduced.insert(name.clone(), value.clone());
        }
    }
    let missing: Vec<&String> = original.keys().filter(|name| spec.get(name).is_none()).collect();
    if !missing.is_empty() {
        reduced.insert("<missing>".to_owned(), json!(missing));
    }
    reduced.into()
}

fn reduce_definition(object: &mut Value) {
    let version = |version: &Value| {
        let properties = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].as_object();
        let mut properties: Vec<&String> = properties.into_iter().flat_map(Map::keys).collect();
        properties.sort();
        json!({"name": version["name"], "served": version["served"], "storage": version["storage"],
               "specProperties": properties})
    };
    let versions: Vec<Value> = object["spec"]["versions"].as_array().into_iter().flatten().map(version).collect();
    let mut conversion = object["spec"]["conversion"].clone();
    if let Some(ca) = conversion.pointer_mut("/webhook/clientConfig/caBundle") {
        *ca = "<ca>".into();
    }
    let preserve = object["spec"]["preserveUnknownFields"].clone();
    object["spec"] = json!({"conversion": conversion, "preserveUnknownFields": preserve, "versions": versions});
    object["status"] = json!({"storedVersions": object["status"]["storedVersions"]});
}

fn reduce_plan(object: &mut Value) {
    let several = object["spec"]["clusterServiceVersionNames"].as_array().is_some_and(|names| names.len() > 1);
    if let Some(names) = object["spec"]["clusterServiceVersionNames"].as_array_mut() {
        names.sort_by_key(Value::to_string);
    }
    let Some(steps) = object["status"]["plan"].as_array_mut() else { return };
    for step in steps.iter_mut() {
        let bundle = step["resolving"].as_str().unwrap_or_default().to_owned();
        let manifest: Value =
            serde_json::from_str(step["resource"]["manifest"].as_str().unwrap_or_default()).unwrap_or_default();
        step["resource"]["manifest"] = reduce_manifest(&bundle, step["resource"]["kind"].as_str(), manifest);
        if step["status"] == "Created" {
            step["status"] = "Present".into();
        }
    }
    if several {
        let order = |step: &Value| {
            let kind = step["resource"]["kind"].as_str().unwrap_or_default();
            let rank = ["ClusterServiceVersion", "CustomResourceDefinition"].iter().position(|first| *first == kind);
            (rank.unwrap_or(2), step["resolving"].to_string())
        };
        steps.sort_by_cached_key(order);
    }
}

fn reduce_manifest(bundle: &str, kind: Option<&str>, mut parsed: Value) -> Value {
    let kind = kind.unwrap_or_default();
    match (kind, manifest(bundle, kind)) {
        ("ClusterServiceVersion", Some(original)) => {
            remove(&mut parsed, "kind");
            remove(&mut parsed, "apiVersion");
            // The recordings do not contain it, though the CSVs that are made of the manifests have it.
            remove(&mut parsed["metadata"]["annotations"], "alm-examples");
            // Whether the recorded specs have another `replaces` is seen in the ClusterServiceVersions only.
            let without = |spec: &Value| {
                let mut spec = spec.clone();
                remove(&mut spec, "replaces");
                spec
            };
            if without(&parsed["spec"]) == without(&original["spec"]) {
                parsed["spec"] = "<as in bundle>".into();
            }
            parsed
        }
        ("CustomResourceDefinition", Some(original)) if parsed["spec"] == original["spec"] => "<as in bundle>".into(),
        _ => parsed,
    }
}

/// Returns the body of a response of the package server in its normal form.
pub(crate) fn response(body: &Value) -> Value {
    let mut body = Names::default().replace_in(body);
    for row in body.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        row["cells"][2] = "<age>".into();
    }
    for column in body.get_mut("columnDefinitions").and_then(Value::as_array_mut).into_iter().flatten() {
        remove(column, "description");
    }
    body
}

/// Returns the state of an object, as it is in the recorded sequences.
pub(crate) fn state(kind: &str, object: &Value) -> Option<Value> {
    let status = &object["status"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut state = match kind {
        "ClusterServiceVersion" if !object["metadata"]["labels"]["olm.copiedFrom"].is_null() => {
            json!({"copied": true, "phase": text(&status["phase"]), "reason": text(&status["reason"])})
        }
        "ClusterServiceVersion" => json!({
            "phase": text(&status["phase"]), "reason": text(&status["reason"]), "message": text(&status["message"]),
        }),
        "Subscription" => json!({
            "state": text(&status["state"]), "currentCSV": text(&status["currentCSV"]),
            "installedCSV": text(&status["installedCSV"]), "installPlan": text(&status["installPlanRef"]["name"]),
            "conditions": conditions(status),
        }),
        "InstallPlan" => plan_state(object),
        "CatalogSource" => json!({
            "state": text(&status["connectionState"]["lastObservedState"]), "reason": text(&status["reason"]),
            "message": text(&status["message"]),
        }),
        "OperatorCondition" => json!({"conditions": conditions(status)}),
        "OperatorGroup" => json!({
            "namespaces": status["namespaces"],
            "conditions": conditions(status).into_iter().filter(|of| of["type"] != "Ready").collect::<Vec<_>>(),
            "annotations": object["metadata"]["annotations"],
        }),
        _ => return None,
    };
    if !object["metadata"]["deletionTimestamp"].is_null() {
        state["deleting"] = true.into();
    }
    Some(state)
}

fn plan_state(object: &Value) -> Value {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut names = spec["clusterServiceVersionNames"].as_array().cloned().unwrap_or_default();
    names.sort_by_key(Value::to_string);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let step = |step: &Value| {
        let resource = &step["resource"];
        format!("{} {}: {}", text(&resource["kind"]), text(&resource["name"]), text(&step["status"]))
    };
    let steps: Vec<String> = status["plan"].as_array().into_iter().flatten().map(step).collect();
    let mut state = json!({
        "phase": text(&status["phase"]), "approved": spec["approved"], "csvs": names, "conditions": conditions(status),
        "steps": steps,
    });
    if let Some(message) = status["message"].as_str() {
        state["message"] = message.into();
    }
    state
}

/// Returns the conditions by type, without times.
fn conditions(status: &Value) -> Vec<Value> {
    let kept = |condition: &Value| {
        let fields = condition.as_object().into_iter().flatten();
        let fields = fields.filter(|(name, _)| ["type", "status", "reason", "message"].contains(&name.as_str()));
        fields.filter(|(_, value)| *value != "").map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let mut conditions: Vec<Value> = status["conditions"].as_array().into_iter().flatten().map(kept).collect();
    conditions.sort_by_key(|condition| condition["type"].to_string());
    conditions
}
