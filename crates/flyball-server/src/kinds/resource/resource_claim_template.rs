//! Templates for claims of individual pods.

use super::GROUP;
use super::{Errors, resource_claim as claim};
use crate::kinds::display::internal;
use crate::kinds::field::{Field, IMMUTABLE};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::printer;
use crate::kinds::rules::label;
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::metadata::validate_annotations;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ResourceClaimTemplate", "resourceclaimtemplates")
    .printed(printer::NAMED, printer::named)
    .default(default)
    .validate(validate)
    .deleted_as_object();

fn default(template: &mut Object) {
    if let Some(spec) = template.inner("spec").and_then(|template| template.inner("spec")) {
        claim::default_spec(spec);
    }
}

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    if let Some(old) = old {
        let same = old.get("spec") == object.get("spec");
        return if same { Errors::new() } else { vec![changed(&spec)] };
    }
    let metadata = spec.at("metadata");
    let (labels, annotations) = (metadata.at("labels"), metadata.at("annotations"));
    let mut errors = validate_annotations(annotations.value().as_object(), annotations.path());
    errors.extend(label::labels(&labels));
    errors.extend(claim::spec(&spec.at("spec")));
    errors
}

fn changed(spec: &Field<'_>) -> flyball_core::field::FieldError {
    spec.invalid_as(internal("ResourceClaimTemplateSpec", spec.value()), IMMUTABLE)
}
