//! Kinds of `scheduling.k8s.io`.

use crate::kinds::kind::Kind;
use crate::kinds::{defaults, policy, printers};

const GROUP: &str = "scheduling.k8s.io";

pub(super) const KINDS: &[Kind] = &[Kind::new(GROUP, "v1", "PriorityClass", "priorityclasses")
    .printed(printers::configuration::priority_class)
    .default(defaults::priority_class)
    .prepare(policy::prepare_priority_class)
    .validate(policy::priority_class)
    .short(&["pc"])
    .cluster()];
