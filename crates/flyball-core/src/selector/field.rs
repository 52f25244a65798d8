//! Field selectors: `metadata.name=web,status.phase!=Failed`.

use super::Error;

/// A field selector: all of its terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// The terms, in the order of the selector.
    pub terms: Vec<FieldTerm>,
}

/// One comparison of a field with a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    /// Path of the field, without a leading dot.
    pub field: String,
    /// Value that the field is compared with; an absent field equals the empty string.
    pub value: String,
    /// True if the field must differ from the value.
    pub negated: bool,
}

impl FieldSelector {
    /// Parses the selector of a query.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let operator = |at: &usize| part[*at..].starts_with("!=") || part[*at..].starts_with('=');
            let at = part.char_indices().map(|(at, _)| at).find(operator);
            let Some(at) = at else {
                return Err(Error(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            let (field, rest) = part.split_at(at);
            let (negated, value) = match rest.strip_prefix("!=") {
                Some(value) => (true, value),
                None => (false, rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')).unwrap_or(rest)),
            };
            terms.push(FieldTerm { field: field.to_owned(), value: unescape(value)?, negated });
        }
        Ok(Self { terms })
    }

    /// Returns true if every object is selected.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Adds the requirement that a field equals a value.
    pub fn require(&mut self, field: &str, value: &str) {
        self.terms.push(FieldTerm { field: field.into(), value: value.into(), negated: false });
    }

    /// Returns the value that a field must equal, if there is such a term.
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| !term.negated && term.field == field).map(|term| term.value.as_str())
    }

    /// Returns true if an object is selected. `get` looks up its fields; absent fields are empty strings.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> &'a str) -> bool {
        self.terms.iter().all(|term| (get(&term.field) == term.value) != term.negated)
    }
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unescape(text: &str) -> Result<String, Error> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    return Err(Error(format!(
                        "invalid field selector: invalid escape sequence: \\{}",
                        other.map(String::from).unwrap_or_default()
                    )));
                }
            },
            ',' | '=' => return Err(Error(format!("invalid field selector: unescaped character in value: {c}"))),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_parsed_in_each_form() {
        let selector = FieldSelector::parse("metadata.name=web,status.phase!=Failed,a==b,").unwrap();
        let terms: Vec<_> = selector.terms.iter().map(|t| (t.field.as_str(), t.value.as_str(), t.negated)).collect();
        assert_eq!(terms, [("a", "b", false), ("metadata.name", "web", false), ("status.phase", "Failed", true)]);
        assert_eq!(selector.required("metadata.name"), Some("web"));
    }

    #[test]
    fn escapes_are_decoded() {
        let selector = FieldSelector::parse(r"a=b\,c\=d").unwrap();
        assert_eq!(selector.terms[0].value, "b,c=d");
        assert!(FieldSelector::parse("a=b=c").is_err());
        assert!(FieldSelector::parse(r"a=\x").is_err());
    }

    #[test]
    fn set_based_terms_are_rejected() {
        let error = FieldSelector::parse("metadata.name in (a)").unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'"
        );
    }

    #[test]
    fn absent_field_equals_empty_string() {
        let get = |field: &str| if field == "a" { "x" } else { "" };
        assert!(FieldSelector::parse("a=x,b=").unwrap().matches(get));
        assert!(!FieldSelector::parse("b!=").unwrap().matches(get));
    }
}
