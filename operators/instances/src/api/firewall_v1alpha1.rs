//! Types of `Firewall` in `compute.flyball.dev/v1alpha1`.

use flyball::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A firewall: all incoming connections are rejected, except for those that a rule allows.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "compute.flyball.dev",
    version = "v1alpha1",
    kind = "Firewall",
    namespaced,
    shortname = "fw",
    doc = "A firewall of machines",
    status = "FirewallStatus",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct FirewallSpec {
    /// Allowed connections.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub rules: Vec<FirewallRule>,
}

/// Allows incoming connections.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(self.protocol == 'ICMP') != has(self.port)", "message": "TCP and UDP need a port, ICMP has none"},
]))]
pub struct FirewallRule {
    /// `TCP`, `UDP` or `ICMP`.
    pub protocol: Protocol,
    /// Port, for TCP and UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Range of the source addresses, such as `0.0.0.0/0`.
    #[schemars(length(min = 1, max = 43))]
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "isCIDR(self)", "message": "must be a CIDR, such as 0.0.0.0/0"},
    ]))]
    pub source: String,
}

/// Protocol of a connection.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP.
    Icmp,
}

/// Observed state of a firewall.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct FirewallStatus {
    /// `Ready`: the cloud enforces the rules.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
