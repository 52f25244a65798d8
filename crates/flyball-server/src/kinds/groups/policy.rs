//! Kinds of `policy`.

use crate::kinds::kind::{Checks, Kind, Subresource as Sub};
use crate::kinds::{policy, printers};

const GROUP: &str = "policy";

pub(super) const KINDS: &[Kind] = &[Kind::new(GROUP, "v1", "PodDisruptionBudget", "poddisruptionbudgets")
    .printed(printers::workload::disruption_budget)
    .checks(Checks::Once)
    .validate(policy::disruption_budget)
    .short(&["pdb"])
    .generation()
    .versioned_updates()
    .subresources(&[Sub::STATUS])];
