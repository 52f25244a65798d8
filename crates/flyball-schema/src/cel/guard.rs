//! Validation of string arguments before library functions parse them, with Go's error messages.

use super::memory::library;
use super::netip;
use flyball_core::field::go_quote;
use kube_cel::cel::extractors::Arguments;
use kube_cel::cel::objects::Value as Cel;
use kube_cel::cel::{Context, ExecutionError, FunctionContext};
use std::net::IpAddr;

/// A check of a function's first argument, which returns the reason why it is invalid.
type Check = fn(&str) -> Option<String>;

/// Functions whose first argument is a string in a specific format.
const CHECKS: [(&str, Check); 5] =
    [("ip", ip), ("isCanonical", ip), ("containsIP", ip), ("cidr", cidr), ("containsCIDR", cidr)];

/// Adds checks to the functions.
pub(super) fn add(context: &mut Context<'_>) {
    for (name, check) in CHECKS {
        context.add_function(name, move |call: &FunctionContext<'_, '_>, Arguments(of): Arguments| {
            let reason = match of.first() {
                Some(Cel::String(text)) => check(text),
                _ => None,
            };
            match reason {
                Some(reason) => Err(ExecutionError::function_error(name, reason)),
                None => library(name, call.this.clone(), of.iter().cloned()),
            }
        });
    }
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

fn ip(text: &str) -> Option<String> {
    let quoted = go_quote(text);
    match netip::address(text) {
        Err(reason) => Some(format!("IP Address {quoted} parse error during conversion from string: {reason}")),
        Ok(_) if text.contains('%') => Some(format!("IP address {quoted} with zone value is not allowed")),
        Ok(address) if is_mapped(address) => Some(format!("IPv4-mapped IPv6 address {quoted} is not allowed")),
        Ok(_) => None,
    }
}

fn cidr(text: &str) -> Option<String> {
    // kube-apiserver's message repeats it.
    const PARSE_ERROR: &str = "network address parse error during conversion from string";
    match netip::prefix(text) {
        Err(why) => Some(format!("{PARSE_ERROR}: {PARSE_ERROR}: {why}")),
        Ok(address) if is_mapped(address) => {
            Some(format!("{PARSE_ERROR}: IPv4-mapped IPv6 address {} is not allowed", go_quote(text)))
        }
        Ok(_) => None,
    }
}
