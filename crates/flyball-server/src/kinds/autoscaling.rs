//! Kinds of `autoscaling`.

kinds! {
    mod horizontal_pod_autoscaler;
    mod horizontal_pod_autoscaler_v1;
}

const GROUP: &str = "autoscaling";
