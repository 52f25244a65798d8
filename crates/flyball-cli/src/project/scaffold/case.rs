//! The test case of a kind, in KUTTL's format: the sample is applied and deleted. By its name, it is the proof of
//! capability level 1, see `flyball levels`.

use super::changes::Changes;
use crate::error::Result;
use crate::project::Resource;
use crate::render::yaml;
use serde_json::{Value, json};

/// Writes the case of a kind. Expected are these objects, which must not exist after the deletion of the sample.
pub(crate) fn create(
    changes: &mut Changes,
    resource: &Resource,
    sample: &str,
    expected: &[Value],
    force: bool,
) -> Result<()> {
    let Resource { group, version, kind, .. } = resource;
    let api_version = format!("{group}/{version}");
    let step = |field: &str, value: Value| {
        yaml::write(&json!({"apiVersion": "kuttl.dev/v1beta1", "kind": "TestStep", (field): value}))
    };
    let deleted = json!({"apiVersion": api_version, "kind": kind, "name": name(resource)});
    let documents = |objects: Vec<Value>| objects.iter().map(yaml::write).collect::<Vec<_>>().join("---\n");
    let bare = |object: &Value| json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": object["metadata"]});
    let files = [
        ("00-install.yaml", step("apply", json!([format!("../../../config/samples/{sample}")]))),
        ("00-assert.yaml", documents(expected.to_vec())),
        ("01-delete.yaml", step("delete", json!([deleted]))),
        ("01-errors.yaml", documents(expected.iter().map(bare).collect())),
    ];
    let folder = format!("tests/e2e/level_1_install_{}", kind.to_lowercase());
    files.into_iter().try_for_each(|(file, text)| changes.create(&format!("{folder}/{file}"), text, force))
}

/// Returns the name of the object of a sample.
pub(crate) fn name(resource: &Resource) -> String {
    format!("{}-sample", resource.kind.to_lowercase())
}

/// Returns what a deployed release of the kind has in its status.
pub(crate) fn release(resource: &Resource) -> Value {
    let api_version = format!("{}/{}", resource.group, resource.version);
    json!({
        "apiVersion": api_version,
        "kind": resource.kind,
        "metadata": {"name": name(resource)},
        "status": {"release": {"status": "deployed"}},
    })
}

/// Returns what a reconciled object of a role has in its status.
pub(crate) fn successful(resource: &Resource) -> Value {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
    json!({
        "apiVersion": format!("{}/{}", resource.group, resource.version),
        "kind": resource.kind,
        "metadata": {"name": name(resource)},
        "status": {"conditions": [
            condition("Running", "True"), condition("Successful", "True"), condition("Failure", "False"),
        ]},
    })
}

/// Returns the Deployment of a new chart or role, which has the name of the custom resource.
pub(crate) fn deployment(resource: &Resource) -> Value {
    let mut metadata = json!({"name": name(resource)});
    if !resource.namespaced {
        metadata["namespace"] = name(resource).into();
    }
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "status": {"readyReplicas": 1}})
}
