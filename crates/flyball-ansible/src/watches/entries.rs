//! The entries of a `watches.yaml`: their fields, and settings of the environment.

use super::paths::{absolute_places, collection_places, find_role};
use super::{Executor, Finalizer, LogEvents, Runs, Watch};
use crate::error::{Error, Result};
use crate::fields::{FieldError, Fields};
use crate::names::{Reason, never_allowed, own_names};
use crate::services::Services;
use crate::snake::snake;
use crate::value::Value;
use crate::vault::Vault;
use crate::yaml::{self, Lines, truth, type_name};
use clap::ValueEnum;
use flyball::GroupVersionKind;
use flyball_core::time::parse_unsigned_duration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

/// The content of the file.
pub(super) const LIST: &str = "must be a list of entries, each with group, version, kind, and role or playbook";

/// The maximum verbosity.
const MAX_VERBOSITY: u8 = 7;

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
            selector_text(&crate::value::from_value(selector).map_err(unreadable)?)?
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
    use crate::value::json;

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
