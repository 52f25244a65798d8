//! The stage of the API server that denied a request.
//!
//! A missing permission and an exceeded quota have the same code, reason and details, and neither has a cause of its
//! own: only the message differs. It is read as the API server forms it from the details, so that the text of a
//! webhook, or a name, is never taken for that of the authorizer. Some plugins of admission check permissions as well.

use kube::core::Status;

/// The stage of the API server that denied a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The user lacks a permission, by the authorizer or a plugin of admission that asks it.
    Authorization,
    /// A quota, a policy, a webhook, or another rule of admission.
    Admission,
}

impl Denial {
    /// Returns the stage that sent a status; `None` if it denies nothing.
    pub(crate) fn of(status: &Status) -> Option<Self> {
        let of_admission = status.details.as_ref().is_some_and(|details| !details.causes.is_empty());
        match status.is_forbidden() {
            true if !of_admission && is_permission(reason(status)) => Some(Self::Authorization),
            true => Some(Self::Admission),
            false => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Authorization => "authorization",
            Self::Admission => "admission",
        }
    }
}

/// Returns the part of a message that follows the resource and the name; empty if it does not begin with them.
fn reason(status: &Status) -> &str {
    let Some(details) = status.details.as_ref().filter(|details| !details.kind.is_empty()) else {
        return status.message.strip_prefix("forbidden: ").unwrap_or_default();
    };
    // A webhook may set the details to the beginning of its message.
    let is_resource = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '-' | '/');
    if !details.kind.chars().all(is_resource) {
        return "";
    }
    let group = if details.group.is_empty() { String::new() } else { format!(".{}", details.group) };
    let name = if details.name.is_empty() { String::new() } else { format!(" {:?}", details.name) };
    let prefix = format!("{}{group}{name} is forbidden: ", details.kind);
    status.message.strip_prefix(&prefix).unwrap_or_default()
}

/// Beginnings of reasons of plugins of admission that check permissions of the user, or of a pod's service account:
/// OwnerReferencesPermissionEnforcement, CertificateApproval, CertificateSigning, ClusterTrustBundleAttest, and the
/// security context constraints of OpenShift; and of the roles of RBAC.
const PERMISSION_CHECKS: [&str; 7] = [
    "cannot set an ownerRef on a resource you can't delete",
    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on",
    "user not permitted to approve requests with signerName ",
    "user not permitted to sign requests with signerName ",
    "user not permitted to attest for signerName ",
    "must have cluster-admin privileges to use ",
    "unable to validate against any security context constraint",
];

/// Returns true for `User "a" cannot get …`, for the grant of permissions that the user does not have, and for a plugin
/// of admission that checks permissions.
fn is_permission(reason: &str) -> bool {
    let is_grant = || reason.starts_with("user \"") && reason.contains(" is attempting to grant RBAC permissions ");
    let is_check = || PERMISSION_CHECKS.iter().any(|check| reason.starts_with(check));
    reason.starts_with("User \"") && reason.contains("\" cannot ") || is_grant() || is_check()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn permissions_are_told_from_rules_of_admission() {
        let of = |message: &str, details: Value| {
            let status = json!({"code": 403, "reason": "Forbidden", "message": message, "details": details});
            Denial::of(&serde_json::from_value(status).unwrap())
        };
        let (authorization, admission) = (Some(Denial::Authorization), Some(Denial::Admission));
        let pod = || json!({"name": "a", "kind": "pods"});
        let role = || json!({"name": "a", "group": "rbac.authorization.k8s.io", "kind": "roles"});
        let cannot = "User \"system:serviceaccount:shop:op\" cannot create resource \"pods\" in API group \"\"";
        let cases = [
            (format!("pods \"a\" is forbidden: {cannot} in the namespace \"shop\""), pod(), authorization),
            (format!("pods is forbidden: {cannot} at the cluster scope"), json!({"kind": "pods"}), authorization),
            ("forbidden: User \"op\" cannot get path \"/metrics\"".into(), json!({}), authorization),
            (
                "roles.rbac.authorization.k8s.io \"a\" is forbidden: user \"op\" (groups=[\"g\"]) is attempting to \
                 grant RBAC permissions not currently held:\n{APIGroups:[\"\"]}"
                    .into(),
                role(),
                authorization,
            ),
            ("pods \"a\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3".into(), pod(), admission),
            ("pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": …".into(), pod(), admission),
            (
                "pods \"a\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you \
                 can't set finalizers on: , <nil>"
                    .into(),
                pod(),
                authorization,
            ),
            (
                "pods \"a\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>".into(),
                pod(),
                authorization,
            ),
            (
                "pods \"a\" is forbidden: unable to validate against any security context constraint: [provider \
                 \"anyuid\": Forbidden: not usable by user or serviceaccount]"
                    .into(),
                pod(),
                authorization,
            ),
            (
                "certificatesigningrequests.certificates.k8s.io \"a\" is forbidden: user not permitted to approve \
                 requests with signerName \"example.com/s\""
                    .into(),
                json!({"name": "a", "group": "certificates.k8s.io", "kind": "certificatesigningrequests"}),
                authorization,
            ),
            (
                "clusterroles.rbac.authorization.k8s.io \"a\" is forbidden: must have cluster-admin privileges to use \
                 the aggregationRule"
                    .into(),
                json!({"name": "a", "group": "rbac.authorization.k8s.io", "kind": "clusterroles"}),
                authorization,
            ),
            (
                "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: cannot set \
                 an ownerRef on a resource you can't delete"
                    .into(),
                pod(),
                admission,
            ),
            (format!("admission webhook \"w\" denied the request: forbidden: {cannot}"), Value::Null, admission),
            (
                format!("admission webhook \"w\" denied the request: pods is forbidden: {cannot}"),
                json!({"kind": "admission webhook \"w\" denied the request: pods"}),
                admission,
            ),
            (format!("pods \"b\" is forbidden: {cannot}"), pod(), admission),
        ];
        for (message, details, expected) in cases {
            assert_eq!(of(&message, details), expected, "{message}");
        }
        let caused = json!({"name": "a", "kind": "pods", "causes": [{"reason": "NamespaceTerminating"}]});
        assert_eq!(of(&format!("pods \"a\" is forbidden: {cannot}"), caused), admission, "a typed cause decides");
        let missing = json!({"code": 404, "reason": "NotFound", "message": "pods \"a\" not found"});
        assert_eq!(Denial::of(&serde_json::from_value(missing).unwrap()), None);
    }
}
