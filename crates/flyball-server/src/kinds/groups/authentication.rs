//! Kinds of `authentication.k8s.io`.

use crate::kinds::kind::{Kind, Verbs};

const GROUP: &str = "authentication.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind::new(GROUP, "v1", "SelfSubjectReview", "selfsubjectreviews")
        .cluster()
        .verbs(Verbs::CreateOnly)
        .exempt_from_policies(),
    Kind::new(GROUP, "v1", "TokenReview", "tokenreviews").cluster().verbs(Verbs::CreateOnly).exempt_from_policies(),
];
