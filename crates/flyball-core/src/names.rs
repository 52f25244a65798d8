//! Validation of names, labels and keys, with the messages of Kubernetes.
//!
//! Each rule returns the reasons why a string is invalid; an empty list if it is valid. See
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>.

/// A validation rule for a string, which returns the error messages.
pub type Rule = fn(&str) -> Vec<String>;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// Like [`too_long`], with the message for keys and values of labels.
fn too_many_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// Returns the message of Kubernetes for a pattern mismatch, with examples and the pattern.
pub fn pattern_error(what: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{what} (regex used for validation is '{pattern}')");
    }
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{what} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

fn lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Returns true if `text` is not empty, starts and ends with an `edge` and contains only edges and `inner` bytes.
fn has_edges(text: &str, edge: fn(u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    edge(*first) && edge(*last) && bytes.iter().all(|b| edge(*b) || inner.contains(b))
}

fn is_label(text: &str) -> bool {
    has_edges(text, lower_alphanumeric, b"-")
}

/// Returns true if a text is a DNS name (RFC 1123) of any length.
pub fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// Validates a DNS label (RFC 1123), as for namespaces, containers, volumes and ports. Returns all errors.
pub fn dns_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_label(text) {
        if is_subdomain(text) {
            errors.push("must not contain dots".into());
        } else {
            let what = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
            errors.push(pattern_error(what, LABEL, &["my-name", "123-abc"]));
        }
    }
    errors
}

/// Validates a DNS name (RFC 1123), as for the names of most kinds.
pub fn dns_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(too_long(253));
    }
    if !is_subdomain(text) {
        let what = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        errors.push(pattern_error(what, &format!("{LABEL}(\\.{LABEL})*"), &["example.com"]));
    }
    errors
}

/// Validates a DNS label that starts with a letter (RFC 1035), as for services in older releases and kinds of CRDs.
pub fn dns_1035_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        let what = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
        errors.push(pattern_error(what, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    errors
}

/// Validates one segment of a URL path, as for RBAC: it may contain colons and uppercase letters.
pub fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"].iter().filter(|bad| text.contains(**bad)).map(|bad| format!("may not contain '{bad}'")).collect()
}

fn is_key_name(text: &str) -> bool {
    has_edges(text, |b| b.is_ascii_alphanumeric(), b"-_.")
}

/// Returns true if every parser reads a name as one segment of a URL path: in addition to the rules of
/// [`path_segment`], it starts no query and no fragment. Names from custom resources must pass this check before they
/// become part of a request.
pub fn is_path_segment(name: &str) -> bool {
    let splits = |c: char| matches!(c, '?' | '#' | '\\') || c.is_whitespace() || c.is_control();
    !name.is_empty() && !name.contains(splits) && path_segment(name).is_empty()
}

/// Validates a qualified name, as for keys of labels and annotations, finalizers and condition types: `name` or
/// `prefix.example.com/name`.
pub fn qualified_name(text: &str) -> Vec<String> {
    const WHAT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    const EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
    let mut errors = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".into());
            } else {
                errors.extend(dns_subdomain(prefix).into_iter().map(|e| format!("prefix part {e}")));
            }
            name
        }
        _ => {
            let error = pattern_error(WHAT, LABEL_KEY, EXAMPLES);
            return vec![format!(
                "a valid label key {error} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", too_many_bytes(63)));
    }
    if !is_key_name(name) {
        errors.push(format!("name part {}", pattern_error(WHAT, LABEL_KEY, EXAMPLES)));
    }
    errors
}

/// Validates the value of a label.
pub fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_many_bytes(63));
    }
    if !text.is_empty() && !is_key_name(text) {
        let what = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
        errors.push(pattern_error(what, &format!("({LABEL_KEY})?"), &["MyValue", "my_value", "12345"]));
    }
    errors
}

/// Validates a key of the data of config maps and secrets.
pub fn config_key(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(too_long(253));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        let what = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        errors.push(pattern_error(what, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    errors.extend(parent_references(text));
    errors
}

/// Rejects names that would leave the directory when used as a file name.
fn parent_references(text: &str) -> Option<String> {
    match text {
        "." => Some("must not be '.'".into()),
        ".." => Some("must not be '..'".into()),
        text if text.starts_with("..") => Some("must not start with '..'".into()),
        _ => None,
    }
}

/// Applies a rule to the prefix of a generated name, which may end with a dash.
pub fn as_prefix(rule: Rule, text: &str) -> Vec<String> {
    match text.strip_suffix('-') {
        // Kubernetes cuts off one character more than needed; the messages are the same.
        Some(stem) if !stem.is_empty() => {
            rule(&format!("{}a", &stem[..stem.len() - stem.chars().next_back().map_or(0, char::len_utf8)]))
        }
        _ => rule(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: Rule, accepted: &[&str], rejected: &[&str]) {
        for text in accepted {
            assert_eq!(rule(text), Vec::<String>::new(), "{text}");
        }
        for text in rejected {
            assert!(!rule(text).is_empty(), "{text} was accepted");
        }
    }

    #[test]
    fn labels_and_subdomains_are_validated() {
        check(dns_label, &["a", "a-1", "1"], &["", "-a", "a-", "A", "a.b", "a_b", &"x".repeat(64)]);
        check(dns_subdomain, &["a", "a.b-c.1"], &["", "a..b", ".a", "a.", "A.b", &"x".repeat(254)]);
        check(dns_1035_label, &["a", "a1"], &["1a", "", "a.b"]);
        check(path_segment, &["system:node", "A b"], &["a/b", "a%", ".", ".."]);
    }

    #[test]
    fn path_segments_are_validated() {
        assert!(["a.b-c", "system:node", "..a", "A_b"].into_iter().all(is_path_segment));
        for name in ["", ".", "..", "../../other/secrets/crown", "a/b", "a%2fb", "a?b", "a#b", "a b", "a\nb", "a\\b"] {
            assert!(!is_path_segment(name), "{name:?}");
        }
    }

    #[test]
    fn keys_and_values_are_validated() {
        check(
            qualified_name,
            &["a", "A.b_c", "example.com/a"],
            &["", "/a", "a/", "a/b/c", "-a", "Example.com/a", "a b"],
        );
        check(label_value, &["", "a", "A_b.c"], &["-a", "a b", "é", &"x".repeat(64)]);
        check(config_key, &["a.b", ".a", "_"], &["", "a b", "..", "..a", "."]);
    }

    #[test]
    fn prefixes_may_end_in_a_dash() {
        assert!(as_prefix(dns_subdomain, "web-").is_empty());
        assert!(!as_prefix(dns_subdomain, "Web-").is_empty());
        assert!(!as_prefix(dns_subdomain, "-").is_empty());
    }

    #[test]
    fn errors_describe_the_accepted_form() {
        assert_eq!(
            dns_subdomain("A"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
              alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
    }
}
