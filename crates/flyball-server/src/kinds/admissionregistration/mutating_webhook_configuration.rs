//! Configurations of mutating webhooks.

use super::{GROUP, webhooks};
use crate::kinds::field::Errors;
use crate::kinds::fill::Fields;
use crate::kinds::kind::{EXTENSIONS, Kind};
use crate::kinds::subresource::Part;
use flyball_core::Object;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
    .exempt_from_webhooks()
    .printed(webhooks::COLUMNS, webhooks::row)
    .default(default)
    .validate(validate)
    .category(EXTENSIONS)
    .cluster()
    .generation()
    .versioned_updates();

fn default(configuration: &mut Object) {
    webhooks::default(configuration);
    configuration.each("webhooks").for_each(|hook| hook.fill("reinvocationPolicy", "Never"));
}

fn validate(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    webhooks::check(object, true)
}
