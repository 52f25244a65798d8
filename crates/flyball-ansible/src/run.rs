//! The built-in executor: runs plays, task by task, on the cluster of the operator.
//!
//! It does what `ansible-playbook` does for the one host `localhost`, with the modules that work on Kubernetes; see
//! <https://docs.ansible.com/ansible/latest/reference_appendices/playbooks_keywords.html>. Nothing outlives a run but what is in the
//! cluster, and nothing is read but that: so a run that was cut off is simply run again.

mod frame;
mod k8s;
mod modules;
mod objects;
mod tasks;
mod wait;

pub(crate) use k8s::merge;
pub(crate) use modules::MIN_REQUEUE;

use crate::playbook::{Kinds, Play, Playbook};
use crate::template::{Budget, Scope, Var, Vars};
use crate::variables::Names;
use crate::watches::Watch;
use flyball::Context;
use frame::Frame;
use kube::core::DynamicObject;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How many tasks one run may execute, items of loops included.
const MOST_TASKS: usize = 10_000;
/// How many characters of a message are kept.
const LONGEST_MESSAGE: usize = 4096;

/// What became of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) ok: u64,
    pub(crate) changed: u64,
    pub(crate) skipped: u64,
    pub(crate) failures: u64,
    /// Why it failed: what the failing task said.
    pub(crate) failure: Option<Failure>,
    /// When the object is to be looked at again, as a task asked for.
    pub(crate) requeue_after: Option<Duration>,
    /// What tasks want to stand in the status, besides the conditions of the operator.
    pub(crate) status: Map<String, Value>,
    /// Whether objects were written.
    pub(crate) wrote: bool,
}

/// Why a task failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    /// Which task, and in which file.
    pub(crate) task: String,
    /// What the API server had against it, if it was that.
    pub(crate) error: Option<flyball::Error>,
    /// Whether it is not tried again before something changes.
    pub(crate) is_refused: bool,
}

/// What a run is about.
pub(crate) struct Job<'r> {
    pub(crate) kinds: &'r Arc<Kinds>,
    pub(crate) object: &'r DynamicObject,
    /// What the object and `watches.yaml` give.
    pub(crate) extra: Arc<Vars>,
    pub(crate) cx: &'r Context<DynamicObject>,
    pub(crate) watch: &'r Watch,
    /// Which fields become variables.
    pub(crate) names: &'r Arc<Names>,
    /// Whom fields belong to that were patched.
    pub(crate) manager: &'r str,
}

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

/// A run under way.
struct Run<'r> {
    playbook: &'r Playbook,
    job: Job<'r>,
    outcome: Outcome,
    /// What tasks set and registered.
    facts: Vars,
    /// What was read by `include_vars`.
    included: Vars,
    /// Handlers that were asked for.
    notified: BTreeSet<String>,
    executed: usize,
    budget: Arc<Budget>,
}

/// Why the tasks that follow are not run.
enum Stop {
    /// The play is over, in order.
    Play,
    /// The role is.
    Role,
    Failed(Failure),
}

impl<'r> Run<'r> {
    async fn play(&mut self, play: &'r Play) -> Result<(), Stop> {
        let frame = Frame::of_play(play);
        let ended = self.tasks(&play.tasks, &frame).await;
        match ended {
            Ok(()) | Err(Stop::Play) => {
                let ended = ended.is_err();
                self.handlers(&frame).await?;
                if ended { Err(Stop::Play) } else { Ok(()) }
            }
            failed => failed,
        }
    }

    /// Makes the scope in which a task is evaluated; variables of a loop are the strongest.
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

/// Variables that there always are.
fn implied() -> Arc<Vars> {
    let names = [("inventory_hostname", "localhost"), ("ansible_connection", "local")];
    let var = |value: &str| Var::Data(Arc::new(value.into()));
    Arc::new(names.into_iter().map(|(name, value)| (name.to_owned(), var(value))).collect())
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(LONGEST_MESSAGE) {
            message.truncate(end);
            message.push('…');
        }
        Self { message, task: String::new(), error: None, is_refused: false }
    }

    /// A failure that no retry mends: the object or the role asks for what it may not, or for what there is not.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { is_refused: true, ..Self::new(message) }
    }

    fn of(error: flyball::Error) -> Self {
        Self { error: Some(error), ..Self::new(String::new()) }.told()
    }

    /// Takes the message from the error.
    fn told(self) -> Self {
        match &self.error {
            Some(error) => Self { message: Self::new(error.to_string()).message, ..self },
            None => self,
        }
    }
}
