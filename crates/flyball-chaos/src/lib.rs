//! Fault injection against an operator in any cluster.
//!
//! An [`Experiment`] is data: a fault, the expected reaction, limits of time. A [plan](fn@plan) derives the changes
//! from the objects of the operator; a [`Run`] records them in a [`Journal`], makes them, observes the operator, undoes
//! them, and returns a [`Report`] with the result of each experiment, a [`Verdict`].
//!
//! # Guarantees
//!
//! - Only the operator, its custom resources in named namespaces and their children change. Objects of the whole
//!   cluster that an experiment creates have a condition on the service account of the operator.
//! - A change is in the state file before it is made. It is undone at the end of an experiment, after an error, a panic
//!   or a signal, and by [`undo`] after the death of the process.
//! - An undo restores a field only if it still has the injected value; the API server compares and changes in one step.
//! - Contents of Secrets are not read, except by the fault `SecretDeletion`, whose state file is private.

mod text;

mod error;

mod edit;

mod experiment;

mod api;

mod change;

mod network;

mod operator;

mod guard;

mod plan;

mod journal;

mod inject;

mod steady;

mod verdict;

mod report;

mod repair;

mod suite;

mod upgrade;

mod process;

mod proxy;

mod run;

pub use api::{Cluster, Reference};
pub use change::{
    Change, EXPERIMENT_ANNOTATION, FINALIZER, PROTECTED_ANNOTATION, Progress, RUN_LABEL, UNDO_ANNOTATION,
};
pub use edit::{Edit, EditError};
pub use error::{Error, Result};
pub use experiment::{API_VERSION, Check, Expectation, Experiment, Fault, KIND, ObjectName, Risk, Spec, WebhookAction};
pub use guard::{check_cluster, protect};
pub use inject::undo;
pub use journal::{Entry, Journal, State};
pub use network::{Network, NetworkFault};
pub use operator::{Operator, Selection};
pub use plan::{Plan, ProcessFault, plan};
pub use process::Process;
pub use proxy::Proxy;
pub use report::{Outcome, Report};
pub use run::{Event, Limits, Run};
pub use steady::Difference;
pub use suite::suite;
pub use upgrade::{Upgrade, upgrade};
pub use verdict::Verdict;
