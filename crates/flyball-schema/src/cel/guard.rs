//! Texts that functions of the library cannot read, refused in Go's words before the library sees them.

use super::netip;
use flyball_core::field::go_quote;
use flyball_core::regexp;
use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::extractors::Arguments;
use kube_cel::cel::objects::Value as Cel;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult};
use std::net::IpAddr;
use std::sync::LazyLock;

/// Says why a text cannot be the first argument of a function.
type Check = fn(&str) -> Option<String>;

/// Functions whose first argument is a text of some form.
const CHECKS: [(&str, Check); 7] = [
    ("ip", ip),
    ("isCanonical", ip),
    ("containsIP", ip),
    ("cidr", cidr),
    ("containsCIDR", cidr),
    ("find", regex),
    ("findAll", regex),
];

/// The library's functions as they are.
static LIBRARY: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// Puts the checks before the functions.
pub(super) fn add(context: &mut Context<'_>) {
    for (name, check) in CHECKS.into_iter().chain([("matches", pattern as Check)]) {
        context.add_function(name, move |call: &FunctionContext<'_, '_>, Arguments(of): Arguments| {
            let why = match of.first() {
                Some(Cel::String(text)) => check(text),
                _ => None,
            };
            match why {
                Some(why) => Err(ExecutionError::function_error(name, why)),
                None => delegate(name, call.this.clone(), &of),
            }
        });
    }
}

/// Calls a function of the library.
fn delegate(name: &str, this: Option<Cel>, of: &[Cel]) -> ResolveResult {
    let mut scope = LIBRARY.new_inner_scope();
    let mut bind = |name: String, value: Cel| {
        scope.add_variable_from_value(name.clone(), value);
        IdedExpr { id: 0, expr: Expr::Ident(name) }
    };
    let target = this.map(|this| Box::new(bind("@this".into(), this)));
    let args = of.iter().enumerate().map(|(i, value)| bind(format!("@{i}"), value.clone())).collect();
    let call = Expr::Call(CallExpr { func_name: name.into(), target, args });
    Cel::resolve(&IdedExpr { id: 0, expr: call }, &scope)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

fn ip(text: &str) -> Option<String> {
    let shown = go_quote(text);
    match netip::address(text) {
        Err(why) => Some(format!("IP Address {shown} parse error during conversion from string: {why}")),
        Ok(_) if text.contains('%') => Some(format!("IP address {shown} with zone value is not allowed")),
        Ok(address) if is_mapped(address) => Some(format!("IPv4-mapped IPv6 address {shown} is not allowed")),
        Ok(_) => None,
    }
}

fn cidr(text: &str) -> Option<String> {
    // The real server says it twice.
    const UNREAD: &str = "network address parse error during conversion from string";
    match netip::prefix(text) {
        Err(why) => Some(format!("{UNREAD}: {UNREAD}: {why}")),
        Ok(address) if is_mapped(address) => {
            Some(format!("{UNREAD}: IPv4-mapped IPv6 address {} is not allowed", go_quote(text)))
        }
        Ok(_) => None,
    }
}

fn pattern(text: &str) -> Option<String> {
    regexp::check(text).err().map(|error| error.to_string())
}

fn regex(text: &str) -> Option<String> {
    pattern(text).map(|why| format!("Illegal regex: {why}"))
}
