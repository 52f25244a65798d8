//! Mutating admission policies.

use super::{GROUP, policy};
use crate::kinds::expression::{self, ResultType, Variables};
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{EXTENSIONS, Kind};
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::Part;
use flyball_core::Object;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies")
    .exempt_from_webhooks()
    .exempt_from_policies()
    .validate(validate)
    .printed(COLUMNS, row)
    .default(policy::default)
    .category(EXTENSIONS)
    .cluster()
    .generation()
    .versioned_updates();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::number("Mutations", "Mutation indicates the number of mutations rules defined in this configuration"),
    Heading::text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"),
    Heading::AGE,
];

fn validate(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let params = spec.at("paramKind").is_set();
    let mut errors = policy::head(&spec);
    let names = policy::variables(&spec, params, &mut errors);
    let mutations = spec.at("mutations");
    if mutations.is_empty() {
        errors.push(mutations.required("mutations must contain at least one item"));
    }
    errors.extend(mutations.items().flat_map(|each| mutation(&each, &names)));
    errors.extend(spec.at("reinvocationPolicy").must_be_one_of(&["IfNeeded", "Never"]));
    errors
}

fn mutation(mutation: &Field<'_>, names: &Variables<'_>) -> Errors {
    let (ty, apply, patch) = (mutation.at("patchType"), mutation.at("applyConfiguration"), mutation.at("jsonPatch"));
    let body = |(wanted, made): (&Field<'_>, ResultType), (other, given): (&Field<'_>, &str), name: &str| {
        let mut errors = Errors::new();
        let text = wanted.at("expression");
        if !wanted.is_set() {
            errors.push(wanted.required(format!("must be specified when patchType is {name}")));
        } else if text.text().trim().is_empty() {
            errors.push(text.required(""));
        } else {
            errors.extend(expression::check_trimmed(&text, names, made));
        }
        if other.is_set() {
            errors.push(other.invalid_as(given, format!("must not be specified when patchType is {name}")));
        }
        errors
    };
    match ty.text() {
        "" => vec![ty.required("")],
        "ApplyConfiguration" => body((&apply, ResultType::Object), (&patch, "{jsonPatch}"), "ApplyConfiguration"),
        "JSONPatch" => body((&patch, ResultType::Patches), (&apply, "{applyConfiguration}"), "JSONPatch"),
        _ => ty.must_be_in(&["ApplyConfiguration", "JSONPatch"]).into_iter().collect(),
    }
}

fn row(view: &View<'_>) -> Row {
    policy::row(view, "spec.mutations")
}
