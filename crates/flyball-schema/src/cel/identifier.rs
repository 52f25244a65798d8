//! Escaping of field names to CEL identifiers; see
//! <https://kubernetes.io/docs/reference/using-api/cel/#escaping>.

/// Returns true if a name is a keyword of CEL.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Keywords of CEL that are valid field names.
pub(crate) const RESERVED: [&str; 22] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "__name__",
];

/// Converts an identifier to a field name.
pub(super) fn unescape(name: &str) -> String {
    let reserved = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    if let Some(word) = reserved.filter(|word| RESERVED.contains(word)) {
        return word.to_owned();
    }
    name.replace("__slash__", "/").replace("__dash__", "-").replace("__dot__", ".").replace("__underscores__", "__")
}

/// Converts a field name to an identifier.
pub(crate) fn escape(name: &str) -> String {
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}
