//! Texts with a form of their own: names of variables, of domains, of headers.

use super::super::field::Field;
use flyball_core::field::FieldError;
use flyball_core::names::{self, Rule};

/// Names of environment variables: all that can be printed but `=`.
pub(crate) fn env_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".into()];
    }
    let good = text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=');
    let wrong = "a valid environment variable name must consist only of printable ASCII characters other than '='";
    if good { Vec::new() } else { vec![wrong.into()] }
}

/// Names of HTTP headers.
pub(crate) fn header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    let what = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![names::pattern_error(what, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// DNS names whose parts may hold underscores, as search paths of resolvers may.
pub(crate) fn subdomain_with_underscores(text: &str) -> Vec<String> {
    const LABEL: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = |part: &str| {
        let part = part.strip_prefix('_').unwrap_or(part).as_bytes();
        let (Some(first), Some(last)) = (part.first(), part.last()) else { return false };
        alphanumeric(*first) && alphanumeric(*last) && part.iter().all(|b| alphanumeric(*b) || b"-_".contains(b))
    };
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push("must be no more than 253 characters".into());
    }
    if !text.split('.').all(label) {
        let what = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character";
        wrong.push(names::pattern_error(what, &format!("{LABEL}(\\.{LABEL})*"), &["example.com"]));
    }
    wrong
}

/// DNS names that begin with `*.`.
pub(crate) fn wildcard_subdomain(text: &str) -> Vec<String> {
    const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push("must be no more than 253 characters".into());
    }
    let good = text
        .strip_prefix("*.")
        .is_some_and(|rest| names::dns_subdomain(rest).iter().all(|e| e.starts_with("must be no more")));
    if !good {
        let what = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        wrong.push(names::pattern_error(what, &format!("\\*\\.{LABEL}(\\.{LABEL})*"), &["*.example.com"]));
    }
    wrong
}

/// The field must hold a DNS name of three parts or more.
pub(crate) fn fully_qualified(field: &Field<'_>) -> Option<FieldError> {
    let text = field.text();
    if text.is_empty() {
        return Some(field.required(""));
    }
    let wrong = names::dns_subdomain(text);
    if !wrong.is_empty() {
        return Some(field.invalid(wrong.join(",")));
    }
    (text.split('.').count() < 3)
        .then(|| field.invalid("should be a domain with at least three segments separated by dots"))
}

/// The field must hold a path after a domain: `example.com/path`.
pub(crate) fn domain_prefixed(field: &Field<'_>) -> Vec<FieldError> {
    let text = field.text();
    if text.is_empty() {
        return vec![field.required("")];
    }
    let Some((host, path)) = text.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) else {
        return vec![field.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")")];
    };
    let mut errors: Vec<FieldError> =
        names::dns_subdomain(host).into_iter().map(|wrong| field.invalid_as(host, wrong)).collect();
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        errors.push(
            field.invalid_as(path, names::pattern_error("Invalid path", "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+", &[])),
        );
    }
    errors
}

/// The field must hold the name of a CSI driver.
pub(crate) fn csi_driver(field: &Field<'_>) -> Vec<FieldError> {
    let text = field.text();
    if text.is_empty() {
        return vec![field.required("")];
    }
    let long = (text.len() > 63).then(|| field.too_long(63));
    let wrong = names::dns_subdomain(&text.to_lowercase()).into_iter().map(|wrong| field.invalid(wrong));
    long.into_iter().chain(wrong).collect()
}

/// Quotes texts and joins them as Go's `%q` of a list does.
pub(crate) fn quoted(texts: &[&str]) -> String {
    format!("[{}]", texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" "))
}

/// Tells whether a text obeys a rule.
pub(crate) fn obeys(text: &str, rule: Rule) -> bool {
    rule(text).is_empty()
}
