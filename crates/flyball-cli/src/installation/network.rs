//! Who may call the operator: the API server its webhooks, and who collects metrics its metrics.

use super::manager::{METRICS_PORT, webhook_port};
use super::{Folder, Piece, Place, object};
use serde_json::json;

pub(super) fn piece(place: &Place, others: &[Piece]) -> Piece {
    let mut ingress = vec![json!({
        "from": [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}],
        "ports": [{"port": METRICS_PORT, "protocol": "TCP"}],
    })];
    // Where the API server calls from is nothing that a policy could name.
    ingress.extend(webhook_port(others).map(|port| json!({"ports": [{"port": port, "protocol": "TCP"}]})));
    let name = place.named("controller-manager");
    let mut policy = object("networking.k8s.io/v1", "NetworkPolicy", &name, Some(&place.namespace));
    policy["spec"] = json!({
        "ingress": ingress,
        "podSelector": {"matchLabels": place.selector()},
        "policyTypes": ["Ingress"],
    });
    Piece::new(Folder::NetworkPolicy, "network_policy", policy)
}
