//! The load balancer status of services and ingresses.

use crate::kinds::field::{Errors, Field};
use crate::kinds::printer::{View, text};
use crate::kinds::rules::address;
use flyball_core::names::dns_subdomain;

/// Validates the load balancer status of services and ingresses.
pub(super) fn status(balancer: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    for ingress in balancer.at("ingress").items() {
        let (ip, name, mode) = (ingress.at("ip"), ingress.at("hostname"), ingress.at("ipMode"));
        if !ip.is_empty() {
            errors.extend(address::check(&ip));
        }
        if !ip.is_empty() && mode.is_set() {
            errors.extend(mode.must_be_in(&["Proxy", "VIP"]));
        } else if mode.is_set() && ip.is_empty() {
            errors.push(mode.forbidden("may not be specified when `ip` is not set"));
        }
        if !name.is_empty() {
            errors.extend(name.obeys(dns_subdomain));
            if address::parse(name.text()).is_some() {
                errors.push(name.invalid("must be a DNS name, not an IP address"));
            }
        }
    }
    errors
}

/// Formats the addresses of a load balancer.
pub(super) fn addresses(view: &View<'_>) -> String {
    let ingress = view.list("status.loadBalancer.ingress").iter();
    let address =
        |ingress| Some(text(ingress, "ip")).filter(|ip| !ip.is_empty()).unwrap_or_else(|| text(ingress, "hostname"));
    let mut addresses: Vec<&str> = ingress.map(address).filter(|address| !address.is_empty()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",")
}
