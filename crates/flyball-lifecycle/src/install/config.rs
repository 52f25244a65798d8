//! The configuration of a Subscription, applied to the Deployments of its operator.

use crate::api::SubscriptionConfig;
use serde_json::{Map, Value, json};

/// Applies a configuration to a Deployment.
///
/// Environment variables and volumes replace those of the same name; sources of variables and tolerations are added;
/// resources, the node selector and the parts of the affinity replace those of the Deployment; annotations do not
/// replace any.
pub(super) fn configure(deployment: &mut Value, config: &SubscriptionConfig) {
    add_annotations(&mut deployment["metadata"], config);
    let template = &mut deployment["spec"]["template"];
    add_annotations(&mut template["metadata"], config);
    let pod = object(&mut template["spec"]);
    merge_named(list(pod, "volumes"), &config.volumes);
    add_missing(list(pod, "tolerations"), &config.tolerations);
    if let Some(selector) = &config.node_selector {
        pod.insert("nodeSelector".into(), json!(selector));
    }
    if let Some(affinity) = &config.affinity {
        set_affinity(pod, affinity);
    }
    for container in list(pod, "containers") {
        let container = object(container);
        merge_named(list(container, "env"), &config.env);
        add_missing(list(container, "envFrom"), &config.env_from);
        merge_named(list(container, "volumeMounts"), &config.volume_mounts);
        if let Some(resources) = &config.resources {
            container.insert("resources".into(), resources.clone());
        }
    }
}

/// Sets environment variables in all containers of a pod template.
pub(super) fn set_variables(template: &mut Value, variables: &[Value]) {
    for container in list(object(&mut template["spec"]), "containers") {
        merge_named(list(object(container), "env"), variables);
    }
}

/// Returns a value as an object; other values are replaced by an empty one.
pub(super) fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("an object was set")
}

/// Returns a field as a list; other values are replaced by an empty one.
pub(super) fn list<'a>(parent: &'a mut Map<String, Value>, field: &str) -> &'a mut Vec<Value> {
    let value = parent.entry(field).or_insert_with(|| json!([]));
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut().expect("a list was set")
}

fn add_annotations(metadata: &mut Value, config: &SubscriptionConfig) {
    if config.annotations.is_empty() {
        return;
    }
    let annotations = object(object(metadata).entry("annotations").or_insert_with(|| json!({})));
    for (name, value) in &config.annotations {
        annotations.entry(name.clone()).or_insert_with(|| value.as_str().into());
    }
}

/// Replaces elements of the same name, and adds the others.
pub(super) fn merge_named(elements: &mut Vec<Value>, added: &[Value]) {
    for new in added {
        match elements.iter_mut().find(|element| element["name"] == new["name"]) {
            Some(element) => *element = new.clone(),
            None => elements.push(new.clone()),
        }
    }
}

fn add_missing(elements: &mut Vec<Value>, added: &[Value]) {
    for new in added {
        if !elements.contains(new) {
            elements.push(new.clone());
        }
    }
}

/// Replaces the parts of the affinity that are set; an empty part removes that of the Deployment.
fn set_affinity(pod: &mut Map<String, Value>, affinity: &Value) {
    let Some(parts) = affinity.as_object().filter(|parts| !parts.is_empty()) else {
        pod.remove("affinity");
        return;
    };
    let current = object(pod.entry("affinity").or_insert_with(|| json!({})));
    for (part, value) in parts {
        match value.as_object().is_some_and(Map::is_empty) {
            true => drop(current.remove(part)),
            false => drop(current.insert(part.clone(), value.clone())),
        }
    }
    if current.is_empty() {
        pod.remove("affinity");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(pod: Value, config: Value) -> Value {
        let config: SubscriptionConfig = serde_json::from_value(config).unwrap();
        let mut deployment = json!({"metadata": {}, "spec": {"template": {"metadata": {}, "spec": pod}}});
        configure(&mut deployment, &config);
        deployment["spec"]["template"].take()
    }

    #[test]
    fn configuration_replaces_and_adds() {
        let pod = json!({
            "containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "1"}]}],
            "affinity": {"nodeAffinity": {"a": 1}, "podAffinity": {"b": 1}},
            "tolerations": [{"key": "k"}],
        });
        let config = json!({
            "env": [{"name": "Y", "value": "2"}, {"name": "Z", "value": "3"}],
            "resources": {"limits": {"cpu": "1"}},
            "tolerations": [{"key": "k"}, {"key": "l"}],
            "affinity": {"nodeAffinity": {}},
            "nodeSelector": {"disk": "ssd"},
            "annotations": {"note": "hi"},
        });
        let template = configured(pod, config);
        let spec = &template["spec"];
        let names: Vec<_> =
            spec["containers"][0]["env"].as_array().unwrap().iter().map(|e| e["value"].clone()).collect();
        assert_eq!(names, ["1", "2", "3"]);
        assert_eq!(spec["containers"][0]["resources"]["limits"]["cpu"], "1");
        assert_eq!(spec["affinity"], json!({"podAffinity": {"b": 1}}));
        assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
        assert_eq!(spec["nodeSelector"]["disk"], "ssd");
        assert_eq!(template["metadata"]["annotations"]["note"], "hi");
    }

    #[test]
    fn malformed_pod_specs_do_not_panic() {
        let template =
            configured(json!({"containers": [1, {"env": "no"}], "volumes": 3}), json!({"env": [{"name": "A"}]}));
        assert_eq!(template["spec"]["containers"][0]["env"][0]["name"], "A");
    }
}
