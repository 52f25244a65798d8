//! Checks of a bundle's objects by an API server in this process.
//!
//! CRDs are created, so that the samples in `alm-examples` can be checked; all other objects are dry runs. What the
//! lifecycle manager makes of the CSV is checked as well: the Deployment and the roles.

use crate::cluster::kinds::Kinds;
use crate::error::{Result, ResultExt};
use flyball_cluster::{Cluster, Options};
use flyball_lifecycle::manifests::BundleFolder;
use flyball_lifecycle::validation::{Finding, Severity};
use http::Request;
use http::header::CONTENT_TYPE;
use kube::Client;
use serde_json::{Value, json};

/// Groups that other operators define, whose objects a bundle may contain.
const FOREIGN_GROUPS: [&str; 5] = [
    "monitoring.coreos.com",
    "autoscaling.k8s.io",
    "console.openshift.io",
    "operators.coreos.com",
    "security.openshift.io",
];
/// Namespace of the checked objects.
const NAMESPACE: &str = "default";

/// Returns the findings of an API server about the objects of a bundle.
pub(super) async fn check(folder: &BundleFolder) -> Result<Vec<Finding>> {
    let cluster = Cluster::new(Options::system().context("cannot start an API server")?);
    let client = cluster.admin();
    let mut findings = Vec::new();
    let definitions: Vec<Value> = folder.manifests.definitions().cloned().collect();
    let kinds = Kinds::discover(&client).await?;
    for definition in &definitions {
        send(&client, &kinds, definition, "", None, &mut findings).await?;
    }
    let kinds = Kinds::discover(&client).await?;
    for object in folder.manifests.others() {
        send(&client, &kinds, object, "", Some("All"), &mut findings).await?;
    }
    for (field, object) in made(folder.manifests.csv()) {
        send(&client, &kinds, &object, &field, Some("All"), &mut findings).await?;
    }
    for (index, example) in examples(folder.manifests.csv()).iter().enumerate() {
        let field = format!("metadata.annotations[alm-examples][{index}]");
        send(&client, &kinds, example, &field, Some("All"), &mut findings).await?;
    }
    Ok(findings)
}

fn examples(csv: &Value) -> Vec<Value> {
    let written = csv["metadata"]["annotations"]["alm-examples"].as_str().unwrap_or_default();
    serde_json::from_str(written).unwrap_or_default()
}

/// Returns the objects that a lifecycle manager creates from a CSV, and the fields that they come from.
fn made(csv: &Value) -> Vec<(String, Value)> {
    let install = &csv["spec"]["install"]["spec"];
    let mut made = Vec::new();
    for (index, deployment) in install["deployments"].as_array().into_iter().flatten().enumerate() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": deployment["name"]},
            "spec": deployment["spec"],
        });
        made.push((format!("spec.install.spec.deployments[{index}]"), object));
    }
    for (list, kind) in [("permissions", "Role"), ("clusterPermissions", "ClusterRole")] {
        for (index, permission) in install[list].as_array().into_iter().flatten().enumerate() {
            let object = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "checked"},
                "rules": permission["rules"],
            });
            made.push((format!("spec.install.spec.{list}[{index}]"), object));
        }
    }
    made
}

async fn send(
    client: &Client,
    kinds: &Kinds,
    object: &Value,
    field: &str,
    dry_run: Option<&str>,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let field = match field {
        "" => format!("{kind} {}", text(&object["metadata"]["name"])),
        field => field.to_owned(),
    };
    let mut found = |why: String, remedy: &str| {
        findings.push(Finding { severity: Severity::Error, field: field.clone(), why, remedy: remedy.to_owned() });
    };
    let group = version.split_once('/').map_or("", |(group, _)| group);
    if FOREIGN_GROUPS.contains(&group) {
        return Ok(());
    }
    let Some(served) = kinds.of(&version, &kind) else {
        found(format!("the API server has no kind {kind} in {version}"), "add its CRD, or correct apiVersion and kind");
        return Ok(());
    };
    let mut path = served.path(Some(NAMESPACE), None);
    // The version of the object, not the preferred one.
    path = path.replacen(&served.api_version(), &version, 1);
    let dry_run = dry_run.map(|mode| format!("&dryRun={mode}")).unwrap_or_default();
    let uri = format!("{path}?fieldManager=flyball&fieldValidation=Strict{dry_run}");
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    let body = serde_json::to_vec(&object).context("cannot write JSON")?;
    let request = Request::post(uri).header(CONTENT_TYPE, "application/json").body(body);
    match client.request::<Value>(request.context("cannot build the request")?).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) => found(status.message.clone(), "correct the object"),
        Err(error) => return Err(error).context("cannot check objects"),
    }
    Ok(())
}
