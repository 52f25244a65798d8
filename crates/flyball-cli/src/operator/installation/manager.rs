//! The operator itself: its namespace, its Deployment, and the Service of its metrics.

use super::{ConfigDirectory, InstallTarget, ManifestFile, object};
use crate::operator::metrics::{HEALTH_PORT, SECURE_METRICS_PORT};
use flyball::description::Description;
use serde_json::{Value, json};

/// The user ID of operator images.
const USER: u32 = 65532;

pub(super) fn manifests(
    description: &Description,
    target: &InstallTarget,
    others: &[ManifestFile],
) -> Vec<ManifestFile> {
    let namespace = object("v1", "Namespace", &target.namespace, None);
    let mut service = object("v1", "Service", &target.object_name("metrics"), Some(&target.namespace));
    service["spec"] = json!({
        "ports": [{"name": "https", "port": SECURE_METRICS_PORT, "protocol": "TCP", "targetPort": SECURE_METRICS_PORT}],
        "selector": target.selector(),
    });
    vec![
        ManifestFile::new(ConfigDirectory::Manager, "namespace", namespace),
        ManifestFile::new(ConfigDirectory::Manager, "metrics_service", service),
        ManifestFile::new(ConfigDirectory::Manager, "manager", deployment(description, target, webhook_port(others))),
    ]
}

/// Finds the port at which the operator serves webhooks, if it has any.
pub(super) fn webhook_port(manifests: &[ManifestFile]) -> Option<Value> {
    let service = manifests
        .iter()
        .find(|manifest| manifest.folder == ConfigDirectory::Webhook && manifest.object["kind"] == "Service")?;
    Some(service.object["spec"]["ports"][0]["targetPort"].clone())
}

/// Limit of the files that Ansible writes while a role runs.
const TEMPORARY_SIZE: &str = "256Mi";

/// Adds a writable `/tmp` to the Deployment of the operator, since the root file system is read-only, and memory for
/// `ansible-playbook`.
pub(super) fn prepare_for_ansible(object: &mut Value) {
    if object["kind"] == "Deployment" {
        let pod = &mut object["spec"]["template"]["spec"];
        pod["containers"][0]["resources"]["limits"]["memory"] =
            format!("{}Mi", flyball_ansible::MEMORY_LIMIT >> 20).into();
        pod["volumes"] = json!([{"name": "tmp", "emptyDir": {"sizeLimit": TEMPORARY_SIZE}}]);
        pod["containers"][0]["volumeMounts"] = json!([{"name": "tmp", "mountPath": "/tmp"}]);
    }
}

fn deployment(description: &Description, target: &InstallTarget, webhooks: Option<Value>) -> Value {
    let mut args = vec![format!("--metrics-addr=:{SECURE_METRICS_PORT}"), "--metrics-secure".to_owned()];
    args.push(format!("--health-addr=:{HEALTH_PORT}"));
    if description.lease.is_some() {
        args.push("--leader-elect".to_owned());
    }
    args.extend(target.rename(description));
    args.extend(target.args.iter().cloned());

    let port = |name: &str, port: Value| json!({"name": name, "containerPort": port, "protocol": "TCP"});
    let mut ports = vec![port("metrics", SECURE_METRICS_PORT.into()), port("health", HEALTH_PORT.into())];
    // The budgets of webhooks take 352 MiB, see `flyball::webhook`.
    let memory_limit = if webhooks.is_some() { "512Mi" } else { "256Mi" };
    ports.extend(webhooks.map(|number| port("webhook", number)));
    let probe = |path: &str, delay: u32, period: u32| json!({"httpGet": {"path": path, "port": "health"}, "initialDelaySeconds": delay, "periodSeconds": period});
    let container = json!({
        "name": "manager",
        "image": target.image,
        "args": args,
        "ports": ports,
        "livenessProbe": probe("/healthz", 15, 20),
        "readinessProbe": probe("/readyz", 1, 5),
        "resources": {
            "limits": {"cpu": "500m", "memory": memory_limit},
            "requests": {"cpu": "10m", "memory": "32Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
    });
    let mut deployment = object("apps/v1", "Deployment", &target.account(), Some(&target.namespace));
    deployment["spec"] = json!({
        "replicas": 1,
        "selector": {"matchLabels": target.selector()},
        "template": {
            "metadata": {
                "annotations": {"kubectl.kubernetes.io/default-container": "manager"},
                "labels": target.selector(),
            },
            "spec": {
                "containers": [container],
                "securityContext": {
                    "runAsNonRoot": true,
                    "runAsUser": USER,
                    "runAsGroup": USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "serviceAccountName": target.account(),
                // The shutdown timeout of reconciles, and some seconds more.
                "terminationGracePeriodSeconds": 30,
            },
        },
    });
    deployment
}
