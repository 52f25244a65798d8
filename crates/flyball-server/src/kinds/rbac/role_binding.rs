//! Bindings of roles in a namespace.

use super::{GROUP, binding_row, check_binding, default_binding};
use crate::kinds::field::Errors;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::Heading;
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::names::path_segment;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "RoleBinding", "rolebindings")
    .printed(COLUMNS, binding_row)
    .default(default_binding)
    .checks(Checks::Whole)
    .validate(validate)
    .create_on_update()
    .name_rule(path_segment);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "Role",
        "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the \
         RoleRef cannot be resolved, the Authorizer must return an error.",
    ),
    Heading::AGE,
    Heading::text("Users", "Users in the roleBinding").wide(),
    Heading::text("Groups", "Groups in the roleBinding").wide(),
    Heading::text("ServiceAccounts", "ServiceAccounts in the roleBinding").wide(),
];

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    check_binding(object, old, &["Role", "ClusterRole"])
}
