//! Strings with a syntax: names of variables, domains and headers.

use super::super::field::Field;
use flyball_core::field::FieldError;
use flyball_core::names::{self, Rule};

/// Validates names of environment variables: printable characters except `=`.
pub(crate) fn env_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".into()];
    }
    let good = text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=');
    let wrong = "a valid environment variable name must consist only of printable ASCII characters other than '='";
    if good { Vec::new() } else { vec![wrong.into()] }
}

/// Validates names of HTTP headers.
pub(crate) fn header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    let what = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![names::pattern_error(what, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// DNS names whose labels may contain underscores, as in search paths of resolvers.
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
    if !text.strip_prefix("*.").is_some_and(names::is_subdomain) {
        let what = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        wrong.push(names::pattern_error(what, &format!("\\*\\.{LABEL}(\\.{LABEL})*"), &["*.example.com"]));
    }
    wrong
}

/// The field must be a DNS name with a minimum number of labels.
pub(crate) fn fully_qualified(field: &Field<'_>, parts: usize) -> Option<FieldError> {
    let text = field.text();
    if text.is_empty() {
        return Some(field.required(""));
    }
    let wrong = names::dns_subdomain(text);
    if !wrong.is_empty() {
        return Some(field.invalid(wrong.join(",")));
    }
    let few = if parts == 2 { "two" } else { "three" };
    let why = format!("should be a domain with at least {few} segments separated by dots");
    (text.split('.').count() < parts).then(|| field.invalid(why))
}

/// The field must be a path after a domain: `example.com/path`.
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

/// The field must be the name of a CSI driver.
pub(crate) fn csi_driver(field: &Field<'_>) -> Vec<FieldError> {
    let text = field.text();
    if text.is_empty() {
        return vec![field.required("")];
    }
    let long = (text.len() > 63).then(|| field.too_long(63));
    let wrong = names::dns_subdomain(&text.to_lowercase()).into_iter().map(|wrong| field.invalid(wrong));
    long.into_iter().chain(wrong).collect()
}

/// Quotes strings and joins them like Go's `%q` of a list.
pub(crate) fn quoted(texts: &[&str]) -> String {
    format!("[{}]", texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" "))
}

/// The field must be the name of a signer: `example.com/name.of.it`.
pub(crate) fn signer_name(field: &Field<'_>) -> Vec<FieldError> {
    let text = field.text();
    if text.is_empty() {
        return vec![field.required("")];
    }
    let Some((domain, path)) = text.split_once('/').filter(|(_, path)| !path.contains('/')) else {
        return vec![field.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'")];
    };
    let labels = |text: &str, rule: Rule| -> Vec<FieldError> {
        let bad = text.split('.').find(|label| !rule(label).is_empty());
        let wrong =
            bad.into_iter().flat_map(|label| rule(label).into_iter().map(move |wrong| (label.to_owned(), wrong)));
        wrong.map(|(label, wrong)| field.invalid_as(text, format!("validating label {label:?}: {wrong}"))).collect()
    };
    let mut errors = labels(domain, names::dns_label);
    if domain.split('.').count() < 2 {
        errors.push(field.invalid_as(domain, "should be a domain with at least two segments separated by dots"));
    }
    errors.extend(labels(path, names::dns_subdomain));
    errors
}
