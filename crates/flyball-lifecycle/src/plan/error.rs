//! The reason why a plan cannot be executed.

use super::actor::message_of;
use crate::api::{Step, StepStatus};
use std::fmt;

/// A plan that cannot be executed.
#[derive(Debug)]
pub(super) struct ExecutionError {
    pub(super) message: String,
    /// The states of the steps.
    pub(super) statuses: Vec<StepStatus>,
}

impl ExecutionError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), statuses: Vec::new() }
    }

    pub(super) fn of(error: &impl fmt::Display, statuses: &[StepStatus]) -> Self {
        Self { message: error.to_string(), statuses: statuses.to_vec() }
    }

    pub(super) fn at_step(step: &Step, error: &kube::Error) -> Self {
        Self::new(format!("{} {}: {}", step.resource.kind, step.resource.name, message_of(error)))
    }
}
