//! Kinds of `autoscaling`.

use crate::kinds::kind::{Kind, Subresource as Sub};
use crate::kinds::{defaults, printers, scaling, scaling_v1};

const GROUP: &str = "autoscaling";

pub(super) const KINDS: &[Kind] = &[
    Kind::new(GROUP, "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
        .printed(printers::scaling::autoscaler)
        .default(defaults::autoscaler)
        .validate(scaling::validate)
        .short(&["hpa"])
        .category("all")
        .subresources(&[Sub::STATUS]),
    Kind::new(GROUP, "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
        .printed(printers::scaling::first_version)
        .default(scaling_v1::default)
        .validate(scaling::validate_v1)
        .short(&["hpa"])
        .category("all")
        .subresources(&[Sub::STATUS])
        .stored_as("autoscaling", scaling_v1::to_v2, scaling_v1::from_v2),
];
