//! Kinds of `rbac.authorization.k8s.io`.

use crate::kinds::kind::{Checks, Kind};
use crate::kinds::{access, defaults, printers};
use flyball_core::names::path_segment;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind::new(GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings")
        .printed(printers::configuration::role_binding)
        .default(defaults::role_binding)
        .checks(Checks::Whole)
        .validate(access::cluster_role_binding)
        .cluster()
        .create_on_update()
        .name_rule(path_segment),
    Kind::new(GROUP, "v1", "ClusterRole", "clusterroles")
        .checks(Checks::Whole)
        .validate(access::cluster_role)
        .cluster()
        .create_on_update()
        .name_rule(path_segment),
    Kind::new(GROUP, "v1", "RoleBinding", "rolebindings")
        .printed(printers::configuration::role_binding)
        .default(defaults::role_binding)
        .checks(Checks::Whole)
        .validate(access::role_binding)
        .create_on_update()
        .name_rule(path_segment),
    Kind::new(GROUP, "v1", "Role", "roles")
        .checks(Checks::Whole)
        .validate(access::role)
        .create_on_update()
        .name_rule(path_segment),
];
