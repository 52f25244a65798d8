//! Bindings of cluster roles, in all namespaces.

use super::{GROUP, binding_row, check_binding, default_binding};
use crate::kinds::field::Errors;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::Heading;
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::names::path_segment;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings")
    .printed(COLUMNS, binding_row)
    .default(default_binding)
    .checks(Checks::Whole)
    .validate(validate)
    .cluster()
    .create_on_update()
    .name_rule(path_segment);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "Role",
        "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the \
         Authorizer must return an error.",
    ),
    Heading::AGE,
    Heading::text("Users", "Users in the clusterRoleBinding").wide(),
    Heading::text("Groups", "Groups in the clusterRoleBinding").wide(),
    Heading::text("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding").wide(),
];

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    check_binding(object, old, &["ClusterRole"])
}
