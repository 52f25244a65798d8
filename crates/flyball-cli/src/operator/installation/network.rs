//! Network policies: webhooks for the API server, metrics for their collectors.
//!
//! The API server is not a pod that a selector could match, and only the cluster's administrators know its addresses.
//! So the port of webhooks is open to all clients, and the operator itself limits their load. If the addresses are
//! known, an overlay should list them by `ipBlock`.

use super::manager::webhook_port;
use super::{ConfigDirectory, InstallTarget, ManifestFile, object};
use crate::operator::metrics::SECURE_METRICS_PORT;
use serde_json::json;

pub(super) fn network_policy(target: &InstallTarget, others: &[ManifestFile]) -> ManifestFile {
    let mut ingress = vec![json!({
        "from": [{"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}],
        "ports": [{"port": SECURE_METRICS_PORT, "protocol": "TCP"}],
    })];
    ingress.extend(webhook_port(others).map(|port| json!({"ports": [{"port": port, "protocol": "TCP"}]})));
    let name = target.object_name("controller-manager");
    let mut policy = object("networking.k8s.io/v1", "NetworkPolicy", &name, Some(&target.namespace));
    policy["spec"] = json!({
        "ingress": ingress,
        "podSelector": {"matchLabels": target.selector()},
        "policyTypes": ["Ingress"],
    });
    ManifestFile::new(ConfigDirectory::NetworkPolicy, "network_policy", policy)
}
