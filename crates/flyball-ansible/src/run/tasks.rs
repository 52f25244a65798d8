//! Runs tasks: conditions, retries, blocks, includes, counts, and registered results.

use super::frame::MAX_DEPTH;
use super::{Frame, MAX_TASKS, Run, Stop};
use crate::job::{TaskError, log_task};
use crate::playbook::{Action, Module, Task, candidate_paths, named};
use crate::template::{BYTES_PER_FUEL, Scope, Var, Vars};
use crate::value::memory;
use crate::value::{Map, Value, json};
use crate::yaml::{truth, type_name};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kube::core::Status;
use std::sync::Arc;
use std::time::Duration;

/// Limits of attempts of a task, and of the delay between them.
const MAX_RETRIES: u64 = 1000;
const MAX_PAUSE_SECONDS: f64 = 3600.0;

/// The cost of a task besides its templates, in units of fuel.
const WORK_PER_TASK: u64 = 200;

/// The cost of an attempt of a task besides its result.
const WORK_PER_ATTEMPT: u64 = 20;

/// Literal names were validated when the role was loaded.
const FILES_OF_ROLE: &str = "in this role (a computed name is limited to files of the role)";

/// Replacement for the output of a task with `no_log`.
const HIDDEN: &str = "the output has been hidden due to the fact that 'no_log: true' was specified for this result";

impl<'r> Run<'r> {
    /// Runs tasks in order, until one fails or ends the play or role.
    pub(super) fn tasks<'a>(&'a mut self, tasks: &'r [Task], frame: &'a Frame<'r>) -> BoxFuture<'a, Result<(), Stop>> {
        async move {
            if frame.depth > MAX_DEPTH {
                let failure = TaskError::new(format!(
                    "includes and blocks are nested deeper than {MAX_DEPTH}: check for a file that includes itself"
                ));
                return Err(Stop::Failed(failure));
            }
            for task in tasks {
                match &task.action {
                    Action::Block { tasks, rescue, always } => {
                        Box::pin(self.block(task, [tasks, rescue, always], frame)).await?;
                    }
                    Action::Role { folder, tasks_from, is_static: true } => {
                        let mut inner = frame.within(&Arc::default());
                        inner.when.extend(task.when.iter().cloned());
                        inner.params.push(task.vars.clone());
                        inner.no_log = task.no_log.clone().or(inner.no_log);
                        Box::pin(self.role(folder, tasks_from, &inner)).await?;
                    }
                    _ => Box::pin(self.task(task, frame)).await?,
                }
            }
            Ok(())
        }
        .boxed()
    }

    async fn block(&mut self, block: &'r Task, parts: [&'r Arc<[Task]>; 3], frame: &Frame<'r>) -> Result<(), Stop> {
        let [tasks, rescue, always] = parts;
        let mut inner = frame.within(&block.vars);
        inner.when.extend(block.when.iter().cloned());
        inner.ignore_errors = block.ignore_errors.clone().or(inner.ignore_errors);
        inner.no_log = block.no_log.clone().or(inner.no_log);
        let mut result = self.tasks(tasks, &inner).await;
        if let Err(Stop::Failed(failure)) = &result
            && !rescue.is_empty()
        {
            let unknown = (json!({"name": failure.task}), json!({"failed": true, "msg": failure.message}));
            let (task, failed) = self.failed.take().unwrap_or(unknown);
            self.set_fact("ansible_failed_task", task)?;
            self.set_fact("ansible_failed_result", failed)?;
            result = self.tasks(rescue, &inner).await;
        }
        if !matches!(result, Err(Stop::Play | Stop::Role | Stop::Deferred)) {
            self.tasks(always, &inner).await?;
        }
        result
    }

    /// Runs a role: its dependencies, and its tasks.
    async fn role(&mut self, folder: &'r std::path::Path, tasks_from: &str, frame: &Frame<'r>) -> Result<(), Stop> {
        let Some(role) = self.playbook.roles.get(folder) else {
            return Err(Stop::Failed(TaskError::new(format!("role {} was not loaded", folder.display()))));
        };
        let inner = frame.of_role(self.playbook, role);
        for dependency in &role.dependencies {
            let mut inner = inner.within(&Arc::default());
            inner.params.push(dependency.vars.clone());
            inner.no_log = dependency.no_log.clone().or(inner.no_log);
            Box::pin(self.role(&dependency.folder, "main", &inner)).await?;
        }
        let tasks = named(&folder.join("tasks"), tasks_from).and_then(|file| role.tasks.get(&file));
        let result = match tasks {
            Some(tasks) => self.tasks(tasks, &inner).await,
            None => Ok(()),
        };
        match result {
            Err(Stop::Role) => Ok(()),
            result => result,
        }
    }

    /// Runs notified handlers, in order of definition.
    pub(super) async fn handlers(&mut self, frame: &Frame<'r>) -> Result<(), Stop> {
        let roles = self.playbook.roles.values();
        let of_roles = roles.flat_map(|role| role.handlers.iter().map(move |handler| (Some(role), handler)));
        let all: Vec<_> = frame.play.handlers.iter().map(|handler| (None, handler)).chain(of_roles).collect();
        let play = Frame::of_play(self.playbook, frame.play);
        for (role, handler) in all {
            let names = || handler.listen.iter().chain([&handler.name]);
            if names().any(|name| self.notified.contains(name)) {
                for name in names() {
                    self.notified.remove(name);
                }
                let inner = role.map_or_else(|| play.clone(), |role| play.of_role(self.playbook, role));
                self.tasks(std::slice::from_ref(handler), &inner).await?;
            }
        }
        Ok(())
    }

    /// Runs a task, for each of its items if it has a loop.
    async fn task(&mut self, task: &'r Task, frame: &Frame<'r>) -> Result<(), Stop> {
        let result = match &task.repeat {
            None => self.run_item(task, frame, &Vars::new()).await?,
            Some(repeat) => {
                self.budget.sources.begin(self.job.cx.now());
                let scope = self.scope(frame, &task.vars, &Vars::new());
                match self.evaluate(|| Run::items_of(repeat, &scope)).await {
                    Ok(items) => self.run_items(task, repeat, items, frame).await?,
                    // If all items are skipped, errors in the loop's value are ignored.
                    Err(problem) => match self.evaluate(|| applies(task, frame, &scope)).await {
                        Ok(false) => TaskResult::skipped(),
                        _ => TaskResult::failed(TaskError::new(format!("loop: {problem}"))),
                    },
                }
            }
        };
        self.ended(task, frame, result)
    }

    /// Charges the work of a task, and ends the run if the budget is exhausted: tasks cannot ignore or rescue that.
    pub(super) fn charge(&self, task: &Task, work: u64) -> Result<(), Stop> {
        let failed = |error| Stop::Failed(TaskError { task: of(task), ..TaskError::of(error) });
        // The cost of a run is deterministic.
        self.budget.charge(work).map_err(|problem| failed(flyball::Error::from(problem).terminal()))?;
        self.budget.check().map_err(|problem| failed(flyball::Error::from(problem)))
    }

    /// Counts a task, an item, or an object of a task.
    pub(super) fn count(&mut self) -> Result<(), String> {
        self.executed += 1;
        match self.executed > MAX_TASKS {
            true => Err(format!(
                "the run exceeds the limit of {MAX_TASKS} tasks, items and objects: check for an infinite loop"
            )),
            false => Ok(()),
        }
    }

    /// Runs a task for one item, with retries.
    pub(super) async fn run_item(
        &mut self,
        task: &'r Task,
        frame: &Frame<'r>,
        looped: &Vars,
    ) -> Result<TaskResult, Stop> {
        self.count().map_err(|problem| Stop::Failed(TaskError { task: of(task), ..TaskError::new(problem) }))?;
        self.charge(task, WORK_PER_TASK)?;
        self.budget.yield_turn().await;
        self.budget.sources.begin(self.job.cx.now());
        let scope = self.scope(frame, &task.vars, looped);
        match self.evaluate(|| applies(task, frame, &scope)).await {
            Ok(true) => {}
            Ok(false) => return Ok(TaskResult::skipped()),
            Err(problem) => {
                return Ok(TaskResult::failed(TaskError::new(format!("the conditional check failed: {problem}"))));
            }
        }
        let retries = task.retries.as_ref().map(|retries| number(retries, &scope));
        let attempts = match (task.until.is_empty() && task.retries.is_none(), retries) {
            (true, _) => 1,
            (false, None) => 3,
            (false, Some(retries)) => retries.clamp(0.0, MAX_RETRIES as f64) as u64 + 1,
        };
        let delay = task.delay.as_ref().map_or(5.0, |delay| number(delay, &scope));
        for attempt in 1.. {
            self.budget.sources.begin(self.job.cx.now());
            let mut done = Box::pin(self.run_action(task, frame, looped)).await?;
            let size = done.result.values().map(memory::of).sum::<usize>();
            self.charge(task, WORK_PER_ATTEMPT + (size / BYTES_PER_FUEL) as u64)?;
            if attempts > 1 {
                done.result.insert("attempts".into(), attempt.into());
            }
            let evaluated = self.evaluate_result(task, frame, looped, &mut done).await;
            let satisfied = match evaluated {
                Err(problem) => {
                    done = TaskResult::failed(TaskError::new(problem));
                    true
                }
                Ok(satisfied) => satisfied,
            };
            if satisfied || attempt >= attempts {
                if !satisfied && done.failure.is_none() {
                    done.fail(TaskError::new("the task failed: until was false after all retries"));
                }
                return Ok(done);
            }
            self.pause(Duration::from_secs_f64(delay.clamp(0.0, MAX_PAUSE_SECONDS))).await?;
        }
        unreachable!("the last attempt returns")
    }

    /// Applies `failed_when` and `changed_when`, and returns whether `until` holds.
    async fn evaluate_result(
        &mut self,
        task: &Task,
        frame: &Frame<'_>,
        looped: &Vars,
        done: &mut TaskResult,
    ) -> Result<bool, String> {
        let failed = done.failure.is_some();
        done.result.entry("failed").or_insert(failed.into());
        done.result.entry("changed").or_insert(false.into());
        let scope = |run: &Self, done: &TaskResult| {
            let mut looped = looped.clone();
            if let Some(name) = &task.register {
                looped.insert(name.clone(), Var::Data(Arc::new(done.result.clone().into())));
            }
            run.scope(frame, &task.vars, &looped)
        };
        if let Some(changed_when) = &task.changed_when {
            let scope = scope(self, done);
            let changed = self.evaluate(|| holds(changed_when, &scope)).await;
            let changed = changed.map_err(|problem| format!("changed_when: {problem}"))?;
            done.result.insert("changed".into(), changed.into());
        }
        if let Some(failed_when) = &task.failed_when {
            let scope = scope(self, done);
            let failed = self.evaluate(|| holds(failed_when, &scope)).await;
            let failed = failed.map_err(|problem| format!("failed_when: {problem}"))?;
            done.result.insert("failed".into(), failed.into());
            match (failed, done.failure.is_some()) {
                (false, _) => done.failure = None,
                (true, true) => {}
                (true, false) => {
                    let message = done.result.get("msg").and_then(Value::as_str).filter(|message| !message.is_empty());
                    let message = message.map_or_else(|| "failed_when holds".to_owned(), str::to_owned);
                    done.failure = Some(TaskError::new(message));
                }
            }
        }
        if task.until.is_empty() {
            // Only `retries` repeats failed attempts.
            return Ok(task.retries.is_none() || done.failure.is_none());
        }
        let scope = scope(self, done);
        self.evaluate(|| holds(&task.until, &scope)).await.map_err(|problem| format!("until: {problem}"))
    }

    /// Executes the action of a task.
    async fn run_action(&mut self, task: &'r Task, frame: &Frame<'r>, looped: &Vars) -> Result<TaskResult, Stop> {
        let scope = self.scope(frame, &task.vars, looped);
        match &task.action {
            Action::Module(module, arguments) => Box::pin(self.module(*module, arguments, &scope, frame)).await,
            Action::IncludeTasks(file) => {
                let file = match self.evaluate(|| scope.render(file)).await {
                    Ok(Value::String(file)) => file,
                    Ok(other) => {
                        return Ok(TaskResult::failed(TaskError::new(format!(
                            "the task file name must be a string, not {}",
                            type_name(&other)
                        ))));
                    }
                    Err(problem) => return Ok(TaskResult::failed(TaskError::new(problem))),
                };
                let tasks = match frame.role {
                    Some(role) => candidate_paths(&file, &task.file, &role.folder.join("tasks"))
                        .iter()
                        .find_map(|p| role.tasks.get(p)),
                    None => candidate_paths(&file, &task.file, &frame.play.folder)
                        .iter()
                        .find_map(|p| frame.play.includes.get(p)),
                };
                let Some(tasks) = tasks else {
                    return Ok(TaskResult::failed(TaskError::new(format!("no task file {file} {FILES_OF_ROLE}"))));
                };
                let mut inner = frame.within(&task.vars);
                inner.vars.push(Arc::new(looped.clone()));
                inner.ignore_errors = task.ignore_errors.clone().or(inner.ignore_errors);
                inner.no_log = task.no_log.clone().or(inner.no_log);
                self.tasks(tasks, &inner).await?;
                Ok(TaskResult::ok())
            }
            Action::Role { folder, tasks_from, .. } => {
                let mut inner = frame.within(&Arc::default());
                inner.params.extend([task.vars.clone(), Arc::new(looped.clone())]);
                inner.no_log = task.no_log.clone().or(inner.no_log);
                Box::pin(self.role(folder, tasks_from, &inner)).await?;
                Ok(TaskResult::ok())
            }
            Action::IncludeVars { file, name } => Ok(self.include_vars(file, name.as_deref(), &scope, frame)),
            Action::Block { .. } => unreachable!("blocks are expanded to their tasks"),
        }
    }

    fn include_vars(&mut self, file: &Value, name: Option<&str>, scope: &Arc<Scope>, frame: &Frame<'_>) -> TaskResult {
        let file = match scope.render(file) {
            Ok(file) => file.as_str().unwrap_or_default().to_owned(),
            Err(problem) => return TaskResult::failed(TaskError::new(problem)),
        };
        let (home, var_files, tasks) = match frame.role {
            Some(role) => (&role.folder, &role.var_files, role.folder.join("tasks")),
            None => (&frame.play.folder, &frame.play.var_files, frame.play.folder.clone()),
        };
        let folders = [home.join("vars"), home.clone(), tasks];
        let found = folders.iter().find_map(|folder| var_files.get(&candidate_paths(&file, folder, folder)[1]));
        let Some(vars) = found else {
            return TaskResult::failed(TaskError::new(format!("no variable file {file} {FILES_OF_ROLE}")));
        };
        match name {
            None => {
                Arc::make_mut(&mut self.included).extend(vars.iter().map(|(name, var)| (name.clone(), var.clone())))
            }
            Some(name) => {
                let field = |(name, var): (&String, &Var)| {
                    let (Var::Data(value) | Var::Template(value)) = var;
                    (name.clone(), (**value).clone())
                };
                let fields: Map = vars.iter().map(field).collect();
                Arc::make_mut(&mut self.included).insert(name.to_owned(), Var::Template(Arc::new(fields.into())));
            }
        }
        TaskResult::ok()
    }

    /// Counts, registers and reports the result of a task.
    fn ended(&mut self, task: &Task, frame: &Frame<'_>, mut done: TaskResult) -> Result<(), Stop> {
        self.charge(task, 0)?;
        let scope = self.scope(frame, &task.vars, &Vars::new());
        let no_log = task.no_log.as_ref().or(frame.no_log.as_ref());
        let hidden = no_log.is_some_and(|no_log| is_true(no_log, &scope));
        let flag = |name: &str| done.result.get(name) == Some(&Value::Bool(true));
        let (changed, skipped) = (flag("changed"), flag("skipped"));
        let ignored = task.ignore_errors.as_ref().or(frame.ignore_errors.as_ref());
        let is_ignored = done.failure.is_some() && ignored.is_some_and(|ignored| is_true(ignored, &scope));
        if let Action::Module(module, _) = &task.action {
            let result = match done.failure {
                Some(_) if is_ignored => "ignored",
                Some(_) => "failed",
                None if skipped => "skipped",
                None if changed => "changed",
                None => "ok",
            };
            let output = Some(&done.result).filter(|_| !hidden);
            log_task(
                self.job.watch.log_events.unwrap_or_default(),
                &of(task),
                *module == Module::Debug,
                result,
                output,
            );
        }
        if let Some(name) = &task.register {
            self.set_fact(name, Value::Object(done.result.clone()))?;
        }
        if let Some(mut failure) = done.failure.take() {
            if hidden {
                failure = hide_message(failure);
            }
            failure.task = with_module(task);
            if !is_ignored {
                let result = if hidden { json!({"failed": true, "msg": HIDDEN}) } else { done.result.into() };
                self.failed = Some((json!({"name": task.name, "action": task.action_name}), result));
                return Err(Stop::Failed(failure));
            }
            tracing::info!(task = failure.task, "task failed, ignoring: {}", failure.message);
        }
        match skipped {
            true => self.outcome.skipped += 1,
            false if !done.counts => {}
            false => {
                self.outcome.ok += 1;
                self.outcome.changed += u64::from(changed);
                if changed {
                    self.notified.extend(task.notify.iter().cloned());
                }
            }
        }
        Ok(())
    }
}

/// The result of a task.
pub(super) struct TaskResult {
    pub(super) result: Map,
    pub(super) failure: Option<TaskError>,
    /// Ansible counts the task.
    pub(super) counts: bool,
}

impl TaskResult {
    pub(super) fn ok() -> Self {
        Self { result: Map::new(), failure: None, counts: true }
    }

    pub(super) fn with(result: Value) -> Self {
        let result = if let Value::Object(result) = result { result } else { Map::new() };
        Self { result, ..Self::ok() }
    }

    fn skipped() -> Self {
        Self::with(json!({"skipped": true, "changed": false, "skip_reason": "Conditional result was False"}))
    }

    pub(super) fn failed(failure: TaskError) -> Self {
        let mut done = Self::ok();
        done.fail(failure);
        done
    }

    pub(super) fn fail(&mut self, failure: TaskError) {
        self.result.insert("failed".into(), true.into());
        self.result.insert("msg".into(), failure.message.as_str().into());
        self.failure = Some(failure);
    }
}

/// Removes the message of a failure, but not its kind.
fn hide_message(failure: TaskError) -> TaskError {
    TaskError { message: HIDDEN.to_owned(), error: failure.error.as_ref().map(hide_error), ..failure }
}

fn hide_error(error: &flyball::Error) -> flyball::Error {
    let Some(status) = error.status() else { return HIDDEN.into() };
    // The causes also determine whether the failure is retried.
    let details = status.details.as_ref();
    let reasons = details.iter().flat_map(|details| &details.causes).map(|cause| cause.reason.clone());
    let details = json!({
        "causes": reasons.map(|reason| json!({"reason": reason})).collect::<Vec<_>>(),
        "retryAfterSeconds": details.map_or(0, |details| details.retry_after_seconds),
    });
    let mut hidden = Status::failure(HIDDEN, &status.reason).with_code(status.code);
    hidden.details = crate::value::from_value(details).ok();
    kube::Error::Api(hidden.boxed()).into()
}

/// Returns a task's name and file.
pub(super) fn of(task: &Task) -> String {
    format!("{} ({})", task.name, task.file.display())
}

/// Returns a task's name, file and module.
fn with_module(task: &Task) -> String {
    format!("{} ({}, module {})", task.name, task.file.display(), task.action_name)
}

/// Returns true if all conditions hold.
pub(super) fn holds(conditions: &[Value], scope: &Arc<Scope>) -> Result<bool, String> {
    for condition in conditions {
        if !scope.holds(condition)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if the conditions of a task and of those around it hold.
fn applies(task: &Task, frame: &Frame<'_>, scope: &Arc<Scope>) -> Result<bool, String> {
    Ok(holds(&frame.when, scope)? && holds(&task.when, scope)?)
}

fn is_true(value: &Value, scope: &Arc<Scope>) -> bool {
    scope.render(value).is_ok_and(|value| truth(&value).unwrap_or(false))
}

fn number(value: &Value, scope: &Arc<Scope>) -> f64 {
    finite(&scope.render(value).unwrap_or_default()).unwrap_or(0.0)
}

/// Parses a number, possibly from a string.
fn finite(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    number.filter(|number| number.is_finite())
}

/// Parses a number of seconds, within limits.
pub(super) fn seconds(value: &Value, default: f64) -> Duration {
    Duration::from_secs_f64(finite(value).unwrap_or(default).clamp(0.0, MAX_PAUSE_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_failure_has_no_message_and_keeps_its_retry() {
        let status = json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "no SECRET",
            "details": {"name": "SECRET", "kind": "Secret",
                "causes": [{"reason": "NamespaceTerminating", "message": "SECRET", "field": "SECRET"}]}});
        let status: Status = crate::value::from_value(status).unwrap();
        let error = flyball::Error::from(kube::Error::Api(status.boxed())).context("SECRET");
        let hidden = hide_message(TaskError::of(error));
        let error = hidden.error.unwrap();
        assert!(!format!("{error} {error:?} {:?} {}", error.status(), hidden.message).contains("SECRET"));
        assert_eq!(error.status().unwrap().code, 403);
        assert!(flyball::is_namespace_terminating(error.downcast_ref().unwrap()));
        let other = hide_message(TaskError::of("SECRET".into()));
        assert_eq!(other.error.unwrap().to_string(), HIDDEN);
    }
}
