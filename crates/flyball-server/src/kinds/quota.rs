//! Limits of what a namespace may use.

use super::Part;
use super::field::{Field, IMMUTABLE};
use super::rules::resource;
use super::shown::internal;
use flyball_core::field::FieldError;
use flyball_core::names::qualified_name;
use flyball_core::status::MAX_CAUSES;
use flyball_core::{Object, Quantity};
use serde_json::Value;
use std::collections::BTreeSet;

type Errors = Vec<FieldError>;

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

/// Returns whether a scope has a say in how much of a resource is used.
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

pub(super) fn resource_quota(object: &Object, old: Option<&Object>, part: Part) -> Errors {
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
        // Each error shows all scopes.
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

pub(super) fn limit_range(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let limits = spec.at("limits");
    let mut errors = Errors::new();
    let mut types: BTreeSet<String> = BTreeSet::new();
    for limit in limits.items() {
        let ty = limit.at("type");
        let wrong = ty.obeys(qualified_name);
        if wrong.is_empty()
            && !ty.text().contains('/')
            && !matches!(ty.text(), "Pod" | "Container" | "PersistentVolumeClaim")
        {
            errors.push(ty.invalid("must be a standard limit type or fully qualified"));
        }
        errors.extend(wrong);
        if types.contains(ty.text()) {
            errors.push(ty.duplicate());
        }
        types.insert(ty.text().to_owned());
        errors.extend(limit_item(&limit, ty.text()));
    }
    errors
}

const BOUNDS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

fn limit_item(limit: &Field<'_>, ty: &str) -> Errors {
    let mut errors = Errors::new();
    let rule = if matches!(ty, "Pod" | "Container") { resource::container_name } else { resource::name };
    let mut names: Vec<String> = Vec::new();
    for bound in BOUNDS {
        if bound == "maxLimitRequestRatio" && ty == "PersistentVolumeClaim" {
            let given = ["min", "max"].iter().any(|bound| limit.at(bound).key("storage").is_set());
            if !given {
                errors.push(
                    limit
                        .at("limits")
                        .required("either minimum or maximum storage value is required, but neither was provided"),
                );
            }
        }
        let field = limit.at(bound);
        if ty == "Pod" && bound.starts_with("default") {
            if !field.is_empty() {
                errors.push(field.forbidden("may not be specified when `type` is 'Pod'"));
            }
            continue;
        }
        for (name, amount) in field.entries() {
            errors.extend(rule(&amount, name));
            names.push(name.to_owned());
        }
    }
    names.sort();
    names.dedup();
    for name in &names {
        errors.extend(bounds(limit, name, ty == "Pod"));
    }
    errors
}

/// The bounds of one resource must leave something between them.
fn bounds(limit: &Field<'_>, name: &str, of_pods: bool) -> Errors {
    let mut errors = Errors::new();
    let [max, min, default, request, ratio] = BOUNDS.map(|bound| {
        let amount = limit.value().get(bound).and_then(|amounts| amounts.get(name));
        let text = amount.and_then(Value::as_str).unwrap_or_default().to_owned();
        let amount = amount.and_then(resource::amount_of).filter(|_| !of_pods || !bound.starts_with("default"));
        amount.map(|amount| (amount, text))
    });
    let mut wrong = |bound: &str, shown: &str, why: String| {
        let field = limit.at(bound);
        errors.push(field.key(name).invalid_as(shown, why));
    };
    type Bound = Option<(Quantity, String)>;
    let over = |low: &Bound, high: &Bound| match (low, high) {
        (Some((low, a)), Some((high, b))) if low > high => Some((a.clone(), b.clone())),
        _ => None,
    };
    if let Some((low, high)) = over(&min, &max) {
        wrong("min", &low, format!("min value {low} is greater than max value {high}"));
    }
    if let Some((low, high)) = over(&min, &request) {
        wrong("defaultRequest", &high, format!("min value {low} is greater than default request value {high}"));
    }
    if let Some((low, high)) = over(&request, &max) {
        wrong("defaultRequest", &low, format!("default request value {low} is greater than max value {high}"));
    }
    if let Some((low, high)) = over(&request, &default) {
        wrong(
            "defaultRequest",
            &low,
            format!("default request value {low} is greater than default limit value {high}"),
        );
    }
    if let Some((low, high)) = over(&min, &default) {
        wrong("default", &low, format!("min value {low} is greater than default value {high}"));
    }
    if let Some((low, high)) = over(&default, &max) {
        wrong("default", &high, format!("default value {low} is greater than max value {high}"));
    }
    if let Some((amount, text)) = &ratio {
        if *amount < Quantity::from_integer(1) {
            wrong("maxLimitRequestRatio", text, format!("ratio {text} is less than 1"));
        }
        if let (Some((min, _)), Some((max, _))) = (&min, &max) {
            #[expect(clippy::cast_precision_loss, reason = "the real server works it out so")]
            let (most, given) =
                (max.milli_value() as f64 / min.milli_value() as f64, amount.milli_value() as f64 / 1000.0);
            if given > most {
                wrong("maxLimitRequestRatio", text, format!("ratio {text} is greater than max/min = {most:.6}"));
            }
        }
    }
    if let (false, Some((limit, a)), Some((asked, b))) = (resource::may_overcommit(name), &default, &request)
        && limit != asked
    {
        wrong("defaultRequest", b, format!("default value {a} must equal to defaultRequest value {b} in {name}"));
    }
    errors
}
