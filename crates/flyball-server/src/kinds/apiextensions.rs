//! Kinds of `apiextensions.k8s.io`.

pub(crate) mod custom_resource_definition;

pub(crate) use custom_resource_definition::KIND as CUSTOM_RESOURCE_DEFINITION;

use crate::kinds::kind::Kind;

const GROUP: &str = "apiextensions.k8s.io";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&custom_resource_definition::KIND];
