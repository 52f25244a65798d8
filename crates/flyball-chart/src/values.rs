//! The values of a user: files, `--set` and similar flags.

mod set;

use crate::helm::HelmVersion;
use crate::yaml;
use serde_json::{Map, Value};

/// A user's values, which override those of the chart.
///
/// Numbers of YAML and JSON are floats, as in Helm; those of `--set` are integers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values {
    map: Map<String, Value>,
    /// Overrides by the author of the operator, if the values are untrusted.
    trusted: Option<Map<String, Value>>,
}

/// An error of reading values, with Helm's message.
#[derive(Debug, thiserror::Error)]
pub enum ValuesError {
    /// A values file is not YAML, or not a mapping.
    #[error("failed to parse {file}: {message}")]
    File {
        /// Its name, as passed by the caller.
        file: String,
        /// The problem.
        message: String,
    },
    /// An argument does not follow the syntax of its flag.
    #[error("failed parsing {flag} data: {message}")]
    Set {
        /// `--set`, `--set-string`, `--set-file` or `--set-literal`.
        flag: &'static str,
        /// The problem.
        message: String,
    },
    /// An argument of `--set-json` is not JSON.
    #[error("failed parsing --set-json data {argument}")]
    Json {
        /// `JSON: ` and a mapping, or the argument of the flag.
        argument: String,
    },
}

/// Reads a file for `--set-file`; the error is the message of the operating system.
pub type ReadFile<'r> = &'r dyn Fn(&str) -> Result<Vec<u8>, String>;

impl From<Map<String, Value>> for Values {
    fn from(map: Map<String, Value>) -> Self {
        Self { map, trusted: None }
    }
}

impl Values {
    /// Creates untrusted values, such as the spec of a custom resource: templates process their strings and never
    /// evaluate them. Values that are set afterwards are trusted.
    pub fn untrusted(map: Map<String, Value>) -> Self {
        Self { map, trusted: Some(Map::new()) }
    }

    /// Returns the trusted part of untrusted values.
    pub(crate) fn trusted(&self) -> Option<&Map<String, Value>> {
        self.trusted.as_ref()
    }

    /// Changes the values, and their trusted part.
    fn change<E>(&mut self, change: impl Fn(&mut Map<String, Value>) -> Result<(), E>) -> Result<(), E> {
        self.trusted.as_mut().map_or(Ok(()), &change)?;
        change(&mut self.map)
    }

    /// Returns the current values.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.map
    }

    /// Merges YAML over the values, like `--values`; `name` is used in errors.
    ///
    /// # Errors
    ///
    /// Fails if the text is not YAML, or not a mapping.
    pub fn merge_yaml(&mut self, name: &str, text: &[u8]) -> Result<(), ValuesError> {
        self.merge_yaml_as(name, text, HelmVersion::default())
    }

    /// Merges YAML over the values like a version of Helm: with Helm 4, a file may have several documents.
    pub(crate) fn merge_yaml_as(&mut self, name: &str, text: &[u8], helm: HelmVersion) -> Result<(), ValuesError> {
        let map = read(text, helm).map_err(|message| ValuesError::File { file: name.to_owned(), message })?;
        self.change(|values| {
            merge(values, map.clone());
            Ok(())
        })
    }

    /// Sets values as `--set` does, such as `image.tag=1.2,list={a,b}`.
    ///
    /// # Errors
    ///
    /// Fails if the argument does not follow Helm's syntax.
    pub fn set(&mut self, argument: &str) -> Result<(), ValuesError> {
        self.change(|map| set::parse(argument, map, &set::Mode::Typed))
            .map_err(|message| ValuesError::Set { flag: "--set", message })
    }

    /// Sets strings like `--set-string`: as [`Values::set`], but `1` and `true` stay strings.
    ///
    /// # Errors
    ///
    /// Fails if the argument does not follow Helm's syntax.
    pub fn set_string(&mut self, argument: &str) -> Result<(), ValuesError> {
        self.change(|map| set::parse(argument, map, &set::Mode::Text))
            .map_err(|message| ValuesError::Set { flag: "--set-string", message })
    }

    /// Merges trusted values over the values: mappings are merged, and lists are replaced.
    pub fn merge(&mut self, over: &Values) {
        let merged: Result<(), std::convert::Infallible> = self.change(|values| {
            merge(values, over.map.clone());
            Ok(())
        });
        let Ok(()) = merged;
    }

    /// Sets values to contents of files, like `--set-file`.
    ///
    /// # Errors
    ///
    /// Fails if the argument does not follow Helm's syntax, or a file cannot be read.
    pub fn set_file(&mut self, argument: &str, read: ReadFile<'_>) -> Result<(), ValuesError> {
        self.change(|map| set::parse(argument, map, &set::Mode::File(read)))
            .map_err(|message| ValuesError::Set { flag: "--set-file", message })
    }

    /// Sets JSON like `--set-json`: `key=value` pairs, or a mapping.
    ///
    /// # Errors
    ///
    /// Fails if the argument is not JSON.
    pub fn set_json(&mut self, argument: &str) -> Result<(), ValuesError> {
        let trimmed = argument.trim();
        if trimmed.starts_with('{') {
            return match serde_json::from_str::<Map<String, Value>>(trimmed) {
                Ok(map) => {
                    let map: Map<String, Value> = map.into_iter().map(|(key, value)| (key, floats(value))).collect();
                    self.change(|values| {
                        merge(values, map.clone());
                        Ok(())
                    })
                }
                Err(_) => Err(ValuesError::Json { argument: format!("JSON: {argument}") }),
            };
        }
        self.set_json_pairs(argument)
    }

    /// Sets JSON like `--set-json` of Helm 3: only `key=value` pairs.
    pub(crate) fn set_json_pairs(&mut self, argument: &str) -> Result<(), ValuesError> {
        self.change(|map| set::parse(argument, map, &set::Mode::Json))
            .map_err(|_| ValuesError::Json { argument: argument.to_owned() })
    }

    /// Sets a string without special characters, like `--set-literal`.
    ///
    /// # Errors
    ///
    /// Fails if the path before the `=` does not follow Helm's syntax.
    pub fn set_literal(&mut self, argument: &str) -> Result<(), ValuesError> {
        self.change(|map| set::parse(argument, map, &set::Mode::Literal))
            .map_err(|message| ValuesError::Set { flag: "--set-literal", message })
    }
}

/// Parses a values file. With Helm 4, it may have several documents, each of which overrides the previous ones.
///
/// # Errors
///
/// Fails if a document is not YAML, or not a mapping.
pub(crate) fn read(text: &[u8], helm: HelmVersion) -> Result<Map<String, Value>, String> {
    let one = |text: &[u8]| -> Result<Map<String, Value>, String> {
        let map = yaml::read_map(text).map_err(|error| error.to_string())?;
        Ok(map.into_iter().map(|(key, value)| (key, value.into_values())).collect())
    };
    if helm == HelmVersion::V3 {
        return one(text);
    }
    let mut values = Map::new();
    for document in yaml::documents(text) {
        let document = document.map_err(|message| format!("error reading yaml document: {message}"))?;
        let map = one(document).map_err(|message| format!("cannot unmarshal yaml document: {message}"))?;
        merge(&mut values, map);
    }
    Ok(values)
}

/// Converts numbers to floats: Go decodes all JSON numbers as floats.
pub(crate) fn floats(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Null, Value::from),
        Value::Array(items) => items.into_iter().map(floats).collect(),
        Value::Object(fields) => Value::Object(fields.into_iter().map(|(key, value)| (key, floats(value))).collect()),
        other => other,
    }
}

/// Merges one mapping over another; nulls are preserved, because they delete values later.
fn merge(base: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => merge(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}
