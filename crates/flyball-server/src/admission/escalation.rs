//! Escalation check: users cannot grant permissions that they do not have.
//!
//! See
//! <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>.

use super::{Attributes, Plugin, PluginResult, decided, pass};
use crate::auth::{self, Action, ActionTarget, Authorizer, MissingRules, Rule};
use crate::kinds::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind, ROLE, ROLE_BINDING};
use flyball_core::{Object, Status};
use serde_json::Value;
use std::sync::Arc;

pub(super) static KINDS: [&Kind; 4] = [&ROLE, &CLUSTER_ROLE, &ROLE_BINDING, &CLUSTER_ROLE_BINDING];

/// Rejects roles and bindings with permissions that the client does not have.
pub(super) struct EscalationCheck {
    authorizer: Arc<Authorizer>,
}

impl EscalationCheck {
    pub(super) fn new(authorizer: Arc<Authorizer>) -> Self {
        Self { authorizer }
    }
}

impl Plugin for EscalationCheck {
    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, object: Option<&'a Object>) -> PluginResult<'a> {
        object.map_or_else(pass, |object| decided(check(&self.authorizer, attributes, object, attributes.old)))
    }
}

fn check(
    authorizer: &Authorizer,
    attributes: &Attributes<'_>,
    object: &Object,
    old: Option<&Object>,
) -> Result<(), Status> {
    let (rules, verb, on): (Arc<[Rule]>, &str, (&str, &str)) = match attributes.is(&ROLE)
        || attributes.is(&CLUSTER_ROLE)
    {
        true => {
            if old.is_some_and(|old| {
                old.get("rules") == object.get("rules") && old.get("aggregationRule") == object.get("aggregationRule")
            }) {
                return Ok(());
            }
            let mut rules: Vec<Rule> =
                object.get("rules").and_then(Value::as_array).into_iter().flatten().map(Rule::read).collect();
            if object.get("aggregationRule").is_some_and(|rule| !rule.is_null()) {
                // An aggregating role may get any permissions from labeled roles.
                let all = || vec!["*".to_owned()];
                rules = vec![
                    Rule { groups: all(), resources: all(), verbs: all(), ..Rule::default() },
                    Rule { paths: all(), verbs: all(), ..Rule::default() },
                ];
            }
            (rules.into(), "escalate", (&attributes.resource.plural, object.name()))
        }
        false => {
            if old.is_some_and(|old| {
                old.get("subjects") == object.get("subjects") && old.get("roleRef") == object.get("roleRef")
            }) {
                return Ok(());
            }
            let text = |field: &str| object.at(&["roleRef", field]).and_then(Value::as_str).unwrap_or_default();
            let (kind, name) = (text("kind"), text("name"));
            let (role, namespace) = if kind == ROLE.kind { (&ROLE, object.namespace()) } else { (&CLUSTER_ROLE, None) };
            if allowed(authorizer, attributes, "bind", role.plural, name) || is_admin(authorizer, attributes) {
                return Ok(());
            }
            let Some(rules) = authorizer.rules_of_role(namespace, name) else {
                return Err(Status::not_found(&attributes.resource.group_resource(), name));
            };
            (rules, "bind", (role.plural, name))
        }
    };
    if allowed(authorizer, attributes, verb, on.0, on.1) {
        return Ok(());
    }
    let roles = authorizer.roles_of(attributes.user, attributes.namespace.unwrap_or_default());
    let held_rules: Vec<&Rule> = roles.iter().flat_map(|role| role.iter()).collect();
    let missing = match auth::missing(&rules, &held_rules) {
        MissingRules::Nothing => return Ok(()),
        MissingRules::Rules(lines) => format!(" not currently held:\n{}", lines.join("\n")),
        MissingRules::TooMany => ": there are too many to compare with those currently held".to_owned(),
    };
    let user = attributes.user;
    let groups: Vec<String> = user.groups.iter().map(|group| flyball_core::field::go_quote(group)).collect();
    let why = format!(
        "user {} (groups=[{}]) is attempting to grant RBAC permissions{missing}",
        flyball_core::field::go_quote(&user.name),
        groups.join(" "),
    );
    Err(Status::forbidden(&attributes.resource.group_resource(), object.name(), why))
}

fn allowed(authorizer: &Authorizer, attributes: &Attributes<'_>, verb: &str, resource: &str, name: &str) -> bool {
    let on = ActionTarget::Resource {
        group: ROLE.group,
        resource,
        subresource: "",
        namespace: attributes.namespace.unwrap_or_default(),
        name,
    };
    authorizer.authorize(&Action { user: attributes.user, verb, on }).is_ok()
}

/// Returns true if the user has all permissions, including those of a role that does not exist.
fn is_admin(authorizer: &Authorizer, attributes: &Attributes<'_>) -> bool {
    let on = ActionTarget::Resource { group: "*", resource: "*", subresource: "", namespace: "", name: "" };
    authorizer.authorize(&Action { user: attributes.user, verb: "*", on }).is_ok()
}
