//! Bindings of roles in a namespace.

use super::{GROUP, binding_row, check_binding, default_binding};
use crate::kinds::field::Errors;
use crate::kinds::kind::{Checks, Kind, Part};
use flyball_core::Object;
use flyball_core::names::path_segment;

pub(super) static KIND: Kind = Kind::new(GROUP, "v1", "RoleBinding", "rolebindings")
    .printed(binding_row)
    .default(default_binding)
    .checks(Checks::Whole)
    .validate(validate)
    .create_on_update()
    .name_rule(path_segment);

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    check_binding(object, old, &["Role", "ClusterRole"])
}
