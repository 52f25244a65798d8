//! Limit ranges: defaults and limits for requests of pods and claims in a namespace.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::rules::resource;
use crate::kinds::subresource::Part;
use flyball_core::names::qualified_name;
use flyball_core::{Object, Quantity};
use serde_json::Value;
use std::collections::BTreeSet;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "LimitRange", "limitranges")
    .default(default)
    .validate(validate)
    .short(&["limits"])
    .create_on_update();

fn default(range: &mut Object) {
    for limit in range.inner_or_new("spec").each("limits").filter(|limit| limit.text("type") == "Container") {
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let amounts = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
            for (name, amount) in amounts {
                limit.inner_or_new(to).entry(name).or_insert(amount);
            }
        }
    }
}

fn validate(object: &Object, _: Option<&Object>, _: Part) -> Errors {
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
            let has_bound = ["min", "max"].iter().any(|bound| limit.at(bound).key("storage").is_set());
            if !has_bound {
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

/// Validates that the limits of a resource are consistent.
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
    if let (false, Some((limit, a)), Some((request_amount, b))) = (resource::may_overcommit(name), &default, &request)
        && limit != request_amount
    {
        wrong("defaultRequest", b, format!("default value {a} must equal to defaultRequest value {b} in {name}"));
    }
    errors
}
