//! The description of an operator.

use super::Operator;
use crate::description::{
    DefinitionDescription, Description, LeaseDescription, PolicyDescription, VersionDescription, WebhookDescription,
};

impl Operator {
    /// Describes the operator as data.
    pub fn describe(&self) -> Description {
        let definitions = self.crds.iter().map(|crd| DefinitionDescription {
            name: crd.metadata.name.clone().unwrap_or_default(),
            kind: crd.spec.names.kind.clone(),
            scope: crd.spec.scope.clone(),
            versions: crd
                .spec
                .versions
                .iter()
                .map(|version| VersionDescription {
                    name: version.name.clone(),
                    served: version.served,
                    storage: version.storage,
                    columns: version
                        .additional_printer_columns
                        .iter()
                        .flatten()
                        .map(|column| column.name.clone())
                        .collect(),
                })
                .collect(),
        });
        let webhooks = self.webhooks.iter().map(|webhook| WebhookDescription {
            kind: webhook.scope.kind.qualified(),
            calls: webhook.call_names().into_iter().map(str::to_owned).collect(),
        });
        let policies = self
            .policies
            .iter()
            .map(|policy| PolicyDescription { kind: policy.kind().qualified(), rules: policy.describe() });
        let lease = self.election.as_ref().map(|election| LeaseDescription {
            name: election.lease.clone().unwrap_or_else(|| self.installed_name().to_owned()),
            namespace: self.namespace.clone(),
            lease_duration: election.lease_duration.as_secs_f64(),
            renew_deadline: election.renew_deadline.as_secs_f64(),
            retry_period: election.retry_period.as_secs_f64(),
        });
        Description {
            lease,
            name: self.name.clone(),
            version: self.version.map(str::to_owned),
            namespaces: self.namespaces.iter().cloned().collect(),
            definitions: definitions.collect(),
            controllers: self.controllers.iter().map(|controller| controller.describe()).collect(),
            webhooks: webhooks.collect(),
            policies: policies.collect(),
            rules: self.rules(),
        }
    }
}
