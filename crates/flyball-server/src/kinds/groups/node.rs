//! Kinds of `node.k8s.io`.

use crate::kinds::kind::{Checks, Kind};
use crate::kinds::{policy, printers};

const GROUP: &str = "node.k8s.io";

pub(super) const KINDS: &[Kind] = &[Kind::new(GROUP, "v1", "RuntimeClass", "runtimeclasses")
    .printed(printers::configuration::runtime_class)
    .validate(policy::runtime_class)
    .checks(Checks::Whole)
    .cluster()
    .create_on_update()
    .versioned_updates()];
