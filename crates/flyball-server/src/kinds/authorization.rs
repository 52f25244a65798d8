//! Kinds of `authorization.k8s.io`.

mod local_subject_access_review;
mod self_subject_access_review;
mod self_subject_rules_review;
mod subject_access_review;

pub(crate) use subject_access_review::KIND as SUBJECT_ACCESS_REVIEW;

use crate::kinds::kind::Kind;

const GROUP: &str = "authorization.k8s.io";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[
    &local_subject_access_review::KIND,
    &self_subject_access_review::KIND,
    &self_subject_rules_review::KIND,
    &subject_access_review::KIND,
];
