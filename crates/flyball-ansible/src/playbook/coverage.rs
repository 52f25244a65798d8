//! Coverage of a project by the built-in executor: the tasks that it runs, and the features that the others need.
//!
//! The loader decides on each task alone, so that one report has all gaps. All roles and playbooks of a project count,
//! including those that no task and no `watches.yaml` names literally.

mod report;

pub use report::{Coverage, Gap, GapKind, Line, PartCoverage};

use super::args::is_action;
use super::load::{Loader, PlayIncludes, TaskContext, load};
use super::task::{BLOCK_PARTS, INTERPRETER, Resolve, Tags, check_all, read_tasks};
use super::{Role, Task};
use crate::error::{Error, Result};
use crate::template::{
    Files, MissingName, check_file, literal_files, missing_in_expression, missing_in_text, normal, walk,
};
use crate::vault::Vault;
use crate::watches::Runs;
use crate::yaml::{self, Lines, is_yaml};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Nesting limit of folders with roles.
const MAX_DEPTH: usize = 3;
/// The lists of tasks of a play.
const LISTS: [&str; 4] = ["pre_tasks", "tasks", "post_tasks", "handlers"];
/// Keywords of tasks that are expressions without braces.
const CONDITIONS: [&str; 4] = ["when", "until", "failed_when", "changed_when"];
/// Keywords of Ansible that the built-in executor may not support; other keys of a task are modules.
const KEYWORDS: [&str; 36] = [
    "action",
    "args",
    "async",
    "become",
    "become_exe",
    "become_flags",
    "become_user",
    "changed_when",
    "check_mode",
    "debugger",
    "delay",
    "delegate_facts",
    "delegate_to",
    "environment",
    "failed_when",
    "ignore_errors",
    "listen",
    "local_action",
    "loop",
    "loop_control",
    "module_defaults",
    "name",
    "no_log",
    "notify",
    "poll",
    "port",
    "register",
    "remote_user",
    "retries",
    "timeout",
    "until",
    "vars",
    "when",
    "block",
    "rescue",
    "always",
];

/// Examines all roles and playbooks of a project.
///
/// # Errors
/// If a file cannot be read, or is invalid YAML.
pub fn coverage(project: &Path) -> Result<Coverage> {
    let vault = Vault::of_environment(project).unwrap_or_default();
    let mut parts = Vec::new();
    for folder in roles(&project.join("roles"), 0)? {
        let mut survey = Survey::of(project, &folder, &vault, None);
        survey.role()?;
        parts.push(survey.part(&folder, load(&Runs::Role(folder.clone()), project, &vault, false).err()));
    }
    for file in playbooks(project, &vault)? {
        let folder = file.parent().unwrap_or(project);
        let mut survey = Survey::of(project, folder, &vault, Some(PlayIncludes::default()));
        survey.playbook(&file)?;
        parts.push(survey.part(&file, load(&Runs::Playbook(file.clone()), project, &vault, false).err()));
    }
    let sum = |count: fn(&PartCoverage) -> usize| parts.iter().map(count).sum();
    Ok(Coverage { tasks: sum(|part| part.tasks), built_in: sum(|part| part.built_in), parts })
}

/// Returns the roles below a folder, which may be in folders such as those of versions.
fn roles(folder: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() || depth > MAX_DEPTH {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).map_err(|error| Error::read(folder, &error))?;
    let mut folders = entries.map(|entry| Ok(normal(&entry?.path()))).collect::<std::io::Result<Vec<_>>>();
    let folders = folders.as_mut().map_err(|error| Error::read(folder, error))?;
    folders.sort();
    let mut found = Vec::new();
    for folder in folders.drain(..).filter(|folder| folder.is_dir()) {
        match ["tasks", "defaults", "vars", "handlers", "meta"].iter().any(|part| folder.join(part).is_dir()) {
            true => found.push(folder),
            false => found.extend(roles(&folder, depth + 1)?),
        }
    }
    Ok(found)
}

/// Returns the playbooks in the project's folder and in `playbooks`.
fn playbooks(project: &Path, vault: &Vault) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in [project.to_owned(), project.join("playbooks")] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = normal(&entry.path());
            if !path.is_file() || !is_yaml(&path) {
                continue;
            }
            let documents = match yaml::read_documents(&path, vault) {
                // Other files in these folders are not read by Ansible, such as those of tools.
                Err(_) if !has_plays(&path) => continue,
                // The playbook notes the problem.
                Err(Error::Vault { .. }) => {
                    found.push(path);
                    continue;
                }
                documents => documents?,
            };
            let plays = documents.first().and_then(Value::as_array);
            let is_playbook = plays.is_some_and(|plays| plays.iter().any(|play| play.get("hosts").is_some()));
            found.extend(is_playbook.then_some(path));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns true if the text of a file, which need not be valid, begins with a list that has plays.
fn has_plays(file: &Path) -> bool {
    let is_hosts = |line: &str| line.trim_start_matches(['-', ' ']).starts_with("hosts:");
    yaml::read_encrypted(file).is_ok_and(|text| is_list(&text) && text.lines().any(is_hosts))
}

/// Collects the gaps of a role or playbook.
struct Survey<'p> {
    project: &'p Path,
    loader: Loader,
    /// The folder of the role or playbook.
    home: PathBuf,
    /// Task files of a playbook; `None` for a role.
    includes: Option<PlayIncludes>,
    /// Names of templates and variables with gaps.
    templates: BTreeSet<String>,
    variables: BTreeSet<String>,
    /// Files for lookups.
    files: Files,
    tasks: usize,
    built_in: usize,
    gaps: BTreeMap<(GapKind, String), Vec<Line>>,
}

impl<'p> Survey<'p> {
    fn of(project: &'p Path, home: &Path, vault: &Vault, includes: Option<PlayIncludes>) -> Self {
        let mut loader = Loader::of(project, vault);
        loader.roles.insert(home.to_owned(), Role::default());
        let (home, gaps) = (home.to_owned(), BTreeMap::new());
        let (templates, variables, files) = (BTreeSet::new(), BTreeSet::new(), Files::default());
        Self { project, loader, home, includes, templates, variables, files, tasks: 0, built_in: 0, gaps }
    }

    fn part(self, path: &Path, rejected: Option<Error>) -> PartCoverage {
        let path = path.strip_prefix(normal(self.project)).unwrap_or(path).to_owned();
        let gap = |((kind, name), mut places): ((GapKind, String), Vec<Line>)| {
            places.sort();
            Gap { kind, name, count: places.len(), places }
        };
        let mut gaps: Vec<Gap> = self.gaps.into_iter().map(gap).collect();
        gaps.sort_by_key(|gap| std::cmp::Reverse(gap.count));
        // A gap outside of its tasks, such as in a dependency, concerns all of them.
        let built_in = if rejected.is_some() && self.built_in == self.tasks { 0 } else { self.built_in };
        let rejected = rejected.map(|error| error.to_string());
        PartCoverage { path, tasks: self.tasks, built_in, rejected, gaps }
    }

    fn note(&mut self, kind: GapKind, name: String, file: &Path, line: usize) {
        let file = file.strip_prefix(normal(self.project)).unwrap_or(file).to_owned();
        self.gaps.entry((kind, name)).or_default().push(Line { file, line });
    }

    fn role(&mut self) -> Result<()> {
        let home = self.home.clone();
        self.files = self.loader.files(&home, &["tasks", "handlers", "defaults", "vars"])?;
        self.templates()?;
        for part in ["defaults", "vars"] {
            for file in walk(&home.join(part))?.iter().filter(|file| is_yaml(file)) {
                self.vars(file)?;
            }
        }
        for part in ["tasks", "handlers"] {
            for file in walk(&home.join(part))?.iter().filter(|file| is_yaml(file)) {
                self.task_file(file)?;
            }
        }
        Ok(())
    }

    fn playbook(&mut self, file: &Path) -> Result<()> {
        self.files = self.loader.files(&self.home, &[""])?;
        self.templates()?;
        let text = yaml::read_text(file, &self.loader.vault)?;
        let lines = Lines::of(&text);
        let plays = match yaml::read_document(file, &self.loader.vault) {
            Err(Error::Vault { problem, .. }) => {
                self.note(GapKind::Other, problem, file, 1);
                return Ok(());
            }
            plays => plays?,
        };
        for (number, play) in plays.as_array().into_iter().flatten().enumerate() {
            let lines = lines.item(number);
            let mut rest = play.clone();
            for list in LISTS {
                let lines = lines.and_then(|lines| lines.field(list));
                self.tasks(&play[list], lines, file);
                rest.as_object_mut().map(|play| play.remove(list));
            }
            if let Err(error) = self.loader.read_play(rest, file, None) {
                self.note(GapKind::Other, problem(error), file, lines.map_or(0, |lines| lines.line));
            }
        }
        let mut seen = BTreeSet::new();
        while let Some(file) = self.includes.as_mut().and_then(|includes| includes.tasks.pop()) {
            if seen.insert(file.clone()) {
                self.task_file(&file)?;
            }
        }
        Ok(())
    }

    /// Notes the gaps of templates, and of those that name a template with gaps.
    fn templates(&mut self) -> Result<()> {
        let templates: Vec<_> = self.files.templates.iter().map(|(name, text)| (name.clone(), text.clone())).collect();
        for (name, (file, text)) in &templates {
            let mut gaps: Vec<_> = missing_in_text(text).into_iter().map(|(at, name)| (at, named(name))).collect();
            gaps.extend(self.missing_files(text).into_iter().map(|gap| (0, gap)));
            let checked = || check_file(text).and_then(|()| self.files.check_includes(name, text));
            if gaps.is_empty()
                && let Err(problem) = checked()
            {
                gaps.push((0, (GapKind::Other, problem)));
            }
            if !gaps.is_empty() {
                self.templates.insert(name.clone());
            }
            for (at, (kind, name)) in gaps {
                self.note(kind, name, file, 1 + text[..at].matches('\n').count());
            }
        }
        loop {
            let reads_gap = |(name, (_, text)): &&(String, (PathBuf, Arc<str>))| {
                !self.templates.contains(name) && self.templates.iter().any(|template| text.contains(template.as_str()))
            };
            let found: Vec<_> = templates.iter().filter(reads_gap).map(|(name, _)| name.clone()).collect();
            if found.is_empty() {
                return Ok(());
            }
            self.templates.extend(found);
        }
    }

    /// Returns the templates and files that a text names literally, and that do not exist.
    fn missing_files(&self, text: &str) -> Vec<(GapKind, String)> {
        let is_missing = |(is_template, name): &(bool, String)| match is_template {
            true => self.files.template(name).is_none(),
            false => self.files.file(name).is_none(),
        };
        let missing = literal_files(text).into_iter().filter(is_missing);
        missing.map(|(_, name)| (GapKind::Other, format!("file {name} not found in the project"))).collect()
    }

    fn missing_files_in(&self, value: &Value) -> Vec<(GapKind, String)> {
        match value {
            Value::String(text) => self.missing_files(text),
            Value::Array(items) => items.iter().flat_map(|item| self.missing_files_in(item)).collect(),
            Value::Object(fields) => fields.values().flat_map(|field| self.missing_files_in(field)).collect(),
            _ => Vec::new(),
        }
    }

    /// Notes that a file cannot be decrypted, and returns true; false if it can be read.
    fn is_locked(&mut self, file: &Path) -> Result<bool> {
        let is_locked = yaml::is_locked(file, &self.loader.vault)?;
        if is_locked {
            let problem = "encrypted by ansible-vault: set ANSIBLE_VAULT_PASSWORD_FILE".to_owned();
            self.note(GapKind::Other, problem, file, 1);
        }
        Ok(is_locked)
    }

    fn vars(&mut self, file: &Path) -> Result<()> {
        if self.is_locked(file)? {
            return Ok(());
        }
        let lines = Lines::of(&yaml::read_text(file, &self.loader.vault)?);
        let vars = match yaml::read_documents(file, &self.loader.vault) {
            // Single values may be encrypted as well.
            Err(Error::Vault { problem, .. }) => {
                self.note(GapKind::Other, problem, file, 1);
                return Ok(());
            }
            vars => vars?,
        };
        for (name, value) in vars.iter().filter_map(Value::as_object).flatten() {
            let line = lines.field(name).map_or(0, |lines| lines.line);
            let mut gaps = gaps_of(value, false);
            if gaps.is_empty() {
                gaps.extend(check_all(value).err().map(|problem| (GapKind::Other, problem)));
            }
            for (kind, gap) in gaps {
                self.variables.insert(name.clone());
                self.note(kind, gap, file, line);
            }
        }
        Ok(())
    }

    fn task_file(&mut self, file: &Path) -> Result<()> {
        if self.is_locked(file)? {
            return Ok(());
        }
        let text = yaml::read_text(file, &self.loader.vault)?;
        // The folder may contain other files, such as definitions of objects, which may be templates.
        let documents = match yaml::read_documents(file, &self.loader.vault) {
            Err(_) if !is_list(&text) && file.file_stem().is_none_or(|name| name != "main") => return Ok(()),
            Err(Error::Vault { problem, .. }) => {
                self.note(GapKind::Other, problem, file, 1);
                return Ok(());
            }
            documents => documents?,
        };
        if let [tasks] = documents.as_slice()
            && tasks.as_array().is_some_and(|tasks| tasks.iter().all(Value::is_object))
        {
            self.tasks(tasks, Some(&Lines::of(&text)), file);
        }
        Ok(())
    }

    fn tasks(&mut self, tasks: &Value, lines: Option<&Lines>, file: &Path) {
        for (number, task) in tasks.as_array().into_iter().flatten().enumerate() {
            let lines = lines.and_then(|lines| lines.item(number));
            let line = lines.map_or(0, |lines| lines.line);
            let is_block = task.get("block").is_some();
            let gaps = match is_block {
                false => self.gaps(task, file),
                true => {
                    let mut outer = task.clone();
                    for part in BLOCK_PARTS {
                        self.tasks(&task[part], lines.and_then(|lines| lines.field(part)), file);
                        outer.as_object_mut().map(|outer| outer.remove(part));
                    }
                    outer["block"] = json!([]);
                    self.gaps(&outer, file)
                }
            };
            self.tasks += usize::from(!is_block);
            self.built_in += usize::from(!is_block && gaps.is_empty() && !self.reads_gap(task));
            for (kind, name) in gaps {
                self.note(kind, name, file, line);
            }
        }
    }

    /// Returns true if a task names a template with gaps.
    fn reads_gap(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => {
                let reads = |name: &String| {
                    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
                    text.split(|letter| !is_name(letter)).any(|word| word == name)
                };
                self.templates.iter().any(|template| text.contains(template.as_str()))
                    || self.variables.iter().any(reads)
            }
            Value::Array(items) => items.iter().any(|item| self.reads_gap(item)),
            Value::Object(fields) => fields.values().any(|field| self.reads_gap(field)),
            _ => false,
        }
    }

    /// Returns the gaps of a task without inner tasks; none if the loader accepts it.
    fn gaps(&mut self, task: &Value, file: &Path) -> Vec<(GapKind, String)> {
        let Err(error) = self.read(task, file) else { return self.missing_files_in(task) };
        let mut gaps = self.missing_files_in(task);
        for (key, value) in task.as_object().into_iter().flatten() {
            let inner = gaps_of(value, CONDITIONS.contains(&key.as_str()));
            if !inner.is_empty() {
                gaps.extend(inner);
                continue;
            }
            let alone = Map::from_iter([(key.clone(), value.clone())]);
            let is_known = is_action(key) || key == "block";
            let with_action =
                || alone.clone().into_iter().chain([("debug".to_owned(), json!({}))]).collect::<Map<_, _>>();
            let probe = if is_known { alone.clone() } else { with_action() };
            match self.read(&probe.into(), file) {
                Ok(()) => {}
                Err(error) if is_known => gaps.push((GapKind::Other, problem(error))),
                Err(_) if key.starts_with("with_") || KEYWORDS.contains(&key.as_str()) => {
                    gaps.push((GapKind::Keyword, key.clone()));
                }
                Err(_) => gaps.push((GapKind::Module, key.clone())),
            }
        }
        if gaps.is_empty() {
            gaps.push((GapKind::Other, problem(error)));
        }
        gaps
    }

    /// Reads a task as the loader does.
    fn read(&mut self, task: &Value, file: &Path) -> Result<()> {
        let tasks = if self.includes.is_some() { self.home.clone() } else { self.home.join("tasks") };
        let (loader, home, includes) = (&mut self.loader, &*self.home, self.includes.as_mut());
        let mut found = TaskResolver(TaskContext { loader, home, tasks, file, depth: 0, includes });
        let path = Arc::new(file.to_owned());
        read_tasks(Value::Array(vec![task.clone()]), &path, None, Tags::default(), 0, &mut found).map(drop)
    }
}

/// Resolves references of a task without reading imported tasks, which count on their own.
struct TaskResolver<'l>(TaskContext<'l>);

impl Resolve for TaskResolver<'_> {
    fn import(&mut self, file: &str, _: Tags) -> Result<Arc<[Task]>, String> {
        let found = self.0.find(file)?;
        self.0.includes.iter_mut().for_each(|includes| includes.tasks.push(found.clone()));
        Ok(Arc::default())
    }

    fn include(&mut self, file: Option<&str>) -> Result<(), String> {
        self.0.include(file)
    }

    fn include_vars(&mut self, file: Option<&str>) -> Result<(), String> {
        self.0.include_vars(file)
    }

    fn role(&mut self, name: &str, tasks_from: &str) -> Result<PathBuf, String> {
        self.0.role(name, tasks_from)
    }

    fn allows_services(&self) -> bool {
        self.0.allows_services()
    }
}

/// Returns the gaps in the texts of a value.
fn gaps_of(value: &Value, is_condition: bool) -> Vec<(GapKind, String)> {
    match value {
        Value::String(text) if is_condition => missing_in_expression(text).into_iter().map(named).collect(),
        Value::String(text) => missing_in_text(text).into_iter().map(|(_, name)| named(name)).collect(),
        Value::Array(items) => items.iter().flat_map(|item| gaps_of(item, is_condition)).collect(),
        Value::Object(fields) => {
            let is_condition = |key: &str| is_condition || key == "that";
            let fields = fields.iter().filter(|(key, _)| key.as_str() != INTERPRETER);
            fields.flat_map(|(key, field)| gaps_of(field, is_condition(key))).collect()
        }
        _ => Vec::new(),
    }
}

fn named(name: MissingName) -> (GapKind, String) {
    match name {
        MissingName::Filter(name) => (GapKind::Filter, name),
        MissingName::Test(name) => (GapKind::Test, name),
        MissingName::Lookup(name) => (GapKind::Lookup, name),
        MissingName::Function(name) => (GapKind::Function, name),
        MissingName::Variable(name) => (GapKind::Variable, name),
    }
}

/// Returns true if a text, which need not be valid, is a list.
fn is_list(text: &str) -> bool {
    let is_content = |line: &&str| !line.trim().is_empty() && !line.starts_with(['#', '%']) && !line.starts_with("---");
    text.lines().find(is_content).is_some_and(|line| line.trim_start().starts_with('-'))
}

/// Returns the problem of a file or task, without its place.
fn problem(error: Error) -> String {
    match error {
        Error::File { problem, .. } | Error::Vault { problem, .. } | Error::Task { problem, .. } => problem,
        other => other.to_string(),
    }
}
