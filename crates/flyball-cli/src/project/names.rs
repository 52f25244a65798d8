//! Validation of names. Each function returns the name or an error message.

use flyball_core::names;

/// Keywords of Rust, which are not valid names in the code of a project.
const RESERVED: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Crates that a project needs, and those that every program has: a package of such a name would hide one.
const CRATES: &[&str] = &[
    "alloc",
    "core",
    "flyball",
    "flyball-cluster",
    "k8s-openapi",
    "kube",
    "proc-macro",
    "schemars",
    "serde",
    "serde-json",
    "std",
    "test",
    "tokio",
];

fn validated(text: &str, wrong: Vec<String>) -> Result<String, String> {
    if wrong.is_empty() { Ok(text.to_owned()) } else { Err(format!("{text:?} is invalid: {}", wrong.join("; "))) }
}

/// Checks the domain of groups, such as `acme.io`.
pub(crate) fn domain(text: &str) -> Result<String, String> {
    validated(text, names::dns_subdomain(text))
}

/// Checks a group, whole or without its domain.
pub(crate) fn group(text: &str) -> Result<String, String> {
    validated(text, names::dns_subdomain(text))
}

/// Checks a group as [`group`] does; the empty one is Kubernetes' core group.
pub(crate) fn group_or_core(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { group(text) }
}

/// Checks a version, which must follow Kubernetes' version priority; see
/// <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#version-priority>.
pub(crate) fn version(text: &str) -> Result<String, String> {
    let number = |text: &str| {
        !text.is_empty() && !text.starts_with('0') && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_version =
        text.strip_prefix('v').is_some_and(|rest| match rest.split_once("alpha").or_else(|| rest.split_once("beta")) {
            Some((major, minor)) => number(major) && number(minor),
            None => number(rest),
        });
    let wrong = "expected a version such as v1, v1beta1 or v1alpha1".to_owned();
    validated(text, if is_version { Vec::new() } else { vec![wrong] })
}

/// Checks a kind, which has to be a name of a type, and of Kubernetes' in small letters.
pub(crate) fn kind(text: &str) -> Result<String, String> {
    let wrong = if !text.starts_with(|first: char| first.is_ascii_uppercase()) {
        vec!["a kind begins with a capital letter, such as Redis".to_owned()]
    } else if !text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        vec!["a kind consists of letters and digits, such as VmGroup".to_owned()]
    } else {
        names::dns_1035_label(&text.to_ascii_lowercase())
    };
    validated(text, wrong)
}

/// Checks the name of many objects of a kind, which is in their URLs.
pub(crate) fn plural(text: &str) -> Result<String, String> {
    validated(text, names::dns_1035_label(text))
}

/// Checks the name of a project: of a package, of an operator and its service account.
pub(crate) fn project(text: &str) -> Result<String, String> {
    let mut wrong = names::dns_1035_label(text);
    if wrong.is_empty() && (RESERVED.contains(&text) || CRATES.contains(&text)) {
        wrong.push("the name is a Rust keyword or the name of a dependency".into());
    }
    validated(text, wrong)
}

/// Returns a name for a module or a field that Rust does not keep for itself.
pub(crate) fn escape_keyword(name: &str) -> String {
    if RESERVED.contains(&name) { format!("{name}_") } else { name.to_owned() }
}

/// Returns the name of many objects of a kind, as an English noun.
pub(crate) fn pluralize(kind: &str) -> String {
    let word = kind.to_lowercase();
    let ends = |ends: &[&str]| ends.iter().any(|end| word.ends_with(end));
    match word.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if ends(&["s", "x", "z", "ch", "sh"]) => format!("{word}es"),
        _ => format!("{word}s"),
    }
}
