//! The objects of an installation, sorted by their part in a bundle.

use crate::operator::installation::is_webhook_configuration;
use flyball_lifecycle::manifests::SUPPORTED_KINDS;
use serde_json::Value;

/// The objects of an installation.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(super) deployments: Vec<Value>,
    /// The roles that are bound to the operator's account.
    pub(super) bound_roles: Vec<Value>,
    pub(super) webhook_configurations: Vec<Value>,
    /// CRDs; conversion is left to the CSV.
    pub(crate) definitions: Vec<Value>,
    /// CRDs with a conversion webhook: the name of the CRD, and the path.
    pub(super) conversions: Vec<(String, String)>,
    /// Objects that are installed as they are.
    pub(crate) others: Vec<Value>,
    /// Objects that no lifecycle manager installs: kind and name.
    pub(crate) left_out: Vec<String>,
    /// The names of Services that belong to webhooks.
    services: Vec<Value>,
}

impl Parts {
    /// Sorts the objects of an installation; some of its roles are bound to the operator's account.
    pub(crate) fn new(objects: Vec<Value>, bound_roles: Vec<Value>) -> Self {
        let mut parts = Self { bound_roles, ..Self::default() };
        for object in &objects {
            let webhooks = object["webhooks"].as_array().into_iter().flatten();
            parts.services.extend(webhooks.map(|webhook| webhook["clientConfig"]["service"]["name"].clone()));
            parts.services.push(object["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["name"].clone());
        }
        parts.services.retain(|name| !name.is_null());
        objects.into_iter().for_each(|object| parts.add(object));
        parts
    }

    fn add(&mut self, mut object: Value) {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let name = object["metadata"]["name"].clone();
        match kind.as_str() {
            "Deployment" => self.deployments.push(object),
            // The lifecycle manager creates them: from the CSV, or as the namespace of the Subscription.
            "Namespace" | "ServiceAccount" => {}
            "ClusterRoleBinding" | "RoleBinding" => {}
            _ if self.bound_roles.iter().any(|role| role["kind"] == *kind && role["metadata"]["name"] == name) => {}
            "Service" if self.services.contains(&name) => {}
            _ if is_webhook_configuration(&object) => self.webhook_configurations.push(object),
            "CustomResourceDefinition" => {
                let conversion = object["spec"].as_object_mut().and_then(|spec| spec.remove("conversion"));
                let path = conversion.and_then(|conversion| {
                    Some(conversion["webhook"]["clientConfig"]["service"]["path"].as_str()?.to_owned())
                });
                self.conversions.extend(path.map(|path| (name.as_str().unwrap_or_default().to_owned(), path)));
                self.definitions.push(object);
            }
            _ if SUPPORTED_KINDS.contains(&kind.as_str()) => {
                // The namespace is that of the Subscription.
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("namespace");
                }
                self.others.push(object);
            }
            _ => self.left_out.push(format!("{kind} {}", name.as_str().unwrap_or_default())),
        }
    }
}
