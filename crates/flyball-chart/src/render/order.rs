//! Installation order of kinds: dependencies come first.

use crate::helm::HelmVersion;

/// Helm's order; other kinds come last. Helm 3 lacks the last ones.
const KINDS: [&str; 38] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Sorts by kind: first the kinds in Helm's order, then the others by name. The sort is stable.
pub(super) fn sort_by_kind<T>(helm: HelmVersion, items: &mut [T], kind: impl Fn(&T) -> &str) {
    let kinds = &KINDS[..KINDS.len() - helm.choose(2, 0)];
    items.sort_by(|a, b| {
        let (a, b) = (kind(a), kind(b));
        let rank = |kind: &str| kinds.iter().position(|known| *known == kind).unwrap_or(kinds.len());
        let (x, y) = (rank(a), rank(b));
        x.cmp(&y).then_with(|| if x == kinds.len() { a.cmp(b) } else { std::cmp::Ordering::Equal })
    });
}
