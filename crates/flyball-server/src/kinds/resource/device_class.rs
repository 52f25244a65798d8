//! Device classes: named selectors and parameters.

use super::GROUP;
use super::configuration::{self, MAX_CONFIGURATIONS};
use super::{Errors, list, selector};
use crate::kinds::field::Field;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer;
use crate::kinds::rules::resource;
use crate::kinds::subresource::Part;
use flyball_core::Object;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "DeviceClass", "deviceclasses")
    .printed(printer::NAMED, printer::named)
    .checks(Checks::Whole)
    .validate(validate)
    .cluster()
    .generation()
    .deleted_as_object();

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let stored = |field: &str| old.is_some_and(|old| old.at(&["spec", field]) == object.at(&["spec", field]));
    let mut errors = selector::check(&spec.at("selectors"), stored("selectors"));
    errors
        .extend(list(&spec.at("config"), MAX_CONFIGURATIONS, |config| configuration::check(config, stored("config"))));
    let resource = spec.at("extendedResourceName");
    if resource.text_if_set().is_some_and(|name| !resource::is_extended(name)) {
        errors.push(resource.invalid("must be a valid extended resource name"));
    }
    errors
}
