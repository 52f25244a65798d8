//! Roles in a namespace.

use super::{GROUP, rules};
use crate::kinds::field::Errors;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::names::path_segment;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Role", "roles")
    .checks(Checks::Whole)
    .validate(validate)
    .create_on_update()
    .name_rule(path_segment);

fn validate(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    rules(object, true)
}
