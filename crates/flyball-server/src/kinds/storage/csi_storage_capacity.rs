//! CSI storage capacities.

use super::GROUP;
use crate::kinds::kind::Kind;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "CSIStorageCapacity", "csistoragecapacities").versioned_updates();
