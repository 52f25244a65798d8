//! Objects that all tiers have, and the environment of their containers.

use crate::api::visitorsapp_v1::VisitorsApp;
use flyball::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::ResourceExt;
use serde_json::{Value, json};

/// One of the three parts of a site.
pub(super) struct Tier {
    pub(super) name: String,
    labels: Value,
}

impl Tier {
    pub(super) fn new(app: &VisitorsApp, tier: &str) -> Self {
        let labels = json!({"app": "visitors", "visitors-app": app.name_any(), "tier": tier});
        Self { name: format!("{}-{tier}", app.name_any()), labels }
    }

    pub(super) fn deployment(&self, replicas: i32, image: &str, port: u16, env: &[Value]) -> Result<Deployment> {
        let Self { name, labels } = self;
        let container = json!({"name": "main", "image": image, "ports": [{"containerPort": port}], "env": env});
        Ok(serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }))?)
    }

    pub(super) fn service(&self, kind: &str, port: u16) -> Result<Service> {
        let Self { name, labels } = self;
        let ports = json!([{"port": port, "targetPort": port}]);
        Ok(serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"type": kind, "selector": labels, "ports": ports},
        }))?)
    }
}

/// Returns an environment variable with a literal value.
pub(super) fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

/// Returns an environment variable whose value is in a Secret.
pub(super) fn secret_variable(name: &str, secret: &Secret, key: &str) -> Value {
    json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret.name_any(), "key": key}}})
}
