//! Owners that request operators: Subscriptions and ClusterExtensions.

use super::{EXTENSIONS_GROUP, GROUP};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// Returns true if an owner is a Subscription or a ClusterExtension.
pub(crate) fn is_requester(owner: &OwnerReference) -> bool {
    is_subscription(owner) || is_extension(owner)
}

/// Returns true if an owner is a Subscription of the lifecycle manager.
pub(crate) fn is_subscription(owner: &OwnerReference) -> bool {
    is_of(owner, GROUP, "Subscription")
}

/// Returns true if an owner is a ClusterExtension.
pub(crate) fn is_extension(owner: &OwnerReference) -> bool {
    is_of(owner, EXTENSIONS_GROUP, "ClusterExtension")
}

fn is_of(owner: &OwnerReference, group: &str, kind: &str) -> bool {
    owner.kind == kind && owner.api_version.split('/').next() == Some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_other_groups_request_nothing() {
        let check = |api_version: &str, kind: &str, expected: bool| {
            let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
            let owner = OwnerReference { api_version, kind, ..OwnerReference::default() };
            assert_eq!(is_requester(&owner), expected, "{owner:?}");
        };
        check("operators.coreos.com/v1alpha1", "Subscription", true);
        check("olm.operatorframework.io/v1", "ClusterExtension", true);
        check("messaging.knative.dev/v1", "Subscription", false);
        check("olm.operatorframework.io/v1", "Subscription", false);
        check("operators.coreos.com.example.com/v1", "Subscription", false);
        check("operators.coreos.com/v1alpha1", "ClusterServiceVersion", false);
    }
}
