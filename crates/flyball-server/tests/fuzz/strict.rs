//! A namespace whose pods are checked by Pod Security.

use crate::targets;
use serde_json::{Value, json};

pub(crate) const PODS: &str = "/api/v1/namespaces/strict/pods";

/// Creates the namespace, which enforces an old version and warns of violations of the newest one.
pub(crate) fn setup() -> [(&'static str, Value); 2] {
    let namespace = json!({"metadata": {"name": "strict", "labels": {
        "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": "v1.18",
        "pod-security.kubernetes.io/warn": "restricted",
    }}});
    [("/api/v1/namespaces", namespace), ("/api/v1/namespaces/strict/serviceaccounts", targets::account())]
}

/// A pod with the fields that are checked.
pub(crate) fn pod() -> Value {
    let mut pod = targets::pod();
    let annotation = "container.apparmor.security.beta.kubernetes.io/c";
    pod["metadata"]["annotations"] = json!({annotation: "runtime/default"});
    pod["spec"]["securityContext"] = json!({
        "runAsNonRoot": true, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"},
        "seLinuxOptions": {"type": "container_t"}, "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}],
    });
    pod["spec"]["containers"][0]["securityContext"] = json!({
        "allowPrivilegeEscalation": false, "privileged": false, "procMount": "Default",
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
    });
    pod
}
