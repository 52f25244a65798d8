//! The order in which kinds are installed: what others need comes first.

/// Helm's order; kinds that are not in it come last.
const KINDS: [&str; 36] = [
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
];

/// Sorts by kind: those that Helm knows in its order, then the others by name. Equal ones stay as they are.
pub(super) fn sort_by_kind<T>(items: &mut [T], kind: impl Fn(&T) -> &str) {
    items.sort_by(|a, b| {
        let (a, b) = (kind(a), kind(b));
        let rank = |kind: &str| KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len());
        let (x, y) = (rank(a), rank(b));
        x.cmp(&y).then_with(|| if x == KINDS.len() { a.cmp(b) } else { std::cmp::Ordering::Equal })
    });
}
