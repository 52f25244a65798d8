//! The built-in executor: runs plays, task by task, against the cluster of the operator.
//!
//! It behaves like `ansible-playbook` for the single host `localhost`, with the modules for Kubernetes; see
//! <https://docs.ansible.com/ansible/latest/reference_appendices/playbooks_keywords.html>. All state is in the
//! cluster, so a canceled run is simply repeated.

mod frame;
mod http;
mod k8s;
mod lookups;
mod loops;
mod magic;
mod modules;
mod objects;
mod tasks;
mod uri;
mod wait;

pub(crate) use k8s::merge;

use crate::job::{Job, Outcome, TaskError};
use crate::memory::FactCharges;
use crate::playbook::{Play, Playbook};
use crate::shares::{Share, Shares};
use crate::template::{Budget, Scope, Sources, Var, Vars};
use crate::value::Value;
use crate::value::memory;
use flyball::MemoryBudget;
use frame::Frame;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Limit of executed tasks per run, including items of loops.
const MAX_TASKS: usize = 10_000;

/// Memory limit of all facts and registered results of a run.
const MAX_FACT_BYTES: usize = 64 << 20;

/// Runs a role or a playbook for an object.
///
/// A run that waits takes one of the shares. Facts are charged to the memory budget.
pub(crate) async fn run<'r>(
    playbook: &'r Playbook,
    shares: &'r Shares,
    memory: &MemoryBudget,
    job: Job<'r>,
) -> Outcome {
    let sources = Sources::new(job.watch.is_deterministic.then(|| job.cx.rng().clone()));
    let budget = Arc::new(Budget::new(job.watch.pass_environment.clone(), sources));
    let mut run = Run {
        playbook,
        job,
        outcome: Outcome::default(),
        facts: Arc::default(),
        included: Arc::default(),
        notified: BTreeSet::new(),
        failed: None,
        executed: 0,
        budget,
        size_of_facts: 0,
        fact_charges: FactCharges::of(memory),
        shares,
        share: None,
    };
    for play in &playbook.plays {
        match run.play(play).await {
            Ok(()) | Err(Stop::Play | Stop::Role) => {}
            Err(Stop::Deferred) => {
                run.outcome.is_deferred = true;
                break;
            }
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
    facts: Arc<Vars>,
    /// Variables from `include_vars`.
    included: Arc<Vars>,
    /// Notified handlers.
    notified: BTreeSet<String>,
    /// The task that failed last, and its result, for rescue tasks.
    failed: Option<(Value, Value)>,
    executed: usize,
    budget: Arc<Budget>,
    /// Bytes of the facts.
    size_of_facts: usize,
    fact_charges: FactCharges,
    shares: &'r Shares,
    /// The share of a run that has waited.
    share: Option<Share>,
}

/// Reason for skipping the following tasks.
enum Stop {
    /// The play ended early.
    Play,
    /// The role ended early.
    Role,
    /// The run cannot wait now, see [`Shares`], or there is no memory for its facts.
    Deferred,
    Failed(TaskError),
}

impl<'r> Run<'r> {
    async fn play(&mut self, play: &'r Play) -> Result<(), Stop> {
        let frame = Frame::of_play(self.playbook, play);
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
        let mut layers = vec![Arc::new(looped.clone()), frame.magic.clone(), self.job.extra.clone()];
        layers.extend(frame.params.iter().rev().cloned());
        layers.extend([self.facts.clone(), self.included.clone(), task.clone()]);
        layers.extend(frame.vars.iter().rev().cloned());
        layers.extend(frame.role_vars.vars.iter().chain(&frame.play_vars.vars).cloned());
        layers.push(frame.play.vars.clone());
        layers.extend(frame.role_vars.defaults.iter().chain(&frame.play_vars.defaults).cloned());
        layers.push(default_vars(self.job.verbosity));
        let files = frame.role.iter().map(|role| role.files.clone()).chain([frame.play.files.clone()]).collect();
        let mut host = vec![frame.magic.clone(), self.job.extra.clone(), self.facts.clone(), self.included.clone()];
        host.push(default_vars(self.job.verbosity));
        Scope::of_task(self.budget.clone(), layers, files, host)
    }

    /// Sets a fact.
    fn set_fact(&mut self, name: &str, value: Value) -> Result<(), Stop> {
        self.size_of_facts += memory::ITEM + memory::of(&value);
        if let Some(Var::Data(before) | Var::Template(before)) =
            Arc::make_mut(&mut self.facts).insert(name.to_owned(), Var::Data(Arc::new(value)))
        {
            self.size_of_facts = self.size_of_facts.saturating_sub(memory::ITEM + memory::of(&before));
        }
        if self.size_of_facts > MAX_FACT_BYTES {
            return Err(Stop::Failed(TaskError::new(format!(
                "the facts and registered results of the run exceed {MAX_FACT_BYTES} bytes of memory, with {name}"
            ))));
        }
        if self.fact_charges.cover(self.job.cx.key().namespace(), self.size_of_facts) {
            return Ok(());
        }
        match self.has_changed() || !self.fact_charges.may_fit(self.size_of_facts) {
            true => Err(Stop::Failed(TaskError::new(format!(
                "the facts and registered results of the run do not fit into the memory of the operator, with {name}"
            )))),
            false => Err(Stop::Deferred),
        }
    }

    /// Waits, if there is a share of the workers for it.
    async fn pause(&mut self, time: Duration) -> Result<(), Stop> {
        if !time.is_zero() {
            if !self.has_share().await {
                return Err(Stop::Deferred);
            }
            tokio::time::sleep(time).await;
        }
        Ok(())
    }

    /// Takes a share of the workers, and returns true if the run has one.
    ///
    /// Without one, a run that has changed something waits for a share: a repeated run would find these changes made,
    /// and neither report them nor notify their handlers.
    async fn has_share(&mut self) -> bool {
        if self.share.is_none() {
            let namespace = self.job.cx.key().namespace();
            self.share = match self.shares.acquire(namespace) {
                None if self.has_changed() => Some(self.shares.acquire_when_released(namespace).await),
                share => share,
            };
        }
        self.share.is_some()
    }

    fn has_changed(&self) -> bool {
        self.outcome.wrote || self.outcome.changed > 0 || !self.notified.is_empty()
    }
}

/// Variables that always exist.
fn default_vars(verbosity: u8) -> Arc<Vars> {
    let names: [(&str, Value); 2] = [("ansible_connection", "local".into()), ("ansible_verbosity", verbosity.into())];
    Arc::new(names.into_iter().map(|(name, value)| (name.to_owned(), Var::Data(Arc::new(value)))).collect())
}
