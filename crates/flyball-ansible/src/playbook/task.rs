//! Parses a task.

use super::args::{is_action, is_builtin, is_module, module, pairs};
use super::keywords::{Keywords, is_keyword};
use super::texts::{check_all, check_conditions, literal_name};
use super::{Action, Module, Task};
use crate::error::{Error, Result};
use crate::template::is_template;
use crate::value::{Map, Value};
use crate::yaml::{Lines, type_name};
use std::path::PathBuf;
use std::sync::Arc;

/// Nesting limit of blocks.
const MAX_DEPTH: usize = 32;

/// The tags that decide whether a task runs if no tags are requested.
const NEVER: &str = "never";
const ALWAYS: &str = "always";
/// The lists of tasks of a block.
pub(super) const BLOCK_PARTS: [&str; 3] = ["block", "rescue", "always"];

/// Arguments of includes and imports that only Ansible has.
const OPTIONS_OF_ANSIBLE: [&str; 11] = [
    "defaults_from",
    "depth",
    "dir",
    "extensions",
    "files_matching",
    "handlers_from",
    "hash_behaviour",
    "ignore_files",
    "ignore_unknown_extensions",
    "rolespec_validate",
    "vars_from",
];

/// Resolves references of a task to other files and roles.
pub(super) trait Resolve {
    /// Returns the tasks of an imported file, which inherit these tags.
    fn import(&mut self, file: &str, tags: Tags) -> Result<Arc<[Task]>, String>;
    /// Records that a task file may be included; `None` if its name is computed.
    fn include(&mut self, file: Option<&str>) -> Result<(), String>;
    /// Records that variables may be included.
    fn include_vars(&mut self, file: Option<&str>) -> Result<(), String>;
    /// Returns the folder of a role.
    fn role(&mut self, name: &str, tasks_from: &str) -> Result<PathBuf, String>;
    /// Returns true if the module `uri` may be used.
    fn allows_services(&self) -> bool;
}

/// The tags of a task that count if no tags are requested, including those of its blocks, its imports and its play.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tags {
    is_never: bool,
    is_always: bool,
}

impl Tags {
    /// Adds the tags of a task within.
    pub(super) fn join(self, tags: &Value) -> Self {
        let tags: Vec<&str> = match tags {
            Value::String(tags) => tags.split(',').map(str::trim).collect(),
            Value::Array(tags) => tags.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        Self { is_never: self.is_never || tags.contains(&NEVER), is_always: self.is_always || tags.contains(&ALWAYS) }
    }

    /// Returns true if a task with these tags runs: see `Taggable.evaluate_tags` of ansible-core.
    pub(super) fn run(self) -> bool {
        !self.is_never || self.is_always
    }
}

/// The place of a task in blocks.
#[derive(Clone, Copy)]
struct Nesting {
    tags: Tags,
    depth: usize,
}

/// Returns true if a task, or a task in a block, runs within these tags. Other tasks may use unsupported features.
fn may_run(task: &Value, tags: Tags, depth: usize) -> bool {
    let tags = tags.join(&task["tags"]);
    let inner = || BLOCK_PARTS.iter().filter_map(|part| task[*part].as_array()).flatten();
    // Deeper blocks are an error where they are read.
    tags.run() || depth > MAX_DEPTH || task["block"].is_array() && inner().any(|task| may_run(task, tags, depth + 1))
}

/// Reads a list of tasks, which begins at these lines of a file and inherits these tags.
pub(super) fn read_tasks(
    tasks: Value,
    file: &Arc<PathBuf>,
    lines: Option<&Lines>,
    tags: Tags,
    depth: usize,
    found: &mut dyn Resolve,
) -> Result<Vec<Task>> {
    if depth > MAX_DEPTH {
        return Err(Error::file(file, format_args!("blocks are nested deeper than {MAX_DEPTH}")));
    }
    match tasks {
        Value::Null => Ok(Vec::new()),
        Value::Array(tasks) => {
            let runs = |(_, task): &(usize, Value)| may_run(task, tags, depth);
            let read = |(number, task): (usize, Value)| {
                let name = match task.get("name").and_then(Value::as_str) {
                    Some(name) => format!("{name:?}"),
                    None => format!("number {}", number + 1),
                };
                let lines = lines.and_then(|lines| lines.item(number));
                let task = read_task(task, file, &name, lines, tags, depth, found);
                task.map_err(|error| error.at_line(lines.map_or(0, |lines| lines.line)))
            };
            tasks.into_iter().enumerate().filter(runs).map(read).collect()
        }
        other => Err(Error::file(file, format_args!("must be a list of tasks, not {}", type_name(&other)))),
    }
}

fn read_task(
    task: Value,
    file: &Arc<PathBuf>,
    position: &str,
    lines: Option<&Lines>,
    tags: Tags,
    depth: usize,
    found: &mut dyn Resolve,
) -> Result<Task> {
    let reject = |problem: String| Error::task(file, position, problem);
    let Value::Object(mut fields) = task else {
        return Err(reject(format!("must be a map, not {}", type_name(&task))));
    };
    let mut keywords = Keywords { fields: &mut fields, file, position };
    let mut task = keywords.task()?;
    let name = keywords.text("name")?;
    let tags = tags.join(&keywords.fields.remove("tags").unwrap_or_default());
    keywords.without_effect()?;
    let args = keywords.map("args")?;
    // `no_log` in `apply` counts as `no_log` of the task itself.
    let applied = fields.values().find_map(|arguments| arguments.get("apply")?.get("no_log").cloned());
    applied.iter().try_for_each(check_all).map_err(&reject)?;
    task.no_log = task.no_log.or(applied);
    check_single_action(&fields).map_err(|problem| reject(problem).for_all_executors())?;
    let block = fields.contains_key("block").then(|| "block".to_owned());
    task.action_name = block.or_else(|| action_key(&fields)).unwrap_or_default();
    task.action = read_action(&mut fields, args, file, position, lines, Nesting { tags, depth }, found)?;
    task.name = name.unwrap_or_else(|| position.to_owned());
    if matches!(task.action, Action::Block { .. } | Action::Role { is_static: true, .. })
        && (task.repeat.is_some() || task.register.is_some() || !task.until.is_empty() || task.retries.is_some())
    {
        let remedy = "set loop, register and until on the inner tasks, or on include_tasks and include_role";
        return Err(reject(format!("a block or import does not support loop, register and until: {remedy}")));
    }
    match fields.keys().next() {
        None => Ok(task),
        Some(key) if !is_keyword(key) => Err(reject(conflict(&task, key)).for_all_executors()),
        Some(keyword) => {
            let problem = format!("the built-in executor does not support keyword {keyword}: remove it");
            Err(reject(problem).with_feature(format!("keyword {keyword}")))
        }
    }
}

/// Returns the message about a key that is neither a keyword nor the module of a task, in Ansible's words.
fn conflict(task: &Task, key: &str) -> String {
    match task.action {
        Action::Block { .. } if task.action_name == "block" => format!("'{key}' is not a valid attribute for a Block"),
        _ => {
            let action = &task.action_name;
            format!("conflicting action statements: {action}, {key}: a task has one module, and {key} is no keyword")
        }
    }
}

/// Rejects several modules in one task, in Ansible's words.
fn check_single_action(fields: &Map) -> Result<(), String> {
    let modules: Vec<&str> =
        fields.keys().map(String::as_str).filter(|key| is_module(key) || *key == "block").collect();
    match modules.len() {
        0 | 1 => Ok(()),
        _ => Err(format!("conflicting action statements: {}: a task has one module", modules.join(", "))),
    }
}

/// Returns the remaining key, which is the module; if there are several, one is an unknown keyword.
fn action_key(fields: &Map) -> Option<String> {
    fields.keys().find(|key| is_action(key.as_str())).or_else(|| fields.keys().next()).cloned()
}

/// Removes the action of a task from its fields and returns it.
fn read_action(
    fields: &mut Map,
    args: Map,
    file: &Arc<PathBuf>,
    position: &str,
    lines: Option<&Lines>,
    Nesting { tags, depth }: Nesting,
    found: &mut dyn Resolve,
) -> Result<Action> {
    let reject = |problem: String| Error::task(file, position, problem);
    if let Some(tasks) = fields.remove("block") {
        let mut section = |name: &str, tasks: Option<Value>| {
            let lines = lines.and_then(|lines| lines.field(name));
            read_tasks(tasks.unwrap_or_default(), file, lines, tags, depth + 1, &mut *found).map(Arc::from)
        };
        let (rescue, always) = (fields.remove("rescue"), fields.remove("always"));
        return Ok(Action::Block {
            tasks: section("block", Some(tasks))?,
            rescue: section("rescue", rescue)?,
            always: section("always", always)?,
        });
    }
    let Some(key) = action_key(fields) else {
        return Err(reject("no module: add one".into()).for_all_executors());
    };
    let arguments = fields.remove(&key).unwrap_or_default();
    let file_of = |arguments: &Value, what: &str| file_argument(&key, arguments, what, reject);
    let rest = |options: Map| match options.keys().next() {
        Some(option) if OPTIONS_OF_ANSIBLE.contains(&option.as_str()) => {
            Err(reject(format!("{key}: the built-in executor does not support argument {option}")))
        }
        Some(option) => Err(reject(format!("Invalid options for {key}: {option}")).for_all_executors()),
        None => Ok(()),
    };
    let is = |name: &str| is_builtin(&key, name);
    if is("import_tasks") {
        let (name, options) = file_of(&arguments, "task file")?;
        rest(options)?;
        let name = literal(&name)
            .ok_or_else(|| reject("import_tasks does not support templates: use include_tasks".into()))?;
        let tasks = found.import(&name, tags).map_err(&reject)?;
        Ok(Action::Block { tasks, rescue: Arc::default(), always: Arc::default() })
    } else if is("include_tasks") || is("include") {
        let (name, options) = file_of(&arguments, "task file")?;
        rest(options)?;
        check_all(&name).map_err(&reject)?;
        found.include(literal(&name).as_deref()).map_err(&reject)?;
        Ok(Action::IncludeTasks(name))
    } else if is("include_vars") {
        let (name, mut options) = file_of(&arguments, "variable file")?;
        let into = options.remove("name").and_then(|name| name.as_str().map(str::to_owned));
        let into = into.map(literal_name).transpose().map_err(&reject)?;
        rest(options)?;
        check_all(&name).map_err(&reject)?;
        found.include_vars(literal(&name).as_deref()).map_err(&reject)?;
        Ok(Action::IncludeVars { file: name, name: into })
    } else if is("include_role") || is("import_role") {
        read_role(&key, arguments, reject, found)
    } else {
        read_module(&key, arguments, args, reject, found)
    }
}

/// Returns the file that an include or import refers to, and its remaining options.
fn file_argument(key: &str, arguments: &Value, what: &str, reject: impl Fn(String) -> Error) -> Result<(Value, Map)> {
    let arguments = match arguments {
        Value::String(text) if text.contains('=') && !text.contains("{{") => {
            Value::Object(pairs(text).map_err(&reject)?)
        }
        Value::String(text) => return Ok((text.trim().into(), Map::new())),
        other => other.clone(),
    };
    let Value::Object(mut options) = arguments else { return Err(reject(format!("{key} has no {what}"))) };
    let file = options.remove("file").ok_or_else(|| match options.keys().next() {
        Some(option) => reject(format!("{key}: the built-in executor does not support argument {option}: set file")),
        None => reject(format!("{key} has no {what}: set file")),
    })?;
    options.remove("apply");
    Ok((file, options))
}

/// Returns a string without templates.
fn literal(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !is_template(text)).map(str::to_owned)
}

/// Reads the arguments of `include_role` or `import_role`.
fn read_role(key: &str, arguments: Value, reject: impl Fn(String) -> Error, found: &mut dyn Resolve) -> Result<Action> {
    let arguments = match arguments {
        Value::String(text) => Value::Object(pairs(&text).map_err(&reject)?),
        other => other,
    };
    let name = arguments.get("name").or_else(|| arguments.get("role")).and_then(literal);
    let name = name.ok_or_else(|| reject(format!("{key} has no literal role name: set name without a template")))?;
    let tasks_from = arguments.get("tasks_from").map_or(Some("main".to_owned()), literal);
    let tasks_from =
        tasks_from.ok_or_else(|| reject("the built-in executor does not support templates in tasks_from".into()))?;
    let known = ["name", "role", "tasks_from", "public", "apply", "allow_duplicates"];
    if let Some(option) =
        arguments.as_object().and_then(|options| options.keys().find(|o| !known.contains(&o.as_str())))
    {
        return Err(match OPTIONS_OF_ANSIBLE.contains(&option.as_str()) {
            true => reject(format!("{key}: the built-in executor does not support argument {option}")),
            false => reject(format!("Invalid options for {key}: {option}")).for_all_executors(),
        });
    }
    let folder = found.role(&name, &tasks_from).map_err(&reject)?;
    Ok(Action::Role { folder, tasks_from, is_static: is_builtin(key, "import_role") })
}

/// Reads the arguments of a module.
fn read_module(
    key: &str,
    arguments: Value,
    args: Map,
    reject: impl Fn(String) -> Error,
    found: &dyn Resolve,
) -> Result<Action> {
    let arguments = match arguments {
        Value::Object(mut arguments) => {
            arguments.extend(args);
            Value::Object(arguments)
        }
        Value::Null if !args.is_empty() => Value::Object(args),
        other => other,
    };
    let (module, arguments) = module(key, arguments).map_err(|error| match is_action(key) {
        true if error.is_invalid => reject(error.problem).for_all_executors(),
        true => reject(error.problem),
        false => reject(error.problem).with_feature(format!("module {key}")),
    })?;
    if module == Module::Uri && !found.allows_services() {
        let remedy = "list them in allowServices in watches.yaml, or have the role run by ansible-playbook";
        let problem = format!("the built-in executor supports {key} only for declared services: {remedy}");
        return Err(reject(problem).with_feature(format!("module {key}")));
    }
    if module == Module::SetFact {
        arguments.keys().cloned().try_for_each(|fact| literal_name(fact).map(drop)).map_err(&reject)?;
    }
    for (name, argument) in &arguments {
        // Conditions and variable names are expressions without braces.
        let is_expression = matches!((module, name.as_str()), (Module::Assert, "that") | (Module::Debug, "var"));
        let checked = if is_expression { check_conditions(argument) } else { check_all(argument) };
        checked.map_err(|problem| reject(format!("{name}: {problem}")))?;
    }
    Ok(Action::Module(module, arguments))
}
