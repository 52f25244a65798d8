//! Collects the gaps of a role or playbook.

use super::super::load::{Loader, PlayIncludes, TaskContext};
use super::super::task::{BLOCK_PARTS, Resolve, Tags, read_tasks};
use super::super::texts::check_all;
use super::super::{Role, Task};
use super::gaps::{NamedGap, named, of_play, of_task, of_value};
use super::{Gap, GapKind, Line, PartCoverage};
use crate::error::{Error, Result};
use crate::template::{Files, check_file, check_syntax, literal_files, missing_in_text, normal, walk};
use crate::value::{Value, json};
use crate::vault::Vault;
use crate::yaml::{self, Lines, is_yaml, type_name};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The lists of tasks of a play.
const LISTS: [&str; 4] = ["pre_tasks", "tasks", "post_tasks", "handlers"];

/// The gaps of a role or playbook, so far.
pub(super) struct Survey<'p> {
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
    gaps: BTreeMap<NamedGap, Vec<Line>>,
    /// Files that tasks import or include.
    named_files: BTreeSet<PathBuf>,
    /// Files that are no lists of tasks, and the problem.
    others: Vec<(PathBuf, usize, String)>,
}

impl<'p> Survey<'p> {
    /// Examines a role.
    pub(super) fn of_role(project: &'p Path, home: &Path, vault: &Vault, services: bool) -> Result<Self> {
        let mut survey = Self::of(project, home, vault, services, None);
        survey.role()?;
        Ok(survey)
    }

    /// Examines a playbook.
    pub(super) fn of_playbook(project: &'p Path, file: &Path, vault: &Vault, services: bool) -> Result<Self> {
        let home = file.parent().unwrap_or(project);
        let mut survey = Self::of(project, home, vault, services, Some(PlayIncludes::default()));
        survey.playbook(file)?;
        Ok(survey)
    }

    fn of(project: &'p Path, home: &Path, vault: &Vault, services: bool, includes: Option<PlayIncludes>) -> Self {
        let mut loader = Loader::of(project, vault, services);
        loader.roles.insert(home.to_owned(), Role::default());
        Self {
            project,
            loader,
            home: home.to_owned(),
            includes,
            templates: BTreeSet::new(),
            variables: BTreeSet::new(),
            files: Files::default(),
            tasks: 0,
            built_in: 0,
            gaps: BTreeMap::new(),
            named_files: BTreeSet::new(),
            others: Vec::new(),
        }
    }

    /// Returns the result, with the error of the loader if it rejects the role or playbook.
    pub(super) fn part(mut self, path: &Path, rejected: Option<Error>) -> PartCoverage {
        if let Some(error) = rejected.as_ref().filter(|_| self.gaps.is_empty()) {
            let (file, line) = error.position().unwrap_or((path, 0));
            let found = (GapKind::Other, error.problem());
            self.note(found, file, line);
        }
        let path = path.strip_prefix(normal(self.project)).unwrap_or(path).to_owned();
        let gap = |((kind, name), mut places): (NamedGap, Vec<Line>)| {
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

    fn note(&mut self, found: NamedGap, file: &Path, line: usize) {
        let file = file.strip_prefix(normal(self.project)).unwrap_or(file).to_owned();
        self.gaps.entry(found).or_default().push(Line { file, line: line.max(1) });
    }

    /// Notes an error of a file that cannot be decrypted; returns other errors.
    fn note_locked<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(Error::Vault { path, line, problem }) => {
                self.note((GapKind::Other, problem), &path, line);
                Ok(None)
            }
            Err(error) => Err(error),
        }
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
        // Other files in the folder may be templates of objects.
        for (file, line, problem) in std::mem::take(&mut self.others) {
            let is_main =
                ["tasks", "handlers"].iter().any(|part| file.with_extension("") == home.join(part).join("main"));
            if is_main || self.named_files.contains(&normal(&file)) {
                self.note((GapKind::Other, problem), &file, line);
            }
        }
        Ok(())
    }

    fn playbook(&mut self, file: &Path) -> Result<()> {
        self.files = self.loader.files(&self.home, &[""])?;
        self.templates()?;
        let text = self.note_locked(yaml::read_text(file, &self.loader.vault))?;
        let plays = self.note_locked(yaml::read_document(file, &self.loader.vault))?;
        let (Some(text), Some(plays)) = (text, plays) else { return Ok(()) };
        let lines = Lines::of(&text);
        for (number, play) in plays.as_array().into_iter().flatten().enumerate() {
            let lines = lines.item(number);
            let mut rest = play.clone();
            for list in LISTS {
                let lines = lines.and_then(|lines| lines.field(list));
                self.tasks(&play[list], lines, file);
                rest.as_object_mut().map(|play| play.remove(list));
            }
            let line = lines.map_or(0, |lines| lines.line);
            for found in self.play_gaps(rest, file) {
                self.note(found, file, line);
            }
        }
        let mut seen = BTreeSet::new();
        while let Some(file) = self.includes.as_mut().and_then(|includes| includes.tasks.pop()) {
            if seen.insert(file.clone()) {
                self.task_file(&file)?;
            }
        }
        // Only files that tasks name are read.
        for (file, line, problem) in std::mem::take(&mut self.others) {
            self.note((GapKind::Other, problem), &file, line);
        }
        Ok(())
    }

    /// Returns the gaps of a play without its tasks.
    fn play_gaps(&mut self, play: Value, file: &Path) -> Vec<NamedGap> {
        let Err(rejected) = self.loader.read_play(play.clone(), file, None) else { return Vec::new() };
        let Value::Object(play) = play else { return vec![(GapKind::Other, rejected.problem())] };
        of_play(&play, rejected, |probe| self.loader.read_play(probe.into(), file, None).map(drop))
    }

    /// Notes the gaps of templates, and of those that name a template with gaps.
    fn templates(&mut self) -> Result<()> {
        let templates: Vec<_> = self.files.templates.iter().map(|(name, text)| (name.clone(), text.clone())).collect();
        for (name, (file, text)) in &templates {
            let mut gaps: Vec<_> = missing_in_text(text).into_iter().map(|(at, name)| (at, named(name))).collect();
            if let Err(problem) = check_syntax(text, false) {
                // Names in an invalid template would mislead.
                gaps = vec![(0, (GapKind::Other, problem))];
            }
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
            for (at, found) in gaps {
                self.note(found, file, 1 + text[..at].matches('\n').count());
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
    fn missing_files(&self, text: &str) -> Vec<NamedGap> {
        let is_missing = |(is_template, name): &(bool, String)| match is_template {
            true => self.files.template(name).is_none(),
            false => self.files.file(name).is_none(),
        };
        let missing = literal_files(text).into_iter().filter(is_missing);
        missing.map(|(_, name)| (GapKind::Other, format!("file {name} not found in the project"))).collect()
    }

    fn missing_files_in(&self, value: &Value) -> Vec<NamedGap> {
        match value {
            Value::String(text) => self.missing_files(text),
            Value::Array(items) => items.iter().flat_map(|item| self.missing_files_in(item)).collect(),
            Value::Object(fields) => fields.values().flat_map(|field| self.missing_files_in(field)).collect(),
            _ => Vec::new(),
        }
    }

    fn vars(&mut self, file: &Path) -> Result<()> {
        let text = self.note_locked(yaml::read_text(file, &self.loader.vault))?;
        // Single values may be encrypted as well.
        let vars = self.note_locked(text.map_or(Ok(Vec::new()), |_| yaml::read_documents(file, &self.loader.vault)))?;
        let Some(vars) = vars else { return Ok(()) };
        let lines = Lines::of(&yaml::read_text(file, &self.loader.vault).unwrap_or_default());
        for (name, value) in vars.iter().filter_map(Value::as_object).flatten() {
            let line = lines.field(name).map_or(0, |lines| lines.line);
            let mut gaps = of_value(value, false);
            if gaps.is_empty() {
                gaps.extend(check_all(value).err().map(|problem| (GapKind::Other, problem)));
            }
            for found in gaps {
                self.variables.insert(name.clone());
                self.note(found, file, line);
            }
        }
        Ok(())
    }

    fn task_file(&mut self, file: &Path) -> Result<()> {
        let Some(text) = self.note_locked(yaml::read_text(file, &self.loader.vault))? else { return Ok(()) };
        let documents = match yaml::read_documents(file, &self.loader.vault) {
            // The folder may contain other files, such as definitions of objects, which may be templates.
            Err(Error::File { problem, .. })
                if !is_list(&text) && file.file_stem().is_none_or(|name| name != "main") =>
            {
                self.others.push((file.to_owned(), 1, problem));
                return Ok(());
            }
            documents => documents,
        };
        let Some(documents) = self.note_locked(documents)? else { return Ok(()) };
        let lines = Lines::of(&text);
        let problem = match documents.as_slice() {
            [] => return Ok(()),
            [Value::Array(tasks)] => match tasks.iter().position(|task| !task.is_object()) {
                None => {
                    self.tasks(&documents[0], Some(&lines), file);
                    return Ok(());
                }
                Some(at) => {
                    let line = lines.item(at).map_or(0, |lines| lines.line);
                    (line, format!("a task must be a map, not {}", type_name(&tasks[at])))
                }
            },
            [other] => (lines.line, format!("must be a list of tasks, not {}", type_name(other))),
            several => (1, format!("expected one document, found {}", several.len())),
        };
        self.others.push((file.to_owned(), problem.0, problem.1));
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
            for found in gaps {
                self.note(found, file, line);
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
    fn gaps(&mut self, task: &Value, file: &Path) -> Vec<NamedGap> {
        let mut gaps = self.missing_files_in(task);
        if let (Err(rejected), Value::Object(fields)) = (self.read(task, file), task) {
            gaps.extend(of_task(fields, rejected, |probe| self.read(&probe.into(), file)));
        }
        gaps
    }

    /// Reads a task as the loader does.
    fn read(&mut self, task: &Value, file: &Path) -> Result<()> {
        let tasks = if self.includes.is_some() { self.home.clone() } else { self.home.join("tasks") };
        let (loader, home, includes) = (&mut self.loader, &*self.home, self.includes.as_mut());
        let context = TaskContext { loader, home, tasks, file, depth: 0, includes };
        let mut found = TaskResolver { context, named_files: &mut self.named_files };
        let path = Arc::new(file.to_owned());
        read_tasks(Value::Array(vec![task.clone()]), &path, None, Tags::default(), 0, &mut found).map(drop)
    }
}

/// Resolves references of a task without reading imported tasks, which count on their own.
struct TaskResolver<'l> {
    context: TaskContext<'l>,
    named_files: &'l mut BTreeSet<PathBuf>,
}

impl Resolve for TaskResolver<'_> {
    fn import(&mut self, file: &str, _: Tags) -> Result<Arc<[Task]>, String> {
        let found = self.context.find(file)?;
        self.named_files.insert(found.clone());
        self.context.includes.iter_mut().for_each(|includes| includes.tasks.push(found.clone()));
        Ok(Arc::default())
    }

    fn include(&mut self, file: Option<&str>) -> Result<(), String> {
        if let Some(file) = file {
            self.named_files.insert(self.context.find(file)?);
        }
        self.context.include(file)
    }

    fn include_vars(&mut self, file: Option<&str>) -> Result<(), String> {
        self.context.include_vars(file)
    }

    fn role(&mut self, name: &str, tasks_from: &str) -> Result<PathBuf, String> {
        self.context.role(name, tasks_from)
    }

    fn allows_services(&self) -> bool {
        self.context.allows_services()
    }
}

/// Returns true if a text, which need not be valid, is a list.
pub(super) fn is_list(text: &str) -> bool {
    let is_content = |line: &&str| !line.trim().is_empty() && !line.starts_with(['#', '%']) && !line.starts_with("---");
    text.lines().find(is_content).is_some_and(|line| line.trim_start().starts_with('-'))
}
