use super::*;
use crate::files::Files;
use serde_json::{Value, json};

const GROUP: &str = "example.com";

fn csv() -> Value {
    let container = json!({"name": "manager", "image": "quay.io/a/b:v1", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}});
    let example = json!([{"apiVersion": "example.com/v1", "kind": "A", "metadata": {"name": "a"}}]);
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": "a.v1.0.0", "annotations": {
            "alm-examples": example.to_string(), "capabilities": "Basic Install", "categories": "Database, Storage",
        }},
        "spec": {
            "displayName": "A", "description": "Text", "version": "1.0.0", "minKubeVersion": "1.28.0", "maturity": "alpha",
            "keywords": ["a"], "provider": {"name": "P"}, "icon": [{"base64data": "eA==", "mediatype": "image/png"}],
            "maintainers": [{"name": "N", "email": "n@example.com"}], "links": [{"name": "L", "url": "https://example.com"}],
            "customresourcedefinitions": {"owned": [
                {"name": "as.example.com", "kind": "A", "version": "v1", "description": "An a."},
            ]},
            "installModes": [{"type": "OwnNamespace", "supported": true}, {"type": "AllNamespaces", "supported": true}],
            "install": {"strategy": "deployment", "spec": {"deployments": [{"name": "m", "spec": {"template": {"spec": {
                "serviceAccountName": "m", "containers": [container],
            }}}}]}},
        },
    })
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "as.example.com"},
        "spec": {"group": GROUP, "names": {"kind": "A"}, "versions": [{"name": "v1"}, {"name": "v1alpha1"}]},
    })
}

fn findings(objects: &[Value], channel: &str) -> Vec<String> {
    let mut files = Files::default();
    for (index, object) in objects.iter().enumerate() {
        files.insert(format!("manifests/{index}.json"), object.to_string().into_bytes()).unwrap();
    }
    let annotations = crate::manifests::Annotations::new("a", &[channel], Some(channel)).to_map();
    files.insert("metadata/annotations.yaml", json!({"annotations": annotations}).to_string().into_bytes()).unwrap();
    let folder = BundleFolder::read(&files).unwrap();
    validate_bundle(&folder).iter().map(|finding| format!("{:?} {finding}", finding.severity)).collect()
}

#[test]
fn complete_bundles_have_no_findings() {
    assert_eq!(findings(&[csv(), definition()], "stable"), Vec::<String>::new());
}

#[test]
fn findings_name_the_field_and_the_remedy() {
    let service = |name: &str, kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    let with = |pointer: &str, value: Value| {
        let mut csv = csv();
        *csv.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} exists")) = value;
        vec![csv, definition()]
    };
    let more = |object: Value| vec![csv(), definition(), object];
    let mut old = definition();
    old["apiVersion"] = json!("apiextensions.k8s.io/v1beta1");
    let wide = json!([{"rules": [{"apiGroups": ["apiextensions.k8s.io"], "resources": ["*"], "verbs": ["patch"]}]}]);
    let mut permitted = csv();
    permitted["spec"]["install"]["spec"]["clusterPermissions"] = wide;
    let mut converting = csv();
    converting["spec"]["webhookdefinitions"] = json!([{"conversionCRDs": ["as.example.com"]}]);
    let mut misspelled = csv();
    misspelled["metadata"]["annotations"]["olm.skiprange"] = json!("<1.0.0");
    for (objects, expected) in [
        (with("/metadata/name", json!("A_b")), "Error metadata.name: \"A_b\" is invalid"),
        (with("/metadata/name", json!("a")), "Warning metadata.name: \"a\" has no usual form; write NAME.vVERSION"),
        (with("/spec/displayName", json!("")), "Error spec.displayName: it is missing"),
        (with("/spec/description", json!("")), "Warning spec.description: it is missing"),
        (with("/spec/provider", json!({})), "Error spec.provider.name: it is missing"),
        (with("/spec/maintainers/0/email", json!("n@")), "Error spec.maintainers[0]: \"n@\" is not an e-mail address"),
        (with("/spec/maintainers/0/email", json!("")), "Error spec.maintainers[0]: name or email is missing"),
        (with("/spec/links/0/url", json!("x")), "Error spec.links[0]: \"x\" is not a URL"),
        (with("/spec/icon/0/mediatype", json!("image/webp")), "Error spec.icon: the media type \"image/webp\""),
        (with("/spec/version", json!("1")), "Error spec.version: \"1\" is invalid"),
        (with("/spec/minKubeVersion", json!("")), "Warning spec.minKubeVersion: it is missing"),
        (with("/spec/minKubeVersion", json!("v1")), "Error spec.minKubeVersion: \"v1\" is not a version"),
        (with("/spec/installModes", json!([])), "Error spec.installModes: there are none"),
        (
            with("/spec/installModes/0/type", json!("AllNamespaces")),
            "Error spec.installModes: AllNamespaces is listed twice",
        ),
        (with("/spec/install/strategy", json!("helm")), "Error spec.install.strategy: \"helm\" is not supported"),
        (with("/spec/install/spec/deployments", json!([])), "Error spec.install.spec.deployments: there are none"),
        (
            with("/spec/install/spec/deployments/0/spec/template/spec/containers/0/resources", json!({})),
            "Warning container \"manager\" of deployment \"m\": it requests no CPU",
        ),
        (
            with("/metadata/annotations/capabilities", json!("6")),
            "Error metadata.annotations[capabilities]: \"6\" is no",
        ),
        (with("/metadata/annotations/categories", json!("Games")), "Error metadata.annotations[categories]: \"Games\""),
        (
            with("/metadata/annotations/alm-examples", json!("{")),
            "Error metadata.annotations[alm-examples]: it is not a JSON list",
        ),
        (
            with("/metadata/annotations/alm-examples", json!("[]")),
            "Warning metadata.annotations[alm-examples]: there is no example of A (example.com/v1); add one",
        ),
        (
            with("/spec/customresourcedefinitions/owned/0/version", json!("v3")),
            "Error spec.customresourcedefinitions.owned: A (example.com/v3) is not in the bundle",
        ),
        (
            with("/spec/customresourcedefinitions/owned", json!([])),
            "Error spec.customresourcedefinitions.owned: the bundle contains A (example.com/v1), but the CSV does not own it",
        ),
        (
            vec![csv(), old],
            "Error CustomResourceDefinition as.example.com (apiextensions.k8s.io/v1beta1): Kubernetes 1.22",
        ),
        (vec![converting, definition()], "Error spec.installModes: a conversion webhook serves the whole cluster"),
        (
            vec![misspelled, definition()],
            "Error metadata.annotations[olm.skiprange]: the case is wrong; write olm.skipRange",
        ),
        (vec![permitted, definition()], "Warning spec.install.spec.clusterPermissions: the operator may create CRDs"),
        (more(service("m", "ServiceAccount")), "Error ServiceAccount \"m\": OLM creates the account"),
        (more(service("d", "Deployment")), "Error Deployment d: OLM does not install objects of this kind"),
        (
            more(json!({"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": "p"}})),
            "Error PodDisruptionBudget p: Kubernetes has removed policy/v1beta1",
        ),
    ] {
        let found = findings(&objects, "stable");
        assert!(found.iter().any(|finding| finding.starts_with(expected)), "{expected}\n{found:#?}");
    }
    let found = findings(&[csv(), definition()], "alpha");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("Warning metadata/annotations.yaml: the channel \"alpha\" has no usual name"));
}
