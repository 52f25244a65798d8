//! Roles and playbooks, loaded and validated: all of their tasks, as supported by the built-in executor.
//!
//! Unsupported features are an [error](crate::Error) with file and task, before anything runs.

mod args;
mod arguments;
mod core_modules;
mod coverage;
mod declared;
mod defaults;
mod keywords;
mod kinds;
mod literals;
mod load;
mod task;
mod texts;
mod vars;

pub use coverage::{Coverage, Gap, GapKind, Line, PartCoverage, coverage};
pub(crate) use declared::DeclaredVariables;
pub use defaults::default_fields;
pub(crate) use kinds::{ALL_NAMESPACES, Kinds};
pub(crate) use literals::{Literals, SERVICE_ACCOUNT_TOKEN, kind_of};
pub(crate) use load::{candidate_paths, load, named};

use crate::template::{Files, Vars};
use crate::value::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The role or playbook of an object.
#[derive(Debug, Default)]
pub(crate) struct Playbook {
    pub(crate) plays: Vec<Play>,
    /// All used roles, by folder.
    pub(crate) roles: BTreeMap<PathBuf, Arc<Role>>,
}

/// A play: tasks with common settings.
#[derive(Debug, Default)]
pub(crate) struct Play {
    pub(crate) vars: Arc<Vars>,
    pub(crate) no_log: Option<Value>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) handlers: Vec<Task>,
    /// Files beside the playbook.
    pub(crate) files: Arc<Files>,
    pub(crate) folder: PathBuf,
    /// Task files that are included by name, by path.
    pub(crate) includes: BTreeMap<PathBuf, Arc<[Task]>>,
    /// Variable files that may be included.
    pub(crate) var_files: BTreeMap<PathBuf, Arc<Vars>>,
}

/// A role.
#[derive(Debug, Default)]
pub(crate) struct Role {
    pub(crate) folder: PathBuf,
    pub(crate) defaults: Arc<Vars>,
    pub(crate) vars: Arc<Vars>,
    pub(crate) files: Arc<Files>,
    pub(crate) handlers: Arc<[Task]>,
    /// All reachable task files, by path.
    pub(crate) tasks: BTreeMap<PathBuf, Arc<[Task]>>,
    /// Variable files that may be included.
    pub(crate) var_files: BTreeMap<PathBuf, Arc<Vars>>,
    /// Dependencies, which run first.
    pub(crate) dependencies: Vec<RoleReference>,
}

/// A reference to a role in a list.
#[derive(Clone, Debug)]
pub(crate) struct RoleReference {
    pub(crate) folder: PathBuf,
    pub(crate) vars: Arc<Vars>,
    pub(crate) no_log: Option<Value>,
}

/// A task, or a block of tasks.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) name: String,
    /// The name of the module or action, as it is written.
    pub(crate) action_name: String,
    pub(crate) file: Arc<PathBuf>,
    pub(crate) action: Action,
    pub(crate) vars: Arc<Vars>,
    pub(crate) when: Vec<Value>,
    pub(crate) repeat: Option<Loop>,
    pub(crate) register: Option<String>,
    pub(crate) until: Vec<Value>,
    pub(crate) retries: Option<Value>,
    pub(crate) delay: Option<Value>,
    pub(crate) failed_when: Option<Vec<Value>>,
    pub(crate) changed_when: Option<Vec<Value>>,
    pub(crate) ignore_errors: Option<Value>,
    pub(crate) no_log: Option<Value>,
    pub(crate) notify: Vec<String>,
    /// Further topics of a handler.
    pub(crate) listen: Vec<String>,
}

/// The loop of a task.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) over: LoopItems,
    pub(crate) items: Value,
    pub(crate) variable: String,
    pub(crate) index: Option<String>,
    pub(crate) pause: Option<Value>,
    /// Provides `ansible_loop`.
    pub(crate) extended: Option<ExtendedLoop>,
}

/// The variable `ansible_loop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExtendedLoop {
    /// True if the variable contains all items.
    pub(crate) has_all_items: bool,
}

/// The items of a loop's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopItems {
    /// The items of a list.
    List,
    /// The items of a list, and of lists in it.
    Flattened,
    /// The results of a lookup with the items of a list as terms, see [`arranged`](crate::template::arranged).
    Lookup(&'static str),
}

/// The action of a task.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Calls a module.
    Module(Module, Map),
    /// Runs tasks; rescue tasks if one fails; and the `always` tasks in any case.
    Block { tasks: Arc<[Task]>, rescue: Arc<[Task]>, always: Arc<[Task]> },
    /// Runs the tasks of a file.
    IncludeTasks(Value),
    /// Reads variables from a file of the role.
    IncludeVars { file: Value, name: Option<String> },
    /// Runs the role in this folder, from this task file.
    Role { folder: PathBuf, tasks_from: String, is_static: bool },
}

/// The supported modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Module {
    K8s,
    K8sInfo,
    K8sScale,
    K8sStatus,
    RequeueAfter,
    OsdkMetric,
    SetFact,
    Debug,
    Assert,
    Fail,
    Meta,
    Pause,
    Uri,
}
