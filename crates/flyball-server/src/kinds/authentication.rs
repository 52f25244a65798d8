//! Kinds of `authentication.k8s.io`.

kinds! {
    mod self_subject_review;
    mod token_review;
}

const GROUP: &str = "authentication.k8s.io";
