//! The application of the objects of a ClusterServiceVersion.

use super::desired::{self, Certificates};
use super::index::{ByOwner, name_of};
use super::observe::{self, Cx};
use super::phase::{enter, write_status};
use super::replacement::Siblings;
use super::status;
use super::transition::Facts;
use super::write::{Identity, has_fields};
use crate::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase, OperatorGroup, SubscriptionConfig};
use crate::group::api_roles;
use crate::install::{
    ClusterObjects, ServingCertificate, check_webhooks, conversions, health, requirements, role_names,
};
use flyball::{Action, Error, Result};
use flyball_core::time::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Value, json};

/// A ClusterServiceVersion with all that is needed to apply its objects.
pub(super) struct Installation<'a> {
    pub(super) csv: &'a ClusterServiceVersion,
    pub(super) group: &'a OperatorGroup,
    pub(super) condition: &'a Value,
    pub(super) identity: &'a Identity,
    pub(super) cx: &'a Cx,
}

impl Installation<'_> {
    pub(super) async fn apply(&self, objects: Vec<Value>) -> Result<()> {
        self.identity.apply(self.cx, self.condition, objects).await
    }

    /// Applies the service accounts and their permissions; returns an explanation if the API server refuses one.
    ///
    /// Permissions that were edited or deleted are restored as long as the operator is installed.
    pub(super) async fn grant(&self, rights: &[Value]) -> Result<Option<String>> {
        let is_installed = !matches!(self.csv.status.phase, Phase::None | Phase::Replacing | Phase::Deleting);
        if !is_installed {
            return Ok(None);
        }
        match self.apply(rights.to_vec()).await {
            Err(error) if is_refusal(&error) => Ok(Some(error.to_string())),
            applied => applied.map(|()| None),
        }
    }

    /// Observes the facts that determine the next step.
    pub(super) async fn facts<'f>(
        &self,
        siblings: &'f Siblings,
        hold: Option<String>,
        observed: &ClusterObjects,
        certificates: &Certificates,
        workloads: &[Value],
    ) -> Result<Facts<'f>> {
        let (csv, cx) = (self.csv, self.cx);
        let certificate = |deployment: &str| certificates.get(deployment).cloned().flatten();
        let conversions = conversions(csv, certificate);
        let invalid_webhook = check_webhooks(csv).and(conversions.as_ref().map(|_| ()).map_err(Clone::clone)).err();
        let conversions = conversions.unwrap_or_default();
        let (now, deployments) = (cx.now(), observe::deployments(csv, cx).await?);
        let is_due = |found: &Option<ServingCertificate>| found.as_ref().is_none_or(|found| found.is_due(now));
        Ok(Facts {
            now,
            upgrade_strategy: self.group.spec.upgrade_strategy,
            replaced: siblings.replaced_by(csv),
            replacement: siblings.replacement_of(csv),
            newest: siblings.newest_after(csv),
            hold,
            requirements: requirements(csv, observed, &role_names(csv)),
            owner_conflict: observe::owner_conflict(csv, siblings, observed, &deployments),
            invalid_strategy: observe::invalid_strategy(csv),
            invalid_webhook: invalid_webhook.map(|error| error.to_string()),
            certificate_due: certificates.values().any(is_due),
            health: health(csv, workloads, &deployments),
            api_services_available: observe::are_apis_available(csv, observed),
            webhooks_installed: observe::are_webhooks_installed(csv, &conversions, observed, cx).await?,
        })
    }

    /// Applies the Services, webhooks, conversions and APIServices.
    pub(super) async fn serve(&self, certificates: &Certificates, observed: &ClusterObjects) -> Result<()> {
        if certificates.is_empty() {
            return Ok(());
        }
        let mut servers = desired::servers(self.csv, self.group, certificates);
        for server in &mut servers {
            observe::avoid_foreign_binding(self.csv, server, self.cx).await?;
        }
        self.apply(servers).await?;
        let certificate = |deployment: &str| certificates.get(deployment).cloned().flatten();
        for (crd, conversion) in conversions(self.csv, certificate).unwrap_or_default() {
            let Some(definition) = observed.definitions.get(&crd) else { continue };
            // The API server adds the port and other defaults.
            let known = definition.spec.conversion.as_ref();
            if known.is_some_and(|known| has_fields(known, &conversion)) {
                continue;
            }
            if definition.spec.preserve_unknown_fields == Some(true) {
                return Err(Error::from(format!(
                    "CRD {crd}: spec.preserveUnknownFields must be false for a conversion webhook"
                ))
                .terminal());
            }
            let patch = json!({"spec": {"conversion": conversion}});
            self.identity.patch_definition(self.cx, definition, &patch).await?;
        }
        Ok(())
    }

    /// Issues certificates, and applies all objects of the operator.
    pub(super) async fn install(
        &self,
        mut certificates: Certificates,
        config: Option<&SubscriptionConfig>,
        observed: &ClusterObjects,
    ) -> Result<Action> {
        let (csv, cx) = (self.csv, self.cx);
        let issued = match self.issue(&mut certificates).await {
            Ok(issued) => issued,
            Err(error) => return self.failed(error).await,
        };
        let applied = async {
            self.serve(&certificates, observed).await?;
            self.apply(desired::workloads(csv, config, &certificates)).await?;
            let wanted: Vec<&str> =
                csv.spec.details().deployments.iter().map(|deployment| deployment.name.as_str()).collect();
            for deployment in owned_deployments(csv, cx).await? {
                if !wanted.contains(&deployment.name_any().as_str()) {
                    cx.delete(&deployment).await?;
                }
            }
            Ok(())
        };
        if let Err(error) = applied.await {
            return self.failed(error).await;
        }
        let mut wanted = csv.status.clone();
        if let Some(rotate_at) = issued {
            wanted.certs_last_updated = Some(Time(cx.now()));
            wanted.certs_rotate_at = Some(Time(rotate_at));
        }
        let message = "waiting for install components to report healthy";
        status::enter(&mut wanted, Phase::Installing, "InstallSucceeded", message, cx.now());
        write_status(csv, &wanted, cx).await
    }

    /// Issues the certificates that are missing or due; returns the time at which they have to be replaced, unless the
    /// status has it. An attempt before may have issued them, and then failed to write the status.
    async fn issue(&self, certificates: &mut Certificates) -> Result<Option<Timestamp>> {
        let (now, namespace) = (self.cx.now(), self.csv.namespace().unwrap_or_default());
        let mut renewal = None;
        for (deployment, certificate) in certificates {
            if certificate.as_ref().is_some_and(|known| !known.is_due(now)) {
                // Its owner may be the version that is being replaced.
                let secret = certificate.as_ref().map(|known| known.secret(self.csv, deployment));
                self.apply(secret.into_iter().collect()).await?;
                if self.csv.status.certs_rotate_at.is_none() {
                    renewal = renewal.max(certificate.as_ref().and_then(ServingCertificate::renewal));
                }
                continue;
            }
            let new = ServingCertificate::issue(deployment, &namespace, now)?;
            self.apply(vec![new.secret(self.csv, deployment)]).await?;
            renewal = renewal.max(new.renewal());
            *certificate = Some(new);
        }
        Ok(renewal)
    }

    /// Records a failure that the API server will return again; other errors are retried.
    async fn failed(&self, error: Error) -> Result<Action> {
        if !is_refusal(&error) {
            return Err(error);
        }
        let denied = error.status().is_some_and(kube::core::Status::is_forbidden);
        let message = format!("install strategy failed: {error}");
        let reason = if denied { "InstallComponentFailedNoRetry" } else { "InstallComponentFailed" };
        enter(self.csv, Phase::Failed, reason, &message, None, self.cx).await
    }

    /// Puts back what was edited, and applies the roles for users of the APIs; returns an explanation if the API server
    /// refuses these roles, without which the operator runs as well.
    pub(super) async fn maintain(&self, observed: &ClusterObjects, workloads: Vec<Value>) -> Result<Option<String>> {
        let crds = observed.definitions.iter().map(|(name, definition)| (name, definition.uid()));
        let services = observed.api_services.iter().map(|(name, service)| (name, service.uid()));
        let uids = crds.chain(services).filter_map(|(name, uid)| Some((name.clone(), uid?))).collect();
        // They give rights in all namespaces: an account that has them may pass them on.
        let roles = self.apply(api_roles(self.csv, &uids)).await;
        self.apply(workloads).await?;
        match roles {
            Err(error) if is_refusal(&error) => Ok(Some(error.to_string())),
            applied => applied.map(|()| None),
        }
    }
}

/// Returns true if the API server will refuse the request again.
fn is_refusal(error: &Error) -> bool {
    error.status().is_some_and(|status| matches!(status.code, 400 | 403 | 422))
}

/// Returns the Deployments that belong to a ClusterServiceVersion.
pub(super) async fn owned_deployments(csv: &ClusterServiceVersion, cx: &Cx) -> Result<Vec<Deployment>> {
    cx.list_by::<ByOwner<Deployment>>(&name_of(csv)).await
}
