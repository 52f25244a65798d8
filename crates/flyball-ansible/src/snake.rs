//! The names of variables: spec keys in snake case, as in operator-sdk's Ansible operator.
//!
//! Roles rely on its results, including odd ones: `mTLS` becomes `mtls` and `OAuth2Token` becomes `_o_auth2_token`.
//! See
//! <https://sdk.operatorframework.io/docs/building-operators/ansible/development-tips/#extra-vars-sent-to-ansible>.

use crate::value::{Map, Value};
use std::sync::LazyLock;

/// Abbreviations that are separate words at any position.
const WORDS: [&str; 3] = ["HTTP", "URL", "IP"];

/// A number between letters, followed by another number: `a1b2`.
static NUMBER: LazyLock<regex::Regex> =
    LazyLock::new(|| regex::Regex::new(r"([a-zA-Z])([0-9]+)([a-zA-Z][0-9]+)").expect("the pattern is valid"));

/// Converts the keys of an object to snake case, at every depth. On collisions, a key that already is in snake case
/// takes precedence, else the first one.
pub(crate) fn snake_keys(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut snakes = Map::new();
            for (key, field) in fields {
                let name = snake(key);
                if name == *key || !(fields.contains_key(&name) || snakes.contains_key(&name)) {
                    snakes.insert(name, snake_keys(field));
                }
            }
            Value::Object(snakes)
        }
        Value::Array(items) => Value::Array(items.iter().map(snake_keys).collect()),
        scalar => scalar.clone(),
    }
}

/// Converts a key to snake case.
pub(crate) fn snake(key: &str) -> String {
    let spaced = NUMBER.replace_all(key, "$1 $2 $3");
    let text = spaced.trim_matches(' ');
    let begins_upper = text.starts_with(|c: char| c.is_ascii_uppercase());
    let is_upper = text.to_uppercase() == text;
    let text = if is_upper { text.to_owned() } else { WORDS.iter().fold(text.to_owned(), isolate) };
    let words = split(&text);
    // A leading capital is not valid in a variable name, unless it belongs to an abbreviation.
    let is_known = words.first().is_some_and(|first| WORDS.iter().any(|word| word.eq_ignore_ascii_case(first)));
    let prefix = if begins_upper && !is_known { "_" } else { "" };
    format!("{prefix}{}", words.join("_").to_lowercase())
}

/// Surrounds an abbreviation, or its plural, with underscores.
fn isolate(text: String, word: &&str) -> String {
    let Some((before, after)) = text.split_once(word) else { return text };
    let (plural, after) = match after.strip_prefix('s') {
        Some(rest) => ("S", rest),
        None => ("", after),
    };
    let (left, right) = (if before.is_empty() { "" } else { "_" }, if after.is_empty() { "" } else { "_" });
    format!("{before}{left}{word}{plural}{right}{after}")
}

/// Splits at delimiters, and between lower-case and upper-case letters.
fn split(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let word = words.last_mut().expect("there is at least one word");
        let next = letters.peek().copied().unwrap_or('\0');
        let ends = letter.is_ascii_lowercase() && next.is_ascii_uppercase();
        let begins = letter.is_ascii_uppercase() && next.is_ascii_lowercase();
        match letter {
            ' ' | '_' | '-' => words.push(String::new()),
            _ if word.is_empty() || !(begins || ends) => word.push(letter),
            _ if begins => words.push(letter.into()),
            _ => {
                word.push(letter);
                words.push(String::new());
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snake_case_matches_operator_sdk() {
        let cases: Vec<Value> = serde_json::from_str(include_str!("../tests/data/snake-case.json")).unwrap();
        for case in cases {
            assert_eq!(snake_keys(&case["in"]), case["out"], "{}", case["in"]);
        }
    }

    #[test]
    fn unusual_keys_are_converted() {
        for (key, expected) in
            [("", ""), (" ", ""), ("-", "_"), ("egressIPs", "egress_ips"), ("IPsOfPods", "_ips_of_pods")]
        {
            assert_eq!(snake(key), expected, "{key:?}");
        }
    }
}
