//! Roles and playbooks, read and checked: all of their tasks, as what the built-in executor can do.
//!
//! Whatever it cannot do is an [error](crate::Error) that names file and task, before anything is run.

mod args;
mod declared;
mod kinds;
mod literals;
mod load;
mod task;

pub(crate) use declared::DeclaredVariables;
pub(crate) use kinds::Kinds;
pub(crate) use literals::{Literals, SERVICE_ACCOUNT_TOKEN, kind_of};
pub(crate) use load::{load, named, places};

use crate::template::{Files, Vars};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The role or playbook of an object.
#[derive(Debug, Default)]
pub(crate) struct Playbook {
    pub(crate) plays: Vec<Play>,
    /// All roles that are used, by their folders.
    pub(crate) roles: BTreeMap<PathBuf, Arc<Role>>,
}

/// Tasks with what they share.
#[derive(Debug, Default)]
pub(crate) struct Play {
    pub(crate) vars: Arc<Vars>,
    pub(crate) no_log: Option<Value>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) handlers: Vec<Task>,
    /// Files beside the playbook.
    pub(crate) files: Arc<Files>,
    pub(crate) folder: PathBuf,
    /// Files of tasks that are included by name, by their paths.
    pub(crate) includes: BTreeMap<PathBuf, Arc<[Task]>>,
}

/// The folder of a role.
#[derive(Debug, Default)]
pub(crate) struct Role {
    pub(crate) folder: PathBuf,
    pub(crate) defaults: Arc<Vars>,
    pub(crate) vars: Arc<Vars>,
    pub(crate) files: Arc<Files>,
    pub(crate) handlers: Arc<[Task]>,
    /// All files of tasks that may be reached, by their paths.
    pub(crate) tasks: BTreeMap<PathBuf, Arc<[Task]>>,
    /// Files of variables that may be included.
    pub(crate) var_files: BTreeMap<PathBuf, Arc<Vars>>,
    /// The roles that come first.
    pub(crate) dependencies: Vec<RoleReference>,
}

/// A role in a list of roles.
#[derive(Clone, Debug)]
pub(crate) struct RoleReference {
    pub(crate) folder: PathBuf,
    pub(crate) vars: Arc<Vars>,
    pub(crate) no_log: Option<Value>,
}

/// One task, or a block of them.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) file: Arc<PathBuf>,
    pub(crate) action: Action,
    pub(crate) vars: Arc<Vars>,
    pub(crate) when: Vec<Value>,
    pub(crate) repeat: Option<Repeat>,
    pub(crate) register: Option<String>,
    pub(crate) until: Vec<Value>,
    pub(crate) retries: Option<Value>,
    pub(crate) delay: Option<Value>,
    pub(crate) failed_when: Option<Vec<Value>>,
    pub(crate) changed_when: Option<Vec<Value>>,
    pub(crate) ignore_errors: Option<Value>,
    pub(crate) no_log: Option<Value>,
    pub(crate) notify: Vec<String>,
    /// Further names of a handler.
    pub(crate) listen: Vec<String>,
}

/// The loop of a task.
#[derive(Clone, Debug)]
pub(crate) struct Repeat {
    pub(crate) over: Over,
    pub(crate) items: Value,
    pub(crate) variable: String,
    pub(crate) index: Option<String>,
    pub(crate) pause: Option<Value>,
}

/// The way in which a loop takes items from a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// Those of a list.
    List,
    /// Those of a list, and of the lists in it.
    Flattened,
    /// The fields of a map, as `key` and `value`.
    Fields,
}

/// The action of a task.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Calls a module.
    Module(Module, Map<String, Value>),
    /// Runs tasks; others if one fails; and others in any case.
    Block { tasks: Arc<[Task]>, rescue: Arc<[Task]>, always: Arc<[Task]> },
    /// Runs the tasks of a file.
    IncludeTasks(Value),
    /// Reads variables from a file of the role.
    IncludeVars { file: Value, name: Option<String> },
    /// Runs a role: that of this folder, from this file of tasks.
    Role { folder: PathBuf, tasks_from: String, is_static: bool },
}

/// The modules that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Module {
    K8s,
    K8sInfo,
    K8sStatus,
    RequeueAfter,
    SetFact,
    Debug,
    Assert,
    Fail,
    Meta,
    Pause,
}
