//! Matching of requests with the rules of webhooks and policies.
//!
//! See
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-rules>.

use super::{Attributes, Environment, Operation};
use crate::catalog::Resource;
use crate::kinds::{NAMESPACE, Part};
use flyball_core::{LabelSelector, Object, ObjectKey, Status};
use serde_json::Value;
use std::sync::Arc;

/// A rule: operations on resources of groups and versions, `*` for any.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: Option<Scope>,
    /// Names of matched objects; empty for all.
    names: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Namespaced,
    Cluster,
}

/// The requests that a webhook or a policy applies to.
#[derive(Clone, Debug)]
pub(super) struct Constraints {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    equivalent: bool,
    namespaces: LabelSelector,
    objects: LabelSelector,
}

impl Rule {
    fn read(rule: &Value) -> Self {
        let texts = |field: &str| {
            let items = rule[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: match rule["scope"].as_str() {
                Some("Namespaced") => Some(Scope::Namespaced),
                Some("Cluster") => Some(Scope::Cluster),
                _ => None,
            },
            names: texts("resourceNames"),
        }
    }

    fn covers(&self, attributes: &Attributes<'_>, resource: &Resource) -> bool {
        let any = |items: &[String], expected: &str| items.iter().any(|item| item == "*" || item == expected);
        let named = |item: &String| {
            let (name, sub) = item.split_once('/').unwrap_or((item, ""));
            (name == "*" || *name == *resource.plural) && (sub == "*" || sub == attributes.subresource)
        };
        // Namespaces are cluster-scoped, though their requests have their name as namespace.
        let in_namespace = !attributes.namespace_name().is_empty() && !attributes.is(&NAMESPACE);
        let scoped = match self.scope {
            None => true,
            Some(Scope::Namespaced) => in_namespace,
            Some(Scope::Cluster) => !in_namespace,
        };
        scoped
            && any(&self.operations, attributes.operation.name())
            && any(&self.groups, &resource.kind.group)
            && any(&self.versions, &resource.kind.version)
            && self.resources.iter().any(named)
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name))
    }
}

impl Constraints {
    /// Reads a webhook's constraints.
    pub(super) fn of_webhook(webhook: &Value) -> Self {
        Self::read(webhook, "rules")
    }

    /// Reads the `matchConstraints` of a policy, or the `matchResources` of a binding.
    pub(super) fn of_policy(constraints: &Value) -> Self {
        Self::read(constraints, "resourceRules")
    }

    fn read(from: &Value, rules: &str) -> Self {
        let list = |field: &str| from[field].as_array().into_iter().flatten().map(Rule::read).collect();
        Self {
            rules: list(rules),
            excluded: list("excludeResourceRules"),
            equivalent: from["matchPolicy"] != "Exact",
            namespaces: LabelSelector::from_value(&from["namespaceSelector"]),
            objects: LabelSelector::from_value(&from["objectSelector"]),
        }
    }

    /// Returns true if a rule names a resource, in any group: versions of a resource can be in several groups.
    pub(super) fn may_match(&self, plural: &str) -> bool {
        let resources = self.rules.iter().flat_map(|rule| &rule.resources);
        let mut names = resources.map(|item| item.split_once('/').map_or(&**item, |(name, _)| name));
        names.any(|name| name == "*" || name == plural)
    }

    /// Returns true if a binding matches a request that its policy matches: without rules, only its selectors apply.
    pub(super) fn covers(
        &self,
        env: &Environment,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<bool, Status> {
        if !self.rules.is_empty() {
            return Ok(self.find(env, attributes, object, old)?.is_some());
        }
        let excluded = self.excluded.iter().any(|rule| self.version_for(rule, env, attributes).is_some());
        Ok(!excluded && self.selects_object(object, old) && self.selects_namespace(env, attributes, object)?)
    }

    fn selects_object(&self, object: Option<&Object>, old: Option<&Object>) -> bool {
        // Options of a connection have no metadata, so no selector matches them.
        let selects = |object: Option<&Object>| {
            object.is_some_and(|it| it.metadata().is_some() && self.objects.matches(|label| it.label(label)))
        };
        self.objects.is_empty() || selects(object) || selects(old)
    }

    /// Finds the version in which a request is reviewed; `None` if it does not match.
    pub(super) fn find(
        &self,
        env: &Environment,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<Option<Arc<Resource>>, Status> {
        let namespace = self.selects_namespace(env, attributes, object);
        if matches!(namespace, Ok(false)) {
            return Ok(None);
        }
        if !self.selects_object(object, old) {
            return Ok(None);
        }
        if self.excluded.iter().any(|rule| self.version_for(rule, env, attributes).is_some()) {
            return Ok(None);
        }
        let own = self.rules.iter().any(|rule| rule.covers(attributes, attributes.resource));
        let found = if own {
            Some(attributes.resource.clone())
        } else {
            self.rules.iter().find_map(|rule| self.version_for(rule, env, attributes))
        };
        // A missing namespace is an error only if a selector needs it.
        if found.is_some() {
            namespace?;
        }
        Ok(found)
    }

    /// Finds the first version of the resource that a rule covers.
    fn version_for(&self, rule: &Rule, env: &Environment, attributes: &Attributes<'_>) -> Option<Arc<Resource>> {
        if rule.covers(attributes, attributes.resource) {
            return Some(attributes.resource.clone());
        }
        if !self.equivalent {
            return None;
        }
        let catalog = env.codec.catalog();
        let same = |other: &&Arc<Resource>| {
            other.table == attributes.resource.table && other.is_served() && other.kind != attributes.resource.kind
        };
        catalog.resources().filter(same).find(|other| rule.covers(attributes, other)).cloned()
    }

    /// Returns true if the namespace of the request is selected; cluster-scoped objects always match.
    fn selects_namespace(
        &self,
        env: &Environment,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
    ) -> Result<bool, Status> {
        let name = attributes.namespace_name();
        let is_namespace = attributes.is(&NAMESPACE);
        if name.is_empty() && !is_namespace || self.namespaces.is_empty() {
            return Ok(true);
        }
        if is_namespace && attributes.part == Part::Whole && attributes.operation != Operation::Delete {
            return Ok(object.is_some_and(|it| self.namespaces.matches(|label| it.label(label))));
        }
        let table = NAMESPACE.table();
        match env.store.get(&table, &ObjectKey::new(None, name)) {
            Some(entry) => Ok(self.namespaces.matches(|label| entry.facts.label(label))),
            None => Err(Status::not_found(&table, name)),
        }
    }
}
