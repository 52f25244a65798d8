//! Services and what leads to them.

use super::{NONE, Row, UNSET, View, first, int, list, text};
use serde_json::Value;

pub(crate) fn service(view: &View<'_>) -> Row {
    let ports: Vec<String> = view.list("spec.ports").iter().map(port).collect();
    let address = view.list("spec.clusterIPs").first().and_then(Value::as_str).unwrap_or(NONE);
    Row::from([
        view.name(),
        view.text("spec.type").into(),
        address.into(),
        external(view).into(),
        if ports.is_empty() { NONE.into() } else { ports.join(",").into() },
        view.age(),
        view.labels("spec.selector"),
    ])
}

fn port(port: &Value) -> String {
    let (number, protocol) = (int(port, "port"), text(port, "protocol"));
    match int(port, "nodePort") {
        node_port if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

/// Lists addresses by which a service is reached from outside.
fn external(view: &View<'_>) -> String {
    let given: Vec<&str> = view.list("spec.externalIPs").iter().filter_map(Value::as_str).collect();
    match view.text("spec.type") {
        "ClusterIP" | "NodePort" if given.is_empty() => NONE.into(),
        "ClusterIP" | "NodePort" => given.join(","),
        "LoadBalancer" => {
            let balanced = balanced(view);
            let all: Vec<&str> =
                Some(balanced.as_str()).filter(|text| !text.is_empty()).into_iter().chain(given).collect();
            if all.is_empty() { "<pending>".into() } else { all.join(",") }
        }
        "ExternalName" => view.text("spec.externalName").into(),
        _ => super::UNKNOWN.into(),
    }
}

/// Lists the addresses that a load balancer gave.
fn balanced(view: &View<'_>) -> String {
    let ingress = view.list("status.loadBalancer.ingress").iter();
    let address =
        |ingress| Some(text(ingress, "ip")).filter(|ip| !ip.is_empty()).unwrap_or_else(|| text(ingress, "hostname"));
    let mut addresses: Vec<&str> = ingress.map(address).filter(|address| !address.is_empty()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",")
}

pub(crate) fn ingress(view: &View<'_>) -> Row {
    let ports = if view.list("spec.tls").is_empty() { "80" } else { "80, 443" };
    Row::from([
        view.name(),
        view.at("spec.ingressClassName").as_str().unwrap_or(NONE).into(),
        hosts(view.list("spec.rules")).into(),
        balanced(view).into(),
        ports.into(),
        view.age(),
    ])
}

fn hosts(rules: &[Value]) -> String {
    const SHOWN: usize = 3;
    let hosts: Vec<&str> = rules.iter().map(|rule| text(rule, "host")).collect();
    // Those that follow the third host are counted by rules, with a host or without.
    let mut shown = Vec::new();
    let mut more = false;
    for host in &hosts {
        more |= shown.len() == SHOWN;
        if !more && !host.is_empty() {
            shown.push(*host);
        }
    }
    match (shown.is_empty(), more) {
        (true, _) => "*".into(),
        (false, true) => format!("{} + {} more...", shown.join(","), rules.len() - SHOWN),
        (false, false) => shown.join(","),
    }
}

pub(crate) fn ingress_class(view: &View<'_>) -> Row {
    let parameters = view.at("spec.parameters");
    let group = parameters["apiGroup"].as_str().map_or(String::new(), |group| format!(".{group}"));
    let parameters = match parameters {
        Value::Null => NONE.into(),
        parameters => format!("{}{group}/{}", text(parameters, "kind"), text(parameters, "name")),
    };
    let name = super::marked(view, "ingressclass.kubernetes.io/is-default-class");
    Row::from([name, view.text("spec.controller").into(), parameters.into(), view.age()])
}

pub(crate) fn network_policy(view: &View<'_>) -> Row {
    Row::from([view.name(), view.selector("spec.podSelector"), view.age()])
}

pub(crate) fn endpoints(view: &View<'_>) -> Row {
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

pub(crate) fn endpoint_slice(view: &View<'_>) -> Row {
    let port = |port: &Value| match (port["port"].as_i64(), port["name"].as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    };
    let ports: Vec<String> = view.list("ports").iter().map(port).collect();
    let endpoints = view.list("endpoints").iter().flat_map(|endpoint| list(endpoint, "addresses"));
    let endpoints: Vec<String> = endpoints.filter_map(Value::as_str).map(str::to_owned).collect();
    let written =
        |texts: &[String]| Some(first(texts, 3)).filter(|text| !text.is_empty()).unwrap_or_else(|| UNSET.into());
    Row::from([
        view.name(),
        view.text("addressType").into(),
        written(&ports).into(),
        written(&endpoints).into(),
        view.age(),
    ])
}

pub(crate) fn service_cidr(view: &View<'_>) -> Row {
    let blocks: Vec<&str> = view.list("spec.cidrs").iter().filter_map(Value::as_str).collect();
    Row::from([view.name(), blocks.join(",").into(), view.age()])
}

/// The last cell, the age, has no column.
pub(crate) fn ip_address(view: &View<'_>) -> Row {
    let parent = view.at("spec.parentRef");
    let mut name = NONE.to_owned();
    if !parent.is_null() {
        let group = Some(text(parent, "group")).filter(|group| !group.is_empty());
        name = text(parent, "resource").to_lowercase()
            + &group.map_or(String::new(), |group| format!(".{}", group.to_lowercase()));
        for step in [text(parent, "namespace"), text(parent, "name")] {
            if !step.is_empty() {
                name += &format!("/{step}");
            }
        }
    }
    Row::from([view.name(), name.into(), view.age()])
}
