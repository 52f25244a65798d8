//! A new role with a Deployment.

use super::changes::Changes;
use super::schema::DefaultValues;
use super::template::fill;
use super::types::camel;
use crate::error::{Error, Result, ResultExt};
use crate::project::Resource;
use serde_json::{Map, Value};

/// Folder of the roles of a project.
pub(crate) const ROLES: &str = "roles";

const DEFAULTS: &str = include_str!("../../../templates/ansible/role/defaults/main.yml");

/// The namespace of the objects of a role: that of the custom resource.
const NAMESPACE: &str = r#"namespace: "{{ ansible_operator_meta.namespace }}""#;
/// The namespace for a cluster-scoped custom resource: one with its name, which the role creates.
const OWN_NAMESPACE: &str = r#"namespace: "{{ ansible_operator_meta.name }}""#;

/// Writes the role of a kind and returns its defaults, as fields of a spec.
pub(crate) fn create(changes: &mut Changes, role: &str, resource: &Resource, force: bool) -> Result<DefaultValues> {
    let kind = &resource.kind;
    let folder = format!("{ROLES}/{role}");
    if !force && changes.root().join(&folder).exists() {
        return Err(Error::new(format!("{folder} already exists"))
            .hint("nothing was written; overwrite its files with --force, or move the directory first"));
    }
    let gaps = [("role", role), ("kind", kind)];
    let tasks = include_str!("../../../templates/ansible/role/tasks/main.yml");
    let tasks = match (resource.namespaced, tasks.split_once("---\n")) {
        (false, Some((_, tasks))) => {
            let namespace = include_str!("../../../templates/ansible/role/tasks/namespace.yml");
            format!("{namespace}\n{}", tasks.replace(NAMESPACE, OWN_NAMESPACE))
        }
        _ => tasks.to_owned(),
    };
    for (path, template) in [
        ("tasks/main.yml", tasks.as_str()),
        ("defaults/main.yml", DEFAULTS),
        ("meta/main.yml", include_str!("../../../templates/ansible/role/meta/main.yml")),
    ] {
        changes.create(&format!("{folder}/{path}"), fill(template, &gaps), force)?;
    }
    let defaults: Map<String, Value> =
        serde_saphyr::from_str(DEFAULTS).context("cannot read the defaults of the role")?;
    let text: String = DEFAULTS.lines().map(|line| field_line(line) + "\n").collect();
    let values = defaults.into_iter().map(|(name, value)| (camel(&name), value)).collect();
    Ok(DefaultValues { text, values, schema: None, is_complete: true })
}

/// Replaces the variable at the beginning of a line by its field.
fn field_line(line: &str) -> String {
    match line.split_once(':').filter(|(name, _)| !name.starts_with(['#', ' '])) {
        Some((name, value)) => format!("{}:{value}", camel(name)),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_camel_case() {
        assert_eq!(field_line("container_port: 80"), "containerPort: 80");
        assert_eq!(field_line("# a_b: of this"), "# a_b: of this");
    }
}
