//! Bindings of mutating admission policies.

use super::{GROUP, binding};
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{EXTENSIONS, Kind};
use crate::kinds::subresource::Part;
use flyball_core::Object;

pub(crate) static KIND: Kind =
    Kind::new(GROUP, "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
        .exempt_from_webhooks()
        .exempt_from_policies()
        .validate(validate)
        .printed(binding::COLUMNS, binding::row)
        .default(binding::default)
        .category(EXTENSIONS)
        .cluster()
        .generation()
        .versioned_updates();

fn validate(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    binding::check(&spec)
}
