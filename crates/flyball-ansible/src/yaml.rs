//! YAML as Ansible parses it: `yes` and `on` are true, and `1e3` is a string.

mod compose;
mod emit;
mod lines;
mod scalar;
mod scalars;

pub(crate) use compose::ScalarError;
pub(crate) use emit::{Options, emit};
pub(crate) use lines::Lines;

use crate::error::{Error, Result};
use crate::value::Value;
use crate::vault::Vault;
use std::path::Path;

/// Size limit of a file: larger ones were not written by hand.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Memory limit of the values of a file.
const MAX_FILE_MEMORY: usize = 256 << 20;
/// Memory limit of the values of a text that users may have written in part: several times that of the largest object
/// of a cluster.
pub(crate) const MAX_TEXT_MEMORY: usize = 32 << 20;

/// Reads a text file within the size limit, and decrypts it if it is encrypted.
pub(crate) fn read_text(path: &Path, vault: &Vault) -> Result<String> {
    let text = read_encrypted(path)?;
    match Vault::is_encrypted(&text) {
        true => vault.decrypt(&text).map_err(|problem| Error::vault(path, 0, problem)),
        false => Ok(text),
    }
}

/// Reads a text file within the size limit, as it is.
pub(crate) fn read_encrypted(path: &Path) -> Result<String> {
    let size = std::fs::metadata(path).map_err(|error| Error::read(path, &error))?.len();
    if size > MAX_FILE_BYTES {
        return Err(Error::file(path, format_args!("the file has {size} bytes, but the limit is {MAX_FILE_BYTES}")));
    }
    std::fs::read_to_string(path).map_err(|error| Error::read(path, &error))
}

/// Reads a file of one document; `null` if there is none.
pub(crate) fn read_document(path: &Path, vault: &Vault) -> Result<Value> {
    let mut documents = read_documents(path, vault)?;
    match documents.len() {
        0 => Ok(Value::Null),
        1 => Ok(documents.remove(0)),
        several => Err(Error::file(path, format_args!("expected one document, found {several}"))),
    }
}

/// Reads the non-empty documents of a file.
pub(crate) fn read_documents(path: &Path, vault: &Vault) -> Result<Vec<Value>> {
    let documents = non_empty(compose::compose(&read_text(path, vault)?, MAX_FILE_MEMORY, Some(vault)));
    documents.map_err(|problem| match problem {
        ScalarError::Vault { problem, line } => Error::vault(path, line, problem),
        problem => Error::file(path, invalid(&problem)),
    })
}

/// Returns true if a file is encrypted, and cannot be decrypted.
pub(crate) fn is_locked(path: &Path, vault: &Vault) -> Result<bool> {
    let text = read_encrypted(path)?;
    Ok(Vault::is_encrypted(&text) && vault.decrypt(&text).is_err())
}

/// Parses all non-empty documents of a text of the operator's author, whose strings may be templates. Values with the
/// tag `!vault` are decrypted; these and values with the tag `!unsafe` become templates with the same result.
pub(crate) fn documents(text: &str, vault: &Vault) -> Result<Vec<Value>, String> {
    non_empty(compose::compose(text, MAX_FILE_MEMORY, Some(vault))).map_err(|problem| invalid(&problem))
}

/// Parses all non-empty documents of a text that users may have written, at least in part. Their values may take a
/// number of bytes, see [`memory`](crate::value::memory).
pub(crate) fn documents_within(text: &str, bytes: usize) -> Result<Vec<Value>, ScalarError> {
    non_empty(compose::compose(text, bytes, None))
}

fn non_empty(documents: Result<Vec<Value>, ScalarError>) -> Result<Vec<Value>, ScalarError> {
    let mut documents = documents?;
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

/// Describes the problem of a string.
pub(crate) fn invalid(problem: &ScalarError) -> String {
    format!("invalid YAML: {problem}")
}

/// Describes the type of a value, for messages.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// Returns true if the name of a file is that of a YAML file.
pub(crate) fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "yml" || ending == "yaml")
}

/// Converts a value to a string.
pub(crate) fn to_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Parses a boolean as Ansible does in arguments of modules.
pub(crate) fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::Number(number) if number.as_f64() == Some(1.0) => Some(true),
        Value::Number(number) if number.as_f64() == Some(0.0) => Some(false),
        Value::String(word) => match word.to_ascii_lowercase().as_str() {
            "y" | "yes" | "on" | "1" | "true" | "t" | "1.0" => Some(true),
            "n" | "no" | "off" | "0" | "false" | "f" | "0.0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json;

    #[test]
    fn unquoted_words_are_booleans() {
        let text = "a: yes\nb: 'yes'\nc: off\nd: True\ne: 0644\n";
        assert_eq!(
            documents(text, &Vault::default()).unwrap(),
            [json!({"a": true, "b": "yes", "c": false, "d": true, "e": 420})]
        );
        assert_eq!(documents("---\n# nothing\n---\n- 1\n", &Vault::default()).unwrap(), [json!([1])]);
    }

    #[test]
    fn errors_fit_on_one_line() {
        for text in ["a: [", "- a\nb: 1\n"] {
            let problem = documents(text, &Vault::default()).unwrap_err();
            assert!(problem.starts_with("invalid YAML: ") && !problem.contains('\n'), "{problem}");
        }
    }
}
