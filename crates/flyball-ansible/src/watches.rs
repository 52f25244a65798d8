//! `watches.yaml`: the role or playbook of each kind.

use crate::error::{Error, Result};
use crate::fields::{Fields, Mistake};
use crate::names::{Reason, never_allowed, own_names};
use crate::snake::snake;
use crate::yaml::{self, what};
use flyball::{GroupVersionKind, Kind};
use flyball_core::time::parse_unsigned_duration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A `watches.yaml`, in the format of operator-sdk's Ansible operator.
///
/// Every entry has `group`, `version` and `kind`, and a `role` or a `playbook` that reconciles the kind; see the
/// [fields]. References to environment variables, `$NAME` and `${NAME}`, are replaced if the variable exists. Roles
/// are searched below `ANSIBLE_ROLES_PATH`, in the folder `roles` beside the file, and as a path relative to the
/// file.
///
/// Four fields are extensions of operator-sdk's format. `allowVariables` lists variable names that fields of the spec
/// may have although Ansible or the role uses them. `allowNamespaces` lists namespaces, or `*`, that runs for
/// namespaced objects may access besides their own. `allowKinds` lists group, version and kind of objects outside of
/// that namespace, or of RBAC, that templates and variables may create; otherwise only tasks may. `passEnvironment`
/// lists environment variables of the operator that roles may read.
///
/// [fields]: https://sdk.operatorframework.io/docs/building-operators/ansible/reference/watches/
#[derive(Clone, Debug)]
pub struct Watches {
    pub(crate) path: PathBuf,
    pub(crate) entries: Vec<Watch>,
    /// Runs are polled by the caller.
    pub(crate) repeats: bool,
}

/// An entry: a kind, and its role or playbook.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    pub(crate) gvk: GroupVersionKind,
    pub(crate) runs: Runs,
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
    /// Fields of the spec that become variables although their names are rejected by default, as variable names.
    pub(crate) allow_variables: BTreeSet<String>,
    /// Namespaces that a run for a namespaced object may access besides its own; `*` for all.
    pub(crate) allow_namespaces: BTreeSet<String>,
    /// Kinds outside of the object's namespace, or of RBAC, that need not be literal in a task.
    pub(crate) allow_kinds: Vec<GroupVersionKind>,
    /// Environment variables that roles may read.
    pub(crate) pass_environment: BTreeSet<String>,
}

/// The role or playbook of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Runs {
    /// The folder of a role.
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
        let text = yaml::text(path)?;
        let text = expand(&text, |name| env::var(name).ok());
        let documents = yaml::documents(&text).map_err(|problem| Error::file(path, problem))?;
        let entries = match <[Value; 1]>::try_from(documents) {
            Ok([Value::Array(entries)]) if !entries.is_empty() => entries,
            _ => {
                return Err(Error::file(
                    path,
                    "must be a list of entries, each with group, version, kind, and role or playbook",
                ));
            }
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut watches = Self { path: path.to_owned(), entries: Vec::new(), repeats: false };
        let mut known = BTreeSet::new();
        for (number, entry) in entries.into_iter().enumerate() {
            let kind = entry.get("kind").and_then(Value::as_str).map(|kind| format!(" ({kind})"));
            let name = format!("{}{}", number + 1, kind.unwrap_or_default());
            let refuse = |Mistake { field, problem }| Error::Entry {
                path: path.to_owned(),
                entry: name.clone(),
                field,
                problem,
            };
            let watch = read_entry(entry, folder).map_err(refuse)?;
            if !known.insert(watch.gvk.clone()) {
                return Err(refuse(Mistake::new(
                    "kind",
                    "another entry has the same group, version and kind: merge the entries",
                )));
            }
            watches.entries.push(watch);
        }
        Ok(watches)
    }

    /// Evaluates templates of the built-in executor on the runtime's own thread, so that simulations are
    /// reproducible. Expensive templates then block the operator; by default, they run on other threads.
    pub fn repeatable(self) -> Self {
        Self { repeats: true, ..self }
    }

    /// Returns the folder of the file, which is the project folder.
    pub fn folder(&self) -> &Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Returns the reconciled kinds, with regular plurals.
    pub fn kinds(&self) -> Vec<Kind> {
        self.entries.iter().map(|watch| Kind::new(&watch.gvk.group, &watch.gvk.version, &watch.gvk.kind)).collect()
    }
}

fn read_entry(entry: Value, folder: &Path) -> Result<Watch, Mistake> {
    let mut fields = Fields::of(entry)?;
    let gvk = read_kind(&mut fields)?;
    let runs = read_runs(&mut fields, folder)?;
    let vars = fields.map("vars")?;
    let finalizer = fields.remove("finalizer").map(|finalizer| read_finalizer(finalizer, folder)).transpose();
    let finalizer = finalizer.map_err(|mistake| Mistake {
        field: if mistake.field.is_empty() { "finalizer".to_owned() } else { format!("finalizer.{}", mistake.field) },
        ..mistake
    })?;
    let period = match fields.text("reconcilePeriod")? {
        None => None,
        Some(text) => Some(parse_unsigned_duration(&text).ok_or_else(|| {
            Mistake::new("reconcilePeriod", format!("invalid duration {text:?}: use a duration such as 30s or 1h30m"))
        })?),
    };
    let not_watched = read_kinds(&mut fields, "blacklist")?;
    let allow_kinds = read_kinds(&mut fields, "allowKinds")?;
    let selector = match fields.remove("selector") {
        None => None,
        Some(selector) => {
            let unreadable = |error: serde_json::Error| {
                Mistake::new("selector", format!("{error}: expected matchLabels or matchExpressions"))
            };
            selector_text(&serde_json::from_value(selector).map_err(unreadable)?)?
        }
    };
    let snake_case = fields.boolean("snakeCaseParameters")?.unwrap_or(true);
    let allow_variables = fields.names("allowVariables")?;
    allow_variables.iter().try_for_each(|name| check_variable(name, &gvk, snake_case))?;
    let runs = runs.ok_or_else(|| Mistake::new("role", "required: a role or a playbook"))?;
    let watch = Watch {
        concurrency: concurrency(&gvk),
        gvk,
        runs,
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
    };
    // Text of users is never a template, independent of this field; and runs leave no artifacts.
    fields.boolean("markUnsafe")?;
    fields.number("maxRunnerArtifacts")?;
    fields.finish()?;
    Ok(watch)
}

/// Rejects a name in `allowVariables` that no field of a spec can have as variable name.
fn check_variable(name: &str, gvk: &GroupVersionKind, snake_case: bool) -> Result<(), Mistake> {
    let refuse = |problem: String| Err(Mistake::new("allowVariables", problem));
    match never_allowed(name, &own_names(gvk)) {
        Some(Reason::Operator) => refuse(format!(
            "{name} is reserved for a variable of the operator, which no field of the spec can replace: remove the name, and rename the \
             field"
        )),
        Some(_) => {
            refuse(format!("invalid variable name {name:?}: use letters, digits and _, not starting with a digit"))
        }
        None if snake_case && snake(name) != name => {
            refuse(format!("snakeCaseParameters converts {name} to {}: use that name", snake(name)))
        }
        None => Ok(()),
    }
}

fn read_kind(fields: &mut Fields) -> Result<GroupVersionKind, Mistake> {
    let group = fields.text("group")?.unwrap_or_default();
    let mut needed = |name: &'static str| match fields.text(name)? {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(Mistake::new(name, format!("required, such as {}", example(name)))),
    };
    Ok(GroupVersionKind::new(&group, &needed("version")?, &needed("kind")?))
}

fn read_kinds(fields: &mut Fields, name: &'static str) -> Result<Vec<GroupVersionKind>, Mistake> {
    let read = |kind: Value| {
        let mut fields = Fields::of(kind)?;
        let kind = read_kind(&mut fields)?;
        fields.finish()?;
        Ok(kind)
    };
    let within = |at: usize, mistake: Mistake| {
        let inner = if mistake.field.is_empty() { String::new() } else { format!(".{}", mistake.field) };
        Mistake { field: format!("{name}[{at}]{inner}"), ..mistake }
    };
    match fields.remove(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(kinds)) => {
            kinds.into_iter().enumerate().map(|(at, kind)| read(kind).map_err(|mistake| within(at, mistake))).collect()
        }
        Some(other) => Err(Mistake::new(
            name,
            format!("must be a list of maps with group, version and kind, not {}", what(&other)),
        )),
    }
}

fn example(name: &str) -> &'static str {
    if name == "kind" { "Memcached" } else { "v1alpha1" }
}

fn read_finalizer(finalizer: Value, folder: &Path) -> Result<Finalizer, Mistake> {
    let mut fields = Fields::of(finalizer)?;
    let name = fields.text("name")?.unwrap_or_default();
    // The API server rejects other names.
    let is_qualified = name.split_once('/').is_some_and(|(domain, rest)| domain.contains('.') && !rest.is_empty());
    if !is_qualified {
        return Err(Mistake::new(
            "name",
            format!("invalid finalizer name {name:?}: use a qualified name such as cache.example.com/finalizer"),
        ));
    }
    let runs = read_runs(&mut fields, folder)?;
    let vars = fields.map("vars")?;
    fields.finish()?;
    if runs.is_none() && vars.is_empty() {
        return Err(Mistake::new("", "required: a role, a playbook, or vars"));
    }
    Ok(Finalizer { name, runs, vars })
}

fn read_runs(fields: &mut Fields, folder: &Path) -> Result<Option<Runs>, Mistake> {
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    match (filled(fields.text("role")?), filled(fields.text("playbook")?)) {
        (Some(_), Some(_)) => {
            Err(Mistake::new("playbook", "role and playbook are mutually exclusive: remove one of them"))
        }
        (Some(role), None) => find_role(folder, &role).map(|path| Some(Runs::Role(path))),
        (None, Some(playbook)) => {
            let path = folder.join(&playbook);
            match path.is_file() {
                true => Ok(Some(Runs::Playbook(path))),
                false => Err(Mistake::new(
                    "playbook",
                    format!("file {} not found: paths are relative to the directory of watches.yaml", path.display()),
                )),
            }
        }
        (None, None) => Ok(None),
    }
}

fn find_role(folder: &Path, role: &str) -> Result<PathBuf, Mistake> {
    let mut places = role_places(folder, role);
    match places.iter().position(|place| place.is_dir()) {
        Some(place) => Ok(places.swap_remove(place)),
        None => {
            let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
            Err(Mistake::new(
                "role",
                format!(
                    "role {role} not found in {}: set the path of its folder, or add the parent folder to \
                     ANSIBLE_ROLES_PATH",
                    places.join(", ")
                ),
            ))
        }
    }
}

/// Returns the possible paths of a role: as a path, below `ANSIBLE_ROLES_PATH`, in the project's roles, as a path in
/// the project.
pub(crate) fn role_places(folder: &Path, role: &str) -> Vec<PathBuf> {
    if Path::new(role).is_absolute() {
        return vec![role.into()];
    }
    let paths = env::var_os("ANSIBLE_ROLES_PATH").unwrap_or_default();
    let paths = env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty());
    let mut places: Vec<_> = paths.flat_map(|path| [path.join(role), path.join("roles").join(role)]).collect();
    places.extend([folder.join("roles").join(role), folder.join(role)]);
    places
}

/// Reads the maximum number of concurrent reconciles, which operator-sdk reads from the environment.
fn concurrency(gvk: &GroupVersionKind) -> Option<usize> {
    let name = format!("{}_{}", gvk.kind, gvk.group).replace('.', "_").to_uppercase();
    let value = |prefix: &str| env::var(format!("{prefix}_{name}")).ok()?.parse().ok().filter(|workers| *workers > 0);
    value("MAX_CONCURRENT_RECONCILES").or_else(|| value("WORKER"))
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
fn selector_text(selector: &LabelSelector) -> Result<Option<String>, Mistake> {
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
                return Err(Mistake::new("selector.matchExpressions", problem));
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
    fn errors_name_the_field() {
        let folder = env::temp_dir();
        let check = |entry: Value, field: &str, problem: &str| {
            let mistake = read_entry(entry, &folder).unwrap_err();
            assert_eq!(mistake.field, field, "{}", mistake.problem);
            assert!(mistake.problem.contains(problem), "{}", mistake.problem);
        };
        check(json!(["a"]), "", "a list");
        check(json!({"group": "a.io", "kind": "A"}), "version", "required");
        let with = |field: &str, value: Value| json!({"group": "a.io", "version": "v1", "kind": "A", "role": "/", field: value});
        check(with("allowVariables", json!(["meta"])), "allowVariables", "rename the field");
        check(with("allowVariables", json!(["Meta"])), "allowVariables", "of the operator");
        check(with("allowVariables", json!(["_a_io_a_spec"])), "allowVariables", "of the operator");
        check(with("allowVariables", json!(["a-b"])), "allowVariables", "invalid variable name");
        check(with("allowVariables", json!(["hostVars"])), "allowVariables", "to host_vars");
        assert!(read_entry(with("allowVariables", json!(["vars", "host_vars"])), &folder).is_ok());
        check(
            with("blacklist", json!([{"version": "v1", "kind": "A"}, {"kind": "B"}])),
            "blacklist[1].version",
            "required",
        );
        check(with("allowKinds", json!(["A"])), "allowKinds[0]", "must be a map");
        check(with("allowKinds", json!({})), "allowKinds", "a list of maps");
        check(with("selector", json!({"matchLabels": 3})), "selector", "expected matchLabels or matchExpressions");
        check(json!({"version": "v1", "kind": 3}), "kind", "a number");
        check(json!({"version": "v1", "kind": "A"}), "role", "required");
        check(json!({"version": "v1", "kind": "A", "role": "none-such"}), "role", "role none-such not found");
        check(json!({"version": "v1", "kind": "A", "playbook": "none.yml"}), "playbook", "not found");
        check(json!({"version": "v1", "kind": "A", "role": "/", "playbook": "b"}), "playbook", "mutually exclusive");
        check(
            json!({"version": "v1", "kind": "A", "role": "/", "rule": "b"}),
            "rule",
            "unknown field; expected one of allowKinds, allowNamespaces",
        );
        check(json!({"version": "v1", "kind": "A", "role": "/", "reconcilePeriod": "5"}), "reconcilePeriod", "30s");
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
