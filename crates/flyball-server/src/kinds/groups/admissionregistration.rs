//! Kinds of `admissionregistration.k8s.io`.

use crate::kinds::kind::{Kind, Subresource as Sub};
use crate::kinds::{admission_policy, defaults, printers, webhook};

const GROUP: &str = "admissionregistration.k8s.io";

/// The category of what extends the API.
const EXTENSIONS: &str = "api-extensions";

pub(super) const KINDS: &[Kind] = &[
    Kind::new(GROUP, "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies")
        .exempt_from_webhooks()
        .exempt_from_policies()
        .validate(admission_policy::mutating)
        .printed(printers::configuration::mutating_policy)
        .default(defaults::admission_policy)
        .category(EXTENSIONS)
        .cluster()
        .generation()
        .versioned_updates(),
    Kind::new(GROUP, "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
        .exempt_from_webhooks()
        .exempt_from_policies()
        .validate(admission_policy::mutating_binding)
        .printed(printers::configuration::policy_binding)
        .default(defaults::policy_binding)
        .category(EXTENSIONS)
        .cluster()
        .generation()
        .versioned_updates(),
    Kind::new(GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
        .exempt_from_webhooks()
        .printed(printers::configuration::webhooks)
        .default(defaults::mutating_webhooks)
        .validate(webhook::mutating)
        .category(EXTENSIONS)
        .cluster()
        .generation()
        .versioned_updates(),
    Kind::new(GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
        .exempt_from_webhooks()
        .exempt_from_policies()
        .validate(admission_policy::validating)
        .printed(printers::configuration::validating_policy)
        .default(defaults::admission_policy)
        .category(EXTENSIONS)
        .cluster()
        .generation()
        .versioned_updates()
        .subresources(&[Sub::STATUS]),
    Kind::new(GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
        .exempt_from_webhooks()
        .exempt_from_policies()
        .validate(admission_policy::validating_binding)
        .printed(printers::configuration::policy_binding)
        .default(defaults::policy_binding)
        .category(EXTENSIONS)
        .cluster()
        .generation()
        .versioned_updates(),
    Kind::new(GROUP, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
        .exempt_from_webhooks()
        .printed(printers::configuration::webhooks)
        .default(defaults::validating_webhooks)
        .validate(webhook::validating)
        .category(EXTENSIONS)
        .cluster()
        .generation()
        .versioned_updates(),
];
