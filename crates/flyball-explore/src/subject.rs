//! The operator that is explored: in this process, or as a process of its own.

use crate::process::OperatorCommand;
use flyball::Operator;
use flyball_core::GroupResource;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;
use std::sync::Arc;

/// Constructor of the operator, called at each start.
pub(crate) type Make = dyn Fn() -> Operator + Send + Sync;

/// The operator under exploration.
#[derive(Clone)]
pub(crate) enum Subject {
    /// An operator in this process, by its constructor.
    Operator(Arc<Make>),
    /// A child process.
    Process(Box<OperatorCommand>),
}

impl Subject {
    /// Returns the name of the operator.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Operator(make) => make().describe().name,
            Self::Process(command) => command.name.clone(),
        }
    }

    /// Returns the objects that install the operator.
    pub(crate) fn manifests(&self, namespace: &str) -> Vec<Value> {
        match self {
            Self::Operator(make) => make().namespace(namespace).manifests(),
            Self::Process(command) => command.manifests.clone(),
        }
    }

    /// Returns the resources that the operator may write, as far as its roles name them.
    pub(crate) fn resources(&self) -> Vec<GroupResource> {
        let rules: Vec<PolicyRule> = match self {
            Self::Operator(make) => make().rules(),
            Self::Process(command) => {
                let rules = command.manifests.iter().filter_map(|object| object["rules"].as_array()).flatten();
                rules.filter_map(|rule| serde_json::from_value(rule.clone()).ok()).collect()
            }
        };
        let of_rule = |rule: &PolicyRule| {
            let names = rule.resources.clone().unwrap_or_default();
            let groups = rule.api_groups.clone().unwrap_or_default();
            let pairs = groups
                .into_iter()
                .flat_map(move |group| names.clone().into_iter().map(move |name| (group.clone(), name)));
            pairs
                .filter(|(_, name)| !name.contains('/'))
                .map(|(group, name)| GroupResource::new(&group, &name))
                .collect::<Vec<_>>()
        };
        rules.iter().flat_map(of_rule).collect()
    }

    /// Returns true if something in manifests may depend on events: a role that allows to read them, a webhook or a
    /// policy for them, or a binding of a role that is not in the manifests.
    pub(crate) fn depends_on_events(manifests: &[Value]) -> bool {
        let is_role =
            |object: &Value, role: &Value| object["kind"] == role["kind"] && object["metadata"]["name"] == role["name"];
        manifests.iter().any(|object| {
            let role = &object["roleRef"];
            let is_unknown = !role.is_null() && !manifests.iter().any(|known| is_role(known, role));
            is_unknown || concerns_events(object)
        })
    }

    /// Returns the command of a child process.
    pub(crate) fn process(&self) -> Option<&OperatorCommand> {
        match self {
            Self::Operator(_) => None,
            Self::Process(command) => Some(command),
        }
    }
}

/// Returns true if a value contains a rule for events, other than one that only allows to write them.
fn concerns_events(value: &Value) -> bool {
    const ALL: [&str; 3] = ["*", "*/*", "events"];
    let names = |field: &Value, names: &[&str]| {
        let mut items = field.as_array().into_iter().flatten().filter_map(Value::as_str);
        items.any(|item| names.contains(&item))
    };
    match value {
        Value::Object(fields) => {
            let reads = fields.get("verbs").is_none_or(|verbs| names(verbs, &["get", "list", "watch", "*"]));
            let is_rule = reads && fields.get("resources").is_some_and(|resources| names(resources, &ALL));
            is_rule || fields.values().any(concerns_events)
        }
        Value::Array(items) => items.iter().any(concerns_events),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn readers_and_webhooks_of_events_depend_on_them() {
        let role = |rule: Value| json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [rule]});
        let check = |manifests: &[Value], expected| {
            assert_eq!(Subject::depends_on_events(manifests), expected, "{manifests:?}");
        };
        check(&[role(json!({"resources": ["events"], "verbs": ["create", "patch"]}))], false);
        check(&[role(json!({"resources": ["pods", "events"], "verbs": ["create", "watch"]}))], true);
        check(&[role(json!({"resources": ["*"], "verbs": ["*"]}))], true);
        check(&[role(json!({"resources": ["pods"], "verbs": ["*"]}))], false);
        let webhook = |resource: &str| {
            let rule = json!({"operations": ["CREATE"], "resources": [resource]});
            json!({"kind": "ValidatingWebhookConfiguration", "webhooks": [{"rules": [rule]}]})
        };
        check(&[webhook("sites")], false);
        check(&[webhook("*/*")], true);
        let binding = json!({"kind": "ClusterRoleBinding", "roleRef": {"kind": "ClusterRole", "name": "r"}});
        check(&[role(json!({})), binding.clone()], false);
        check(&[binding], true);
    }
}
