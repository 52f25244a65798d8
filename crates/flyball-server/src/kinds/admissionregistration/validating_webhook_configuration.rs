//! Configurations of validating webhooks.

use super::{GROUP, webhooks};
use crate::kinds::field::Errors;
use crate::kinds::kind::{EXTENSIONS, Kind};
use crate::kinds::subresource::Part;
use flyball_core::Object;

pub(crate) static KIND: Kind =
    Kind::new(GROUP, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
        .exempt_from_webhooks()
        .printed(webhooks::COLUMNS, webhooks::row)
        .default(webhooks::default)
        .validate(validate)
        .category(EXTENSIONS)
        .cluster()
        .generation()
        .versioned_updates();

fn validate(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    webhooks::check(object, false)
}
