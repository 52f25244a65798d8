//! Variables that roles and plays declare: inputs, and variables that they set themselves.
//!
//! Files are searched without evaluation, for either executor, including all roles that may run: a name with a
//! template stands for all files of the project. Nothing is executed or validated.

use super::args::{pairs, value};
use super::load::named;
use crate::error::{Error, Result};
use crate::names::is_special;
use crate::template::{is_template, normal, walk};
use crate::value::{Map, Value};
use crate::vault::Vault;
use crate::watches::{Runs, role_paths, roles_path};
use crate::yaml;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Nesting limit of tasks.
const MAX_DEPTH: usize = 64;
/// Limit of roles and files of a project.
const MAX_FILES: usize = 10_000;

/// The variables that roles and plays declare, by name.
#[derive(Debug, Default)]
pub(crate) struct DeclaredVariables {
    /// Variables in the defaults or the argument spec of a role.
    pub(crate) inputs: BTreeSet<String>,
    /// Variables that a role or play sets, without a default in the same role.
    pub(crate) own: BTreeSet<String>,
    /// Variables that only the `vars` of plays set: they preset inputs of roles.
    pub(crate) presets: BTreeSet<String>,
    /// Roles and files outside of the project with literal paths, with links resolved.
    pub(crate) external_paths: BTreeSet<PathBuf>,
    /// Literal names of metrics in tasks with `osdk_metric`.
    pub(crate) metrics: BTreeSet<String>,
    /// Folders of all roles that it may run.
    pub(crate) roles: BTreeSet<PathBuf>,
    /// The first file that cannot be decrypted, and the problem. Its variables are unknown.
    locked: Option<(PathBuf, String)>,
}

impl DeclaredVariables {
    /// Finds the variables of a role or playbook, and of all roles that it may run.
    pub(crate) fn of(runs: &Runs, project: &Path, vault: &Vault) -> Result<Self> {
        Walker::of(project, vault).search(runs)
    }

    /// Returns the variables that no field may set: those that roles and plays set themselves. Presets are such
    /// variables unless any of the roles declares them as an input, be it of another play, and the author declares a
    /// field for them.
    pub(crate) fn own(&self, fields: &BTreeSet<String>) -> BTreeSet<String> {
        let is_input = |name: &&String| self.inputs.contains(*name) && fields.contains(*name);
        self.own.iter().chain(self.presets.iter().filter(|name| !is_input(name))).cloned().collect()
    }

    /// Returns the error of a file that cannot be decrypted. The built-in executor reports those that it uses.
    pub(crate) fn locked_error(&self) -> Option<Error> {
        self.locked.as_ref().map(|(file, problem)| Error::vault(file, 0, problem))
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.inputs.extend(other.inputs);
        self.own.extend(other.own);
        self.presets.extend(other.presets);
        self.external_paths.extend(other.external_paths);
        self.metrics.extend(other.metrics);
        self.roles.extend(other.roles);
    }
}

/// Files that are searched as one unit: their names belong together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Role(PathBuf),
    /// A playbook, or an included file.
    File(PathBuf),
}

#[derive(Default)]
struct UnitVariables {
    inputs: BTreeSet<String>,
    own: BTreeSet<String>,
    presets: BTreeSet<String>,
}

struct Walker<'p> {
    project: &'p Path,
    /// Folders of roles outside of the project.
    roles_path: Vec<PathBuf>,
    vault: &'p Vault,
    found: DeclaredVariables,
    /// The variables of the current unit.
    names: UnitVariables,
    /// True if the unit is a role; all of its files are searched.
    in_role: bool,
    /// The folder of that role.
    beside: PathBuf,
    /// Files of that role that tasks include from outside of its tasks and variables.
    files: Vec<PathBuf>,
    next: Vec<Unit>,
}

/// Returns true if Ansible loads a file with this name as YAML or JSON.
fn is_loadable(file: &Path) -> bool {
    file.extension().is_none_or(|ending| ["yml", "yaml", "json"].iter().any(|known| ending == *known))
}

/// Returns the last part of a name such as `ansible.builtin.set_fact`.
fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

impl<'p> Walker<'p> {
    fn of(project: &'p Path, vault: &'p Vault) -> Self {
        let (found, names) = (DeclaredVariables::default(), UnitVariables::default());
        Self {
            project,
            roles_path: roles_path(),
            vault,
            found,
            names,
            in_role: false,
            beside: PathBuf::new(),
            files: Vec::new(),
            next: Vec::new(),
        }
    }

    fn search(mut self, runs: &Runs) -> Result<DeclaredVariables> {
        let mut seen = BTreeSet::new();
        self.next.push(match runs {
            Runs::Role(folder) => Unit::Role(normal(folder)),
            Runs::Playbook(file) => Unit::File(normal(file)),
        });
        while let Some(unit) = self.next.pop() {
            if !seen.insert(unit.clone()) {
                continue;
            }
            if seen.len() > MAX_FILES {
                return Err(Error::file(self.project, format_args!("more than {MAX_FILES} roles and files")));
            }
            if let Unit::Role(folder) = &unit {
                self.found.roles.insert(folder.clone());
            }
            let (Unit::Role(path) | Unit::File(path)) = &unit;
            self.record_external_path(path);
            self.unit(&unit)?;
        }
        Ok(self.found)
    }

    /// Reads the documents of a file as one value; null if it cannot be decrypted.
    fn read(&mut self, file: &Path) -> Result<Value> {
        let documents = match yaml::read_documents(file, self.vault) {
            Err(Error::Vault { problem, .. }) => {
                self.found.locked.get_or_insert((file.to_owned(), problem));
                Vec::new()
            }
            documents => documents?,
        };
        Ok(match <[Value; 1]>::try_from(documents) {
            Ok([document]) => document,
            Err(documents) => Value::Array(documents),
        })
    }

    /// Reads a file of a folder whose files Ansible may load by any name. Those with other names than YAML files may
    /// also be something else, such as a README.
    fn read_any(&mut self, file: &Path) -> Result<Value> {
        match self.read(file) {
            Err(_) if !is_loadable(file) => Ok(Value::Null),
            read => read,
        }
    }

    /// Returns true if a path is outside of the project.
    fn is_external(&self, path: &Path) -> bool {
        !self.project.canonicalize().is_ok_and(|project| path.starts_with(project))
    }

    /// Records a path if it is outside of the project. Unresolvable paths cannot be read either.
    fn record_external_path(&mut self, path: &Path) {
        let path = path.canonicalize().ok().filter(|path| self.is_external(path));
        self.found.external_paths.extend(path);
    }

    /// Records the variables of a single file. Tasks may write files outside of the project, so these declare no
    /// special variables.
    fn file_variables(&mut self, file: &Path, vars: Map) {
        let is_external = file.canonicalize().is_ok_and(|file| self.is_external(&file));
        let names = vars.into_iter().map(|(name, _)| name);
        self.names.own.extend(names.filter(|name| !is_external || !is_special(name)));
    }

    fn unit(&mut self, unit: &Unit) -> Result<()> {
        self.in_role = matches!(unit, Unit::Role(_));
        match unit {
            Unit::Role(folder) => self.role(folder)?,
            Unit::File(file) => {
                let folder = file.parent().unwrap_or(self.project).to_owned();
                // Ansible loads these beside a playbook automatically.
                for part in ["group_vars", "host_vars"] {
                    self.variables(&folder.join(part))?;
                }
                match self.read(file)? {
                    // A variable file.
                    Value::Object(vars) => self.file_variables(file, vars),
                    tasks => self.tasks(&tasks, &folder, 0)?,
                }
            }
        }
        let UnitVariables { inputs, own, presets } = std::mem::take(&mut self.names);
        self.found.presets.extend(presets);
        self.found.own.extend(own.into_iter().filter(|name| !inputs.contains(name)));
        self.found.inputs.extend(inputs);
        Ok(())
    }

    fn role(&mut self, folder: &Path) -> Result<()> {
        self.variables(&folder.join("vars"))?;
        let mut defaults: Vec<PathBuf> = named(&folder.join("defaults"), "main").into_iter().collect();
        defaults.extend(walk(&folder.join("defaults").join("main"))?);
        for file in defaults.iter().filter(|file| is_loadable(file)) {
            if let Value::Object(vars) = self.read(file)? {
                self.names.inputs.extend(vars.into_iter().map(|(name, _)| name));
            }
        }
        for (part, name) in [("meta", "argument_specs"), ("meta", "main")] {
            let Some(file) = named(&folder.join(part), name) else { continue };
            let meta = self.read(&file)?;
            let specs = meta["argument_specs"].as_object().into_iter().flat_map(Map::values);
            let options = specs.filter_map(|spec| spec["options"].as_object()).flat_map(Map::keys);
            self.names.inputs.extend(options.cloned());
            self.roles(&meta["dependencies"], folder)?;
        }
        for part in ["tasks", "handlers"] {
            for file in walk(&folder.join(part))? {
                self.beside = file.parent().unwrap_or(folder).to_owned();
                let tasks = self.read_any(&file)?;
                self.tasks(&tasks, folder, 0)?;
            }
        }
        let mut seen = BTreeSet::new();
        while let Some(file) = self.files.pop() {
            if !seen.insert(file.clone()) {
                continue;
            }
            if seen.len() > MAX_FILES {
                return Err(Error::file(folder, format_args!("more than {MAX_FILES} included files")));
            }
            self.record_external_path(&file);
            self.beside = file.parent().unwrap_or(folder).to_owned();
            match self.read(&file)? {
                Value::Object(vars) => self.file_variables(&file, vars),
                tasks => self.tasks(&tasks, folder, 0)?,
            }
        }
        Ok(())
    }

    /// Records the variables in all files of a folder.
    fn variables(&mut self, folder: &Path) -> Result<()> {
        for file in walk(folder)? {
            if let Value::Object(vars) = self.read_any(&file)? {
                self.names.own.extend(vars.into_iter().map(|(name, _)| name));
            }
        }
        Ok(())
    }

    /// Searches plays, blocks and tasks, which are distinguished only by their keys.
    fn tasks(&mut self, tasks: &Value, around: &Path, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Error::file(around, format_args!("blocks are nested deeper than {MAX_DEPTH}")));
        }
        match tasks {
            Value::Array(items) => items.iter().try_for_each(|item| self.tasks(item, around, depth + 1)),
            Value::Object(fields) => {
                let args = fields.get("args").map(|args| self.arguments(args)).unwrap_or_default();
                if fields.contains_key("hosts") && !self.in_role {
                    self.names
                        .presets
                        .extend(fields.get("vars").and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned());
                    let others = fields.iter().filter(|(key, _)| key.as_str() != "vars");
                    return others
                        .into_iter()
                        .try_for_each(|(key, value)| self.field(key, value, &args, around, depth));
                }
                fields.iter().try_for_each(|(key, value)| self.field(key, value, &args, around, depth))
            }
            _ => Ok(()),
        }
    }

    /// Searches a field of a task with these `args`.
    fn field(&mut self, key: &str, value: &Value, args: &Map, around: &Path, depth: usize) -> Result<()> {
        let own = &mut self.names.own;
        // Neither executor accepts computed names.
        let mut note = |name: &Value| own.extend(name.as_str().filter(|name| !is_template(name)).map(str::to_owned));
        match last(key) {
            "vars" => own.extend(value.as_object().into_iter().flat_map(Map::keys).cloned()),
            "register" => note(value),
            "loop_control" => ["loop_var", "index_var"].iter().for_each(|name| note(&value[*name])),
            "vars_prompt" => value.as_array().into_iter().flatten().for_each(|prompt| note(&prompt["name"])),
            "block" | "rescue" | "always" | "pre_tasks" | "tasks" | "post_tasks" | "handlers" => {
                self.tasks(value, around, depth + 1)?;
            }
            "roles" => self.roles(value, around)?,
            "vars_files" => {
                for file in value.as_array().into_iter().flatten() {
                    // An item may be a list of files, of which the first existing one is used.
                    let files = file.as_array().map_or(std::slice::from_ref(file), Vec::as_slice);
                    files.iter().try_for_each(|file| self.reach_file(file.as_str(), around))?;
                }
            }
            "action" | "local_action" => {
                let (module, arguments) = self.named_action(value);
                self.action(&module, &arguments, args, around, depth)?;
            }
            "module_defaults" => {
                for (module, arguments) in value.as_object().into_iter().flatten() {
                    self.action(module, arguments, args, around, depth)?;
                }
            }
            _ => self.action(key, value, args, around, depth)?,
        }
        Ok(())
    }

    /// Returns the module that `action` names, and its arguments.
    fn named_action(&self, action: &Value) -> (String, Value) {
        let split = |text: &str| {
            let (module, rest) = value(text.trim()).unwrap_or((text.to_owned(), ""));
            (module, Value::from(rest.trim()))
        };
        let Value::Object(arguments) = action else { return split(action.as_str().unwrap_or_default()) };
        let (module, pairs) = split(arguments.get("module").and_then(Value::as_str).unwrap_or_default());
        let mut arguments = arguments.clone();
        arguments.remove("module");
        arguments.extend(self.arguments(&pairs));
        (module, arguments.into())
    }

    /// Searches a module with its arguments, and those in `args`.
    fn action(&mut self, module: &str, arguments: &Value, args: &Map, around: &Path, depth: usize) -> Result<()> {
        // A computed module may be any.
        let module = if is_template(module) { "set_fact" } else { last(module) };
        let is_file =
            matches!(module, "include_vars" | "include_tasks" | "import_tasks" | "include" | "import_playbook");
        if !is_file && !matches!(module, "set_fact" | "include_role" | "import_role" | "osdk_metric") {
            return Ok(());
        }
        let mut arguments = match arguments {
            Value::String(file) if is_file && !file.contains('=') => {
                Map::from_iter([("file".to_owned(), file.trim().into())])
            }
            other => self.arguments(other),
        };
        let nested = arguments.remove("args").map(|args| self.arguments(&args)).unwrap_or_default();
        arguments.extend(nested.into_iter().chain(args.clone()));
        match module {
            "set_fact" => {
                self.names.own.extend(arguments.into_iter().map(|(name, _)| name).filter(|name| name != "cacheable"));
            }
            "osdk_metric" => {
                let name = arguments.get("name").and_then(Value::as_str).filter(|name| !is_template(name));
                self.found.metrics.extend(name.map(str::to_owned));
            }
            "include_role" | "import_role" => {
                self.tasks(arguments.get("apply").unwrap_or(&Value::Null), around, depth + 1)?;
                let name = arguments.get("name").or_else(|| arguments.get("role"));
                self.reach_role(name.and_then(Value::as_str), around)?;
            }
            _ => {
                self.tasks(arguments.get("apply").unwrap_or(&Value::Null), around, depth + 1)?;
                self.names.own.extend(arguments.get("name").and_then(Value::as_str).map(str::to_owned));
                match arguments.get("dir").and_then(Value::as_str).filter(|dir| !is_template(dir)) {
                    Some(dir) => self.variables(&around.join(dir))?,
                    None => {
                        let file = ["file", "_raw_params"].iter().find_map(|name| arguments.get(*name)?.as_str());
                        self.reach_file(file, around)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Parses arguments, which may be pairs in a string.
    fn arguments(&self, value: &Value) -> Map {
        match value {
            Value::Object(arguments) => arguments.clone(),
            Value::String(text) => pairs(text).unwrap_or_else(|_| {
                // Even in an invalid string, Ansible may find names.
                let names = text
                    .split('=')
                    .filter_map(|before| before.split(|c: char| !c.is_alphanumeric() && c != '_').next_back());
                names.filter(|name| !name.is_empty()).map(|name| (name.to_owned(), Value::Null)).collect()
            }),
            _ => Map::new(),
        }
    }

    /// Records the roles of a list, and their parameters.
    fn roles(&mut self, roles: &Value, around: &Path) -> Result<()> {
        for role in roles.as_array().into_iter().flatten() {
            let name = [role, &role["role"], &role["name"]].into_iter().find_map(Value::as_str);
            let fields = role.as_object().into_iter().flat_map(Map::keys);
            let called_with = role["vars"].as_object().into_iter().flat_map(Map::keys);
            let keywords = ["role", "name", "vars", "when", "tags", "become", "become_user", "delegate_to"];
            let names = fields.chain(called_with).filter(|name| !keywords.contains(&name.as_str()));
            self.names.own.extend(names.cloned());
            self.reach_role(name, around)?;
        }
        Ok(())
    }

    /// Searches a role; all roles of the project if its name is computed.
    fn reach_role(&mut self, name: Option<&str>, around: &Path) -> Result<()> {
        match name.filter(|name| !is_template(name)) {
            Some(name) => {
                let beside = around.parent().map(|roles| roles.join(name));
                let mut candidates: Vec<PathBuf> =
                    beside.into_iter().chain([around.join("roles").join(name)]).collect();
                candidates.extend(role_paths(self.project, name));
                // Missing roles belong to collections, and their names are unknown.
                let found = candidates.into_iter().map(|path| normal(&path)).find(|path| path.is_dir());
                self.next.extend(found.map(Unit::Role));
            }
            None => {
                let folders = self.roles_path.iter().flat_map(|path| [path.clone(), path.join("roles")]);
                let folders = folders.chain([self.project.join("roles")]);
                let entries = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
                let mut roles: Vec<PathBuf> = entries.map(|entry| normal(&entry.path())).collect();
                roles.sort();
                self.next.extend(roles.into_iter().filter(|role| role.is_dir()).map(Unit::Role));
            }
        }
        Ok(())
    }

    /// Searches a file beside a playbook; all of them if its name is computed.
    fn reach_file(&mut self, file: Option<&str>, around: &Path) -> Result<()> {
        if self.in_role {
            return self.reach_role_file(file.unwrap_or_default(), around);
        }
        let files = match file.filter(|file| !is_template(file)) {
            Some(file) => vec![around.join(file), around.join("vars").join(file), around.join("tasks").join(file)],
            None => {
                let roles = around.join("roles");
                walk(around)?.into_iter().filter(|file| is_loadable(file) && !file.starts_with(&roles)).collect()
            }
        };
        self.next.extend(files.iter().map(|file| normal(file)).filter(|file| file.is_file()).map(Unit::File));
        Ok(())
    }
}

impl Walker<'_> {
    /// Searches a file that a role includes, unless it is in its folders of tasks and variables, which are searched
    /// completely; all files of its folder if its name is computed.
    fn reach_role_file(&mut self, file: &str, folder: &Path) -> Result<()> {
        let paths = [("role_path", folder), ("playbook_dir", self.project)];
        let base = paths.iter().find_map(|(name, base)| {
            let rest = file.strip_prefix("{{")?.trim_start().strip_prefix(name)?.trim_start().strip_prefix("}}")?;
            Some((rest.trim_start_matches('/'), *base))
        });
        let (file, candidates) = match base {
            Some((rest, base)) => (rest, vec![base.to_owned()]),
            None => {
                let parts = ["", "tasks", "handlers", "vars"].map(|part| folder.join(part));
                (file, parts.into_iter().chain([self.beside.clone()]).collect())
            }
        };
        match file.split_once("{{") {
            None => {
                let named = candidates
                    .iter()
                    .flat_map(|path| ["", ".yml", ".yaml"].map(|ending| path.join(format!("{file}{ending}"))));
                self.files.extend(named.map(|file| normal(&file)).filter(|file| file.is_file()));
            }
            Some((before, _)) => {
                let part = before.rsplit_once('/').map_or("", |(part, _)| part);
                for path in candidates.iter().map(|path| normal(&path.join(part))) {
                    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
                    let mut files: Vec<_> = entries.map(|entry| normal(&entry.path())).collect();
                    files.sort();
                    self.files.extend(files.into_iter().filter(|file| file.is_file() && is_loadable(file)));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::json;

    fn own(tasks: &Value) -> Vec<String> {
        let vault = Vault::default();
        let mut walk = Walker::of(Path::new("/none"), &vault);
        walk.tasks(tasks, Path::new("/none"), 0).unwrap();
        walk.names.own.into_iter().chain(walk.names.presets).collect::<BTreeSet<_>>().into_iter().collect()
    }

    #[test]
    fn role_defaults_are_inputs() {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projects/shop");
        let found =
            DeclaredVariables::of(&Runs::Role(project.join("roles/shop")), &project, &Vault::default()).unwrap();
        assert!(found.inputs.contains("shelves") && !found.own.contains("shelves"), "{found:?}");
        assert!(found.own.contains("page") && found.own.contains("shelf"), "{found:?}");
    }

    #[test]
    fn included_files_of_a_role_are_found() {
        let folder = std::env::temp_dir().join(format!("flyball-declared-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let files = [
            (
                "tasks/main.yml",
                "- include_vars: settings.yml\n- include_tasks: ../common/a.yml\n- include_vars: '{{ role_path }}/more/{{ x }}.yml'\n",
            ),
            ("settings.yml", "a: 1\n"),
            ("common/a.yml", "- set_fact: {b: 1, size: 2}\n- include_tasks: '{{ role_path }}/common/b.yml'\n"),
            ("common/b.yml", "- debug: {}\n  register: c\n- include_tasks: ../common/b.yml\n"),
            ("more/x.yml", "d: 1\n"),
            ("molecule/converge.yml", "- hosts: all\n  vars: {label: 1}\n"),
            ("defaults/main.yml", "size: 1\n"),
        ];
        for (path, text) in files {
            let path = folder.join("roles/r").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let found = DeclaredVariables::of(&Runs::Role(folder.join("roles/r")), &folder, &Vault::default()).unwrap();
        assert_eq!(found.own.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn files_outside_of_the_project_declare_no_special_variables() {
        let folder = std::env::temp_dir().join(format!("flyball-external-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("project/roles/r/tasks")).unwrap();
        std::fs::create_dir_all(folder.join("project/roles/r/vars")).unwrap();
        let external = folder.join("written.yml");
        std::fs::write(&external, "ansible_port: 22\nplace: a\n").unwrap();
        std::fs::write(folder.join("project/roles/r/vars/main.yml"), "ansible_user: a\n").unwrap();
        let tasks = format!("- include_vars: {}\n", external.display());
        std::fs::write(folder.join("project/roles/r/tasks/main.yml"), tasks).unwrap();
        let project = folder.join("project");
        let found = DeclaredVariables::of(&Runs::Role(project.join("roles/r")), &project, &Vault::default()).unwrap();
        assert_eq!(found.own.iter().map(String::as_str).collect::<Vec<_>>(), ["ansible_user", "place"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn preset_inputs_are_fields_if_the_author_declares_them() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let declared = DeclaredVariables {
            inputs: set(&["no_log", "image", "fact"]),
            own: set(&["fact", "result"]),
            presets: set(&["no_log", "image", "fact", "secret"]),
            ..DeclaredVariables::default()
        };
        assert_eq!(declared.own(&set(&["no_log", "fact", "secret"])), set(&["fact", "image", "result", "secret"]));
        assert_eq!(declared.own(&set(&[])), set(&["fact", "image", "no_log", "result", "secret"]));
    }

    #[test]
    fn computed_names_declare_no_variables() {
        let tasks = json!([{"debug": {}, "register": "{{ a }}", "loop": [1], "loop_control": {"loop_var": "{{ b }}"}}]);
        assert!(own(&tasks).is_empty());
    }

    #[test]
    fn names_are_found_in_malformed_arguments() {
        let tasks = json!([{"set_fact": "a = 1 b='it\"s' {{ x }} c={{ y }}"}]);
        let found = own(&tasks);
        assert!(["b", "c"].iter().all(|name| found.iter().any(|found| found == name)), "{found:?}");
    }

    #[test]
    fn every_way_to_set_a_variable_is_found() {
        let tasks = json!([
            {"debug": {}, "register": "a", "vars": {"b": 1}},
            {"ansible.builtin.set_fact": {"c": 1, "cacheable": true}},
            {"set_fact": "d=1 e='x y'"},
            {"block": [{"debug": {}, "register": "f"}], "rescue": [{"set_fact": {"g": 1}}], "always": [{"debug": {}, "register": "h"}]},
            {"debug": {}, "loop": [1], "loop_control": {"loop_var": "i", "index_var": "j"}},
            {"hosts": "localhost", "vars": {"k": 1}, "tasks": [{"debug": {}, "register": "l"}], "roles": [{"role": "x", "m": 1, "vars": {"n": 1}}]},
            {"include_vars": {"file": "none.yml", "name": "o"}},
            {"hosts": "localhost", "vars_prompt": [{"name": "p"}]},
            {"set_fact": {"q": 1}, "args": {"r": 1}},
            {"set_fact": {"args": {"s": 1}}},
            {"action": {"module": "set_fact t=1", "u": 1}},
            {"local_action": "ansible.builtin.set_fact v=1"},
            {"include_tasks": {"file": "none.yml", "apply": {"vars": {"w": 1}}}},
            {"include_role": {"name": "none"}, "args": {"apply": {"vars": {"x": 1}}}},
            {"action": "{{ module }} y=1"},
            {"module_defaults": {"set_fact": {"z": 1}}, "block": []},
        ]);
        let names: Vec<String> = ('a'..='z').map(String::from).collect();
        assert_eq!(own(&tasks), names);
    }

    #[test]
    fn task_files_with_any_name_and_roles_of_the_roles_path_are_found() {
        let folder = std::env::temp_dir().join(format!("flyball-declared-any-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let files = [
            ("roles/r/tasks/main.yml", "- include_tasks: sub.inc\n- include_role: {name: '{{ x }}'}\n"),
            ("roles/r/tasks/sub.inc", "- set_fact: {a: 1}\n- include_vars: ../defaults/more.yml\n"),
            ("roles/r/tasks/README.md", "# Tasks\n- [x: {"),
            ("roles/r/tasks/from.inc", "- set_fact: {b: 1}\n"),
            ("roles/r/vars/from.inc", "c: 1\n"),
            ("roles/r/defaults/more.yml", "d: 1\n"),
            ("path/other/tasks/main.yml", "- set_fact: {e: 1}\n"),
        ];
        for (path, text) in files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let vault = Vault::default();
        let mut walk = Walker::of(&folder, &vault);
        walk.roles_path = vec![folder.join("path")];
        let found = walk.search(&Runs::Role(folder.join("roles/r"))).unwrap();
        assert_eq!(found.own.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
