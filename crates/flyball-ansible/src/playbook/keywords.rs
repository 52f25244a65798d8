//! Parses the keywords of a task.

use super::texts::{check_all, check_conditions, literal_name};
use super::{Action, ExtendedLoop, Loop, LoopItems, Module, Task};
use crate::error::{Error, Result};
use crate::template::{PLUGINS, templates};
use crate::value::{Map, Value};
use crate::yaml::{truth, type_name};
use std::path::PathBuf;
use std::sync::Arc;

/// Keywords without effect on a single host without a shell.
const WITHOUT_EFFECT: [&str; 9] = [
    "run_once",
    "any_errors_fatal",
    "ignore_unreachable",
    "diff",
    "gather_facts",
    "connection",
    "throttle",
    "collections",
    "become_method",
];

/// Keywords of Ansible that the built-in executor may not support; other keys of a task are modules.
pub(super) const KEYWORDS: [&str; 36] = [
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

/// Returns true if a key of a task is a keyword of Ansible, and not a module.
pub(super) fn is_keyword(key: &str) -> bool {
    KEYWORDS.contains(&key) || WITHOUT_EFFECT.contains(&key) || key == "tags" || key.starts_with("with_")
}

/// The keywords of a task that are not parsed yet.
pub(super) struct Keywords<'a> {
    pub(super) fields: &'a mut Map,
    pub(super) file: &'a Arc<PathBuf>,
    pub(super) position: &'a str,
}

impl Keywords<'_> {
    /// Parses the keywords that all actions have in common.
    pub(super) fn task(&mut self) -> Result<Task> {
        let (file, position) = (self.file, self.position);
        let reject = |problem: String| Error::task(file, position, problem);
        let vars = self.map("vars")?;
        check_all(&Value::Object(vars.clone())).map_err(&reject)?;
        Ok(Task {
            name: String::new(),
            action_name: String::new(),
            file: file.clone(),
            action: Action::Module(Module::Meta, Map::new()),
            vars: Arc::new(templates(&vars)),
            when: self.conditions("when")?.unwrap_or_default(),
            repeat: self.repeat()?,
            register: self.text("register")?.map(|name| literal_name(name).map_err(&reject)).transpose()?,
            until: self.conditions("until")?.unwrap_or_default(),
            retries: self.value("retries")?,
            delay: self.value("delay")?,
            failed_when: self.conditions("failed_when")?,
            changed_when: self.conditions("changed_when")?,
            ignore_errors: self.value("ignore_errors")?,
            no_log: self.value("no_log")?,
            notify: self.texts("notify")?,
            listen: self.texts("listen")?,
        })
    }

    fn reject(&self, keyword: &str, problem: impl std::fmt::Display) -> Error {
        Error::task(self.file, self.position, format_args!("{keyword}: {problem}"))
    }

    fn value(&mut self, keyword: &str) -> Result<Option<Value>> {
        let value = self.fields.remove(keyword).filter(|value| !value.is_null());
        value.iter().try_for_each(check_all).map_err(|problem| self.reject(keyword, problem))?;
        Ok(value)
    }

    pub(super) fn text(&mut self, keyword: &str) -> Result<Option<String>> {
        match self.fields.remove(keyword) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(self.reject(keyword, format_args!("must be a string, not {}", type_name(&other)))),
        }
    }

    fn texts(&mut self, keyword: &str) -> Result<Vec<String>> {
        match self.fields.remove(keyword) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(vec![text]),
            Some(Value::Array(items)) => Ok(items.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
            Some(other) => {
                Err(self
                    .reject(keyword, format_args!("must be a string or a list of strings, not {}", type_name(&other))))
            }
        }
    }

    pub(super) fn map(&mut self, keyword: &str) -> Result<Map> {
        match self.fields.remove(keyword) {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(fields)) => Ok(fields),
            Some(other) => Err(self.reject(keyword, format_args!("must be a map, not {}", type_name(&other)))),
        }
    }

    /// Parses conditions, all of which must hold.
    fn conditions(&mut self, keyword: &str) -> Result<Option<Vec<Value>>> {
        let conditions = match self.fields.remove(keyword) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Array(conditions)) => conditions,
            Some(condition) => vec![condition],
        };
        conditions.iter().try_for_each(check_conditions).map_err(|problem| self.reject(keyword, problem))?;
        Ok(Some(conditions))
    }

    fn repeat(&mut self) -> Result<Option<Loop>> {
        let mut control = self.map("loop_control")?;
        let lookup = |name: &'static str| (format!("with_{name}"), LoopItems::Lookup(name));
        let others = PLUGINS.into_iter().filter(|name| !matches!(*name, "list" | "items")).map(lookup);
        let lists = [("loop", LoopItems::List), ("with_list", LoopItems::List), ("with_items", LoopItems::Flattened)];
        let loops = lists.into_iter().map(|(name, over)| (name.to_owned(), over)).chain(others);
        let mut repeat = None;
        for (keyword, over) in loops {
            if let Some(items) = self.value(&keyword)? {
                let flag = |control: &mut Map, option: &str, default: bool| {
                    let value = control.remove(option);
                    let problem = || format!("{option} must be true or false, without a template");
                    value
                        .map_or(Ok(default), |value| truth(&value).ok_or_else(problem))
                        .map_err(|problem| self.reject("loop_control", problem))
                };
                let name = |control: &mut Map, option: &str| {
                    let name = control.remove(option).and_then(|name| name.as_str().map(str::to_owned));
                    name.map(literal_name).transpose().map_err(|problem| self.reject("loop_control", problem))
                };
                repeat = Some(Loop {
                    over,
                    items,
                    variable: name(&mut control, "loop_var")?.unwrap_or_else(|| "item".to_owned()),
                    index: name(&mut control, "index_var")?,
                    pause: control.remove("pause"),
                    extended: flag(&mut control, "extended", false)?
                        .then_some(ExtendedLoop { has_all_items: flag(&mut control, "extended_allitems", true)? }),
                });
            }
        }
        control.retain(|option, _| !matches!(option.as_str(), "label" | "extended_allitems"));
        if let Some(unknown) = control.keys().next() {
            return Err(self.reject("loop_control", format_args!("the built-in executor does not support {unknown}")));
        }
        if let Some(other) = self.fields.keys().find(|keyword| keyword.starts_with("with_")) {
            let remedy = format!("use loop, or with_ and one of {}", PLUGINS.join(", "));
            return Err(self.reject(other, format_args!("the built-in executor does not support this loop: {remedy}")));
        }
        Ok(repeat)
    }

    /// Removes keywords without effect here, and rejects other values of them.
    pub(super) fn without_effect(&mut self) -> Result<()> {
        self.fields.retain(|keyword, _| !WITHOUT_EFFECT.contains(&keyword.as_str()));
        let harmless = [
            ("become", "false"),
            ("check_mode", "false"),
            ("delegate_to", "localhost"),
            ("async", "0"),
            ("poll", "0"),
            ("timeout", "0"),
            ("module_defaults", "{}"),
            ("debugger", "never"),
        ];
        for (keyword, harmless) in harmless {
            let Some(value) = self.fields.remove(keyword) else { continue };
            let is_harmless = match keyword {
                "become" | "check_mode" => truth(&value) == Some(false),
                "delegate_to" => matches!(value.as_str(), Some("localhost" | "127.0.0.1")),
                "module_defaults" => value.as_object().is_some_and(Map::is_empty),
                "debugger" => value == harmless,
                _ => value.as_u64() == Some(0),
            };
            if !is_harmless && !value.is_null() {
                let problem = format!("the built-in executor only supports {harmless}: remove it");
                return Err(self.reject(keyword, problem).with_feature(format!("keyword {keyword}")));
            }
        }
        Ok(())
    }
}
