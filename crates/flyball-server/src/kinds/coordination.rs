//! Kinds of `coordination.k8s.io`.

kinds! {
    mod lease;
}

const GROUP: &str = "coordination.k8s.io";
