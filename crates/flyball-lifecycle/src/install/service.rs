//! The Service of a Deployment that serves webhooks or an aggregated API, and the permissions that servers need.

use super::owner::{add_labels, labels_of, managed, owner_reference};
use crate::api::{ClusterServiceVersion, DeploymentDescription, labels};
use kube::ResourceExt;
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// Namespace of the configuration of aggregated API servers.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// Returns the name of the Service of a Deployment, whose name may contain dots.
pub(crate) fn service_name(deployment: &str) -> String {
    format!("{}-service", deployment.replace('.', "-"))
}

/// Returns the name of the Secret with the serving certificate of a Deployment.
pub(crate) fn secret_name(deployment: &str) -> String {
    format!("{}-cert", service_name(deployment))
}

/// Returns true if a Deployment serves webhooks or an aggregated API.
pub(super) fn serves(csv: &ClusterServiceVersion, deployment: &str) -> bool {
    csv.spec.webhook_definitions.iter().any(|webhook| webhook.deployment_name == deployment)
        || csv.spec.api_services.owned.iter().any(|api| api.deployment_name == deployment)
}

/// Returns the objects that a Deployment with webhooks or an aggregated API needs besides its certificate: the
/// Service, a Role to read the Secret, and bindings to check the users of requests.
///
/// It is empty for other Deployments.
pub(crate) fn service_objects(csv: &ClusterServiceVersion, deployment: &DeploymentDescription) -> Vec<Value> {
    if !serves(csv, &deployment.name) {
        return Vec::new();
    }
    let (service, secret) = (service_name(&deployment.name), secret_name(&deployment.name));
    let account = deployment.spec.pointer("/template/spec/serviceAccountName").and_then(Value::as_str);
    let account = account.filter(|account| !account.is_empty()).unwrap_or("default");
    let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": csv.namespace()});
    let owned = |api_version: &str, kind: &str, name: &str| {
        json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name, "namespace": csv.namespace(), "ownerReferences": [owner_reference(csv)]},
        })
    };
    let mut service_object = owned("v1", "Service", &service);
    service_object["spec"] =
        json!({"ports": ports(csv, &deployment.name), "selector": deployment.spec.pointer("/selector/matchLabels")});
    let mut role = owned(RBAC, "Role", &secret);
    role["rules"] = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]}]);
    let mut binding = owned(RBAC, "RoleBinding", &secret);
    binding["roleRef"] = json!({"apiGroup": RBAC_GROUP, "kind": "Role", "name": secret});
    binding["subjects"] = json!([subject]);
    let mut delegator = json!({
        "apiVersion": RBAC,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{service}-system:auth-delegator")},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "system:auth-delegator"},
        "subjects": [subject],
    });
    add_labels(&mut delegator, labels_of(csv));
    let mut objects: Vec<Value> = [service_object, role, binding, delegator].map(|object| managed(object, csv)).into();
    objects.push(auth_reader(&service, &subject));
    objects
}

/// Returns the binding that lets a server read how the API server authenticates users. It is not a component of the
/// operator, as in OLM: the name of the Service identifies it.
fn auth_reader(service: &str, subject: &Value) -> Value {
    json!({
        "apiVersion": RBAC,
        "kind": "RoleBinding",
        "metadata": {
            "name": format!("{service}-auth-reader"),
            "namespace": SYSTEM_NAMESPACE,
            "labels": {labels::MANAGED: "true"},
        },
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "extension-apiserver-authentication-reader"},
        "subjects": [subject],
    })
}

/// Returns the ports of all webhooks and APIs of a Deployment, each once.
fn ports(csv: &ClusterServiceVersion, deployment: &str) -> Vec<Value> {
    let mut ports: Vec<Value> = Vec::new();
    let apis = csv.spec.api_services.owned.iter().filter(|api| api.deployment_name == deployment);
    let webhooks = csv.spec.webhook_definitions.iter().filter(|webhook| webhook.deployment_name == deployment);
    let all = apis.map(|api| (api.container_port, None));
    for (port, target) in all.chain(webhooks.map(|webhook| (webhook.container_port, webhook.target_port.clone()))) {
        let port = if port > 0 { port } else { 443 };
        let name = port.to_string();
        if ports.iter().all(|known| known["name"] != name.as_str()) {
            let target = target.unwrap_or_else(|| port.into());
            ports.push(json!({"name": name, "port": port, "protocol": "TCP", "targetPort": target}));
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_get_a_service_and_the_rights_to_check_users() {
        let csv: ClusterServiceVersion = serde_json::from_value(json!({
            "metadata": {"name": "hooked.v1", "namespace": "demo", "uid": "u"},
            "spec": {
                "webhookdefinitions": [
                    {"type": "ValidatingAdmissionWebhook", "deploymentName": "hooked.a", "containerPort": 443, "targetPort": 9443},
                    {"type": "MutatingAdmissionWebhook", "deploymentName": "hooked.a", "containerPort": 443, "targetPort": 9443},
                ],
                "install": {"spec": {"deployments": [
                    {"name": "hooked.a", "spec": {"selector": {"matchLabels": {"app": "hooked"}}, "template": {"spec": {"serviceAccountName": "hooked"}}}},
                    {"name": "other", "spec": {}},
                ]}},
            },
        }))
        .unwrap();
        let [server, other] = &csv.spec.details().deployments[..] else { panic!() };
        assert!(service_objects(&csv, other).is_empty());
        let objects = service_objects(&csv, server);
        let names: Vec<_> = objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "hooked-a-service",
                "hooked-a-service-cert",
                "hooked-a-service-cert",
                "hooked-a-service-system:auth-delegator",
                "hooked-a-service-auth-reader"
            ]
        );
        assert_eq!(
            objects[0]["spec"]["ports"],
            json!([{"name": "443", "port": 443, "protocol": "TCP", "targetPort": 9443}])
        );
        assert_eq!(objects[3]["subjects"][0]["name"], "hooked");
    }
}
