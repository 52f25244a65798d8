//! Operators in other processes: any program that takes a kubeconfig.
//!
//! A run starts the program as a child process against a fork of the stage, in real time. Its requests cross the ports
//! as those of an operator in this process do: [`endpoint`] receives them on the loopback interface.

mod activity;
mod child;
mod endpoint;
mod log;
mod services;

pub(crate) use activity::Activity;
pub(crate) use child::{Child, describe, is_crash};
pub(crate) use endpoint::Endpoint;
pub(crate) use log::Log;
pub(crate) use services::ServiceCaller;

use serde_json::Value;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time without writes after which an operator has settled.
const QUIET: Duration = Duration::from_secs(1);
/// Maximum time of an operator to settle, and to recover from faults.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Condition of a custom resource that an operator has settled.
pub(crate) type Ready = dyn Fn(&Value) -> bool + Send + Sync;

/// An operator as a program, in any language.
///
/// The program is started with the environment variable `KUBECONFIG`. The file is JSON, and names an API server without
/// TLS on the loopback interface. `POD_NAMESPACE` is the namespace of the operator; `PORT1` to `PORT4` are free ports
/// for metrics, health checks and webhooks, because several runs happen at the same time.
#[doc(alias = "Sieve")]
#[derive(Clone)]
#[must_use = "a command does nothing until an explorer runs it"]
pub struct OperatorCommand {
    pub(crate) name: String,
    pub(crate) program: Vec<OsString>,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) folder: PathBuf,
    pub(crate) manifests: Vec<Value>,
    pub(crate) quiet: Duration,
    pub(crate) timeout: Duration,
    pub(crate) ready: Option<Arc<Ready>>,
    /// Time from the start of the process to its first requests, as measured.
    pub(crate) startup: Duration,
}

impl fmt::Debug for OperatorCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorCommand").field("program", &self.program).finish_non_exhaustive()
    }
}

impl OperatorCommand {
    /// Creates the command of an operator: the program and its arguments.
    pub fn new(name: impl Into<String>, program: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            name: name.into(),
            program: program.into_iter().map(Into::into).collect(),
            variables: Vec::new(),
            directory: None,
            folder: std::env::temp_dir(),
            manifests: Vec::new(),
            quiet: QUIET,
            timeout: TIMEOUT,
            ready: None,
            startup: Duration::ZERO,
        }
    }

    /// Adds an environment variable.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory. Defaults to that of this process.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// Sets the folder for kubeconfigs, which only this user can access. Defaults to that for temporary files.
    pub fn folder(mut self, path: impl Into<PathBuf>) -> Self {
        self.folder = path.into();
        self
    }

    /// Adds the objects that install the operator, such as definitions and roles. Workloads are skipped.
    ///
    /// The operator acts as the first service account that a binding names. Without bindings, all roles are bound to
    /// its account; without roles, it is an administrator.
    pub fn manifests(mut self, objects: impl IntoIterator<Item = Value>) -> Self {
        self.manifests.extend(objects);
        self
    }

    /// Sets the time without writes after which the operator has settled. Defaults to a second.
    pub fn quiet(mut self, time: Duration) -> Self {
        self.quiet = time;
        self
    }

    /// Sets the maximum time of the operator to settle, and to recover from faults. Defaults to 30 seconds.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Sets a condition that custom resources of the scenario satisfy once the operator has settled.
    pub fn ready(mut self, condition: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        self.ready = Some(Arc::new(condition));
        self
    }
}
