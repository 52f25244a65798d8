//! Kinds of `batch`.

mod cron_job;
mod job;

use crate::kinds::kind::Kind;

const GROUP: &str = "batch";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&cron_job::KIND, &job::KIND];
