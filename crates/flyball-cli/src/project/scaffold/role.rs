//! The role of a kind: a new one with a Deployment, or a copy of an existing one.

use super::changes::Changes;
use super::schema::DefaultValues;
use super::template::fill;
use super::types::camel;
use crate::error::{Error, Result, ResultExt};
use crate::files::entries;
use crate::project::Resource;
use flyball_ansible::default_fields;
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};

/// Directory of the roles of a project.
pub(crate) const ROLES: &str = "roles";

/// All files of a role are open while they are written.
const MAX_FILES: usize = 500;

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
        return Err(Error::new(format!("{folder} already exists")).hint(format!(
            "nothing was written; overwrite its files with --force, or use the role as it is: --role {folder}"
        )));
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
    let values = defaults.into_iter().map(|(name, value)| (camel(&name), value)).collect();
    Ok(DefaultValues { text: fields_text(DEFAULTS, &values), values, schema: None, is_complete: true })
}

/// Replaces the variables in a file of defaults by the fields that have these values.
fn fields_text(defaults: &str, values: &Map<String, Value>) -> String {
    let line = |line: &str| match line.split_once(':') {
        Some((name, value)) if values.contains_key(&camel(name)) => format!("{}:{value}\n", camel(name)),
        _ => format!("{line}\n"),
    };
    defaults.lines().map(line).collect()
}

/// A role that exists.
#[derive(Debug)]
pub(crate) struct ExistingRole {
    pub(crate) name: String,
    path: PathBuf,
    files: Vec<PathBuf>,
}

impl ExistingRole {
    /// Finds the files of a role.
    ///
    /// # Errors
    ///
    /// If the directory is none.
    pub(crate) fn open(given: &Path) -> Result<Self> {
        let shown = given.display();
        let path = given.canonicalize().context(format!("--role {shown}"))?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.starts_with(['.', '-']) || !name.chars().all(is_plain) {
            return Err(Error::new(format!("--role {shown}: {name:?} is not the name of a role"))
                .hint("rename the directory: use letters, digits and underscores"));
        }
        if !["yml", "yaml"].iter().any(|ending| path.join(format!("tasks/main.{ending}")).is_file()) {
            return Err(Error::new(format!("--role {shown}: the directory has no tasks/main.yml"))
                .hint("pass the directory of a role, such as roles/site"));
        }
        let mut files = Vec::new();
        collect(&path, &mut files)?;
        Ok(Self { name, path, files })
    }

    /// Copies the role unchanged into the project, unless it is there, and returns its defaults as fields of a spec.
    pub(crate) fn copy(&self, changes: &mut Changes) -> Result<DefaultValues> {
        let folder = format!("{ROLES}/{}", self.name);
        let target = changes.root().join(&folder);
        if target.canonicalize().ok().as_ref() != Some(&self.path) {
            if target.exists() {
                return Err(Error::new(format!("{folder} already exists"))
                    .hint(format!("nothing was written; delete it, or use the role as it is: --role {folder}")));
            }
            for file in &self.files {
                let content = fs::read(file).context(format!("cannot read {}", file.display()))?;
                let inner = file.strip_prefix(&self.path).unwrap_or(file);
                changes.put(&format!("{folder}/{}", inner.display()), content)?;
            }
        }
        let values = default_fields(&self.path).context(format!("cannot read the defaults of {folder}"))?;
        let is_defaults = |file: &&PathBuf| {
            file.strip_prefix(&self.path).is_ok_and(|inner| inner.with_extension("") == Path::new("defaults/main"))
        };
        let text = self.files.iter().find(is_defaults).and_then(|file| fs::read_to_string(file).ok());
        let text = fields_text(&text.unwrap_or_default(), &values);
        Ok(DefaultValues { text, values, schema: None, is_complete: false })
    }
}

/// Collects the files below a directory, without those of Git.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for path in entries(folder)? {
        let kind = fs::symlink_metadata(&path).context(format!("cannot read {}", path.display()))?.file_type();
        if kind.is_symlink() {
            return Err(Error::new(format!("{} is a symbolic link", path.display()))
                .hint("replace it by the file, or copy the role yourself and pass --role roles/NAME"));
        }
        if kind.is_dir() && path.file_name().is_some_and(|name| !name.eq_ignore_ascii_case(".git")) {
            collect(&path, files)?;
        } else if kind.is_file() {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(Error::new(format!("{} has more than {MAX_FILES} files", folder.display()))
                .hint("copy the role to roles/NAME yourself, and pass --role roles/NAME"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_camel_case() {
        let values = serde_json::json!({"containerPort": 80}).as_object().cloned().unwrap();
        let text = fields_text("# a_b: of this\ncontainer_port: 80\nnot_a_field: '{{ x }}'\n", &values);
        assert_eq!(text, "# a_b: of this\ncontainerPort: 80\nnot_a_field: '{{ x }}'\n");
    }
}
