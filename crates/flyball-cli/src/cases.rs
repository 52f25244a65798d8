//! Test cases in the format of [KUTTL](https://kuttl.dev/docs/): folders of manifests that are applied step by step, and
//! of the objects that are expected afterwards.
//!
//! [`format`] reads them, [`matching`] compares objects, and [`play`] runs them with an operator on a control plane.

mod format;
mod matching;
mod play;

pub(crate) use format::{FOLDER, Suite};
pub(crate) use play::{CaseResult, SuiteResult, play};
