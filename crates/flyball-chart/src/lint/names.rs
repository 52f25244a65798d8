//! Names of objects. See <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>.

use crate::quote::quote;

const MAX_SUBDOMAIN: usize = 253;
const MAX_LABEL: usize = 63;

/// Validates the name of an object of a kind.
///
/// # Errors
///
/// Returns the messages of Kubernetes.
pub(super) fn check(kind: &str, name: &str) -> Result<(), String> {
    let problems = match kind.to_lowercase().as_str() {
        "service" => label_1035(name),
        "namespace" => label(name),
        "certificatesigningrequest" => Vec::new(),
        "role" | "clusterrole" | "rolebinding" | "clusterrolebinding" => path_segment(name),
        _ => subdomain(name),
    };
    let quoted = quote(name.as_bytes());
    let problems: Vec<String> =
        problems.iter().map(|problem| format!("metadata.name: Invalid value: {quoted}: {problem}")).collect();
    let problems = match problems.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Err(format!("object name does not conform to Kubernetes naming requirements: {quoted}: {problems}"))
}

fn too_long(name: &str, max: usize) -> Option<String> {
    (name.len() > max).then(|| format!("must be no more than {max} characters"))
}

fn is_label(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.chars().all(is_inner) && !name.starts_with('-') && !name.ends_with('-')
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn subdomain(name: &str) -> Vec<String> {
    let form = (!is_subdomain(name)).then(|| {
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
         start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            .to_owned()
    });
    too_long(name, MAX_SUBDOMAIN).into_iter().chain(form).collect()
}

fn label(name: &str) -> Vec<String> {
    let form = (!is_label(name)).then(|| match is_subdomain(name) {
        true => "must not contain dots".to_owned(),
        false => "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                  start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                  validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            .to_owned(),
    });
    too_long(name, MAX_LABEL).into_iter().chain(form).collect()
}

fn label_1035(name: &str) -> Vec<String> {
    let is_valid = is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase());
    let form = (!is_valid).then(|| {
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
         character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
         validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
            .to_owned()
    });
    too_long(name, MAX_LABEL).into_iter().chain(form).collect()
}

fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    let parts = ["/", "%"].into_iter().filter(|part| name.contains(part));
    parts.map(|part| format!("may not contain '{part}'")).collect()
}
