//! Kinds of `networking.k8s.io`.

kinds! {
    mod ingress_class;
    mod ingress;
    mod ip_address;
    mod network_policy;
    mod service_cidr;
}

use crate::kinds::field::{Errors, Field};
use flyball_core::names::{dns_subdomain, path_segment};

pub(crate) use ingress::KIND as INGRESS;
pub(crate) use ingress_class::KIND as INGRESS_CLASS;

const GROUP: &str = "networking.k8s.io";

/// Validates a reference to an object by group, kind and name.
fn reference(reference: &Field<'_>) -> Errors {
    let group = reference.at("apiGroup");
    let mut errors = if group.is_set() { group.obeys(dns_subdomain) } else { Errors::new() };
    errors.extend(reference.at("kind").must_obey(path_segment));
    errors.extend(reference.at("name").must_obey(path_segment));
    errors
}
