//! Bindings of cluster roles, in all namespaces.

use super::{GROUP, binding_row, check_binding, default_binding};
use crate::kinds::field::Errors;
use crate::kinds::kind::{Checks, Kind, Part};
use flyball_core::Object;
use flyball_core::names::path_segment;

pub(super) static KIND: Kind = Kind::new(GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings")
    .printed(binding_row)
    .default(default_binding)
    .checks(Checks::Whole)
    .validate(validate)
    .cluster()
    .create_on_update()
    .name_rule(path_segment);

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    check_binding(object, old, &["ClusterRole"])
}
