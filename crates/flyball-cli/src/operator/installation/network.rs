//! Network policies: webhooks for the API server, metrics for their collectors.
//!
//! The API server is not a pod that a selector could match, and only the cluster's administrators know its addresses.
//! So the port of webhooks is open to all clients, and the operator itself limits their load. If the addresses are
//! known, an overlay should list them by `ipBlock`.

use super::manager::webhook_port;
use super::{Folder, InstallTarget, Piece, object};
use crate::operator::metrics::SECURE_METRICS_PORT;
use serde_json::json;

pub(super) fn piece(place: &InstallTarget, others: &[Piece]) -> Piece {
    let mut ingress = vec![json!({
        "from": [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}],
        "ports": [{"port": SECURE_METRICS_PORT, "protocol": "TCP"}],
    })];
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
