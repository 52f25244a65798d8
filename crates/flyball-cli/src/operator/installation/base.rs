//! The same objects as a folder of files that kustomize builds, see
//! <https://kubectl.docs.kubernetes.io/references/kustomize/>.
//!
//! The files hold names without the prefix and the namespace `system`; `config/default` puts both on. So an overlay
//! with other names needs only a kustomization.

use super::{Folder, InstallTarget, Installation, sample};
use crate::render::yaml;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The header of each generated file, which identifies it.
pub(crate) const HEADER: &str =
    "# Made by `flyball manifests` from what the operator's program says. Without this line, the file is yours.\n";
/// The namespace in the files, which `config/default` replaces.
pub(crate) const SYSTEM: &str = "system";

/// An existing file with samples: its name, and the kinds of its objects.
pub(crate) type Samples = BTreeMap<String, BTreeSet<String>>;

/// Writes all files, by their paths below `config`.
pub(crate) fn files(installation: &Installation, samples: &Samples) -> BTreeMap<String, String> {
    let target = &installation.target;
    let fixed = has_fixed_namespace(installation);
    let system = if fixed { target.namespace.as_str() } else { SYSTEM };
    let mut files = BTreeMap::new();
    let mut put_noted =
        |path: String, note: &str, value: &Value| files.insert(path, format!("{HEADER}{note}{}", yaml::write(value)));
    let mut folders = Vec::new();
    for folder in Folder::ALL {
        let pieces: Vec<_> = installation.pieces.iter().filter(|piece| piece.folder == folder).collect();
        if pieces.is_empty() {
            continue;
        }
        for piece in &pieces {
            let path = format!("{}/{}", folder.name(), piece.file);
            put_noted(path, piece.note, &to_base(piece.object.clone(), target, system));
        }
        let mut resources: Vec<&str> = pieces.iter().map(|piece| piece.file.as_str()).collect();
        resources.sort_unstable();
        let mut built = kustomization(json!(resources));
        if folder == Folder::Monitoring {
            // It is applied separately, on clusters with a Prometheus operator.
            set_prefix_and_namespace(&mut built, target, fixed);
        } else {
            folders.push(format!("../{}", folder.name()));
        }
        put_noted(format!("{}/kustomization.yaml", folder.name()), "", &built);
    }
    let mut put = |path: String, value: &Value| put_noted(path, "", value);
    let mut built = kustomization(json!(folders));
    set_prefix_and_namespace(&mut built, target, fixed);
    built["configurations"] = json!(["references.yaml"]);
    put("default/kustomization.yaml".into(), &built);
    put("default/references.yaml".into(), &references());

    let mut names: BTreeSet<String> = samples.keys().cloned().collect();
    let shown: BTreeSet<&String> = samples.values().flatten().collect();
    for definition in installation.definitions() {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
        if !shown.contains(&kind)
            && let Some((file, object)) = sample::of(&definition)
        {
            put(format!("samples/{file}"), &object);
            names.insert(file);
        }
    }
    if !names.is_empty() {
        put("samples/kustomization.yaml".into(), &kustomization(json!(names)));
    }
    files
}

/// Returns true if the files must contain the namespace: kustomize would move roles of other namespaces to the
/// operator's namespace, would set a namespace on policies, which are cluster-scoped, and does not replace excluded
/// namespaces in webhook selectors.
fn has_fixed_namespace(installation: &Installation) -> bool {
    let has_policies = installation.pieces.iter().any(|piece| piece.folder == Folder::Policy);
    let names_namespace = |webhook: &Value| {
        let expressions = webhook["namespaceSelector"]["matchExpressions"].as_array().into_iter().flatten();
        let mut values = expressions.flat_map(|expression| expression["values"].as_array().into_iter().flatten());
        values.any(|value| *value == installation.target.namespace)
    };
    let mut webhooks =
        installation.pieces.iter().flat_map(|piece| piece.object["webhooks"].as_array().into_iter().flatten());
    has_policies || !installation.description.namespaces.is_empty() || webhooks.any(names_namespace)
}

fn kustomization(resources: Value) -> Value {
    json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources})
}

/// Sets kustomize's prefix and namespace.
fn set_prefix_and_namespace(built: &mut Value, target: &InstallTarget, fixed: bool) {
    built["namePrefix"] = target.prefix.as_str().into();
    if !fixed {
        built["namespace"] = target.namespace.as_str().into();
    }
}

/// Returns kustomize's configuration for additional name references.
fn references() -> Value {
    let policy = |kind: &str| json!({"kind": kind, "fieldSpecs": [{"kind": format!("{kind}Binding"), "path": "spec/policyName"}]});
    let conversion = "spec/conversion/webhook/clientConfig/service";
    let definition = |field: &str| json!({"kind": "CustomResourceDefinition", "path": format!("{conversion}/{field}")});
    json!({
        "nameReference": [
            {"kind": "Service", "version": "v1", "fieldSpecs": [definition("name")]},
            policy("MutatingAdmissionPolicy"),
            policy("ValidatingAdmissionPolicy"),
        ],
        "namespace": [definition("namespace")],
    })
}

/// Removes prefix and namespace from an object and its references.
fn to_base(mut object: Value, target: &InstallTarget, system: &str) -> Value {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    match kind.as_str() {
        "CustomResourceDefinition" => {}
        "Namespace" => strip_namespace(object.pointer_mut("/metadata/name"), target, system),
        _ => strip_prefix(object.pointer_mut("/metadata/name"), target),
    }
    strip_namespace(object.pointer_mut("/metadata/namespace"), target, system);
    for pointer in ["/roleRef/name", "/spec/template/spec/serviceAccountName", "/spec/policyName"] {
        strip_prefix(object.pointer_mut(pointer), target);
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        strip_prefix(subject.get_mut("name"), target);
        strip_namespace(subject.get_mut("namespace"), target, system);
    }
    let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten();
    for webhook in webhooks {
        strip_service(webhook.pointer_mut("/clientConfig/service"), target, system);
    }
    strip_service(object.pointer_mut("/spec/conversion/webhook/clientConfig/service"), target, system);
    object
}

fn strip_service(service: Option<&mut Value>, target: &InstallTarget, system: &str) {
    if let Some(service) = service {
        strip_prefix(service.get_mut("name"), target);
        strip_namespace(service.get_mut("namespace"), target, system);
    }
}

fn strip_prefix(name: Option<&mut Value>, target: &InstallTarget) {
    if let Some(Value::String(name)) = name {
        *name = target.without_prefix(name).to_owned();
    }
}

fn strip_namespace(namespace: Option<&mut Value>, target: &InstallTarget, system: &str) {
    if let Some(Value::String(name)) = namespace
        && *name == target.namespace
    {
        *name = system.to_owned();
    }
}
