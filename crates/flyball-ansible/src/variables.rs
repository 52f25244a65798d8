//! The variables of an object for a run, as in operator-sdk's Ansible operator.
//!
//! See <https://sdk.operatorframework.io/docs/building-operators/ansible/development-tips/#extra-vars-sent-to-ansible>.

#[cfg(test)]
#[cfg(target_os = "linux")]
mod linear;

use crate::names::{Names, Reason, own_names};
use crate::snake::{snake, snake_keys};
use crate::template::{Vars, data, templates};
use crate::value::{Value, json, to_value};
use crate::watches::Watch;
use kube::core::DynamicObject;
use std::collections::BTreeMap;

/// Limits of rejected fields in a message, and of characters per name.
const MAX_NAMES_SHOWN: usize = 10;
const MAX_NAME_LENGTH: usize = 64;

/// The variables of a run, and the rejected fields of the spec.
#[derive(Debug, Default)]
pub(crate) struct RunVariables {
    pub(crate) vars: Vars,
    /// Sorted by name.
    pub(crate) rejected: Vec<(String, Reason)>,
}

/// Returns the variables of a run: name and namespace, the fields of the spec, the whole object, and the `vars` of
/// `watches.yaml`, which take precedence.
///
/// Values from the object are data; only values of the operator's author are templates.
pub(crate) fn of(object: &DynamicObject, watch: &Watch, names: &Names, finalizes: bool) -> RunVariables {
    let (fields, rejected) = of_object(object, watch, names);
    let mut vars = data(fields);
    vars.extend(templates(&watch.vars));
    if let Some(finalizer) = watch.finalizer.as_ref().filter(|_| finalizes) {
        vars.extend(templates(&finalizer.vars));
    }
    RunVariables { vars, rejected }
}

fn of_object(object: &DynamicObject, watch: &Watch, names: &Names) -> (BTreeMap<String, Value>, Vec<(String, Reason)>) {
    let spec = object.data.get("spec").filter(|spec| spec.is_object()).map_or_else(|| json!({}), Value::from);
    let meta = json!({"name": object.metadata.name, "namespace": object.metadata.namespace});
    // A serialized object is a map, and this one was JSON before.
    let whole = to_value(object).unwrap_or_default();
    let own: BTreeMap<_, _> =
        own_names(&watch.gvk).into_iter().zip([meta.clone(), meta, whole, spec.clone()]).collect();
    let (mut vars, mut rejected) = (BTreeMap::new(), Vec::new());
    let fields = spec.as_object().into_iter().flatten();
    let named = |field: &String| if watch.snake_case { snake(field) } else { field.clone() };
    // A field with the exact name of its variable takes precedence over others.
    let mut fields: Vec<_> = fields.map(|(field, value)| (named(field), field, value)).collect();
    fields.sort_by_key(|(name, field, _)| (name != *field, *field));
    for (name, field, value) in fields {
        let reason = match names.rejection(field, &name) {
            _ if own.contains_key(&name) => Some(Reason::Operator),
            None if vars.contains_key(&name) => Some(Reason::SecondSpelling),
            reason => reason,
        };
        match reason {
            Some(reason) => rejected.push((field.clone(), reason)),
            None => drop(vars.insert(name, if watch.snake_case { snake_keys(value) } else { value.clone() })),
        }
    }
    rejected.sort_by(|(left, _), (right, _)| left.cmp(right));
    vars.extend(own);
    (vars, rejected)
}

/// Describes the rejected fields; `None` if there are none.
pub(crate) fn explain(rejected: &[(String, Reason)]) -> Option<String> {
    if rejected.is_empty() {
        return None;
    }
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (field, reason) in rejected.iter().take(MAX_NAMES_SHOWN) {
        // Escaped, since it may contain any character.
        let mut name: String = field.chars().take(MAX_NAME_LENGTH).flat_map(char::escape_debug).collect();
        if field.chars().nth(MAX_NAME_LENGTH).is_some() {
            name.push('…');
        }
        by_reason.entry(reason.as_str()).or_default().push(name);
    }
    let mut parts: Vec<String> =
        by_reason.into_iter().map(|(reason, fields)| format!("{} ({reason})", fields.join(", "))).collect();
    if rejected.len() > MAX_NAMES_SHOWN {
        parts.push(format!("and {} more", rejected.len() - MAX_NAMES_SHOWN));
    }
    // The count comes first, since long messages are truncated.
    let fields = if rejected.len() == 1 { "field of the spec is" } else { "fields of the spec are" };
    Some(format!("{} {fields} not passed to the role as variables: {}", rejected.len(), parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Var;
    use flyball::GroupVersionKind;

    #[test]
    fn object_yields_spec_and_metadata_variables() {
        let watch = Watch {
            gvk: GroupVersionKind::new("cache.my-example.com", "v1", "Memcached"),
            vars: json!({"size": "{{ 1 + 1 }}"}).as_object().unwrap().clone(),
            ..Watch::default()
        };
        let object = json!({"apiVersion": "cache.my-example.com/v1", "kind": "Memcached",
            "metadata": {"name": "a", "namespace": "b"}, "spec": {"replicaCount": 2, "size": 1}});
        let object: DynamicObject = crate::value::from_value(object).unwrap();
        let names = Names::default();
        let RunVariables { vars, rejected } = of(&object, &Watch { snake_case: true, ..watch.clone() }, &names, false);
        assert!(rejected.is_empty());
        let data = |name: &str| match &vars[name] {
            Var::Data(value) => (**value).clone(),
            Var::Template(value) => json!({"template": **value}),
        };
        assert_eq!(data("replica_count"), json!(2));
        assert_eq!(data("size"), json!({"template": "{{ 1 + 1 }}"}));
        assert_eq!(data("ansible_operator_meta"), json!({"name": "a", "namespace": "b"}));
        assert_eq!(data("_cache_my_example_com_memcached")["metadata"]["name"], "a");
        assert_eq!(data("_cache_my_example_com_memcached_spec"), json!({"replicaCount": 2, "size": 1}));
        assert!(of(&object, &watch, &names, false).vars.contains_key("replicaCount"));
    }

    fn variables_of(spec: &Value, names: &Names, snake_case: bool) -> RunVariables {
        let gvk = GroupVersionKind::new("example.com", "v1", "Shop");
        let watch = Watch { gvk, snake_case, ..Watch::default() };
        let object = json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a", "namespace": "b"}, "spec": spec});
        of(&crate::value::from_value(object).unwrap(), &watch, names, false)
    }

    #[test]
    fn fields_cannot_set_variables_of_ansible_or_the_operator() {
        let spec = json!({"ansibleConnection": "ssh", "ansible_ssh_common_args": "-o ProxyCommand=x", "AnsibleUser": "root",
            "vars": {"a": 1}, "hostvars": {}, "meta": {"namespace": "kube-system"}, "Meta": {}, "_example_com_shop": 1, "ａnsible_port": 1, "size": 2});
        for snake_case in [true, false] {
            let RunVariables { vars, rejected } = variables_of(&spec, &Names::default(), snake_case);
            assert_eq!(
                vars.keys().collect::<Vec<_>>(),
                ["_example_com_shop", "_example_com_shop_spec", "ansible_operator_meta", "meta", "size"]
            );
            assert_eq!(rejected.len(), 9, "{rejected:?}");
            let Var::Data(meta) = &vars["meta"] else { panic!("it is data") };
            assert_eq!(**meta, json!({"name": "a", "namespace": "b"}));
            let Var::Data(whole) = &vars["_example_com_shop_spec"] else { panic!("it is data") };
            assert_eq!(**whole, spec, "the whole spec stays accessible");
        }
    }

    #[test]
    fn exact_spelling_of_a_variable_takes_precedence() {
        let RunVariables { vars, rejected } =
            variables_of(&json!({"fooBar": 1, "foo_bar": 2, "barBaz": 3, "bar-baz": 4}), &Names::default(), true);
        let value = |name: &str| match &vars[name] {
            Var::Data(value) | Var::Template(value) => (**value).clone(),
        };
        assert_eq!((value("foo_bar"), value("bar_baz")), (json!(2), json!(4)));
        assert_eq!(
            rejected,
            [("barBaz".to_owned(), Reason::SecondSpelling), ("fooBar".to_owned(), Reason::SecondSpelling)]
        );
    }

    #[test]
    fn rejected_fields_are_listed_within_bounds() {
        assert_eq!(explain(&[]), None);
        let long = "a".repeat(10_000);
        let mut rejected = vec![("vars".to_owned(), Reason::Magic), ("x\n{{ y }}".to_owned(), Reason::NotAName)];
        rejected.extend((0..50).map(|number| (format!("{long}{number}"), Reason::Role)));
        let message = explain(&rejected).unwrap();
        assert!(message.contains("vars (reserved by Ansible)") && message.contains("x\\n{{ y }}"), "{message}");
        assert!(message.starts_with("52 fields of the spec are not passed"), "{message}");
        assert!(message.ends_with("; and 42 more") && message.len() < 2000, "{message}");
        let one = explain(&rejected[..1]).unwrap();
        assert!(one.starts_with("1 field of the spec is not passed") && !one.contains("more"), "{one}");
    }
}
