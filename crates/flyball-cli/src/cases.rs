//! Test cases in the format of [KUTTL](https://kuttl.dev/docs/): directories of manifests that are applied step by step, and
//! of the objects that are expected afterwards.
//!
//! [`format`] reads them, [`matching`] compares objects, and [`run`](mod@run) runs them with an operator on a control
//! plane.

mod format;
mod matching;
mod reports;
mod run;

pub(crate) use format::{DIRECTORY, Suite};
pub(crate) use run::{CaseResult, UsedPermissions, run};
