//! The manifests of a policy.

use super::{Declaration, Mutation};
use crate::webhook::ADMISSION;
use flyball_core::pointer;
use serde_json::{Value, json};

/// Match condition that excludes objects that are being deleted.
const NOT_BEING_DELETED: (&str, &str) = ("not-being-deleted", "!has(object.metadata.deletionTimestamp)");

impl Declaration {
    /// Creates the policies and their bindings.
    pub(crate) fn manifests(&self, operator: &str) -> Vec<Value> {
        let name = format!("{operator}-{}", self.scope.kind.resource());
        let object = |kind: &str, spec: Value| json!({"apiVersion": format!("{ADMISSION}/v1"), "kind": kind, "metadata": {"name": name}, "spec": spec});
        let mut manifests = Vec::new();
        if !self.mutations.is_empty() {
            let mutations: Vec<Value> = self.mutations.iter().map(Mutation::manifest).collect();
            // A webhook may change fields that a default depends on.
            let spec = self.spec(json!({"mutations": mutations, "reinvocationPolicy": "IfNeeded"}));
            manifests.push(object("MutatingAdmissionPolicy", spec));
            manifests.push(object("MutatingAdmissionPolicyBinding", json!({"policyName": name})));
        }
        if !self.rules.is_empty() {
            manifests.push(object("ValidatingAdmissionPolicy", self.spec(json!({"validations": self.rules}))));
            let binding = json!({"policyName": name, "validationActions": ["Deny"]});
            manifests.push(object("ValidatingAdmissionPolicyBinding", binding));
        }
        manifests
    }

    /// Adds the common fields of both kinds of policies to a `spec`.
    fn spec(&self, mut spec: Value) -> Value {
        let (name, expression) = NOT_BEING_DELETED;
        let mut conditions = Vec::new();
        if !self.while_deleting {
            conditions.push(json!({"name": name, "expression": expression}));
        }
        conditions.extend(self.scope.conditions.iter().map(|condition| json!(condition)));
        spec["matchConstraints"] = self.scope.constraints("resourceRules", &["CREATE", "UPDATE"]);
        if !conditions.is_empty() {
            spec["matchConditions"] = conditions.into();
        }
        spec["failurePolicy"] = self.scope.failure_policy().into();
        if !self.variables.is_empty() {
            spec["variables"] = json!(self.variables);
        }
        spec
    }
}

impl Mutation {
    fn manifest(&self) -> Value {
        match self {
            // Not as an apply configuration, which cannot set fields within atomic values, such as most lists of
            // custom resources.
            Self::Default { path, value } => {
                json!({"patchType": "JSONPatch", "jsonPatch": {"expression": default(&segments(path), value)}})
            }
            Self::ApplyConfiguration(expression) => {
                json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
            }
        }
    }
}

/// Splits a path such as `metadata.labels[example.com/tier]`.
fn segments(path: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    for (at, part) in path.split(']').enumerate() {
        let (names, key) = part.split_once('[').map_or((part, None), |(names, key)| (names, Some(key)));
        // After a key comes a dot or the end.
        let names = if at > 0 { names.strip_prefix('.').unwrap_or(names) } else { names };
        segments.extend(names.split('.').filter(|name| !name.is_empty()));
        segments.extend(key);
    }
    segments
}

/// Builds an expression for a JSON patch that sets a missing field.
fn default(path: &[&str], value: &str) -> String {
    // A JSON string is a valid CEL string.
    let text = |text: &str| Value::from(text).to_string();
    let (mut field, mut pointer, mut steps) = ("object".to_owned(), String::new(), Vec::new());
    for segment in path {
        field += &format!("[?{}]", text(segment));
        pointer += &format!("/{}", pointer::escape(segment));
        let made = if steps.len() + 1 == path.len() { value } else { "{}" };
        let add = format!("[JSONPatch{{op: \"add\", path: {}, value: {made}}}]", text(&pointer));
        steps.push(if steps.len() + 1 == path.len() { add } else { format!("({field}.hasValue() ? [] : {add})") });
    }
    format!("{field}.hasValue() ? [] : {}", steps.join(" + "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Policy, Rule};
    use k8s_openapi::api::core::v1::{ConfigMap, Node};

    #[test]
    fn path_is_split_into_segments() {
        let check = |path: &str, expected: &[&str]| assert_eq!(segments(path), expected, "{path}");
        check("spec", &["spec"]);
        check("spec.size", &["spec", "size"]);
        check("metadata.labels[example.com/tier]", &["metadata", "labels", "example.com/tier"]);
        check("a[b.c].d[e]", &["a", "b.c", "d", "e"]);
        check("", &[]);
        check(".a..b[", &["a", "b", ""]);
    }

    #[test]
    fn default_creates_missing_parents() {
        assert_eq!(
            default(&["data", "a/b"], "1"),
            "object[?\"data\"][?\"a/b\"].hasValue() ? [] : \
             (object[?\"data\"].hasValue() ? [] : [JSONPatch{op: \"add\", path: \"/data\", value: {}}]) + \
             [JSONPatch{op: \"add\", path: \"/data/a~1b\", value: 1}]"
        );
    }

    #[test]
    fn only_declared_manifests_are_generated() {
        let kinds = |declared: Declaration| {
            let kind = |manifest: &Value| format!("{} {}", manifest["kind"], manifest["metadata"]["name"]);
            declared.manifests("op").iter().map(kind).collect::<Vec<_>>()
        };
        assert!(kinds(Policy::<ConfigMap>::new().declared()).is_empty());
        assert_eq!(
            kinds(Policy::<Node>::new().validates(Rule::new("true", "never")).declared()),
            [r#""ValidatingAdmissionPolicy" "op-nodes""#, r#""ValidatingAdmissionPolicyBinding" "op-nodes""#]
        );
        let resources = |policy: Policy<Node>| {
            let manifests = policy.validates(Rule::new("true", "never")).declared().manifests("op");
            manifests[0]["spec"]["matchConstraints"]["resourceRules"][0]["resources"].clone()
        };
        assert_eq!(resources(Policy::new()), json!(["nodes"]));
        assert_eq!(resources(Policy::new().with_status()), json!(["nodes", "nodes/status"]));
        let conditions = |policy: Policy<Node>| {
            let manifests = policy.validates(Rule::new("true", "never")).declared().manifests("op");
            manifests[0]["spec"]["matchConditions"].clone()
        };
        let (name, expression) = NOT_BEING_DELETED;
        assert_eq!(conditions(Policy::new()), json!([{"name": name, "expression": expression}]));
        assert_eq!(conditions(Policy::new().while_deleting()), Value::Null);
        assert_eq!(
            kinds(Policy::<ConfigMap>::new().defaults("data.a", "'b'").declared()),
            [r#""MutatingAdmissionPolicy" "op-configmaps""#, r#""MutatingAdmissionPolicyBinding" "op-configmaps""#]
        );
    }
}
