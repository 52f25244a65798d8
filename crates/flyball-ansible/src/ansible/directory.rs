//! The folder of a run: the input of `ansible-playbook`.

use super::AnsiblePlaybook;
use super::process::MARK;
use super::proxy::Proxy;
use super::work_dir::WorkDir;
use crate::job::Job;
use crate::names::special_names;
use crate::template::{PASSED, Var, Vars};
use crate::value;
use crate::watches::{Runs, Watch};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The plugin that reports events, and the one that is loaded before any playbook is read.
pub(super) const CALLBACK: &str = include_str!("callback.py");
pub(super) const GUARD: &str = include_str!("guard.py");
/// The modules of the latter.
pub(super) const LITERALS: &str = include_str!("literals.py");
pub(super) const WALL: &str = include_str!("wall.py");

/// The computation time after which the priority of writing large variables is lowered.
const QUICK_TIME: Duration = Duration::from_millis(4);

/// A folder that only this user can access, removed on drop, or when its processes have ended.
pub(super) struct RunDirectory {
    work_dir: Arc<WorkDir>,
    /// The roles path.
    roles: Vec<PathBuf>,
    /// Prefix of the events of the run.
    secret: String,
    verbosity: u8,
}

impl RunDirectory {
    /// Creates the folder of a run.
    pub(super) fn new(job: &Job<'_>, ansible: &AnsiblePlaybook, proxy: &Proxy) -> io::Result<Self> {
        let project = fs::canonicalize(&ansible.project)?;
        let mut folder = Self {
            work_dir: Arc::new(WorkDir::new()?),
            roles: Vec::new(),
            secret: super::random(16)?,
            verbosity: job.verbosity,
        };
        for part in [folder.temporary(), folder.callbacks(), folder.home()] {
            flyball_files::private_directory().create(part)?;
        }
        // Ansible searches its plugins and collections there.
        if let Some(home) = std::env::home_dir() {
            for part in ["collections", "plugins"] {
                symlink(home.join(".ansible").join(part), folder.home().join(part))?;
            }
        }
        let (Runs::Role(runs) | Runs::Playbook(runs)) = &ansible.runs;
        let runs = fs::canonicalize(runs)?;
        let playbook = match &ansible.runs {
            Runs::Role(_) => {
                // By name, as operator-sdk does: a path would become the name of the role.
                folder.roles.extend(runs.parent().map(Path::to_owned));
                let name = runs.file_name().unwrap_or_default().to_string_lossy();
                json!([{"hosts": "localhost", "gather_facts": gathers_facts(), "roles": [name]}])
            }
            Runs::Playbook(_) => json!([{"import_playbook": runs}]),
        };
        folder.roles.push(project.join("roles"));
        let others = std::env::var_os("ANSIBLE_ROLES_PATH").unwrap_or_default();
        // An empty path is the folder of the run.
        folder.roles.extend(std::env::split_paths(&others).filter(|path| !path.as_os_str().is_empty()));
        folder.write("playbook.json", &playbook.to_string())?;
        folder.write("connection.json", &Value::Object(connection(job.watch)).to_string())?;
        folder.write(
            "inventory",
            "localhost ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}\n",
        )?;
        folder.write("kubeconfig", &proxy.kubeconfig(job.cx.key().namespace()).to_string())?;
        folder.write("run.json", &folder.plugin_settings(job, ansible, &project, &runs).to_string())?;
        folder.write("callbacks/flyball.py", CALLBACK)?;
        folder.write("flyball_guard.py", GUARD)?;
        folder.write("flyball_literals.py", LITERALS)?;
        folder.write("flyball_wall.py", WALL)?;
        Ok(folder)
    }

    /// Returns the settings of the plugins: names that must not be computed, since they are not allowed as fields
    /// either, names that the role declares, those that the operator and the spec set, and the paths of the project.
    fn plugin_settings(&self, job: &Job<'_>, ansible: &AnsiblePlaybook, project: &Path, runs: &Path) -> Value {
        let (names, prefixes) = special_names();
        let connection = connection(job.watch);
        let given: Vec<_> = job.extra.keys().chain(connection.keys()).collect();
        let fields = job.extra.iter().filter(|(_, value)| matches!(value, Var::Data(_)));
        let fields: Vec<_> = fields.map(|(name, _)| name).collect();
        let declared: BTreeSet<_> = job.names.inputs.union(&job.names.own).collect();
        json!({
            "secret": self.secret,
            "names": names,
            "prefixes": prefixes,
            "own": job.names.own,
            "allowed": job.names.allowed,
            "declared": declared,
            "given": given,
            "fields": fields,
            "project": project,
            "runs": runs,
            "named": ansible.external_paths,
        })
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// Writes the variables of a run. Text of users is marked as unsafe, so that it is not a template.
    pub(super) async fn write_variables(&self, vars: Arc<Vars>) -> io::Result<()> {
        let work_dir = self.work_dir();
        flyball::offload(QUICK_TIME, move || {
            let mut file = BufWriter::new(work_dir.create("variables.json")?);
            serde_json::to_writer(&mut file, &Variables(&vars))?;
            file.flush()
        })
        .await
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.work_dir.write(name, text)
    }

    pub(super) fn path(&self) -> &Path {
        self.work_dir.path()
    }

    /// Returns the directory, which exists as long as one of its owners.
    pub(super) fn work_dir(&self) -> Arc<WorkDir> {
        self.work_dir.clone()
    }

    fn temporary(&self) -> PathBuf {
        self.path().join("tmp")
    }

    /// The folder for the state of Ansible, which runs have not in common.
    fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// The folder of the plugin that reports events. All files in it are loaded as such.
    fn callbacks(&self) -> PathBuf {
        self.path().join("callbacks")
    }

    /// Returns the request for a worker.
    pub(super) fn request(&self, arguments: &[&str]) -> Result<Value, String> {
        let path = self.path().to_str();
        let mut environment = Map::new();
        environment.insert(MARK.to_owned(), path.into());
        for (name, value) in self.environment() {
            let value = value.into_string().map_err(|value| format!("the path {} is not UTF-8", value.display()))?;
            environment.insert(name.to_owned(), value.into());
        }
        Ok(json!({"folder": path, "environment": environment, "arguments": arguments}))
    }

    /// Returns the environment variables that differ between runs, besides [those that do not](environment).
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let kubeconfig = self.path().join("kubeconfig");
        vec![
            ("ANSIBLE_ROLES_PATH", std::env::join_paths(&self.roles).unwrap_or_default()),
            ("ANSIBLE_CALLBACK_PLUGINS", self.callbacks().into()),
            ("ANSIBLE_STDOUT_CALLBACK", "flyball".into()),
            ("ANSIBLE_INVENTORY_PLUGINS", self.path().into()),
            ("ANSIBLE_INVENTORY_ENABLED", "flyball_guard,ini".into()),
            ("ANSIBLE_LOCAL_TEMP", self.temporary().into()),
            ("ANSIBLE_REMOTE_TEMP", self.temporary().into()),
            ("ANSIBLE_HOME", self.home().into()),
            ("ANSIBLE_ASYNC_DIR", self.home().join("async").into()),
            ("ANSIBLE_CACHE_PLUGIN", "memory".into()),
            ("TMPDIR", self.temporary().into()),
            ("ANSIBLE_RETRY_FILES_ENABLED", "false".into()),
            ("ANSIBLE_LOCALHOST_WARNING", "false".into()),
            ("ANSIBLE_NOCOLOR", "true".into()),
            ("ANSIBLE_VERBOSITY", self.verbosity.to_string().into()),
            ("K8S_AUTH_KUBECONFIG", kubeconfig.clone().into()),
            ("KUBECONFIG", kubeconfig.into()),
        ]
    }
}

/// Returns true if the environment requests facts for roles, which few of them need. Playbooks decide on their own.
fn gathers_facts() -> bool {
    std::env::var("ANSIBLE_GATHERING").is_ok_and(|gathering| gathering != "explicit")
}

/// Returns the variables of the operator that runs have in their environment.
pub(super) fn environment(watch: &Watch) -> Vec<(String, OsString)> {
    let passed = PASSED.iter().copied().chain(watch.pass_environment.iter().map(String::as_str));
    let passed = passed.filter_map(|name| Some((name.to_owned(), std::env::var_os(name)?)));
    let password = watch.vault.file().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
    let password = password.map(|file| ("ANSIBLE_VAULT_PASSWORD_FILE".to_owned(), file.into_os_string()));
    passed.chain(password).collect()
}

/// Returns the connection variables. They are passed last, so that only `watches.yaml` can override them.
fn connection(watch: &Watch) -> Map<String, Value> {
    let own = [
        ("ansible_connection", "local"),
        // Compression takes longer than it saves, since modules are not sent to another host.
        ("ansible_module_compression", "ZIP_STORED"),
        ("ansible_python_interpreter", "{{ ansible_playbook_python }}"),
    ];
    let is_overridden = |name: &str| watch.vars.contains_key(name) || watch.allow_variables.contains(name);
    own.into_iter()
        .filter(|(name, _)| !is_overridden(name))
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

/// The variables of a run as JSON, which is written without a copy: a list of short texts has a multiple of its size.
struct Variables<'v>(&'v Vars);

impl Serialize for Variables<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, var)| (name, Variable(var))))
    }
}

struct Variable<'v>(&'v Var);

impl Serialize for Variable<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Var::Data(value) => UnsafeTexts(value).serialize(to),
            Var::Template(value) => (**value).serialize(to),
        }
    }
}

/// A value with all its texts marked as unsafe.
struct UnsafeTexts<'v>(&'v value::Value);

impl Serialize for UnsafeTexts<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value::Value::String(text) => to.collect_map([("__ansible_unsafe", text)]),
            value::Value::Array(items) => to.collect_seq(items.iter().map(UnsafeTexts)),
            value::Value::Object(fields) => {
                // Such keys encode Ansible's own types.
                let fields = fields.iter().filter(|(key, _)| !key.starts_with("__ansible_"));
                to.collect_map(fields.map(|(key, field)| (key, UnsafeTexts(field))))
            }
            scalar => scalar.serialize(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_defaults_to_local() {
        let watch = Watch::default();
        assert_eq!(connection(&watch)["ansible_connection"], "local");
        let watch = Watch { vars: value::Map::from_iter([("ansible_connection".to_owned(), "ssh".into())]), ..watch };
        assert!(!connection(&watch).contains_key("ansible_connection"));
    }

    #[test]
    fn special_keys_are_removed_from_data() {
        let data = value::json!({"a": [{"__ansible_vault": "x", "__ansible_unsafe": "y", "b": "{{ c }}"}]});
        assert_eq!(
            serde_json::to_value(UnsafeTexts(&data)).unwrap(),
            json!({"a": [{"b": {"__ansible_unsafe": "{{ c }}"}}]})
        );
    }
}
