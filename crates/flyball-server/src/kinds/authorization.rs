//! Kinds of `authorization.k8s.io`.

kinds! {
    mod local_subject_access_review;
    mod self_subject_access_review;
    mod self_subject_rules_review;
    mod subject_access_review;
}

const GROUP: &str = "authorization.k8s.io";
