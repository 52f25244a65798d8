//! Literals in the arguments of a task: the kinds of objects, and token Secrets.
//!
//! Strings with a template do not count, nor does the output of templates, files and variables, since users may have
//! written a part of it.

use crate::template::is_template;
use crate::value::{Map, Value};
use crate::vault::Vault;
use crate::yaml;
use flyball::Kind;
use flyball_core::scope::CLUSTER_SCOPED;
use std::collections::BTreeSet;

/// Arguments with the API version of a kind.
pub(super) const VERSION: [&str; 3] = ["api_version", "api", "version"];

/// Nesting limit of definitions that are searched.
const MAX_DEPTH: usize = 8;

/// The type of Secrets that hold a service account token.
pub(crate) const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// The literals of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Literals {
    /// Groups and names of kinds.
    pub(crate) kinds: BTreeSet<(String, String)>,
    /// True if a definition is literally a service account token.
    pub(crate) tokens: bool,
}

impl Literals {
    /// Finds the literals in the arguments of a module that creates objects.
    pub(crate) fn of(arguments: &Map) -> Self {
        let mut found = Self::default();
        let version = VERSION.iter().find_map(|name| arguments.get(*name)).map_or(Some("v1"), literal);
        let kind = arguments.get("kind").and_then(literal);
        found.record_kind(version, kind);
        for argument in ["definition", "resource_definition", "inline"] {
            if let Some(definition) = arguments.get(argument) {
                found.search(definition, version, kind, 0);
            }
        }
        found
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.kinds.extend(other.kinds);
        self.tokens |= other.tokens;
    }

    fn record_kind(&mut self, version: Option<&str>, kind: Option<&str>) {
        if let Some(kind) = version.zip(kind).and_then(|(version, kind)| kind_of(version, kind)) {
            self.kinds.insert((kind.gvk().group.to_string(), kind.gvk().kind.to_string()));
        }
    }

    fn search(&mut self, definition: &Value, version: Option<&str>, kind: Option<&str>, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match definition {
            Value::Array(items) => items.iter().for_each(|item| self.search(item, version, kind, depth + 1)),
            Value::Object(fields) => {
                let or = |field: &str, beside| fields.get(field).map_or(beside, literal);
                match (or("apiVersion", version), or("kind", kind)) {
                    (_, Some("List")) => {
                        fields.get("items").into_iter().for_each(|items| self.search(items, version, kind, depth + 1));
                    }
                    (version, kind) => {
                        self.record_kind(version, kind);
                        self.tokens |= fields.get("type").is_some_and(|kind| kind == SERVICE_ACCOUNT_TOKEN);
                    }
                }
            }
            Value::String(text) if !is_template(text) => {
                let documents = yaml::documents(text, &Vault::default()).unwrap_or_default();
                documents.iter().for_each(|document| self.search(document, version, kind, depth + 1));
            }
            _ => {}
        }
    }
}

fn literal(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !is_template(text))
}

/// Returns the kind of an object.
pub(crate) fn kind_of(api_version: &str, kind: &str) -> Option<Kind> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let is_name =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-');
    if !is_name(version) || !is_name(kind) || !(group.is_empty() || is_name(group)) {
        return None;
    }
    let found = Kind::new(group, version, kind);
    Some(if CLUSTER_SCOPED.contains(&(group, kind)) { found.cluster_scoped() } else { found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json;

    #[test]
    fn only_literal_kinds_in_parameters_count() {
        let check = |arguments: Value, expected: &[(&str, &str)]| {
            let found = Literals::of(arguments.as_object().unwrap());
            let expected = expected.iter().map(|(group, kind)| ((*group).to_owned(), (*kind).to_owned())).collect();
            assert_eq!(found.kinds, expected, "{arguments}");
        };
        let rbac = "rbac.authorization.k8s.io";
        let role =
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "{{ x }}"}});
        check(json!({"definition": role}), &[(rbac, "Role")]);
        check(json!({"resource_definition": [role, {"kind": "Namespace"}]}), &[(rbac, "Role"), ("", "Namespace")]);
        check(json!({"inline": {"kind": "List", "items": [role]}}), &[(rbac, "Role")]);
        check(json!({"api_version": "apps/v1", "kind": "Deployment", "name": "{{ x }}"}), &[("apps", "Deployment")]);
        check(json!({"kind": "Pod", "definition": "{{ x }}"}), &[("", "Pod")]);
        check(json!({"definition": "kind: Pod\n---\nkind: Node\n"}), &[("", "Node"), ("", "Pod")]);
        check(json!({"definition": "kind: Pod\nmetadata: {name: '{{ x }}'}\n"}), &[]);
        check(json!({"definition": "{{ lookup('template', 'x.j2') }}"}), &[]);
        check(json!({"definition": {"apiVersion": "{{ x }}", "kind": "Pod"}}), &[]);
        check(json!({"definition": {"apiVersion": "v1", "kind": "{{ x }}"}, "src": "x.yml"}), &[]);
        check(json!({"definition": {"kind": "List", "items": "{{ x }}"}}), &[]);
    }
}
