//! The built-in executor: runs plays, task by task, against the cluster of the operator.
//!
//! It behaves like `ansible-playbook` for the single host `localhost`, with the modules for Kubernetes; see
//! <https://docs.ansible.com/ansible/latest/reference_appendices/playbooks_keywords.html>. All state is in the
//! cluster, so a canceled run is simply repeated.

mod frame;
mod k8s;
mod modules;
mod objects;
mod tasks;
mod wait;

pub(crate) use k8s::merge;

use crate::job::{Job, Outcome, TaskError};
use crate::playbook::{Play, Playbook};
use crate::template::{Budget, Scope, Var, Vars};
use frame::Frame;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Limit of executed tasks per run, including items of loops.
const MAX_TASKS: usize = 10_000;

/// Runs a role or a playbook for an object.
pub(crate) async fn run<'r>(playbook: &'r Playbook, job: Job<'r>) -> Outcome {
    let budget = Arc::new(Budget::new(job.watch.pass_environment.clone()));
    let mut run = Run {
        playbook,
        job,
        outcome: Outcome::default(),
        facts: Vars::new(),
        included: Vars::new(),
        notified: BTreeSet::new(),
        executed: 0,
        budget,
    };
    for play in &playbook.plays {
        match run.play(play).await {
            Ok(()) | Err(Stop::Play | Stop::Role) => {}
            Err(Stop::Failed(failure)) => {
                run.outcome.failures += 1;
                run.outcome.failure = Some(failure);
                break;
            }
        }
    }
    run.outcome
}

/// A run in progress.
struct Run<'r> {
    playbook: &'r Playbook,
    job: Job<'r>,
    outcome: Outcome,
    /// Facts that tasks set and registered.
    facts: Vars,
    /// Variables from `include_vars`.
    included: Vars,
    /// Notified handlers.
    notified: BTreeSet<String>,
    executed: usize,
    budget: Arc<Budget>,
}

/// Reason for skipping the following tasks.
enum Stop {
    /// The play ended early.
    Play,
    /// The role ended early.
    Role,
    Failed(TaskError),
}

impl<'r> Run<'r> {
    async fn play(&mut self, play: &'r Play) -> Result<(), Stop> {
        let frame = Frame::of_play(play);
        let result = self.tasks(&play.tasks, &frame).await;
        match result {
            Ok(()) | Err(Stop::Play) => {
                let is_ended = result.is_err();
                self.handlers(&frame).await?;
                if is_ended { Err(Stop::Play) } else { Ok(()) }
            }
            failed => failed,
        }
    }

    /// Creates the scope of a task; loop variables take precedence.
    fn scope(&self, frame: &Frame<'_>, task: &Arc<Vars>, looped: &Vars) -> Arc<Scope> {
        let mut layers = vec![Arc::new(looped.clone()), self.job.extra.clone()];
        layers.extend(frame.params.iter().rev().cloned());
        layers.extend([Arc::new(self.facts.clone()), Arc::new(self.included.clone()), task.clone()]);
        layers.extend(frame.vars.iter().rev().cloned());
        layers.extend(frame.role.iter().map(|role| role.vars.clone()));
        layers.push(frame.play.vars.clone());
        layers.extend(frame.role.iter().map(|role| role.defaults.clone()));
        layers.push(implied());
        let files = frame.role.iter().map(|role| role.files.clone()).chain([frame.play.files.clone()]).collect();
        Scope::within(self.budget.clone(), layers, files)
    }

    fn remember(&mut self, name: &str, value: Value) {
        self.facts.insert(name.to_owned(), Var::Data(Arc::new(value)));
    }
}

/// Variables that always exist.
fn implied() -> Arc<Vars> {
    let names = [("inventory_hostname", "localhost"), ("ansible_connection", "local")];
    let var = |value: &str| Var::Data(Arc::new(value.into()));
    Arc::new(names.into_iter().map(|(name, value)| (name.to_owned(), var(value))).collect())
}
