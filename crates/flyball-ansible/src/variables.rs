//! The variables that an object gives a run, as operator-sdk's ansible operator passes them.
//!
//! See <https://sdk.operatorframework.io/docs/building-operators/ansible/development-tips/#extra-vars-sent-to-ansible>.

use crate::snake::snake_keys;
use crate::template::{Vars, data, templates};
use crate::watches::Watch;
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};

/// Returns the variables of a run: name and namespace, the fields of the spec, the whole object, and what `watches.yaml` says, which
/// is stronger.
///
/// What comes from the object is data; only what the operator's author wrote are templates.
pub(crate) fn of(object: &DynamicObject, watch: &Watch, finalizes: bool) -> Vars {
    let mut vars = data(of_object(object, watch));
    vars.extend(templates(&watch.vars));
    if let Some(finalizer) = watch.finalizer.as_ref().filter(|_| finalizes) {
        vars.extend(templates(&finalizer.vars));
    }
    vars
}

fn of_object(object: &DynamicObject, watch: &Watch) -> Map<String, Value> {
    let spec = object.data.get("spec").filter(|spec| spec.is_object()).cloned().unwrap_or_else(|| json!({}));
    let given = if watch.snake_case { snake_keys(&spec) } else { spec.clone() };
    let Value::Object(mut vars) = given else { return Map::new() };
    let names = json!({"name": object.metadata.name, "namespace": object.metadata.namespace});
    // Under the name that releases before 1.0 gave it, too.
    vars.entry("meta").or_insert_with(|| names.clone());
    vars.insert("ansible_operator_meta".into(), names);
    let key = format!("_{}_{}", watch.gvk.group, watch.gvk.kind.to_lowercase()).replace(['.', '-'], "_");
    // An object that serializes is a map, and this one came as JSON.
    vars.insert(key.clone(), serde_json::to_value(object).unwrap_or_default());
    vars.insert(format!("{key}_spec"), spec);
    vars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Var;
    use flyball::GroupVersionKind;

    #[test]
    fn an_object_gives_its_spec_itself_and_its_names() {
        let watch = Watch {
            gvk: GroupVersionKind::new("cache.my-example.com", "v1", "Memcached"),
            vars: json!({"size": "{{ 1 + 1 }}"}).as_object().unwrap().clone(),
            ..Watch::default()
        };
        let object = json!({"apiVersion": "cache.my-example.com/v1", "kind": "Memcached",
            "metadata": {"name": "a", "namespace": "b"}, "spec": {"replicaCount": 2, "size": 1}});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let vars = of(&object, &Watch { snake_case: true, ..watch.clone() }, false);
        let data = |name: &str| match &vars[name] {
            Var::Data(value) => (**value).clone(),
            Var::Template(value) => json!({"template": **value}),
        };
        assert_eq!(data("replica_count"), json!(2));
        assert_eq!(data("size"), json!({"template": "{{ 1 + 1 }}"}));
        assert_eq!(data("ansible_operator_meta"), json!({"name": "a", "namespace": "b"}));
        assert_eq!(data("_cache_my_example_com_memcached")["metadata"]["name"], "a");
        assert_eq!(data("_cache_my_example_com_memcached_spec"), json!({"replicaCount": 2, "size": 1}));
        assert!(of(&object, &watch, false).contains_key("replicaCount"));
    }
}
