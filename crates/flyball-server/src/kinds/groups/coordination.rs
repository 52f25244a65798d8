//! Kinds of `coordination.k8s.io`.

use crate::kinds::kind::Kind;
use crate::kinds::{policy, printers};

const GROUP: &str = "coordination.k8s.io";

pub(super) const KINDS: &[Kind] = &[Kind::new(GROUP, "v1", "Lease", "leases")
    .printed(printers::configuration::lease)
    .prepare(policy::prepare_lease)
    .validate(policy::lease)
    .create_on_update()
    .versioned_updates()];
