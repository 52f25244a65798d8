//! Services of the cluster that roles may call with the module `uri`, as `allowServices` in `watches.yaml` lists them.
//!
//! The operator reaches more addresses than its users, so only in-cluster names of listed services are permitted, and
//! users choose services only in their own namespace. Such a service may have any target, see
//! [`is_forbidden`]: those that only processes on the operator's own node should reach are rejected.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Stands for all services in the namespace of the custom resource.
const ANY: &str = "*";

/// Addresses of metadata services that are not link-local: Azure, Alibaba, Oracle, AWS, Google.
const METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// The services of an entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Services {
    /// Names in the namespace of the custom resource.
    own: BTreeSet<String>,
    /// Names and namespaces.
    elsewhere: BTreeSet<(String, String)>,
    pub(crate) resolver: Option<Resolver>,
}

type Resolve = dyn Fn(&str) -> Option<SocketAddr> + Send + Sync;

/// Maps the host of a service to its address, instead of DNS.
#[derive(Clone)]
pub(crate) struct Resolver(pub(crate) Arc<Resolve>);

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl Services {
    /// Parses names such as `api`, `api.monitoring` and `*`.
    pub(crate) fn parse(names: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut services = Self::default();
        for name in names {
            match name.split_once('.') {
                None if name == ANY || is_label(&name) => drop(services.own.insert(name)),
                Some((service, namespace)) if is_label(service) && is_label(namespace) => {
                    services.elsewhere.insert((service.to_owned(), namespace.to_owned()));
                }
                _ => {
                    return Err(format!(
                        "invalid service {name:?}: use a name such as api, a name and a namespace such as \
                         api.monitoring, or \"*\" for all services in the namespace of the custom resource"
                    ));
                }
            }
        }
        Ok(services)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.elsewhere.is_empty()
    }

    /// Rejects a host that is not a listed service.
    ///
    /// A service in another namespace also has to be literal in the task.
    pub(crate) fn check(&self, host: &str, literal: Option<&str>, is_own: impl Fn(&str) -> bool) -> Result<(), String> {
        let inner = host.strip_suffix(".cluster.local").unwrap_or(host).strip_suffix(".svc");
        let name = inner.and_then(|inner| inner.split_once('.'));
        let Some((service, namespace)) = name.filter(|(service, namespace)| is_label(service) && is_label(namespace))
        else {
            return Err(format!(
                "url: the host {host:?} is not a service: use a name such as \
                 api.{{{{ ansible_operator_meta.namespace }}}}.svc, or run the role with ansible-playbook"
            ));
        };
        let is_listed_elsewhere = self.elsewhere.contains(&(service.to_owned(), namespace.to_owned()));
        let is_listed = self.own.contains(service) || self.own.contains(ANY);
        match (is_own(namespace) && is_listed, is_listed_elsewhere) {
            (true, _) => Ok(()),
            (false, true) if literal == Some(host) => Ok(()),
            (false, true) => Err(format!("url: the host {host} must be literal in the task")),
            (false, false) => Err(format!(
                "url: service {service} in namespace {namespace} is not listed: add it to allowServices in watches.yaml"
            )),
        }
    }
}

/// Returns the host of a URL, if no template is a part of it.
pub(crate) fn literal_host(url: &str) -> Option<&str> {
    let (scheme, rest) = url.trim_start().split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    (!scheme.contains('{') && host.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.')).then_some(host)
}

/// Returns true for addresses that a service must not have as target: those of this machine, and those where clouds
/// serve the credentials of nodes.
pub(crate) fn is_forbidden(address: IpAddr) -> bool {
    let address = match address.to_canonical() {
        // NAT64 translates these.
        IpAddr::V6(six) if six.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
            let [.., a, b, c, d] = six.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        address => address,
    };
    let is_special = match address {
        IpAddr::V4(four) => four.is_link_local() || four.is_broadcast() || four.octets()[0] == 0,
        IpAddr::V6(six) => six.is_unicast_link_local() || six.segments()[..6] == [0; 6],
    };
    is_special
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || METADATA.contains(&address)
}

/// Returns true for a DNS label, as names of namespaces and services are.
fn is_label(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len()) && text.chars().all(is_letter) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services(names: &[&str]) -> Services {
        Services::parse(names.iter().map(|name| (*name).to_owned())).unwrap()
    }

    #[test]
    fn only_listed_services_are_permitted() {
        let check = |names: &[&str], url: &str, evaluated: &str| {
            services(names).check(evaluated, literal_host(url), |namespace| namespace == "b").is_ok()
        };
        for host in ["api.b.svc", "api.b.svc.cluster.local"] {
            assert!(check(&["api"], "http://{{ x }}/", host) && check(&["*"], "http://{{ x }}/", host));
            assert!(!check(&[], &format!("http://{host}/"), host) && !check(&["web"], "http://{{ x }}/", host));
        }
        let elsewhere = "http://api.shared.svc:80/{{ path }}";
        assert!(check(&["api.shared"], elsewhere, "api.shared.svc"));
        assert!(!check(&["api.shared"], "http://{{ x }}.svc", "api.shared.svc"), "not literal");
        assert!(!check(&["api.shared"], elsewhere, "web.shared.svc"), "another host than the literal one");
        assert!(!check(&["api", "*"], elsewhere, "api.shared.svc"), "another namespace");
        for host in [
            "api",
            "api.b",
            "api.b.svc.example.com",
            "api.b.svc.",
            "a.api.b.svc",
            "API.b.svc",
            "169.254.169.254",
            "localhost",
            "[::1]",
            "",
            ".svc",
            "..svc",
            "api..svc",
            "svc",
            "example.com",
        ] {
            assert!(!check(&["*", "api", "api.b"], &format!("http://{host}/"), host), "{host}");
        }
    }

    #[test]
    fn host_is_literal_without_templates_in_it() {
        for (url, host) in [
            ("http://api.b.svc/{{ x }}", Some("api.b.svc")),
            ("https://api.b.svc:{{ port }}/", Some("api.b.svc")),
            ("http://api.b.svc?x={{ x }}", Some("api.b.svc")),
            ("http://api.b.svc{{ x }}/", None),
            ("http://{{ x }}.b.svc/", None),
            ("{{ x }}://api.b.svc/", None),
            ("{{ x }}", None),
            ("http://user@api.b.svc/", None),
            ("http://x:y@api.b.svc/", Some("x")),
        ] {
            assert_eq!(literal_host(url), host, "{url}");
        }
    }

    #[test]
    fn addresses_of_machines_and_clouds_are_forbidden() {
        for address in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "::1",
            "::",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd20:ce::254",
        ] {
            assert!(is_forbidden(address.parse().unwrap()), "{address}");
        }
        for address in ["10.96.0.10", "192.168.1.1", "172.16.0.1", "100.64.0.1", "8.8.8.8", "fd00::1", "2001:db8::1"] {
            assert!(!is_forbidden(address.parse().unwrap()), "{address}");
        }
    }
}
