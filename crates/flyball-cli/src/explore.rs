//! Inputs of explorations: conditions of resources, scenarios in YAML, and kept schedules.

pub(crate) mod condition;
pub(crate) mod kept;
pub(crate) mod scenario;
