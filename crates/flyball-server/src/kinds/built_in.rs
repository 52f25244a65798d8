//! The list of all built-in kinds, and their types.

use super::kind::Kind;
use super::{
    admissionregistration, apiextensions, apiregistration, apps, authentication, authorization, autoscaling, batch,
    certificates, coordination, core, discovery, events, flowcontrol, networking, node, policy, rbac, resource,
    scheduling, storage,
};
use flyball_schema::notation::Library;
use flyball_schema::schema::Root;
use std::sync::LazyLock;

/// The kinds by group, in the order of discovery.
static GROUPS: &[&[&Kind]] = &[
    core::KINDS,
    apiregistration::KINDS,
    apps::KINDS,
    events::KINDS,
    authentication::KINDS,
    authorization::KINDS,
    autoscaling::KINDS,
    batch::KINDS,
    certificates::KINDS,
    networking::KINDS,
    policy::KINDS,
    rbac::KINDS,
    storage::KINDS,
    admissionregistration::KINDS,
    apiextensions::KINDS,
    scheduling::KINDS,
    coordination::KINDS,
    node::KINDS,
    discovery::KINDS,
    flowcontrol::KINDS,
    resource::KINDS,
];

/// Returns all built-in kinds by group, in the order of discovery.
pub(crate) fn built_in() -> impl Iterator<Item = &'static Kind> {
    GROUPS.iter().copied().flatten().copied()
}

/// Kinds of the bodies of subresources.
pub(crate) static ACTIONS: &[Kind] = &[
    Kind::new("autoscaling", "v1", "Scale", "scales"),
    Kind::new("authentication.k8s.io", "v1", "TokenRequest", "tokenrequests"),
    Kind::new("", "v1", "Binding", "bindings"),
    Kind::new("", "v1", "NodeProxyOptions", "nodeproxyoptions"),
    Kind::new("", "v1", "PodAttachOptions", "podattachoptions"),
    Kind::new("", "v1", "PodExecOptions", "podexecoptions"),
    Kind::new("", "v1", "PodPortForwardOptions", "podportforwardoptions"),
    Kind::new("", "v1", "PodProxyOptions", "podproxyoptions"),
    Kind::new("", "v1", "ServiceProxyOptions", "serviceproxyoptions"),
    Kind::new("policy", "v1", "Eviction", "evictions").also_reads(&["v1beta1"]),
];

/// Returns the built-in kinds of a group, including kinds of subresource bodies: CRDs cannot have their names.
pub(crate) fn of_group(group: &str) -> impl Iterator<Item = &'static Kind> {
    built_in().chain(ACTIONS).filter(move |kind| kind.group == group)
}

/// The types of all built-in kinds.
pub(crate) fn library() -> &'static Library {
    macro_rules! types {
        ($($file:literal)*) => { &[$(include_str!(concat!("types/", $file, ".types"))),*] };
    }
    static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
        Library::read(types! {
            "admissionregistration.k8s.io.v1" "apiextensions.k8s.io.v1" "apiregistration.k8s.io.v1" "apps.v1"
            "authentication.k8s.io.v1" "authorization.k8s.io.v1" "autoscaling.v1" "autoscaling.v2" "batch.v1"
            "certificates.k8s.io.v1" "coordination.k8s.io.v1" "core.v1" "discovery.k8s.io.v1" "events.k8s.io.v1"
            "flowcontrol.apiserver.k8s.io.v1" "networking.k8s.io.v1" "node.k8s.io.v1" "policy.v1" "rbac.authorization.k8s.io.v1"
            "resource.k8s.io.v1" "scheduling.k8s.io.v1"
            "storage.k8s.io.v1"
        })
    });
    &LIBRARY
}

/// Returns the schema of a built-in kind for strategic merge patches; `None` for other kinds.
pub fn built_in_schema(api_version: &str, kind: &str) -> Option<Root> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let known = built_in().find(|known| (known.group, known.version, known.kind) == (group, version, kind))?;
    library().get(&known.package(), known.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::View;
    use flyball_core::{Clock, Object};
    use serde_json::json;

    #[test]
    fn every_kind_has_a_cell_for_every_column() {
        let clock = Clock::new(|| "2026-01-02T00:00:00Z".parse().unwrap());
        let object =
            Object::try_from(json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}})).unwrap();
        for kind in built_in() {
            let row = (kind.printer)(&View { object: &object, clock: &clock });
            let extra = usize::from(kind.kind == "IPAddress");
            assert_eq!(row.cells.len(), kind.columns.len() + extra, "{}", kind.kind);
        }
    }
}
