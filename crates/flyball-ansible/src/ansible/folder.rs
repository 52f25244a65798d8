//! The folder of a run: what `ansible-playbook` is given.

use super::proxy::Proxy;
use crate::run::Job;
use crate::template::Var;
use crate::watches::Runs;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The plugin that tells of events.
const CALLBACK: &str = include_str!("callback.py");

/// A folder that only this user can look into, and that goes when it is dropped.
pub(super) struct Folder {
    path: PathBuf,
    roles: Option<PathBuf>,
}

impl Folder {
    /// Makes the folder of a run.
    pub(super) fn new(job: &Job<'_>, runs: &Runs, proxy: &Proxy) -> io::Result<Self> {
        let name = format!("flyball-ansible-{}", super::random(16)?);
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        let mut folder = Self { path, roles: None };
        let playbook = match runs {
            Runs::Role(role) => {
                let role = fs::canonicalize(role)?;
                folder.roles = role.parent().map(Path::to_owned);
                json!([{"hosts": "localhost", "gather_facts": false, "roles": [role]}])
            }
            Runs::Playbook(playbook) => json!([{"import_playbook": fs::canonicalize(playbook)?}]),
        };
        folder.write("playbook.json", &playbook.to_string())?;
        folder.write("variables.json", &Value::Object(variables(job)).to_string())?;
        folder.write(
            "inventory",
            "localhost ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}\n",
        )?;
        folder.write("kubeconfig", &proxy.kubeconfig(job.cx.key().namespace()).to_string())?;
        folder.write("flyball.py", CALLBACK)?;
        Ok(folder)
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.path.join(name))?;
        file.write_all(text.as_bytes())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the variables of the environment that the process gets besides those of the operator.
    pub(super) fn environment(&self, project: &Path) -> Vec<(&'static str, OsString)> {
        let project = fs::canonicalize(project).unwrap_or_else(|_| project.to_owned());
        let mut roles: Vec<PathBuf> = self.roles.iter().cloned().collect();
        roles.push(project.join("roles"));
        roles.extend(std::env::split_paths(&std::env::var_os("ANSIBLE_ROLES_PATH").unwrap_or_default()));
        let kubeconfig = self.path.join("kubeconfig");
        vec![
            ("ANSIBLE_ROLES_PATH", std::env::join_paths(roles).unwrap_or_default()),
            ("ANSIBLE_CALLBACK_PLUGINS", self.path.clone().into()),
            ("ANSIBLE_STDOUT_CALLBACK", "flyball".into()),
            ("ANSIBLE_LOCAL_TEMP", self.path.join("tmp").into()),
            ("ANSIBLE_RETRY_FILES_ENABLED", "false".into()),
            ("ANSIBLE_LOCALHOST_WARNING", "false".into()),
            ("ANSIBLE_NOCOLOR", "true".into()),
            ("K8S_AUTH_KUBECONFIG", kubeconfig.clone().into()),
            ("KUBECONFIG", kubeconfig.into()),
        ]
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), "cannot remove the folder of a run: {error}");
        }
    }
}

/// Returns the variables of a run. What users wrote is marked such that it is no template.
fn variables(job: &Job<'_>) -> Map<String, Value> {
    let value = |var: &Var| match var {
        Var::Data(value) => unsafe_texts(value),
        Var::Template(value) => (**value).clone(),
    };
    job.extra.iter().map(|(name, var)| (name.clone(), value(var))).collect()
}

fn unsafe_texts(value: &Value) -> Value {
    match value {
        Value::String(text) => json!({"__ansible_unsafe": text}),
        Value::Array(items) => items.iter().map(unsafe_texts).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, field)| (key.clone(), unsafe_texts(field))).collect())
        }
        scalar => scalar.clone(),
    }
}
