//! Deprecated APIs of Kubernetes, according to the clients of Helm.
//!
//! See <https://kubernetes.io/docs/reference/using-api/deprecation-guide/>.

use crate::capabilities::Capabilities;

/// Deprecated kinds of one API version: the version, the minor versions of Kubernetes 1 that deprecate and remove them
/// (0 if none does), the replacement's version, and the kinds. `Kind*` is a kind and its list, `Kind>Other` has a
/// replacement of another kind.
type Row = (&'static str, u32, u32, &'static str, &'static str);

/// Rows shared by the clients of Kubernetes 1.35 and 1.36.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("admissionregistration.k8s.io/v1alpha1", 29, 32, "",
     "ValidatingAdmissionPolicy* ValidatingAdmissionPolicyBinding*"),
    ("admissionregistration.k8s.io/v1alpha1", 35, 38, "", "MutatingAdmissionPolicy* MutatingAdmissionPolicyBinding*"),
    ("admissionregistration.k8s.io/v1beta1", 16, 22, "admissionregistration.k8s.io/v1",
     "MutatingWebhookConfiguration* ValidatingWebhookConfiguration*"),
    ("admissionregistration.k8s.io/v1beta1", 31, 34, "",
     "ValidatingAdmissionPolicy* ValidatingAdmissionPolicyBinding*"),
    ("apps/v1beta1", 8, 16, "apps/v1", "ControllerRevision* Deployment* DeploymentRollback StatefulSet*"),
    ("apps/v1beta1", 8, 16, "autoscaling/v1", "Scale"),
    ("apps/v1beta2", 9, 16, "apps/v1", "ControllerRevision* DaemonSet* Deployment* ReplicaSet* StatefulSet*"),
    ("apps/v1beta2", 9, 16, "autoscaling/v1", "Scale"),
    ("authentication.k8s.io/v1alpha1", 29, 32, "", "SelfSubjectReview"),
    ("authentication.k8s.io/v1beta1", 19, 22, "authentication.k8s.io/v1", "TokenReview"),
    ("authentication.k8s.io/v1beta1", 30, 33, "", "SelfSubjectReview"),
    ("authorization.k8s.io/v1beta1", 19, 22, "authorization.k8s.io/v1",
     "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview"),
    ("batch/v1beta1", 21, 25, "batch/v1", "CronJob*"),
    ("certificates.k8s.io/v1alpha1", 34, 37, "", "ClusterTrustBundle*"),
    ("certificates.k8s.io/v1beta1", 19, 22, "certificates.k8s.io/v1", "CertificateSigningRequest*"),
    ("certificates.k8s.io/v1beta1", 38, 41, "", "PodCertificateRequest*"),
    ("coordination.k8s.io/v1alpha2", 35, 38, "", "LeaseCandidate*"),
    ("coordination.k8s.io/v1beta1", 19, 22, "coordination.k8s.io/v1", "Lease*"),
    ("coordination.k8s.io/v1beta1", 36, 39, "", "LeaseCandidate*"),
    ("discovery.k8s.io/v1beta1", 21, 25, "discovery.k8s.io/v1", "EndpointSlice EndpointSliceList>EndpointSlice"),
    ("events.k8s.io/v1beta1", 22, 25, "", "Event*"),
    ("extensions/v1beta1", 2, 16, "", "Scale"),
    ("extensions/v1beta1", 8, 16, "", "DeploymentRollback"),
    ("extensions/v1beta1", 8, 16, "apps/v1", "DaemonSet* Deployment* ReplicaSet*"),
    ("extensions/v1beta1", 9, 16, "networking.k8s.io/v1", "NetworkPolicy*"),
    ("extensions/v1beta1", 14, 22, "networking.k8s.io/v1", "Ingress*"),
    ("flowcontrol.apiserver.k8s.io/v1beta1", 23, 26, "flowcontrol.apiserver.k8s.io/v1beta3",
     "FlowSchema* PriorityLevelConfiguration*"),
    ("flowcontrol.apiserver.k8s.io/v1beta2", 26, 29, "flowcontrol.apiserver.k8s.io/v1beta3",
     "FlowSchema* PriorityLevelConfiguration*"),
    ("flowcontrol.apiserver.k8s.io/v1beta3", 29, 32, "flowcontrol.apiserver.k8s.io/v1",
     "FlowSchema* PriorityLevelConfiguration*"),
    ("networking.k8s.io/v1beta1", 19, 22, "networking.k8s.io/v1",
     "Ingress* IngressClass>IngressClassList IngressClassList"),
    ("networking.k8s.io/v1beta1", 34, 37, "", "IPAddress* ServiceCIDR*"),
    ("node.k8s.io/v1beta1", 22, 25, "", "RuntimeClass*"),
    ("policy/v1beta1", 21, 25, "policy/v1", "PodDisruptionBudget*"),
    ("policy/v1beta1", 22, 25, "", "Eviction"),
    ("rbac.authorization.k8s.io/v1beta1", 17, 22, "rbac.authorization.k8s.io/v1",
     "ClusterRole* ClusterRoleBinding* Role* RoleBinding*"),
    ("resource.k8s.io/v1alpha3", 36, 39, "", "DeviceTaintRule*"),
    ("resource.k8s.io/v1beta1", 35, 38, "", "DeviceClass* ResourceClaim* ResourceClaimTemplate* ResourceSlice*"),
    ("resource.k8s.io/v1beta2", 36, 39, "", "DeviceClass* ResourceClaim* ResourceClaimTemplate* ResourceSlice*"),
    ("scheduling.k8s.io/v1beta1", 14, 22, "scheduling.k8s.io/v1", "PriorityClass*"),
    ("storage.k8s.io/v1alpha1", 21, 24, "storage.k8s.io/v1", "VolumeAttachment*"),
    ("storage.k8s.io/v1alpha1", 21, 24, "storage.k8s.io/v1beta1", "CSIStorageCapacity*"),
    ("storage.k8s.io/v1alpha1", 32, 35, "storage.k8s.io/v1", "VolumeAttributesClass*"),
    ("storage.k8s.io/v1beta1", 17, 22, "storage.k8s.io/v1", "CSINode CSINodeList>CSINode"),
    ("storage.k8s.io/v1beta1", 19, 22, "storage.k8s.io/v1", "CSIDriver* StorageClass* VolumeAttachment*"),
    ("storage.k8s.io/v1beta1", 24, 27, "storage.k8s.io/v1", "CSIStorageCapacity*"),
    ("storage.k8s.io/v1beta1", 34, 37, "storage.k8s.io/v1", "VolumeAttributesClass*"),
    ("storagemigration.k8s.io/v1beta1", 38, 41, "", "StorageVersionMigration*"),
    ("v1", 19, 0, "", "ComponentStatus*"),
    ("v1", 33, 0, "discovery.k8s.io/v1", "Endpoints>EndpointSlice EndpointsList>EndpointSliceList"),
];

/// Rows only in the client of Kubernetes 1.36, which Helm 3.21 uses.
#[rustfmt::skip]
const ROWS_1_36: &[Row] = &[
    ("admissionregistration.k8s.io/v1beta1", 37, 40, "admissionregistration.k8s.io/v1",
     "MutatingAdmissionPolicy* MutatingAdmissionPolicyBinding*"),
    ("certificates.k8s.io/v1beta1", 37, 40, "", "ClusterTrustBundle*"),
    ("resource.k8s.io/v1alpha3", 39, 42, "", "ResourcePoolStatusRequest*"),
    ("resource.k8s.io/v1beta2", 39, 42, "", "DeviceTaintRule*"),
];

/// Rows only in the client of Kubernetes 1.35, which Helm 4.1 uses.
#[rustfmt::skip]
const ROWS_1_35: &[Row] = &[
    ("admissionregistration.k8s.io/v1beta1", 37, 40, "", "MutatingAdmissionPolicy* MutatingAdmissionPolicyBinding*"),
    ("autoscaling/v2beta1", 22, 25, "autoscaling/v2", "HorizontalPodAutoscaler"),
    ("autoscaling/v2beta1", 22, 25, "autoscaling/v2beta2", "HorizontalPodAutoscalerList"),
    ("autoscaling/v2beta2", 22, 25, "", "HorizontalPodAutoscalerList"),
    ("autoscaling/v2beta2", 23, 26, "autoscaling/v2", "HorizontalPodAutoscaler"),
    ("certificates.k8s.io/v1beta1", 36, 39, "", "ClusterTrustBundle*"),
];

/// Checks an object's kind against the version of Kubernetes.
///
/// # Errors
///
/// Returns Kubernetes' warning if the kind is deprecated.
pub(super) fn check(api_version: &str, kind: &str, capabilities: &Capabilities) -> Result<(), String> {
    let rows = ROWS.iter().chain(capabilities.helm().choose(ROWS_1_36, ROWS_1_35));
    let of_version = rows.filter(|row| row.0 == api_version);
    let Some((row, replacement)) = of_version.filter_map(|row| Some((row, find(row.4, kind)?))).next() else {
        return Ok(());
    };
    let (_, deprecated, removed, version, _) = *row;
    let (major, minor) = capabilities.kube_numbers();
    if (major, minor) != (0, 0) && (major, minor) < (1, deprecated) {
        return Ok(());
    }
    let mut warning = format!("{api_version} {kind} is deprecated in v1.{deprecated}+");
    if removed != 0 {
        warning.push_str(&format!(", unavailable in v1.{removed}+"));
    }
    if !version.is_empty() {
        warning.push_str(&format!("; use {version} {replacement}"));
    }
    Err(warning)
}

/// Finds a kind in a list; returns its replacement.
fn find<'k>(kinds: &'k str, kind: &'k str) -> Option<&'k str> {
    kinds.split(' ').find_map(|one| {
        if let Some((from, to)) = one.split_once('>') {
            return (from == kind).then_some(to);
        }
        let is = match one.strip_suffix('*') {
            Some(one) => kind == one || kind.strip_suffix("List") == Some(one),
            None => kind == one,
        };
        is.then_some(kind)
    })
}
