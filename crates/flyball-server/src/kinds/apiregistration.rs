//! Kinds of `apiregistration.k8s.io`.

mod api_service;

use crate::kinds::kind::Kind;

const GROUP: &str = "apiregistration.k8s.io";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&api_service::KIND];
