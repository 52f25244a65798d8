//! The Deployments of an operator.

use super::certificate::ServingCertificate;
use super::config::{configure, list, merge_named, object, set_variables};
use super::hash::content_hash;
use super::owner::{add_labels, labels_of, managed, owner_reference};
use super::service::{secret_name, serves};
use crate::api::{ClusterServiceVersion, DeploymentDescription, SubscriptionConfig, labels};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

/// Annotation of kubectl, which would double the size of each pod template.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns the Deployments of a ClusterServiceVersion, configured by its Subscription.
///
/// Their pods have the annotations of the ClusterServiceVersion, among them the target namespaces, the name of the
/// OperatorCondition in a variable, and the serving certificate of their webhooks as a volume.
pub(crate) fn deployments(
    csv: &ClusterServiceVersion,
    config: Option<&SubscriptionConfig>,
    certificate: impl Fn(&str) -> Option<ServingCertificate>,
) -> Vec<Value> {
    let deployment = |description: &DeploymentDescription| {
        deployment(csv, description, config, certificate(&description.name).as_ref())
    };
    csv.spec.details().deployments.iter().map(deployment).collect()
}

fn deployment(
    csv: &ClusterServiceVersion,
    description: &DeploymentDescription,
    config: Option<&SubscriptionConfig>,
    certificate: Option<&ServingCertificate>,
) -> Value {
    let mut spec = description.spec.clone();
    object(&mut spec).insert("revisionHistoryLimit".into(), 1.into());
    let template = object(object(&mut spec).entry("template").or_insert_with(|| json!({})));
    let metadata = object(template.entry("metadata").or_insert_with(|| json!({})));
    let annotations = object(metadata.entry("annotations").or_insert_with(|| json!({})));
    annotations.extend(template_annotations(csv));
    if let Some(certificate) = certificate {
        annotations.insert(labels::CA_HASH.into(), certificate.authority_hash().into());
    }
    let mut deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": description.name,
            "namespace": csv.namespace(),
            "labels": description.label,
            "ownerReferences": [owner_reference(csv)],
        },
        "spec": spec,
    });
    if let Some(config) = config {
        configure(&mut deployment, config);
    }
    let template = &mut deployment["spec"]["template"];
    set_variables(template, &[json!({"name": "OPERATOR_CONDITION_NAME", "value": csv.name_any()})]);
    if serves(csv, &description.name) {
        mount_certificate(object(&mut template["spec"]), &secret_name(&description.name));
    }
    deduplicate(object(&mut template["spec"]));
    let hash = content_hash(&deployment["spec"]);
    add_labels(&mut deployment, labels_of(csv));
    add_labels(&mut deployment, [(labels::DEPLOYMENT_SPEC_HASH.to_owned(), hash.into())].into_iter().collect());
    managed(deployment, csv)
}

/// Returns the annotations of a ClusterServiceVersion that its pods get.
pub(super) fn template_annotations(csv: &ClusterServiceVersion) -> Map<String, Value> {
    let annotations = csv.metadata.annotations.iter().flatten().filter(|(name, _)| *name != LAST_APPLIED);
    annotations.map(|(name, value)| (name.clone(), value.as_str().into())).collect()
}

/// Mounts the serving certificate where API servers and webhook servers of operators expect it.
fn mount_certificate(pod: &mut Map<String, Value>, secret: &str) {
    let mounts = [
        ("apiservice-cert", "/apiserver.local.config/certificates", ["apiserver.crt", "apiserver.key"]),
        ("webhook-cert", "/tmp/k8s-webhook-server/serving-certs", ["tls.crt", "tls.key"]),
    ];
    for (name, path, [certificate, key]) in mounts {
        let items = json!([{"key": "tls.crt", "path": certificate}, {"key": "tls.key", "path": key}]);
        merge_named(list(pod, "volumes"), &[json!({"name": name, "secret": {"secretName": secret, "items": items}})]);
        let mount = json!({"name": name, "mountPath": path});
        for container in list(pod, "containers") {
            let mounts = list(object(container), "volumeMounts");
            if mounts.iter().any(|existing| existing["name"] == name) {
                continue;
            }
            match mounts.iter_mut().find(|existing| existing["mountPath"] == path) {
                Some(existing) => *existing = mount.clone(),
                None => mounts.push(mount.clone()),
            }
        }
    }
}

/// Removes repeated variables and ports, of which the last one applies: the API server accepts them when an object is
/// created, but not in server-side apply.
fn deduplicate(pod: &mut Map<String, Value>) {
    for containers in ["containers", "initContainers"] {
        if !pod.contains_key(containers) {
            continue;
        }
        for container in list(pod, containers) {
            let container = object(container);
            for (field, key) in [("env", ["name", ""]), ("ports", ["containerPort", "protocol"])] {
                if container.get(field).is_some_and(Value::is_array) {
                    keep_last(list(container, field), key);
                }
            }
        }
    }
}

fn keep_last(elements: &mut Vec<Value>, [first, second]: [&str; 2]) {
    let key = |element: &Value| {
        let second = element[second].as_str().unwrap_or("TCP").to_owned();
        (element[first].clone(), second)
    };
    let mut kept: Vec<Value> = Vec::with_capacity(elements.len());
    for element in elements.drain(..) {
        match kept.iter_mut().find(|earlier| key(earlier) == key(&element)) {
            Some(earlier) => *earlier = element,
            None => kept.push(element),
        }
    }
    *elements = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(webhooks: Value) -> ClusterServiceVersion {
        serde_json::from_value(json!({
            "metadata": {
                "name": "memo.v1", "namespace": "demo", "uid": "u",
                "annotations": {"olm.targetNamespaces": "demo", LAST_APPLIED: "{}"},
                "labels": {"operators.coreos.com/memo.demo": ""},
            },
            "spec": {"webhookdefinitions": webhooks, "install": {"spec": {"deployments": [{
                "name": "memo",
                "label": {"tier": "control"},
                "spec": {"replicas": 1, "template": {
                    "metadata": {"annotations": {"own": "yes"}},
                    "spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "X", "value": "2"}]}]},
                }},
            }]}}},
        }))
        .unwrap()
    }

    #[test]
    fn pods_get_annotations_and_the_name_of_the_condition() {
        let deployment = deployments(&csv(json!([])), None, |_| None).remove(0);
        let template = &deployment["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"], json!({"own": "yes", "olm.targetNamespaces": "demo"}));
        assert_eq!(
            template["spec"]["containers"][0]["env"],
            json!([{"name": "X", "value": "2"}, {"name": "OPERATOR_CONDITION_NAME", "value": "memo.v1"}])
        );
        assert!(template["spec"].get("volumes").is_none());
        let labels = &deployment["metadata"]["labels"];
        for (label, value) in [("tier", "control"), ("olm.owner", "memo.v1"), ("olm.managed", "true")] {
            assert_eq!(labels[label], value);
        }
        assert_eq!(labels["operators.coreos.com/memo.demo"], "");
        let other = SubscriptionConfig { env: vec![json!({"name": "Y"})], ..SubscriptionConfig::default() };
        let configured = deployments(&csv(json!([])), Some(&other), |_| None).remove(0);
        assert_ne!(configured["metadata"]["labels"]["olm.deployment-spec-hash"], labels["olm.deployment-spec-hash"]);
    }

    #[test]
    fn servers_of_webhooks_mount_the_certificate() {
        let csv = csv(json!([{"generateName": "v", "type": "ValidatingAdmissionWebhook", "deploymentName": "memo"}]));
        let deployment = deployments(&csv, None, |_| None).remove(0);
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["volumes"][1]["secret"]["secretName"], "memo-service-cert");
        assert_eq!(pod["containers"][0]["volumeMounts"].as_array().unwrap().len(), 2);
    }
}
