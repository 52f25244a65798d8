//! Kinds of `flowcontrol.apiserver.k8s.io`.

use crate::kinds::kind::{Checks, Kind, Subresource as Sub};
use crate::kinds::{flow, printers};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind::new(GROUP, "v1", "FlowSchema", "flowschemas")
        .printed(printers::flow::schema)
        .default(flow::default_schema)
        .checks(Checks::Whole)
        .validate(flow::schema)
        .cluster()
        .generation()
        .subresources(&[Sub::STATUS]),
    Kind::new(GROUP, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations")
        .printed(printers::flow::level)
        .default(flow::default_level)
        .checks(Checks::Whole)
        .validate(flow::level)
        .cluster()
        .generation()
        .subresources(&[Sub::STATUS]),
];
