//! Kinds of `events.k8s.io`.

kinds! {
    mod event;
}

const GROUP: &str = "events.k8s.io";
