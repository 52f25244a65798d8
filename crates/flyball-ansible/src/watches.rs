//! `watches.yaml`: the role or playbook of each kind.

use crate::error::{Error, Result};
use crate::fields::{FieldError, Fields};
use crate::metrics::ROLE_METRICS_ADDRESS;
use crate::names::{Reason, never_allowed, own_names};
use crate::services::{Resolver, Services};
use crate::snake::snake;
use crate::vault::Vault;
use crate::yaml::{self, Lines, truth, type_name};
use clap::ValueEnum;
use flyball::{GroupVersionKind, Kind};
use flyball_core::time::parse_unsigned_duration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::env;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A `watches.yaml`, in the format of operator-sdk's Ansible operator.
///
/// Every entry has `group`, `version` and `kind`, and a `role` or a `playbook` that reconciles the kind; see the
/// [fields]. References to environment variables, `$NAME` and `${NAME}`, are replaced if the variable exists. Roles
/// are searched below `ANSIBLE_ROLES_PATH`, in the directory `roles` beside the file, and as a path relative to the
/// file.
///
/// Seven fields are extensions of operator-sdk's format. `executor` is `built-in`, `worker`, `ansible-playbook` or
/// `auto`, and overrides the [executor](Executor) of the operator. `allowVariables` lists variable names that fields
/// of the spec may have although Ansible or the role uses them. `allowNamespaces` lists namespaces, or `*`, that runs
/// for namespaced objects may access besides their own. `allowKinds` lists group, version and kind of objects outside
/// of that namespace, or of RBAC, that templates and variables may create; otherwise only tasks may. `passEnvironment`
/// lists environment variables of the operator that roles may read. `allowServices` lists services of the cluster that
/// the module `uri` of the built-in executor may call. `vaultPasswordFile` is the file with the password
/// of `ansible-vault`; by default, it is that in the environment variable `ANSIBLE_VAULT_PASSWORD_FILE`.
///
/// [fields]: https://sdk.operatorframework.io/docs/building-operators/ansible/reference/watches/
#[derive(Clone, Debug)]
#[doc(alias = "watches.New")]
pub struct Watches {
    pub(crate) path: PathBuf,
    pub(crate) entries: Vec<Watch>,
    pub(crate) defaults: Defaults,
    /// Address of the server for `osdk_metric`, if there is one.
    pub(crate) role_metrics_address: Option<SocketAddr>,
    /// Runs are polled by the caller.
    pub(crate) is_deterministic: bool,
    /// Other entries run if the files of one cannot be decrypted.
    pub(crate) allows_locked_entries: bool,
}

/// Settings of entries that have none of their own, as flags of operator-sdk's Ansible operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Interval of reconciles without a change; zero disables them. `reconcilePeriod` of an entry and the annotation
    /// `ansible.sdk.operatorframework.io/reconcile-period` of an object override it.
    pub reconcile_period: Duration,
    /// Number of concurrent reconciles of a kind. The environment variable `MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP>`
    /// overrides it.
    pub max_concurrent_reconciles: NonZeroUsize,
    /// Verbosity of Ansible, from 0 to 7. The environment variable `ANSIBLE_VERBOSITY_<KIND>_<GROUP>` and the
    /// annotation `ansible.sdk.operatorframework.io/verbosity` of an object override it.
    pub verbosity: u8,
    /// Tasks in the log. The environment variable `ANSIBLE_DEBUG_LOGS` overrides it.
    pub log_events: LogEvents,
}

/// Tasks in the log, except for those that failed, which it always contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogEvents {
    /// The result of each task in one word, and the output of `debug`.
    Tasks,
    /// The output of each task.
    Everything,
    /// No tasks.
    #[default]
    Nothing,
}

impl Default for Defaults {
    /// Returns those of operator-sdk, except for 16 concurrent reconciles instead of one per core, and no tasks in the
    /// log.
    fn default() -> Self {
        Self {
            reconcile_period: Duration::from_secs(10 * 3600),
            max_concurrent_reconciles: NonZeroUsize::new(16).expect("it is not zero"),
            verbosity: 2,
            log_events: LogEvents::default(),
        }
    }
}

/// The content of the file.
const LIST: &str = "must be a list of entries, each with group, version, kind, and role or playbook";

/// The maximum verbosity.
pub(crate) const MAX_VERBOSITY: u8 = 7;

/// An entry: a kind, and its role or playbook.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    pub(crate) gvk: GroupVersionKind,
    pub(crate) runs: Runs,
    /// The executor, if it differs from that of the operator.
    pub(crate) executor: Option<Executor>,
    pub(crate) vars: Map<String, Value>,
    pub(crate) finalizer: Option<Finalizer>,
    pub(crate) reconcile_period: Option<Duration>,
    pub(crate) manage_status: bool,
    pub(crate) watch_dependents: bool,
    pub(crate) watch_cluster_scoped: bool,
    pub(crate) watch_annotations: bool,
    pub(crate) snake_case: bool,
    /// Dependents whose changes trigger no reconcile.
    pub(crate) not_watched: Vec<GroupVersionKind>,
    /// A label selector, as a string.
    pub(crate) selector: Option<String>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) verbosity: Option<u8>,
    /// Tasks in the log, if they differ from those of the operator.
    pub(crate) log_events: Option<LogEvents>,
    /// Fields of the spec that become variables although their names are rejected by default, as variable names.
    pub(crate) allow_variables: BTreeSet<String>,
    /// Namespaces that a run for a namespaced object may access besides its own; `*` for all.
    pub(crate) allow_namespaces: BTreeSet<String>,
    /// Kinds outside of the object's namespace, or of RBAC, that need not be literal in a task.
    pub(crate) allow_kinds: Vec<GroupVersionKind>,
    /// Environment variables that roles may read.
    pub(crate) pass_environment: BTreeSet<String>,
    /// Services that the module `uri` may call.
    pub(crate) services: Services,
    /// Decrypts files of the project.
    pub(crate) vault: Vault,
    /// Random values are those of the simulation.
    pub(crate) is_deterministic: bool,
}

/// The executor of roles and playbooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[doc(alias = "ansible-runner")]
pub enum Executor {
    /// The built-in executor: runs within the process, and is the only one that can be simulated.
    #[default]
    BuiltIn,
    /// `ansible-playbook`, found in `PATH`, with its installed collections, in processes that a long-lived worker
    /// forks.
    Worker,
    /// `ansible-playbook`, as a new process for each run.
    #[value(alias = "process")]
    AnsiblePlaybook,
    /// The built-in executor for roles that it supports completely; `ansible-playbook`, if installed, for others:
    /// with a worker, or, if that cannot start, as a new process.
    Auto,
}

/// The role or playbook of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Runs {
    /// The directory of a role.
    Role(PathBuf),
    /// The file of a playbook.
    Playbook(PathBuf),
}

impl Default for Runs {
    fn default() -> Self {
        Self::Role(PathBuf::new())
    }
}

/// The role or playbook that runs before an object is deleted.
#[derive(Clone, Debug)]
pub(crate) struct Finalizer {
    pub(crate) name: String,
    /// The role or playbook, if it differs from that of the entry.
    pub(crate) runs: Option<Runs>,
    pub(crate) vars: Map<String, Value>,
}

impl Watches {
    /// Reads the file, and finds its roles and playbooks.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is invalid YAML; if an entry has an unknown field, lacks one, has both a role
    /// and a playbook or neither, or refers to a missing one; if two entries have the same kind. The error contains
    /// file, entry and field.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let entries: Vec<Watch> = read_each(path)?.into_iter().map(|(_, entry)| entry).collect::<Result<_>>()?;
        if entries.is_empty() {
            return Err(Error::file(path, LIST));
        }
        Ok(Self {
            path: path.to_owned(),
            entries,
            defaults: Defaults::default(),
            role_metrics_address: Some(ROLE_METRICS_ADDRESS),
            is_deterministic: false,
            allows_locked_entries: false,
        })
    }

    /// Sets the values that entries without own ones have.
    pub fn defaults(self, defaults: Defaults) -> Self {
        Self { defaults, ..self }
    }

    /// Sets the address of the server for the module `osdk_metric` in runs of `ansible-playbook`; `None` for none. By
    /// default, it is that of operator-sdk, `127.0.0.1:5050`.
    ///
    /// The operator serves it only if such a role or playbook uses the module. Any process that reaches the address may
    /// change the metrics that tasks name, so it should be one of the loopback interface.
    pub fn role_metrics_address(self, address: Option<SocketAddr>) -> Self {
        Self { role_metrics_address: address, ..self }
    }

    /// Makes runs reproducible in a simulation: templates of the built-in executor are evaluated on the runtime's own
    /// thread. Expensive templates then block the operator; by default, they run on other threads.
    pub fn deterministic(mut self) -> Self {
        self.entries.iter_mut().for_each(|watch| watch.is_deterministic = true);
        Self { is_deterministic: true, ..self }
    }

    /// Allows the operator to run if files of some entries cannot be decrypted: their runs fail with the reason.
    ///
    /// Only for running: the permissions and watches of such an entry are unknown, so the
    /// [manifests](flyball::Operator::manifests) would lack them.
    pub fn allow_locked_entries(self) -> Self {
        Self { allows_locked_entries: true, ..self }
    }

    /// Resolves hosts of services that roles call, such as `api.shop.svc`, outside of the cluster. DNS resolves a host
    /// without a result.
    pub fn resolve_services(mut self, resolve: impl Fn(&str) -> Option<SocketAddr> + Send + Sync + 'static) -> Self {
        let resolver = Resolver(Arc::new(resolve));
        self.entries.iter_mut().for_each(|watch| watch.services.resolver = Some(resolver.clone()));
        self
    }

    /// Returns the directory of the file, which is the project directory.
    pub fn directory(&self) -> &Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Returns the reconciled kinds, with regular plurals.
    pub fn kinds(&self) -> Vec<Kind> {
        self.entries.iter().map(|watch| Kind::new(&watch.gvk.group, &watch.gvk.version, &watch.gvk.kind)).collect()
    }
}

/// Reads each entry of the file on its own, with its line. The list may be empty.
pub(crate) fn read_each(path: &Path) -> Result<Vec<(usize, Result<Watch>)>> {
    let text = yaml::read_text(path, &Vault::default())?;
    let text = expand(&text, |name| env::var(name).ok());
    let documents = yaml::documents(&text, &Vault::default()).map_err(|problem| Error::file(path, problem))?;
    let entries = match <[Value; 1]>::try_from(documents) {
        Ok([Value::Array(entries)]) => entries,
        _ => return Err(Error::file(path, LIST)),
    };
    let lines = Lines::of(&text);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut known = BTreeSet::new();
    let mut read = |number: usize, entry: Value| {
        let kind = entry.get("kind").and_then(Value::as_str).map(|kind| format!(" ({kind})"));
        let entry_name = format!("{}{}", number + 1, kind.unwrap_or_default());
        let reject = |FieldError { field, problem }| Error::Entry {
            path: path.to_owned(),
            entry: entry_name.clone(),
            field,
            problem,
        };
        let watch = read_entry(entry, folder).map_err(reject)?;
        match known.insert(watch.gvk.clone()) {
            true => Ok(watch),
            false => {
                let problem = format!("an earlier entry has kind {} as well: merge the entries", watch.gvk);
                Err(reject(FieldError::new("kind", problem)))
            }
        }
    };
    let line = |number: usize| lines.item(number).map_or(0, |lines| lines.line);
    Ok(entries.into_iter().enumerate().map(|(number, entry)| (line(number), read(number, entry))).collect())
}

fn read_entry(entry: Value, folder: &Path) -> Result<Watch, FieldError> {
    let mut fields = Fields::of(entry)?;
    let gvk = read_kind(&mut fields)?;
    let runs = read_runs(&mut fields, folder)?;
    let executor = fields.text("executor")?.map(|name| read_executor(&name)).transpose()?;
    let vars = fields.map("vars")?;
    let finalizer = fields.remove("finalizer").map(|finalizer| read_finalizer(finalizer, folder)).transpose();
    let finalizer = finalizer.map_err(|mistake| FieldError {
        field: if mistake.field.is_empty() { "finalizer".to_owned() } else { format!("finalizer.{}", mistake.field) },
        ..mistake
    })?;
    let period = match fields.text("reconcilePeriod")? {
        None => None,
        Some(text) => Some(parse_unsigned_duration(&text).ok_or_else(|| {
            FieldError::new("reconcilePeriod", format!("{text:?} must be a duration, such as 30s, 5m or 1h30m"))
        })?),
    };
    let not_watched = read_kinds(&mut fields, "blacklist")?;
    let allow_kinds = read_kinds(&mut fields, "allowKinds")?;
    let selector = match fields.remove("selector") {
        None => None,
        Some(selector) => {
            let unreadable = |error: serde_json::Error| {
                FieldError::new("selector", format!("{error}: expected matchLabels or matchExpressions"))
            };
            selector_text(&serde_json::from_value(selector).map_err(unreadable)?)?
        }
    };
    let snake_case = fields.boolean("snakeCaseParameters")?.unwrap_or(true);
    let allow_variables = fields.names("allowVariables")?;
    allow_variables.iter().try_for_each(|name| check_variable(name, &gvk, snake_case))?;
    let services =
        Services::parse(fields.names("allowServices")?).map_err(|problem| FieldError::new("allowServices", problem))?;
    let runs = runs.ok_or_else(|| FieldError::new("role", "required field is missing: set a role or a playbook"))?;
    let watch = Watch {
        concurrency: concurrency(&gvk, environment),
        verbosity: verbosity(&gvk, environment),
        log_events: environment("ANSIBLE_DEBUG_LOGS")
            .is_some_and(|value| truth(&value.into()) == Some(true))
            .then_some(LogEvents::Everything),
        gvk,
        runs,
        executor,
        vars,
        finalizer,
        reconcile_period: period.filter(|period| !period.is_zero()),
        manage_status: fields.boolean("manageStatus")?.unwrap_or(true),
        watch_dependents: fields.boolean("watchDependentResources")?.unwrap_or(true),
        watch_cluster_scoped: fields.boolean("watchClusterScopedResources")?.unwrap_or(false),
        watch_annotations: fields.boolean("watchAnnotationsChanges")?.unwrap_or(false),
        snake_case,
        not_watched,
        selector,
        allow_variables,
        allow_namespaces: fields.names("allowNamespaces")?,
        allow_kinds,
        pass_environment: fields.names("passEnvironment")?,
        services,
        vault: read_vault(&mut fields, folder)?,
        is_deterministic: false,
    };
    // Text of users is never a template, independent of this field; and runs leave no artifacts.
    fields.boolean("markUnsafe")?;
    fields.number("maxRunnerArtifacts")?;
    fields.finish()?;
    Ok(watch)
}

fn read_executor(name: &str) -> Result<Executor, FieldError> {
    Executor::from_str(name, false).map_err(|_| {
        let names = Executor::value_variants().iter().filter_map(Executor::to_possible_value);
        let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
        FieldError::new("executor", format!("{name:?} must be {}", names.join(", ")))
    })
}

/// Reads the password for encrypted files, which Ansible reads from a file in the environment as well.
fn read_vault(fields: &mut Fields, folder: &Path) -> Result<Vault, FieldError> {
    let vault = match fields.text("vaultPasswordFile")? {
        None => Vault::of_environment(folder),
        Some(file) => Vault::read(folder.join(file)),
    };
    vault.map_err(|problem| FieldError::new("vaultPasswordFile", problem))
}

/// Rejects a name in `allowVariables` that no field of a spec can have as variable name.
fn check_variable(name: &str, gvk: &GroupVersionKind, snake_case: bool) -> Result<(), FieldError> {
    let reject = |problem: String| Err(FieldError::new("allowVariables", problem));
    match never_allowed(name, &own_names(gvk)) {
        Some(Reason::Operator) => reject(format!(
            "{name} is reserved for a variable of the operator, which no field of the spec can replace: remove the name, and rename the \
             field"
        )),
        Some(_) => {
            reject(format!("invalid variable name {name:?}: use letters, digits and _, not starting with a digit"))
        }
        None if snake_case && snake(name) != name => {
            reject(format!("snakeCaseParameters converts {name} to {}: use that name", snake(name)))
        }
        None => Ok(()),
    }
}

fn read_kind(fields: &mut Fields) -> Result<GroupVersionKind, FieldError> {
    let group = fields.text("group")?.unwrap_or_default();
    let mut needed = |name: &'static str| match fields.text(name)? {
        Some(text) if !text.is_empty() => Ok(text),
        _ => {
            Err(FieldError::new(name, format!("required field is missing: set the {name}, such as {}", example(name))))
        }
    };
    Ok(GroupVersionKind::new(&group, &needed("version")?, &needed("kind")?))
}

fn read_kinds(fields: &mut Fields, name: &'static str) -> Result<Vec<GroupVersionKind>, FieldError> {
    let read = |kind: Value| {
        let mut fields = Fields::of(kind)?;
        let kind = read_kind(&mut fields)?;
        fields.finish()?;
        Ok(kind)
    };
    let within = |at: usize, mistake: FieldError| {
        let inner = if mistake.field.is_empty() { String::new() } else { format!(".{}", mistake.field) };
        FieldError { field: format!("{name}[{at}]{inner}"), ..mistake }
    };
    match fields.remove(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(kinds)) => {
            kinds.into_iter().enumerate().map(|(at, kind)| read(kind).map_err(|mistake| within(at, mistake))).collect()
        }
        Some(other) => Err(FieldError::new(
            name,
            format!("must be a list of mappings with group, version and kind, not {}", type_name(&other)),
        )),
    }
}

fn example(name: &str) -> &'static str {
    if name == "kind" { "Memcached" } else { "v1alpha1" }
}

fn read_finalizer(finalizer: Value, folder: &Path) -> Result<Finalizer, FieldError> {
    let mut fields = Fields::of(finalizer)?;
    let name = fields.text("name")?.unwrap_or_default();
    // The API server rejects other names.
    let is_qualified = name.split_once('/').is_some_and(|(domain, rest)| domain.contains('.') && !rest.is_empty());
    if !is_qualified {
        return Err(FieldError::new(
            "name",
            format!("invalid finalizer name {name:?}: use a qualified name such as cache.example.com/finalizer"),
        ));
    }
    let runs = read_runs(&mut fields, folder)?;
    let vars = fields.map("vars")?;
    fields.finish()?;
    if runs.is_none() && vars.is_empty() {
        return Err(FieldError::new("", "required field is missing: set a role, a playbook, or vars"));
    }
    Ok(Finalizer { name, runs, vars })
}

fn read_runs(fields: &mut Fields, folder: &Path) -> Result<Option<Runs>, FieldError> {
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    match (filled(fields.text("role")?), filled(fields.text("playbook")?)) {
        (Some(_), Some(_)) => {
            Err(FieldError::new("playbook", "role and playbook are mutually exclusive: remove one of them"))
        }
        (Some(role), None) => find_role(folder, &role).map(|path| Some(Runs::Role(path))),
        (None, Some(playbook)) => {
            let mut places = match Path::new(&playbook).is_absolute() {
                true => absolute_places(folder, &playbook),
                false => vec![folder.join(&playbook)],
            };
            let in_collection = |(place, name): (PathBuf, String)| {
                ["yml", "yaml"].map(|ending| place.join("playbooks").join(format!("{name}.{ending}")))
            };
            places.extend(collection_places(folder, &playbook).into_iter().flat_map(in_collection));
            match places.iter().position(|place| place.is_file()) {
                Some(place) => Ok(Some(Runs::Playbook(places.swap_remove(place)))),
                None => Err(FieldError::new(
                    "playbook",
                    format!("no playbook at {}: set its path relative to this file", places[0].display()),
                )),
            }
        }
        (None, None) => Ok(None),
    }
}

fn find_role(folder: &Path, role: &str) -> Result<PathBuf, FieldError> {
    let mut candidates = role_paths(folder, role);
    match candidates.iter().position(|path| path.is_dir()) {
        Some(path) => Ok(candidates.swap_remove(path)),
        None => {
            let candidates: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
            Err(FieldError::new(
                "role",
                format!(
                    "role {role} not found in {}: set the path of its folder, or add the parent folder to \
                     ANSIBLE_ROLES_PATH",
                    candidates.join(", ")
                ),
            ))
        }
    }
}

/// Returns the possible paths of a role: as a path, below `ANSIBLE_ROLES_PATH`, in the project's roles, as a path in
/// the project.
pub(crate) fn role_paths(folder: &Path, role: &str) -> Vec<PathBuf> {
    if Path::new(role).is_absolute() {
        return absolute_places(folder, role);
    }
    let paths = roles_path().into_iter();
    let mut places: Vec<_> = paths.flat_map(|path| [path.join(role), path.join("roles").join(role)]).collect();
    places.extend([folder.join("roles").join(role), folder.join(role)]);
    places.extend(collection_places(folder, role).into_iter().map(|(place, name)| place.join("roles").join(name)));
    places
}

/// Returns the directories in `ANSIBLE_ROLES_PATH`.
pub(crate) fn roles_path() -> Vec<PathBuf> {
    let paths = env::var_os("ANSIBLE_ROLES_PATH").unwrap_or_default();
    env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// Returns the possible paths of an absolute path: images of operator-sdk have the project in `/opt/ansible`.
fn absolute_places(folder: &Path, path: &str) -> Vec<PathBuf> {
    let in_project = Path::new(path).strip_prefix("/opt/ansible").ok();
    [PathBuf::from(path)].into_iter().chain(in_project.map(|path| folder.join(path))).collect()
}

/// Returns the possible directories of the collection of a name such as `community.general.site`, and the last part of
/// the name: in the project, in `ANSIBLE_COLLECTIONS_PATH`, or in Ansible's default directories.
fn collection_places(folder: &Path, name: &str) -> Vec<(PathBuf, String)> {
    let parts: Vec<&str> = name.split('.').collect();
    let is_name = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    let [namespace, collection, name] = parts[..] else { return Vec::new() };
    if !parts.iter().all(is_name) {
        return Vec::new();
    }
    let mut folders = vec![folder.join("collections")];
    match env::var_os("ANSIBLE_COLLECTIONS_PATH").filter(|paths| !paths.is_empty()) {
        Some(paths) => folders.extend(env::split_paths(&paths)),
        None => {
            folders.extend(env::var_os("HOME").map(|home| PathBuf::from(home).join(".ansible/collections")));
            folders.push("/usr/share/ansible/collections".into());
        }
    }
    let of = |folder: PathBuf| {
        let all = if folder.ends_with("ansible_collections") { folder } else { folder.join("ansible_collections") };
        (all.join(namespace).join(collection), name.to_owned())
    };
    folders.into_iter().map(of).collect()
}

fn environment(variable: &str) -> Option<String> {
    env::var(variable).ok()
}

/// Returns the name of an environment variable for a kind.
fn variable_of(prefix: &str, gvk: &GroupVersionKind) -> String {
    format!("{prefix}_{}_{}", gvk.kind, gvk.group).replace('.', "_").to_uppercase()
}

/// Reads the maximum number of concurrent reconciles, which operator-sdk reads from the environment.
fn concurrency(gvk: &GroupVersionKind, variable: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let value = |prefix: &str| variable(&variable_of(prefix, gvk))?.parse().ok().filter(|workers| *workers > 0);
    value("MAX_CONCURRENT_RECONCILES").or_else(|| value("WORKER"))
}

fn verbosity(gvk: &GroupVersionKind, variable: impl Fn(&str) -> Option<String>) -> Option<u8> {
    parse_verbosity(&variable(&variable_of("ANSIBLE_VERBOSITY", gvk))?)
}

/// Parses a verbosity, within the limits.
pub(crate) fn parse_verbosity(text: &str) -> Option<u8> {
    let verbosity: i64 = text.trim().parse().ok()?;
    u8::try_from(verbosity.clamp(0, MAX_VERBOSITY.into())).ok()
}

/// Replaces references to environment variables; references to unset variables stay.
fn expand(text: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let named = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, remaining) = match after.strip_prefix('{').and_then(|after| after.split_once('}')) {
            Some((name, remaining)) => (name, remaining),
            None => after.split_at(after.find(|c: char| !named(c)).unwrap_or(after.len())),
        };
        match variable(name).filter(|_| !name.is_empty() && name.chars().all(named)) {
            Some(value) => {
                expanded.push_str(&value);
                rest = remaining;
            }
            None => {
                expanded.push('$');
                rest = after;
            }
        }
    }
    expanded + rest
}

/// Formats a selector for list requests.
fn selector_text(selector: &LabelSelector) -> Result<Option<String>, FieldError> {
    let mut terms: Vec<String> = Vec::new();
    terms.extend(selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}")));
    for term in selector.match_expressions.iter().flatten() {
        let (key, values) = (&term.key, term.values.clone().unwrap_or_default().join(","));
        terms.push(match term.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            "DoesNotExist" => format!("!{key}"),
            other => {
                let problem = format!("invalid operator {other:?}: use In, NotIn, Exists or DoesNotExist");
                return Err(FieldError::new("selector.matchExpressions", problem));
            }
        });
    }
    Ok(Some(terms.join(",")).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn existing_environment_variables_are_expanded() {
        let variable = |name: &str| (name == "HOME").then(|| "/root".to_owned());
        let check = |text: &str, expected: &str| assert_eq!(expand(text, variable), expected);
        check("role: ${HOME}/a", "role: /root/a");
        check("role: $HOME/a", "role: /root/a");
        check("${NONE} $NONE $ $$ ${HOME", "${NONE} $NONE $ $$ ${HOME");
    }

    #[test]
    fn environment_sets_concurrency_and_verbosity() {
        let gvk = GroupVersionKind::new("cache.example.com", "v1", "Memcached");
        let with = |name: &'static str, value: &'static str| {
            move |variable: &str| (variable == format!("{name}_MEMCACHED_CACHE_EXAMPLE_COM")).then(|| value.to_owned())
        };
        assert_eq!(concurrency(&gvk, with("MAX_CONCURRENT_RECONCILES", "3")), Some(3));
        assert_eq!(concurrency(&gvk, with("WORKER", "4")), Some(4));
        for invalid in ["0", "-1", "many", ""] {
            assert_eq!(concurrency(&gvk, with("WORKER", invalid)), None, "{invalid}");
        }
        for (value, expected) in [("0", Some(0)), ("5", Some(5)), ("9", Some(7)), ("-1", Some(0)), ("high", None)] {
            assert_eq!(verbosity(&gvk, with("ANSIBLE_VERBOSITY", value)), expected, "{value}");
        }
    }

    #[test]
    fn errors_name_the_field() {
        let folder = env::temp_dir();
        let check = |entry: Value, field: &str, problem: &str| {
            let mistake = read_entry(entry, &folder).unwrap_err();
            assert_eq!(mistake.field, field, "{}", mistake.problem);
            assert!(mistake.problem.contains(problem), "{}", mistake.problem);
        };
        check(json!(["a"]), "", "a list");
        check(
            json!({"group": "a.io", "kind": "A"}),
            "version",
            "required field is missing: set the version, such as v1alpha1",
        );
        let with = |field: &str, value: Value| json!({"group": "a.io", "version": "v1", "kind": "A", "role": "/", field: value});
        check(with("allowVariables", json!(["meta"])), "allowVariables", "rename the field");
        check(with("allowVariables", json!(["Meta"])), "allowVariables", "of the operator");
        check(with("allowVariables", json!(["_a_io_a_spec"])), "allowVariables", "of the operator");
        check(with("allowVariables", json!(["a-b"])), "allowVariables", "invalid variable name");
        check(with("allowVariables", json!(["hostVars"])), "allowVariables", "to host_vars");
        assert!(read_entry(with("allowVariables", json!(["vars", "host_vars"])), &folder).is_ok());
        check(
            with("executor", json!("python")),
            "executor",
            "\"python\" must be built-in, worker, ansible-playbook, auto",
        );
        for (name, executor) in [("worker", Executor::Worker), ("process", Executor::AnsiblePlaybook)] {
            assert_eq!(read_entry(with("executor", json!(name)), &folder).unwrap().executor, Some(executor));
        }
        check(
            with("blacklist", json!([{"version": "v1", "kind": "A"}, {"kind": "B"}])),
            "blacklist[1].version",
            "required",
        );
        check(with("allowServices", json!(["a.b.svc"])), "allowServices", "invalid service");
        check(with("maxRunnerArtifacts", json!(-1)), "maxRunnerArtifacts", "a non-negative integer");
        check(with("markUnsafe", json!("yes")), "markUnsafe", "\"yes\" must be true or false, without quotes");
        check(with("allowKinds", json!(["A"])), "allowKinds[0]", "must be a mapping, not a string");
        check(with("allowKinds", json!({})), "allowKinds", "must be a list of mappings with group");
        check(with("selector", json!({"matchLabels": 3})), "selector", "expected matchLabels or matchExpressions");
        check(json!({"version": "v1", "kind": 3}), "kind", "3 must be a string: put it in quotes");
        check(json!({"version": "v1", "kind": "A"}), "role", "required");
        check(json!({"version": "v1", "kind": "A", "role": "none-such"}), "role", "role none-such not found");
        check(json!({"version": "v1", "kind": "A", "playbook": "none.yml"}), "playbook", "no playbook at ");
        check(json!({"version": "v1", "kind": "A", "role": "/", "playbook": "b"}), "playbook", "mutually exclusive");
        check(
            json!({"version": "v1", "kind": "A", "role": "/", "rule": "b"}),
            "rule",
            "unknown field; expected one of allowKinds, allowNamespaces",
        );
        check(
            json!({"version": "v1", "kind": "A", "role": "/", "reconcilePeriod": "5"}),
            "reconcilePeriod",
            "\"5\" must be a duration",
        );
        check(
            json!({"version": "v1", "kind": "A", "role": "/", "manageStatus": "no"}),
            "manageStatus",
            "true or false",
        );
        check(
            json!({"version": "v1", "kind": "A", "role": "/", "finalizer": {"name": "a"}}),
            "finalizer.name",
            "invalid finalizer name",
        );
        check(
            json!({"version": "v1", "kind": "A", "role": "/", "finalizer": {"name": "a.b/c"}}),
            "finalizer",
            "required",
        );
        check(
            json!({"version": "v1", "kind": "A", "role": "/", "finalizer": {"name": "a.b/c", "x": 1}}),
            "finalizer.x",
            "unknown field",
        );
    }

    #[test]
    fn selector_is_formatted_for_list_requests() {
        let entry = json!({"version": "v1", "kind": "A", "role": "/", "selector": {"matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}, {"key": "f", "operator": "Exists"}]}});
        let watch = read_entry(entry, Path::new(".")).unwrap();
        assert_eq!(watch.selector.as_deref(), Some("a=b,c in (d,e),f"));
        assert!(watch.manage_status && watch.snake_case && watch.watch_dependents && !watch.watch_cluster_scoped);
    }
}
