//! Hosts inside of the cluster, whose content is determined by the users of a namespace.
//!
//! See <https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/> for the names.

/// Labels that follow the namespace in the names of Services and pods.
const RECORDS: [&str; 2] = ["svc", "pod"];

/// The namespace in the name of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostNamespace {
    /// The host is in this namespace.
    Certain(String),
    /// The host is in this namespace if it exists: resolvers in pods try the domain of the cluster first.
    IfExists(String),
}

/// Returns the namespace of a host with or without a port; none for addresses, for names of other domains, and for
/// names without a dot, which are in the namespace of the manager.
pub(super) fn host_namespace(address: &str) -> Option<HostNamespace> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.strip_suffix('.').unwrap_or(host).to_lowercase();
    if host.parse::<std::net::Ipv4Addr>().is_ok() || host.contains([':', '[']) {
        return None;
    }
    let labels: Vec<&str> = host.split('.').collect();
    // The last one: Services and namespaces can have these names.
    let record = labels.iter().rposition(|label| RECORDS.contains(label)).filter(|at| *at >= 2);
    match (record, &labels[..]) {
        (Some(at), _) => Some(HostNamespace::Certain(labels[at - 1].to_owned())),
        (None, [_, .., last]) => Some(HostNamespace::IfExists((*last).to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_services_and_pods_contain_their_namespace() {
        let certain = |name: &str| Some(HostNamespace::Certain(name.to_owned()));
        let if_exists = |name: &str| Some(HostNamespace::IfExists(name.to_owned()));
        for (address, expected) in [
            ("catalog.demo.svc:50051", certain("demo")),
            ("catalog.demo.svc.cluster.local:50051", certain("demo")),
            ("Catalog.Demo.SVC.cluster.local.:50051", certain("demo")),
            ("pod-0.catalog.demo.svc", certain("demo")),
            ("10-0-0-1.demo.pod.cluster.local:50051", certain("demo")),
            ("catalog.demo:50051", if_exists("demo")),
            ("pod-0.catalog.demo:50051", if_exists("demo")),
            ("quay.io:443", if_exists("io")),
            ("svc.example.com", if_exists("com")),
            ("svc.demo.svc.cluster.local", certain("demo")),
            ("catalog.pod.svc.cluster.local:50051", certain("pod")),
            ("catalog:50051", None),
            ("localhost", None),
            ("127.0.0.1:50051", None),
            ("[::1]:50051", None),
            ("<catalog-address>", None),
            ("", None),
        ] {
            assert_eq!(host_namespace(address), expected, "{address}");
        }
    }
}
