//! Resource quotas: limits for the usage of a namespace, with scopes.

use super::GROUP;
use crate::kinds::display::internal;
use crate::kinds::field::{Errors, Field, IMMUTABLE};
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::rules::resource;
use crate::kinds::subresource::{Part, Subresource as Sub};
use crate::kinds::usage;
use flyball_core::Object;
use flyball_core::status::MAX_CAUSES;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ResourceQuota", "resourcequotas")
    .printed(COLUMNS, row)
    .quota_usage(usage::counted)
    .validate(validate)
    .short(&["quota"])
    .subresources(&[Sub::STATUS])
    .deleted_as_object();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Request", "Request represents a minimum amount of cpu/memory that a container may consume."),
    Heading::text(
        "Limit",
        "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the \
         node.",
    ),
    Heading::AGE,
];

fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    if part == Part::Status {
        let status = root.at("status");
        return ["hard", "used"].iter().flat_map(|field| amounts(&status.at(field))).collect();
    }
    let spec = root.at("spec");
    let hard = spec.at("hard");
    let mut errors = amounts(&hard);
    let limited: Vec<&str> =
        hard.entries().map(|(name, _)| name).filter(|name| resource::is_for_quotas(name)).collect();
    let scopes = spec.at("scopes");
    let mut named: Vec<&str> = Vec::new();
    for scope in scopes.texts() {
        named.push(scope);
        // Each error contains all scopes.
        if errors.len() > MAX_CAUSES {
            continue;
        }
        if !SCOPES.contains(&scope) {
            errors.push(scopes.invalid("unsupported scope"));
        }
        errors.extend(
            limited
                .iter()
                .filter(|name| !scoped(scope, name))
                .map(|_| scopes.invalid("unsupported scope applied to resource"))
                .take(MAX_CAUSES),
        );
    }
    let conflicts = |named: &[&str]| {
        let pairs = [["BestEffort", "NotBestEffort"], ["NotTerminating", "Terminating"]];
        pairs.iter().filter(|pair| pair.iter().all(|scope| named.contains(scope))).count()
    };
    errors.extend((0..conflicts(&named)).map(|_| scopes.invalid("conflicting scopes")));
    let selector = spec.at("scopeSelector");
    let expressions = selector.at("matchExpressions");
    let mut named: Vec<&str> = Vec::new();
    for requirement in expressions.list() {
        let text = |field: &str| requirement[field].as_str().unwrap_or_default();
        let (scope, operator) = (text("scopeName"), text("operator"));
        named.push(scope);
        if errors.len() > MAX_CAUSES {
            continue;
        }
        let values = requirement["values"].as_array().map_or(0, Vec::len);
        if !SCOPES.contains(&scope) {
            errors.push(expressions.at("scopeName").invalid_as(scope, "unsupported scope"));
        }
        let unscoped = limited.iter().filter(|name| !scoped(scope, name));
        errors.extend(
            unscoped
                .map(|_| {
                    expressions.invalid_as(
                        internal("ScopeSelector", selector.value()),
                        "unsupported scope applied to resource",
                    )
                })
                .take(MAX_CAUSES),
        );
        let at = expressions.at("operator");
        if !matches!(scope, "PriorityClass" | "VolumeAttributesClass")
            && SCOPES.contains(&scope)
            && operator != "Exists"
        {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(at.invalid_as(operator, why));
        }
        match operator {
            "In" | "NotIn" if values == 0 => {
                errors.push(
                    expressions
                        .at("values")
                        .required("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"),
                );
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(expressions.at("values").invalid_as(requirement["values"].clone(), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(at.invalid_as(operator, "not a valid selector operator")),
        }
    }
    errors.extend((0..conflicts(&named)).map(|_| scopes.invalid("conflicting scopes")));
    if let Some(old) = old {
        let set = |object: &Object| {
            let scopes = object.at(&["spec", "scopes"]).and_then(Value::as_array).into_iter().flatten();
            let mut scopes: Vec<String> = scopes.filter_map(Value::as_str).map(str::to_owned).collect();
            scopes.sort();
            scopes.dedup();
            scopes
        };
        if set(object) != set(old) {
            errors.push(scopes.invalid(IMMUTABLE));
        }
    }
    errors
}

const COMPUTED: &[&str] = &["cpu", "limits.cpu", "limits.memory", "memory", "pods", "requests.cpu", "requests.memory"];

const SCOPES: &[&str] = &[
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

/// Returns true if a scope can restrict a resource.
fn scoped(scope: &str, name: &str) -> bool {
    match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        scope if SCOPES.contains(&scope) => COMPUTED.contains(&name),
        _ => true,
    }
}

fn amounts(field: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    for (name, amount) in field.entries() {
        errors.extend(resource::quota_name(&amount, name));
        errors.extend(resource::amount_for(&amount, name));
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let mut hard: Vec<_> = view.at("status.hard").as_object().into_iter().flatten().collect();
    hard.sort_by_key(|(name, _)| name.as_str());
    let used = view.at("status.used");
    for (name, hard) in hard {
        let used = used.get(name).and_then(Value::as_str).unwrap_or("0");
        let shown = format!("{name}: {used}/{}", hard.as_str().unwrap_or_default());
        if name.starts_with("limits.") { limits.push(shown) } else { requests.push(shown) }
    }
    Row::from([view.name(), requests.join(", ").into(), limits.join(", ").into(), view.age()])
}
