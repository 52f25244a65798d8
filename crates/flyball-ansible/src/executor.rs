//! The executors of roles and playbooks.

use crate::ansible::AnsiblePlaybook;
use crate::job::{Job, Outcome};
use crate::memory;
use crate::offload::Slots;
use crate::playbook::Playbook;
use crate::run;
use crate::shares::Shares;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::sync::Arc;

/// Runs a role or a playbook for an object.
pub(crate) trait Execute: Send + Sync {
    /// Runs it once, and returns the outcome. A run leaves no state except in the cluster.
    fn execute<'r>(&'r self, job: Job<'r>) -> BoxFuture<'r, Outcome>;

    /// Returns the estimated memory of an object in a run, in bytes.
    fn memory(&self, object: &Value) -> usize;

    /// Returns true if each run takes the memory of a process.
    fn starts_processes(&self) -> bool;
}

/// The built-in executor.
pub(crate) struct BuiltIn {
    pub(crate) playbook: Arc<Playbook>,
    /// Threads that poll runs; without them, runs are polled by the caller.
    pub(crate) slots: Option<Slots>,
    /// Workers for runs that wait.
    pub(crate) shares: Shares,
}

impl Execute for BuiltIn {
    fn execute<'r>(&'r self, job: Job<'r>) -> BoxFuture<'r, Outcome> {
        let Some(slots) = &self.slots else { return run::run(&self.playbook, &self.shares, job).boxed() };
        let (playbook, shares) = (self.playbook.clone(), self.shares.clone());
        let (kinds, object, extra, cx) = (job.kinds.clone(), job.object.clone(), job.extra, job.cx.clone());
        let (watch, names, manager) = (job.watch.clone(), job.names.clone(), job.manager.to_owned());
        let verbosity = job.verbosity;
        let run = async move {
            let (kinds, object, cx, watch, names, manager) = (&kinds, &object, &cx, &watch, &names, &*manager);
            run::run(&playbook, &shares, Job { kinds, object, extra, cx, watch, names, manager, verbosity }).await
        };
        slots.run(run.boxed()).boxed()
    }

    fn memory(&self, object: &Value) -> usize {
        memory::of_built_in(object)
    }

    fn starts_processes(&self) -> bool {
        false
    }
}

impl Execute for AnsiblePlaybook {
    fn execute<'r>(&'r self, job: Job<'r>) -> BoxFuture<'r, Outcome> {
        self.run(job).boxed()
    }

    fn memory(&self, object: &Value) -> usize {
        memory::of_ansible_playbook(object)
    }

    fn starts_processes(&self) -> bool {
        true
    }
}
