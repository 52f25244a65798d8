//! The ClusterServiceVersion of an installation.

use super::Parts;
use super::descriptors::{spec_descriptors, status_descriptors, words};
use super::details::{Details, MODES};
use super::permissions::{Scopes, permissions};
use super::webhooks;
use crate::error::{Error, Result};
use crate::operator::installation::sample;
use flyball::description::Description;
use serde_json::{Value, json};

/// The sources of a CSV, besides the objects.
pub(crate) struct Project<'p> {
    pub(crate) description: &'p Description,
    pub(crate) package: &'p str,
    pub(crate) version: &'p str,
    pub(crate) image: &'p str,
    pub(crate) details: &'p Details,
    /// The CSV in the project, which is maintained by hand.
    pub(crate) base: &'p Value,
    /// Samples of the project.
    pub(crate) samples: Vec<Value>,
    /// Install modes; all that fit by default.
    pub(crate) modes: Vec<String>,
    pub(crate) replaces: Option<&'p str>,
    pub(crate) skips: &'p [String],
    pub(crate) skip_range: Option<&'p str>,
}

/// Returns the CSV of a project, and the objects and fields that it cannot contain.
pub(crate) fn csv(project: &Project<'_>, parts: &Parts) -> Result<(Value, Vec<String>)> {
    let [deployment] = &parts.deployments[..] else {
        let count = parts.deployments.len();
        return Err(Error::new(format!("the installation has {count} Deployments, a bundle of a project has one")));
    };
    let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
    let account = deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap_or("default");
    let modes = modes(project, parts)?;
    let follows_targets = modes.iter().any(|mode| *mode != "AllNamespaces");
    let scopes = Scopes::new(&parts.definitions);
    let (permissions, cluster_permissions) = permissions(&parts.bound_roles, account, &scopes, follows_targets);
    let (webhooks, lost) = webhooks::definitions(parts, name, &webhook_port(deployment));
    let examples = examples(project, parts);
    let mut csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("{}.v{}", project.package, project.version),
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": format!("{:#}", Value::from(examples)),
                "capabilities": "Basic Install",
                "containerImage": project.image,
                "operators.operatorframework.io/builder": concat!("flyball-v", env!("CARGO_PKG_VERSION")),
            },
        },
        "spec": {
            "displayName": words(project.package),
            "version": project.version,
            "maturity": "alpha",
            "provider": {},
            "customresourcedefinitions": {"owned": owned(project.description, parts)},
            "installModes": MODES.map(|mode| json!({"type": mode, "supported": modes.contains(&mode)})),
            "install": {"strategy": "deployment", "spec": {
                "deployments": [{
                    "name": name, "label": deployment["metadata"]["labels"],
                    "spec": deployment_spec(deployment, follows_targets),
                }],
                "permissions": permissions,
                "clusterPermissions": cluster_permissions,
            }},
            "relatedImages": [{"name": "manager", "image": project.image}],
        },
    });
    if !webhooks.is_empty() {
        csv["spec"]["webhookdefinitions"] = json!(webhooks);
    }
    if let Some(replaces) = project.replaces {
        csv["spec"]["replaces"] = json!(replaces);
    }
    if !project.skips.is_empty() {
        csv["spec"]["skips"] = json!(project.skips);
    }
    if let Some(range) = project.skip_range {
        csv["metadata"]["annotations"]["olm.skipRange"] = json!(range);
    }
    project.details.apply(project.base, &mut csv)?;
    describe_owned(project.base, &mut csv);
    Ok((csv, lost))
}

/// Returns the supported install modes. Kinds of the cluster and conversion webhooks serve all namespaces at once.
fn modes(project: &Project<'_>, parts: &Parts) -> Result<Vec<&'static str>> {
    let cluster_kind = parts.definitions.iter().find(|definition| definition["spec"]["scope"] == "Cluster");
    let reason = match (cluster_kind, parts.conversions.first()) {
        (Some(definition), _) => Some(format!("{} is cluster-scoped", definition["metadata"]["name"])),
        (None, Some((name, _))) => Some(format!("{name:?} has a conversion webhook")),
        (None, None) => None,
    };
    if project.modes.is_empty() {
        return Ok(if reason.is_some() { vec!["AllNamespaces"] } else { MODES.to_vec() });
    }
    let wanted: Vec<&str> =
        MODES.into_iter().filter(|mode| project.modes.iter().any(|wanted| wanted == mode)).collect();
    match reason.filter(|_| wanted != ["AllNamespaces"]) {
        Some(reason) => Err(Error::usage(format!("only AllNamespaces is possible: {reason}"))
            .hint("pass --install-mode AllNamespaces, or nothing")),
        None => Ok(wanted),
    }
}

/// Returns the port at which the operator serves webhooks.
fn webhook_port(deployment: &Value) -> Value {
    let ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"].as_array();
    let port = ports.into_iter().flatten().find(|port| port["name"] == "webhook");
    port.map_or(json!(9443), |port| port["containerPort"].clone())
}

/// Returns the spec of the Deployment. Its target namespaces are those of the OperatorGroup.
fn deployment_spec(deployment: &Value, follows_targets: bool) -> Value {
    let mut spec = deployment["spec"].clone();
    if follows_targets {
        let container = &mut spec["template"]["spec"]["containers"][0];
        let mut env = container["env"].as_array().cloned().unwrap_or_default();
        if !env.iter().any(|variable| variable["name"] == "WATCH_NAMESPACE") {
            let field = json!({"fieldPath": "metadata.annotations['olm.targetNamespaces']"});
            env.push(json!({"name": "WATCH_NAMESPACE", "valueFrom": {"fieldRef": field}}));
        }
        container["env"] = env.into();
    }
    spec
}

/// Returns the owned CRDs: one entry for each served version.
fn owned(description: &Description, parts: &Parts) -> Vec<Value> {
    let mut owned = Vec::new();
    for definition in &parts.definitions {
        let spec = &definition["spec"];
        let versions = spec["versions"].as_array().into_iter().flatten();
        for version in versions.filter(|version| version["served"] == true) {
            let schema = &version["schema"]["openAPIV3Schema"];
            let kind = spec["names"]["kind"].as_str().unwrap_or_default();
            let mut entry = json!({
                "name": definition["metadata"]["name"], "kind": kind, "version": version["name"],
                "displayName": words(kind),
                "description": schema["description"].as_str().map_or_else(
                    || format!("{} is a resource of this operator.", words(kind)), |text| text.trim().to_owned(),
                ),
                "resources": resources(description, definition, version),
            });
            for (field, descriptors) in
                [("specDescriptors", spec_descriptors(schema)), ("statusDescriptors", status_descriptors(schema))]
            {
                if !descriptors.is_empty() {
                    entry[field] = descriptors.into();
                }
            }
            owned.push(entry);
        }
    }
    owned
}

/// Common kinds by their plurals.
const KINDS: [(&str, &str); 20] = [
    ("configmaps", "ConfigMap"),
    ("cronjobs", "CronJob"),
    ("daemonsets", "DaemonSet"),
    ("deployments", "Deployment"),
    ("endpointslices", "EndpointSlice"),
    ("horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    ("ingresses", "Ingress"),
    ("jobs", "Job"),
    ("namespaces", "Namespace"),
    ("networkpolicies", "NetworkPolicy"),
    ("persistentvolumeclaims", "PersistentVolumeClaim"),
    ("poddisruptionbudgets", "PodDisruptionBudget"),
    ("pods", "Pod"),
    ("replicasets", "ReplicaSet"),
    ("rolebindings", "RoleBinding"),
    ("roles", "Role"),
    ("secrets", "Secret"),
    ("serviceaccounts", "ServiceAccount"),
    ("services", "Service"),
    ("statefulsets", "StatefulSet"),
];

/// Returns the common kinds that the controllers of a CRD own, which consoles show with an object.
fn resources(description: &Description, definition: &Value, version: &Value) -> Vec<Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (plural, group) = (text(&definition["spec"]["names"]["plural"]), text(&definition["spec"]["group"]));
    let reconciled = format!("{plural}.{}.{group}", text(&version["name"]));
    let controllers = description.controllers.iter().filter(|controller| controller.reconciles == reconciled);
    let owned = controllers.flat_map(|controller| &controller.owns);
    let resource = |owned: &String| {
        let mut parts = owned.splitn(3, '.');
        let (plural, version) = (parts.next()?, parts.next()?);
        let (_, kind) = KINDS.iter().find(|(known, _)| *known == plural)?;
        Some(json!({"kind": kind, "name": "", "version": version}))
    };
    owned.filter_map(resource).collect()
}

/// Copies the descriptions of owned kinds from the base, which is maintained by hand.
fn describe_owned(base: &Value, csv: &mut Value) {
    let written = base["spec"]["customresourcedefinitions"]["owned"].as_array().cloned().unwrap_or_default();
    let owned = csv["spec"]["customresourcedefinitions"]["owned"].as_array_mut();
    for entry in owned.into_iter().flatten() {
        let is_same = |other: &&Value| other["name"] == entry["name"] && other["version"] == entry["version"];
        let Some(written) = written.iter().find(is_same).and_then(Value::as_object) else { continue };
        for (field, value) in written {
            entry[field] = value.clone();
        }
    }
    let required = &base["spec"]["customresourcedefinitions"]["required"];
    if required.is_array() {
        csv["spec"]["customresourcedefinitions"]["required"] = required.clone();
    }
}

/// Returns one sample of each served version: those of the project, and generated ones where they are missing.
fn examples(project: &Project<'_>, parts: &Parts) -> Vec<Value> {
    let mut examples = Vec::new();
    for definition in &parts.definitions {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_of = |object: &&Value, version: &Value| {
            object["kind"] == spec["names"]["kind"]
                && object["apiVersion"] == format!("{}/{}", text(&spec["group"]), text(&version["name"]))
        };
        for version in spec["versions"].as_array().into_iter().flatten() {
            let own = project.samples.iter().filter(|object| is_of(object, version));
            let before = examples.len();
            examples.extend(own.map(without_namespace));
            if examples.len() == before && version["storage"] == true {
                examples.extend(sample::of(definition).map(|(_, object)| object));
            }
        }
    }
    examples
}

fn without_namespace(sample: &Value) -> Value {
    let mut sample = sample.clone();
    if let Some(metadata) = sample["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    sample
}
