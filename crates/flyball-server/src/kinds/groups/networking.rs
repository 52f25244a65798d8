//! Kinds of `networking.k8s.io`.

use crate::kinds::kind::{Checks, Kind, Subresource as Sub};
use crate::kinds::{defaults, network, printers};

const GROUP: &str = "networking.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind::new(GROUP, "v1", "IngressClass", "ingressclasses")
        .printed(printers::network::ingress_class)
        .default(defaults::ingress_class)
        .checks(Checks::Whole)
        .validate(network::ingress_class)
        .cluster()
        .generation(),
    Kind::new(GROUP, "v1", "Ingress", "ingresses")
        .registry_path("ingress")
        .printed(printers::network::ingress)
        .checks(Checks::Whole)
        .warn(network::warn_of_ingress)
        .validate(network::ingress)
        .short(&["ing"])
        .generation()
        .subresources(&[Sub::STATUS]),
    Kind::new(GROUP, "v1", "IPAddress", "ipaddresses").printed(printers::network::ip_address).short(&["ip"]).cluster(),
    Kind::new(GROUP, "v1", "NetworkPolicy", "networkpolicies")
        .printed(printers::network::network_policy)
        .default(defaults::network_policy)
        .warn(network::warn_of_policy)
        .validate(network::network_policy)
        .short(&["netpol"])
        .generation(),
    Kind::new(GROUP, "v1", "ServiceCIDR", "servicecidrs")
        .printed(printers::network::service_cidr)
        .cluster()
        .subresources(&[Sub::STATUS]),
];
