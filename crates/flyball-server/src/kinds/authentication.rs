//! Kinds of `authentication.k8s.io`.

mod self_subject_review;
mod token_review;

use crate::kinds::kind::Kind;

const GROUP: &str = "authentication.k8s.io";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&self_subject_review::KIND, &token_review::KIND];
