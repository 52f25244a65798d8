//! Kinds of `authorization.k8s.io`.

use crate::kinds::kind::{Kind, Verbs};

const GROUP: &str = "authorization.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind::new(GROUP, "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews")
        .verbs(Verbs::CreateOnly)
        .exempt_from_policies(),
    Kind::new(GROUP, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")
        .cluster()
        .verbs(Verbs::CreateOnly)
        .exempt_from_policies(),
    Kind::new(GROUP, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews")
        .cluster()
        .verbs(Verbs::CreateOnly)
        .exempt_from_policies(),
    Kind::new(GROUP, "v1", "SubjectAccessReview", "subjectaccessreviews")
        .cluster()
        .verbs(Verbs::CreateOnly)
        .exempt_from_policies(),
];
