//! Kinds of kube-apiserver's schemes that are not served: error messages name them.

use super::Catalog;
use super::resource::Resource;
use flyball_core::GroupVersionKind;

/// The group of CRDs, whose server has a scheme of its own.
const EXTENSIONS: &str = "apiextensions.k8s.io";

/// Versions that can be decoded, but are not served: group, version and kinds.
const OTHER_VERSIONS: [(&str, &str, &[&str]); 33] = [
    ("", "v1", &["List"]),
    ("admissionregistration.k8s.io", "v1alpha1", POLICIES),
    ("admissionregistration.k8s.io", "v1beta1", POLICIES),
    ("admissionregistration.k8s.io", "v1beta1", &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]),
    (EXTENSIONS, "v1beta1", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", "v1beta1", &["APIService"]),
    ("apps", "v1beta1", &["ControllerRevision", "Deployment", "StatefulSet"]),
    ("apps", "v1beta2", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("authentication.k8s.io", "v1alpha1", &["SelfSubjectReview"]),
    ("authentication.k8s.io", "v1beta1", &["SelfSubjectReview", "TokenReview"]),
    ("authorization.k8s.io", "v1beta1", &["LocalSubjectAccessReview", "SelfSubjectAccessReview"]),
    ("authorization.k8s.io", "v1beta1", &["SelfSubjectRulesReview", "SubjectAccessReview"]),
    ("batch", "v1beta1", &["CronJob"]),
    ("certificates.k8s.io", "v1beta1", &["CertificateSigningRequest"]),
    ("coordination.k8s.io", "v1beta1", &["Lease"]),
    ("discovery.k8s.io", "v1beta1", &["EndpointSlice"]),
    ("events.k8s.io", "v1beta1", &["Event"]),
    ("flowcontrol.apiserver.k8s.io", "v1beta1", FLOWS),
    ("flowcontrol.apiserver.k8s.io", "v1beta2", FLOWS),
    ("flowcontrol.apiserver.k8s.io", "v1beta3", FLOWS),
    ("networking.k8s.io", "v1beta1", &["IPAddress", "Ingress", "IngressClass", "ServiceCIDR"]),
    ("node.k8s.io", "v1alpha1", &["RuntimeClass"]),
    ("node.k8s.io", "v1beta1", &["RuntimeClass"]),
    ("policy", "v1beta1", &["PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", "v1alpha1", ROLES),
    ("rbac.authorization.k8s.io", "v1beta1", ROLES),
    ("resource.k8s.io", "v1beta1", DEVICES),
    ("resource.k8s.io", "v1beta2", DEVICES),
    ("scheduling.k8s.io", "v1alpha1", &["PriorityClass"]),
    ("scheduling.k8s.io", "v1beta1", &["PriorityClass"]),
    ("storage.k8s.io", "v1alpha1", &["CSIStorageCapacity", "VolumeAttachment", "VolumeAttributesClass"]),
    ("storage.k8s.io", "v1beta1", &["CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass"]),
    ("storage.k8s.io", "v1beta1", &["VolumeAttachment", "VolumeAttributesClass"]),
];

const POLICIES: &[&str] = &[
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];
const FLOWS: &[&str] = &["FlowSchema", "PriorityLevelConfiguration"];
const ROLES: &[&str] = &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
const DEVICES: &[&str] = &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"];

/// Returns true if an object is of the expected kind, in another version that can be decoded.
pub(super) fn has_other_version(found: &GroupVersionKind, expected: &GroupVersionKind) -> bool {
    found.group == expected.group && found.kind == expected.kind && found != expected && is_known(found)
}

fn is_known(gvk: &GroupVersionKind) -> bool {
    let (group, version, kind) = (&*gvk.group, &*gvk.version, &*gvk.kind);
    let other = |(g, v, kinds): &(&str, &str, &[&str])| *g == group && *v == version && kinds.contains(&kind);
    let served = || {
        Catalog::built_in().resources().any(|known| {
            let list = GroupVersionKind { kind: known.list_kind.as_str().into(), ..known.kind.clone() };
            known.kind == *gvk || list == *gvk
        })
    };
    OTHER_VERSIONS.iter().any(other) || served()
}

/// Returns the error for an object that is not of the kind of a built-in resource.
pub(crate) fn misfit(resource: &Resource, found: &GroupVersionKind) -> String {
    let expected = &resource.kind;
    let of_extensions = &*expected.group == EXTENSIONS;
    if of_extensions != (&*found.group == EXTENSIONS) || !is_known(found) {
        let scheme = match of_extensions {
            true => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
            false => "pkg/api/legacyscheme/scheme.go:30",
        };
        let (kind, version) = (&found.kind, found.api_version());
        return format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"{scheme}\"");
    }
    let internal =
        if expected.group.is_empty() { "core" } else { expected.group.split('.').next().unwrap_or_default() };
    format!("converting ({}.{}) to ({internal}.{}): unknown conversion", found.version, found.kind, expected.kind)
}
