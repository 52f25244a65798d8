//! Endpoints: deprecated, but still served.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{Heading, NONE, Row, View, first, int, list, text};
use crate::kinds::rules::{address, port};
use crate::kinds::subresource::Part;
use flyball_core::Object;
use flyball_core::names::{dns_label, dns_subdomain, qualified_name};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Endpoints", "endpoints")
    .registry_path("services/endpoints")
    .deprecated(DEPRECATION)
    .printed(COLUMNS, row)
    .default(default)
    .checks(Checks::Whole)
    .validate(validate)
    .short(&["ep"])
    .create_on_update();

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "Endpoints",
        "The set of all endpoints is the union of all subsets. Addresses are placed into subsets according to the \
         IPs they share. A single address with multiple ports, some of which are ready and some of which are not \
         (because they come from different containers) will result in the address being displayed in different \
         subsets for the different ports. No address will appear in both Addresses and NotReadyAddresses in the same \
         subset. Sets of addresses and ports that comprise a service.",
    ),
    Heading::AGE,
];

const DEPRECATION: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

fn default(endpoints: &mut Object) {
    for subset in endpoints.each("subsets") {
        subset.each("ports").for_each(|port| port.fill("protocol", "TCP"));
    }
}

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let subsets = root.at("subsets");
    if old.is_some_and(|old| old.get("subsets") == object.get("subsets")) {
        return Errors::new();
    }
    let mut errors = Errors::new();
    for subset in subsets.items() {
        let (ready, other) = (subset.at("addresses"), subset.at("notReadyAddresses"));
        if ready.is_empty() && other.is_empty() {
            errors.push(subset.required("must specify `addresses` or `notReadyAddresses`"));
        }
        for item in ready.items().chain(other.items()) {
            let ip = item.at("ip");
            errors.extend(address::check(&ip));
            errors.extend(item.at("hostname").may_obey(dns_label));
            let node = item.at("nodeName");
            if node.is_set() {
                errors.extend(node.obeys(dns_subdomain));
            }
            errors.extend(address::check_endpoint(&ip));
        }
        let ports = subset.at("ports");
        for item in ports.items() {
            let name = item.at("name");
            errors.extend(if ports.len() > 1 { name.must_obey(dns_label) } else { name.may_obey(dns_label) });
            errors.extend(port::number(&item.at("port")));
            errors.extend(item.at("protocol").must_be_one_of(port::PROTOCOLS));
            let protocol = item.at("appProtocol");
            if protocol.is_set() {
                errors.extend(protocol.obeys(qualified_name));
            }
        }
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    let mut all: Vec<String> = Vec::new();
    for subset in view.list("subsets") {
        let addresses = list(subset, "addresses").iter().map(|address| text(address, "ip"));
        let ports = list(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses.map(str::to_owned));
            continue;
        }
        for port in ports.iter().map(|port| int(port, "port")) {
            let join = |ip: &str| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") };
            all.extend(addresses.clone().map(join));
        }
    }
    let none = view.list("subsets").is_empty();
    Row::from([view.name(), if none { NONE.into() } else { first(&all, 3).into() }, view.age()])
}
