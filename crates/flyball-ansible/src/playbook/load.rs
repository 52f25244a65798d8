//! Loads roles and playbooks with their dependencies: imported and included files, other roles, variables.

use super::task::{Resolve, Tags, read_tasks};
use super::texts::check_all;
use super::vars::{self, read_vars};
use super::{Action, Play, Playbook, Role, RoleReference, Task};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::template::{Files, Vars, check_file, normal, templates, walk};
use crate::value::{Map, Value};
use crate::vault::Vault;
use crate::watches::{Runs, role_paths};
use crate::yaml::{self, Lines, truth, type_name};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Nesting limit of imports.
const MAX_DEPTH: usize = 32;
/// Limit of task files in a project.
const MAX_TASK_FILES: usize = 2000;

/// Loads a role or a playbook of a project.
///
/// Without declared services, tasks with the module `uri` are rejected.
pub(crate) fn load(runs: &Runs, project: &Path, vault: &Vault, allows_services: bool) -> Result<Playbook> {
    let mut loader = Loader::of(project, vault, allows_services);
    match loader.load(runs) {
        // A task that includes the file reports it as well.
        Err(error) => Err(loader.locked.unwrap_or(error)),
        loaded => loaded,
    }
}

/// Returns the possible paths of a file named by a task.
pub(crate) fn candidate_paths(name: &str, including: &Path, folder: &Path) -> [PathBuf; 2] {
    let beside = including.parent().unwrap_or(folder);
    [normal(&beside.join(name)), normal(&folder.join(name))]
}

#[derive(Default)]
pub(super) struct Loader {
    project: PathBuf,
    pub(super) vault: Vault,
    pub(super) roles: BTreeMap<PathBuf, Role>,
    /// Task files that remain to be read, each with the folder of its role.
    pending: Vec<(PathBuf, PathBuf)>,
    seen: BTreeSet<PathBuf>,
    allows_services: bool,
    /// The error of an included file that cannot be decrypted.
    locked: Option<Error>,
}

impl Loader {
    pub(super) fn of(project: &Path, vault: &Vault, allows_services: bool) -> Self {
        Self { project: project.to_owned(), vault: vault.clone(), allows_services, ..Self::default() }
    }

    fn load(&mut self, runs: &Runs) -> Result<Playbook> {
        let plays = match runs {
            Runs::Role(folder) => {
                let folder = normal(folder);
                self.enqueue(&folder, "main").map_err(|problem| Error::file(&folder, problem))?;
                let role = RoleReference { folder: folder.clone(), vars: Arc::default(), no_log: None };
                vec![Play { tasks: vec![role_task(role)], folder, ..Play::default() }]
            }
            Runs::Playbook(file) => self.read_plays(file)?,
        };
        self.read_pending()?;
        let roles = std::mem::take(&mut self.roles).into_iter().map(|(folder, role)| (folder, Arc::new(role)));
        Ok(Playbook { plays, roles: roles.collect() })
    }

    /// Describes the error of an included file.
    fn included(&mut self, error: Error) -> String {
        let problem = error.to_string();
        if error.is_vault() {
            self.locked.get_or_insert(error);
        }
        problem
    }

    /// Records that a role is run from one of its task files.
    fn enqueue(&mut self, folder: &Path, tasks_from: &str) -> Result<(), String> {
        match named(&folder.join("tasks"), tasks_from) {
            Some(file) => self.pending.push((folder.to_owned(), file)),
            // A role may have only variables and handlers.
            None if tasks_from == "main" && folder.is_dir() => self.pending.push((folder.to_owned(), PathBuf::new())),
            None => return Err(format!("role {} has no file tasks/{tasks_from}.yml", folder.display())),
        }
        Ok(())
    }

    fn read_pending(&mut self) -> Result<()> {
        while let Some((folder, file)) = self.pending.pop() {
            if !self.roles.contains_key(&folder) {
                let role = self.read_role(&folder)?;
                self.roles.insert(folder.clone(), role);
                let handlers = named(&folder.join("handlers"), "main");
                let handlers = handlers.map(|file| self.read_file(&file, &folder, 0)).transpose()?;
                self.role(&folder).handlers = handlers.unwrap_or_default();
            }
            if file.as_os_str().is_empty() || !self.seen.insert(file.clone()) {
                continue;
            }
            if self.seen.len() > MAX_TASK_FILES {
                return Err(Error::file(&file, format_args!("more than {MAX_TASK_FILES} included task files")));
            }
            let tasks = self.read_file(&file, &folder, 0)?;
            self.role(&folder).tasks.insert(file, tasks);
        }
        Ok(())
    }

    /// Returns true if a file need not be decrypted, or can be. A computed name may be that of another file.
    fn can_read(&self, file: &Path) -> bool {
        !yaml::is_locked(file, &self.vault).unwrap_or(false)
    }

    fn role(&mut self, folder: &Path) -> &mut Role {
        self.roles.get_mut(folder).expect("it was read first")
    }

    /// Loads a role without its tasks.
    fn read_role(&mut self, folder: &Path) -> Result<Role> {
        let vars = |part: &str| match named(&folder.join(part), "main") {
            Some(file) => read_vars(&file, &self.vault),
            None => Ok(Arc::default()),
        };
        let files = self.files(folder, &["tasks", "handlers", "defaults", "vars"])?;
        for (path, text) in files.templates.values() {
            check_file(text).map_err(|problem| Error::file(path, problem))?;
        }
        let mut role = Role {
            folder: folder.to_owned(),
            defaults: vars("defaults")?,
            vars: vars("vars")?,
            files: Arc::new(files.with_includes()?),
            ..Role::default()
        };
        if let Some(file) = named(&folder.join("meta"), "main") {
            let meta = yaml::read_document(&file, &self.vault)?;
            for dependency in meta.get("dependencies").and_then(Value::as_array).into_iter().flatten() {
                let dependency = self.read_role_reference(dependency.clone(), folder);
                role.dependencies.push(dependency.map_err(|problem| Error::file(&file, problem))?);
            }
        }
        Ok(role)
    }

    /// Reads the files for lookups of a role or playbook, including those that texts in its folders name.
    pub(super) fn files(&self, folder: &Path, parts: &[&str]) -> Result<Files> {
        let mut files = Files::read(folder, &self.vault)?;
        let mut texts = Vec::new();
        for part in parts {
            let found = if part.is_empty() { files_in(folder)? } else { walk(&folder.join(part))? };
            texts.extend(
                found
                    .iter()
                    .filter(|file| yaml::is_yaml(file))
                    .filter_map(|file| yaml::read_text(file, &self.vault).ok()),
            );
        }
        files.link(folder, &self.project, &self.vault, texts.iter().map(String::as_str))?;
        Ok(files)
    }

    /// Parses an entry in a list of roles: a name, or a map with variables.
    fn read_role_reference(&mut self, reference: Value, around: &Path) -> Result<RoleReference, String> {
        let mut no_log = None;
        let (name, vars) = match reference {
            Value::String(name) => (name, Map::new()),
            Value::Object(mut fields) => {
                let name = fields.remove("role").or_else(|| fields.remove("name"));
                let name =
                    name.as_ref().and_then(Value::as_str).ok_or("an entry of roles has no role name")?.to_owned();
                if let Some(Value::Object(vars)) = fields.remove("vars") {
                    fields.extend(vars);
                }
                if fields.remove("tags").is_some_and(|tags| !Tags::default().join(&tags).run()) {
                    return Err(format!("role {name}: the built-in executor does not support the tag never here"));
                }
                no_log = fields.remove("no_log");
                if fields.contains_key("when") {
                    return Err(format!(
                        "role {name}: when is not supported in a list of roles: use include_role in a task"
                    ));
                }
                (name, fields)
            }
            other => return Err(format!("an entry of roles must be a string or a map, not {}", type_name(&other))),
        };
        no_log.iter().try_for_each(check_all)?;
        check_all(&Value::Object(vars.clone()))?;
        let folder = self.find_role(&name, around)?;
        self.enqueue(&folder, "main")?;
        Ok(RoleReference { folder, vars: Arc::new(templates(&vars)), no_log })
    }

    fn find_role(&self, name: &str, around: &Path) -> Result<PathBuf, String> {
        // Roles are searched beside the current role, as Ansible does, and in the roles path.
        let beside = around.parent().filter(|roles| roles.ends_with("roles")).map(|roles| roles.join(name));
        let beside_playbook = around.join("roles").join(name);
        let mut candidates: Vec<_> =
            beside.into_iter().chain([beside_playbook]).chain(role_paths(&self.project, name)).collect();
        let found = candidates.iter().position(|path| path.is_dir());
        found.map(|found| normal(&candidates.swap_remove(found))).ok_or_else(|| {
            let candidates: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
            format!("role {name} not found in {}", candidates.join(", "))
        })
    }

    /// Reads a task file of a role.
    fn read_file(&mut self, file: &Path, folder: &Path, depth: usize) -> Result<Arc<[Task]>> {
        let (tasks, lines) = self.document(file)?;
        let path = Arc::new(file.to_owned());
        let mut found =
            TaskContext { loader: self, home: folder, tasks: folder.join("tasks"), file, depth, includes: None };
        read_tasks(tasks, &path, Some(&lines), Tags::default(), 0, &mut found).map(Arc::from)
    }

    /// Reads a file of tasks or plays, with the lines of its nodes.
    fn document(&self, file: &Path) -> Result<(Value, Lines)> {
        Ok((yaml::read_document(file, &self.vault)?, Lines::of(&yaml::read_text(file, &self.vault)?)))
    }

    fn read_plays(&mut self, file: &Path) -> Result<Vec<Play>> {
        let (plays, lines) = self.document(file)?;
        match plays {
            Value::Array(plays) => {
                let plays = plays.into_iter().enumerate();
                plays.map(|(number, play)| self.read_play(play, file, lines.item(number))).collect()
            }
            other => Err(Error::file(file, format_args!("must be a list of plays, not {}", type_name(&other)))),
        }
    }

    pub(super) fn read_play(&mut self, play: Value, file: &Path, lines: Option<&Lines>) -> Result<Play> {
        let reject = |mistake: crate::fields::FieldError| {
            Error::file(file, format_args!("play: {}: {}", mistake.field, mistake.problem))
        };
        let folder = normal(file.parent().unwrap_or(&self.project));
        let mut fields = Fields::of(play).map_err(reject)?;
        for ignored in ["name", "gather_facts", "collections", "connection", "any_errors_fatal", "gather_subset"] {
            fields.remove(ignored);
        }
        let tags = Tags::default().join(&fields.remove("tags").unwrap_or_default());
        match fields.remove("hosts").as_ref().and_then(Value::as_str) {
            Some("localhost" | "127.0.0.1" | "all") => {}
            _ => return Err(Error::file(file, "play: hosts: only localhost is supported")),
        }
        if fields.remove("become").is_some_and(|become_root| truth(&become_root) != Some(false)) {
            return Err(Error::file(file, "play: become is not supported: remove it"));
        }
        let vars = fields.map("vars").map_err(reject)?;
        check_all(&Value::Object(vars.clone()))
            .map_err(|problem| Error::file(file, format_args!("vars: {problem}")))?;
        let mut vars = templates(&vars);
        for found in vars::of_play(fields.remove("vars_files"), &folder, file, &self.vault)? {
            vars.extend((*found).clone());
        }
        let no_log = fields.remove("no_log");
        no_log
            .iter()
            .try_for_each(check_all)
            .map_err(|problem| Error::file(file, format_args!("no_log: {problem}")))?;
        let files = self.files(&folder, &[""])?;
        let mut play = Play {
            no_log,
            vars: Arc::new(vars),
            files: Arc::new(files.with_includes()?),
            folder: folder.clone(),
            ..Play::default()
        };
        let lists = ["pre_tasks", "roles", "tasks", "post_tasks", "handlers"].map(|list| (list, fields.remove(list)));
        fields.finish().map_err(reject)?;
        let path = Arc::new(file.to_owned());
        let mut pending = PlayIncludes::default();
        for (list, content) in lists {
            let Some(content) = content else { continue };
            if !tags.run() && (list == "roles" || list == "handlers" && play.tasks.is_empty()) {
                continue;
            }
            if list == "roles" {
                let Value::Array(roles) = content else {
                    return Err(Error::file(file, "play: roles: must be a list"));
                };
                for role in roles {
                    let found = self.read_role_reference(role, &folder);
                    let role = found.map_err(|problem| Error::file(file, problem))?;
                    play.tasks.push(role_task(role));
                }
                continue;
            }
            let mut found = TaskContext {
                loader: self,
                home: &folder,
                tasks: folder.clone(),
                file,
                depth: 0,
                includes: Some(&mut pending),
            };
            let lines = lines.and_then(|lines| lines.field(list));
            // Handlers run if they are notified.
            let tags = if list == "handlers" { Tags::default() } else { tags };
            let tasks = read_tasks(content, &path, lines, tags, 0, &mut found)?;
            if list == "handlers" { play.handlers = tasks } else { play.tasks.extend(tasks) }
        }
        while let Some(included) = pending.tasks.pop() {
            if play.includes.contains_key(&included) {
                continue;
            }
            let (tasks, lines) = self.document(&included)?;
            let path = Arc::new(included.clone());
            let mut found = TaskContext {
                loader: self,
                home: &folder,
                tasks: folder.clone(),
                file: &included,
                depth: 0,
                includes: Some(&mut pending),
            };
            let tasks = read_tasks(tasks, &path, Some(&lines), Tags::default(), 0, &mut found)?;
            play.includes.insert(included, tasks.into());
        }
        play.var_files = pending.vars;
        Ok(play)
    }
}

/// Returns the files in a folder, without those in inner folders.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| Error::read(folder, &error))?;
    Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect())
}

/// Creates a task that runs a role.
fn role_task(role: RoleReference) -> Task {
    let RoleReference { folder, vars, no_log } = role;
    Task {
        name: "role".to_owned(),
        action_name: "import_role".to_owned(),
        file: Arc::new(folder.clone()),
        action: Action::Role { folder, tasks_from: "main".to_owned(), is_static: true },
        vars,
        when: Vec::new(),
        repeat: None,
        register: None,
        until: Vec::new(),
        retries: None,
        delay: None,
        failed_when: None,
        changed_when: None,
        ignore_errors: None,
        no_log,
        notify: Vec::new(),
        listen: Vec::new(),
    }
}

/// Finds a YAML file by its name, with or without extension.
pub(crate) fn named(folder: &Path, name: &str) -> Option<PathBuf> {
    let endings = [".yml", ".yaml", ""];
    endings.iter().map(|ending| normal(&folder.join(format!("{name}{ending}")))).find(|path| path.is_file())
}

/// Position of a task that refers to another file or role.
pub(super) struct TaskContext<'l> {
    pub(super) loader: &'l mut Loader,
    /// The folder of the role or playbook.
    pub(super) home: &'l Path,
    /// The folder of its tasks.
    pub(super) tasks: PathBuf,
    /// The file that is read.
    pub(super) file: &'l Path,
    pub(super) depth: usize,
    /// Files that a playbook includes; `None` for a role.
    pub(super) includes: Option<&'l mut PlayIncludes>,
}

/// Files that the tasks of a playbook include.
#[derive(Debug, Default)]
pub(super) struct PlayIncludes {
    /// Task files that remain to be read.
    pub(super) tasks: Vec<PathBuf>,
    pub(super) vars: BTreeMap<PathBuf, Arc<Vars>>,
}

impl TaskContext<'_> {
    pub(super) fn find(&self, name: &str) -> Result<PathBuf, String> {
        let places = candidate_paths(name, self.file, &self.tasks);
        let found = places.iter().find(|place| place.is_file());
        found.cloned().ok_or_else(|| format!("file {} not found", places[1].display()))
    }
}

impl Resolve for TaskContext<'_> {
    fn import(&mut self, name: &str, tags: Tags) -> Result<Arc<[Task]>, String> {
        if self.depth >= MAX_DEPTH {
            return Err(format!(
                "imports are nested deeper than {MAX_DEPTH}: if {name} imports itself, use include_tasks with when"
            ));
        }
        let file = self.find(name)?;
        let (tasks, lines) = self.loader.document(&file).map_err(|error| self.loader.included(error))?;
        let path = Arc::new(file.clone());
        let mut found = TaskContext {
            loader: &mut *self.loader,
            home: self.home,
            tasks: self.tasks.clone(),
            file: &file,
            depth: self.depth + 1,
            includes: self.includes.as_deref_mut(),
        };
        read_tasks(tasks, &path, Some(&lines), tags, 0, &mut found).map(Arc::from).map_err(|error| error.to_string())
    }

    fn include(&mut self, name: Option<&str>) -> Result<(), String> {
        let found = match name {
            Some(name) => vec![self.find(name)?],
            None if self.includes.is_some() => {
                return Err("in a playbook, the file name must not contain a template".into());
            }
            None => {
                let files = walk(&self.tasks).map_err(|error| error.to_string())?;
                let is_read = |file: &PathBuf| yaml::is_yaml(file) && self.loader.can_read(file);
                files.into_iter().map(|file| normal(&file)).filter(is_read).collect()
            }
        };
        match &mut self.includes {
            Some(includes) => includes.tasks.extend(found),
            None => self.loader.pending.extend(found.into_iter().map(|file| (self.home.to_owned(), file))),
        }
        Ok(())
    }

    fn include_vars(&mut self, name: Option<&str>) -> Result<(), String> {
        let folder = self.home.join("vars");
        let files = match name {
            None if self.includes.is_some() => {
                return Err("in a playbook, the file name must not contain a template".into());
            }
            Some(name) => {
                let candidates =
                    [folder.join(name), self.home.join(name), self.tasks.join(name)].map(|path| normal(&path));
                let found = candidates.iter().find(|path| path.is_file()).cloned();
                vec![found.ok_or_else(|| format!("file {} not found", candidates[0].display()))?]
            }
            None => {
                let files = walk(&folder).map_err(|error| error.to_string())?;
                files.into_iter().filter(|file| self.loader.can_read(file)).collect()
            }
        };
        for file in files {
            let vars = read_vars(&file, &self.loader.vault).map_err(|error| self.loader.included(error))?;
            match &mut self.includes {
                Some(includes) => includes.vars.insert(normal(&file), vars),
                None => self.loader.role(self.home).var_files.insert(normal(&file), vars),
            };
        }
        Ok(())
    }

    fn role(&mut self, name: &str, tasks_from: &str) -> Result<PathBuf, String> {
        let folder = self.loader.find_role(name, self.home)?;
        self.loader.enqueue(&folder, tasks_from.trim_end_matches(".yml"))?;
        Ok(folder)
    }

    fn allows_services(&self) -> bool {
        self.loader.allows_services
    }
}
