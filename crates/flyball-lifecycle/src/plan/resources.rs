//! Kinds that steps may have, and the permissions to create them.

use super::{own_rule, rule};
use k8s_openapi::api::rbac::v1::PolicyRule;

/// The kind of ClusterServiceVersions.
pub(super) const CSV: &str = "ClusterServiceVersion";

/// A kind that a step may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) is_namespaced: bool,
}

const fn namespaced(group: &'static str, kind: &'static str, plural: &'static str) -> Resource {
    Resource { group, kind, plural, is_namespaced: true }
}

const fn cluster(group: &'static str, kind: &'static str, plural: &'static str) -> Resource {
    Resource { group, kind, plural, is_namespaced: false }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const MONITORING: &str = "monitoring.coreos.com";
const CONSOLE: &str = "console.openshift.io";
const DEFINITIONS: &str = "apiextensions.k8s.io";

/// The kinds, those of bundles as in
/// [OLM](https://olm.operatorframework.io/docs/tasks/creating-operator-manifests/).
const RESOURCES: &[Resource] = &[
    namespaced(crate::api::GROUP, CSV, "clusterserviceversions"),
    namespaced(crate::api::GROUP, "Subscription", "subscriptions"),
    cluster(DEFINITIONS, "CustomResourceDefinition", "customresourcedefinitions"),
    namespaced("", "ServiceAccount", "serviceaccounts"),
    namespaced("", "Service", "services"),
    namespaced("", "ConfigMap", "configmaps"),
    namespaced("", "Secret", "secrets"),
    namespaced(RBAC, "Role", "roles"),
    namespaced(RBAC, "RoleBinding", "rolebindings"),
    cluster(RBAC, "ClusterRole", "clusterroles"),
    cluster(RBAC, "ClusterRoleBinding", "clusterrolebindings"),
    cluster("scheduling.k8s.io", "PriorityClass", "priorityclasses"),
    namespaced("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
    namespaced("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    namespaced(MONITORING, "PrometheusRule", "prometheusrules"),
    namespaced(MONITORING, "ServiceMonitor", "servicemonitors"),
    namespaced("autoscaling.k8s.io", "VerticalPodAutoscaler", "verticalpodautoscalers"),
    cluster(CONSOLE, "ConsoleCLIDownload", "consoleclidownloads"),
    cluster(CONSOLE, "ConsoleLink", "consolelinks"),
    cluster(CONSOLE, "ConsolePlugin", "consoleplugins"),
    cluster(CONSOLE, "ConsoleQuickStart", "consolequickstarts"),
    cluster(CONSOLE, "ConsoleYAMLSample", "consoleyamlsamples"),
];

/// Returns the kinds of the objects that bundles may contain, each with its group.
pub fn bundled_kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    RESOURCES.iter().map(|known| (known.group, known.kind))
}

/// Returns the resource of a kind.
pub(super) fn resource(group: &str, kind: &str) -> Option<Resource> {
    RESOURCES.iter().find(|known| known.group == group && known.kind == kind).copied()
}

/// Returns true for CRDs.
pub(super) fn is_definition(group: &str, kind: &str) -> bool {
    group == DEFINITIONS && kind == "CustomResourceDefinition"
}

/// Returns the permissions that steps need.
pub(super) fn rules() -> Vec<PolicyRule> {
    let mut rules = vec![own_rule()];
    for Resource { group, plural, .. } in RESOURCES.iter().filter(|known| known.group != crate::api::GROUP) {
        rules.push(rule(group, &[plural], &["get", "create", "patch"]));
    }
    // An operator may need permissions that the manager does not have.
    rules.push(rule(RBAC, &["roles", "clusterroles"], &["escalate", "bind"]));
    rules.push(rule("", &["serviceaccounts"], &["impersonate"]));
    // Custom resources are validated before their definition is changed.
    rules.push(rule("*", &["*"], &["list"]));
    rules
}
