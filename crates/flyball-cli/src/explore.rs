//! Inputs of explorations: conditions of resources, scenarios in YAML, kept schedules, and programs.

pub(crate) mod condition;
pub(crate) mod kept;
pub(crate) mod program;
pub(crate) mod scenario;
