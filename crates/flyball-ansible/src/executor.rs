//! The executors of roles and playbooks.

use crate::ansible::{AnsiblePlaybook, Start};
use crate::job::{Job, Outcome, TaskError};
use crate::memory;
use crate::offload::Slots;
use crate::playbook::Playbook;
use crate::run;
use crate::shares::Shares;
use flyball::MemoryBudget;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Runs a role or a playbook for an object.
pub(crate) trait Execute: Send + Sync {
    /// Runs it once, and returns the outcome. A run leaves no state except in the cluster.
    fn execute<'r>(&'r self, job: Job<'r>) -> BoxFuture<'r, Outcome>;

    /// Returns the estimated memory of a run for an object with this JSON, in bytes.
    fn memory(&self, json: &str) -> usize;
}

/// The built-in executor.
pub(crate) struct BuiltIn {
    pub(crate) playbook: Arc<Playbook>,
    /// Threads that poll runs; without them, runs are polled by the caller.
    pub(crate) slots: Option<Slots>,
    /// Workers for runs that wait.
    pub(crate) shares: Shares,
    /// The memory of all runs.
    pub(crate) memory: MemoryBudget,
}

impl Execute for BuiltIn {
    fn execute<'r>(&'r self, job: Job<'r>) -> BoxFuture<'r, Outcome> {
        let Some(slots) = &self.slots else {
            return run::run(&self.playbook, &self.shares, &self.memory, job).boxed();
        };
        let (playbook, shares, memory) = (self.playbook.clone(), self.shares.clone(), self.memory.clone());
        let (kinds, object, extra, cx) = (job.kinds.clone(), job.cx.object().clone(), job.extra, job.cx.clone());
        let (watch, names, manager) = (job.watch.clone(), job.names.clone(), job.manager.to_owned());
        let (verbosity, role_metrics) = (job.verbosity, job.role_metrics.clone());
        let run = async move {
            let (kinds, object, cx, watch, names, manager) = (&kinds, &object, &cx, &watch, &names, &*manager);
            let role_metrics = &role_metrics;
            let job = Job { kinds, object, extra, cx, watch, names, manager, verbosity, role_metrics };
            run::run(&playbook, &shares, &memory, job).await
        };
        slots.run(run.boxed()).boxed()
    }

    fn memory(&self, json: &str) -> usize {
        memory::of_built_in(json)
    }
}

/// Fails each run for a reason that only a change of the project removes.
pub(crate) struct Refused {
    pub(crate) reason: String,
}

impl Execute for Refused {
    fn execute<'r>(&'r self, _: Job<'r>) -> BoxFuture<'r, Outcome> {
        let failure =
            TaskError { task: "of the entry in watches.yaml".to_owned(), ..TaskError::rejected(&*self.reason) };
        async move { Outcome { failures: 1, failure: Some(failure), ..Outcome::default() } }.boxed()
    }

    fn memory(&self, json: &str) -> usize {
        memory::of_built_in(json)
    }
}

impl Execute for AnsiblePlaybook {
    fn execute<'r>(&'r self, job: Job<'r>) -> BoxFuture<'r, Outcome> {
        self.run(job).boxed()
    }

    fn memory(&self, json: &str) -> usize {
        let process = match self.start {
            Start::Process => memory::PROCESS_BYTES,
            Start::Worker(_) | Start::WorkerOrProcess(_) => memory::FORK_BYTES,
        };
        process + memory::of_ansible_playbook(json)
    }
}
