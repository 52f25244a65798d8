//! Permissions of roles, one by one, and the comparison of those that are granted with those that are needed.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// Stands for all groups, resources or verbs.
const ALL: &str = "*";

/// A verb on a resource, or on one object of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Permission {
    /// The namespace that it is limited to.
    namespace: Option<String>,
    group: String,
    resource: String,
    verb: String,
    /// The object that it is limited to.
    name: Option<String>,
}

impl Permission {
    /// Returns the permissions of a role, in a namespace or in all.
    pub(crate) fn of_role<'v>(role: &'v Value, namespace: Option<&'v str>) -> BTreeSet<Self> {
        let mut all = BTreeSet::new();
        for rule in role["rules"].as_array().into_iter().flatten() {
            let names = texts(&rule["resourceNames"]);
            let names: Vec<Option<&str>> =
                if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        all.extend(names.iter().map(|name| Self {
                            namespace: namespace.map(str::to_owned),
                            group: group.to_owned(),
                            resource: resource.to_owned(),
                            verb: verb.to_owned(),
                            name: name.map(str::to_owned),
                        }));
                    }
                }
            }
        }
        all
    }

    /// Returns the requests that it permits, without limits, such as `list pods`.
    pub(crate) fn request(&self) -> String {
        Self { namespace: None, name: None, ..self.clone() }.to_string()
    }

    /// Returns true if this permission includes the other one.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let limit = |own: &Option<String>, other: &Option<String>| own.is_none() || own == other;
        let part = |own: &str, other: &str| own == ALL || own == other;
        // `*/scale` is the subresource of all resources.
        let is_subresource = || {
            let own = self.resource.strip_prefix("*/");
            own.is_some() && own == other.resource.split_once('/').map(|(_, subresource)| subresource)
        };
        part(&self.group, &other.group)
            && (part(&self.resource, &other.resource) || is_subresource())
            && part(&self.verb, &other.verb)
            && limit(&self.namespace, &other.namespace)
            && limit(&self.name, &other.name)
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{} {}{dot}{}", self.verb, self.resource, self.group)?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Differences between granted and needed permissions.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Comparison {
    /// Needed permissions that no granted one covers.
    pub(crate) missing: Vec<Permission>,
    /// Granted permissions that cover no needed one.
    pub(crate) unused: Vec<Permission>,
    /// Granted permissions that cover more than the needed ones: those with `*`.
    pub(crate) wide: Vec<Permission>,
}

impl Comparison {
    pub(crate) fn of(granted: &BTreeSet<Permission>, needed: &BTreeSet<Permission>) -> Self {
        let mut found = Self::default();
        for one in needed.iter().filter(|needed| !granted.iter().any(|granted| granted.covers(needed))) {
            found.missing.push(one.clone());
        }
        for one in granted {
            match needed.iter().any(|needed| one.covers(needed)) {
                false => found.unused.push(one.clone()),
                true if [&one.group, &one.resource, &one.verb].iter().any(|part| part.contains(ALL)) => {
                    found.wide.push(one.clone());
                }
                true => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn permissions(rules: &Value, namespace: Option<&str>) -> BTreeSet<Permission> {
        Permission::of_role(&json!({"rules": rules}), namespace)
    }

    #[test]
    fn missing_unused_and_wide_permissions_are_found() {
        let rule = |group: &str, resource: &str, verbs: Value| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        let mut named = rule("", "secrets", json!(["get"]));
        named["resourceNames"] = json!(["a", "b"]);
        let needed = permissions(
            &json!([
                rule("apps", "deployments", json!(["get", "list"])),
                named,
                rule("apps", "deployments/scale", json!(["get"]))
            ]),
            None,
        );
        let granted = |rules: Value| {
            let found = Comparison::of(&permissions(&rules, None), &needed);
            let texts = |all: Vec<Permission>| all.iter().map(ToString::to_string).collect::<Vec<_>>();
            (texts(found.missing), texts(found.unused), texts(found.wide))
        };
        let (missing, unused, wide) = granted(json!([
            rule("apps", "deployments", json!(["get", "delete"])),
            rule("", "secrets", json!(["get"])),
            rule("apps", "*/scale", json!(["*"])),
        ]));
        assert_eq!(missing, ["list deployments.apps"]);
        assert_eq!(unused, ["delete deployments.apps"]);
        assert_eq!(wide, ["* */scale.apps"]);
        let (missing, unused, wide) = granted(json!([rule("*", "*", json!(["*"]))]));
        assert!(missing.is_empty() && unused.is_empty());
        assert_eq!(wide, ["* *.*"]);
        // A permission in one namespace does not cover one in all.
        let there = permissions(&json!([rule("apps", "deployments", json!(["get"]))]), Some("a"));
        let all = permissions(&json!([rule("apps", "deployments", json!(["get"]))]), None);
        assert_eq!(Comparison::of(&there, &all).missing.len(), 1);
        assert_eq!(Comparison::of(&all, &there), Comparison::default());
        assert_eq!(
            Comparison::of(&BTreeSet::new(), &there).missing[0].to_string(),
            "get deployments.apps in namespace a"
        );
    }
}
