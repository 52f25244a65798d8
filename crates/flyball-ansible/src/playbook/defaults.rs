//! The defaults of a role as fields of a custom resource.

use super::load::named;
use crate::error::{Error, Result};
use crate::names::Names;
use crate::snake::snake;
use crate::template::is_template;
use crate::value::{Map, Value};
use crate::vault::Vault;
use crate::yaml::{self, type_name};
use std::path::Path;

/// Returns the fields of a custom resource that set variables to their defaults in a role, in camel case.
///
/// There are none for variables that a field cannot set to the same value: templates, maps whose keys snake case
/// changes, and variables that belong to Ansible or the operator.
///
/// # Errors
/// If the file with the defaults cannot be read, or is no map without encrypted values.
pub fn default_fields(role: &Path) -> Result<serde_json::Map<String, serde_json::Value>> {
    let Some(file) = named(&role.join("defaults"), "main") else { return Ok(serde_json::Map::new()) };
    // Without a password: a custom resource must not contain decrypted values.
    let variables = match yaml::read_document(&file, &Vault::default())? {
        Value::Null => Map::new(),
        Value::Object(variables) => variables,
        other => {
            return Err(Error::file(&file, format_args!("must be a map of variables, not {}", type_name(&other))));
        }
    };
    let names = Names { inputs: variables.keys().cloned().collect(), ..Names::default() };
    let fields = variables.into_iter().filter_map(|(name, value)| {
        let field = [camel(&name), name.clone()].into_iter().find(|field| snake(field) == name)?;
        (names.rejection(&field, &name).is_none() && is_data(&value)).then_some((field, value.into()))
    });
    Ok(fields.collect())
}

fn camel(name: &str) -> String {
    let mut is_start = false;
    let chars = name.char_indices().filter_map(|(at, char)| match char {
        '_' if at > 0 => {
            is_start = true;
            None
        }
        char if std::mem::take(&mut is_start) => Some(char.to_ascii_uppercase()),
        char => Some(char),
    });
    chars.collect()
}

/// Returns true if a value does not change on its way from a custom resource to a variable.
fn is_data(value: &Value) -> bool {
    match value {
        Value::String(text) => !is_template(text),
        Value::Array(items) => items.iter().all(is_data),
        Value::Object(fields) => fields.iter().all(|(key, value)| snake(key) == *key && is_data(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    #[test]
    fn fields_have_the_values_of_their_variables() {
        let role = std::env::temp_dir().join(format!("flyball-defaults-{}", std::process::id()));
        std::fs::create_dir_all(role.join("defaults")).unwrap();
        let text = "size: 3\ncontainer_port: 80\non_by_default: yes\nport80: 1\nmTLS: true\nlabels: {app: a}\n\
                    host: '{{ name }}.svc'\nselector: {matchLabels: {app: a}}\nargs: ['{{ size }}']\n\
                    ansible_port: 22\nmeta: {}\n";
        std::fs::write(role.join("defaults/main.yml"), text).unwrap();
        let fields = default_fields(&role).unwrap();
        std::fs::remove_dir_all(&role).unwrap();
        let expected =
            json!({"size": 3, "containerPort": 80, "onByDefault": true, "port80": 1, "labels": {"app": "a"}});
        assert_eq!(serde_json::Value::Object(fields), expected);
        assert_eq!(default_fields(&role).unwrap(), Map::new());
    }
}
