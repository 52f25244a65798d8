//! Ingress classes.

use super::{GROUP, reference};
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{self, Heading, NONE, Row, View};
use crate::kinds::rules::text;
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::names::dns_label;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "IngressClass", "ingressclasses")
    .printed(COLUMNS, row)
    .default(default)
    .checks(Checks::Whole)
    .validate(validate)
    .cluster()
    .generation();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Controller", "Controller that is responsible for handling this class"),
    Heading::text("Parameters", "A reference to a resource with additional parameters"),
    Heading::AGE,
];

fn default(class: &mut Object) {
    if let Some(parameters) = class.inner_or_new("spec").inner("parameters") {
        parameters.fill("scope", "Cluster");
    }
}

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let controller = spec.at("controller");
    let mut errors = Errors::new();
    if let Some(old) = old {
        let before = Field::root(old);
        errors.extend(controller.unchanged_from(&before.at("spec.controller")));
    }
    if controller.text().len() > 250 {
        errors.push(controller.too_long(250));
    }
    errors.extend(text::domain_prefixed(&controller));
    let parameters = spec.at("parameters");
    if parameters.is_set() {
        errors.extend(reference(&parameters));
        let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
        match scope.text() {
            _ if !scope.is_set() => errors.push(scope.required("")),
            "Cluster" | "Namespace" => {}
            _ => errors.push(scope.not_supported(&["Cluster", "Namespace"])),
        }
        match (scope.text(), namespace.text_if_set()) {
            ("Namespace", None | Some("")) => {
                errors.push(namespace.required("`parameters.scope` is set to 'Namespace'"))
            }
            ("Namespace", Some(_)) => errors.extend(namespace.obeys(dns_label)),
            ("Cluster", Some(_)) => errors.push(namespace.forbidden("`parameters.scope` is set to 'Cluster'")),
            _ => {}
        }
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    let parameters = view.at("spec.parameters");
    let group = parameters["apiGroup"].as_str().map_or(String::new(), |group| format!(".{group}"));
    let parameters = match parameters {
        Value::Null => NONE.into(),
        parameters => format!("{}{group}/{}", printer::text(parameters, "kind"), printer::text(parameters, "name")),
    };
    let name = printer::marked(view, "ingressclass.kubernetes.io/is-default-class");
    Row::from([name, view.text("spec.controller").into(), parameters.into(), view.age()])
}
