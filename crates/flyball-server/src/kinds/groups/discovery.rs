//! Kinds of `discovery.k8s.io`.

use crate::kinds::kind::Kind;
use crate::kinds::{defaults, network, printers};

const GROUP: &str = "discovery.k8s.io";

pub(super) const KINDS: &[Kind] = &[Kind::new(GROUP, "v1", "EndpointSlice", "endpointslices")
    .printed(printers::network::endpoint_slice)
    .default(defaults::endpoint_slice)
    .warn(network::warn_of_slice)
    .validate(network::endpoint_slice)
    .generation()];
