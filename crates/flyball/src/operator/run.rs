//! Validation and run of an operator, until its shutdown.

use super::running::OperatorTasks;
use super::{Operator, RunError};
use crate::client::Endpoint;
use crate::context::StatusWriter;
use crate::kind::Kind;
use flyball_core::names;
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};

impl Operator {
    /// Runs until `shutdown` completes, and then stops in order: it becomes unready, starts no reconciles, waits for
    /// those under way and for [tasks](Self::task), sends pending events, and releases its lease. If the future is
    /// dropped, everything ends at once, and the lease has to expire.
    ///
    /// # Errors
    ///
    /// When a declaration is invalid, an address cannot be listened on, the [lease](crate::LeaderElection) was lost,
    /// or a task failed. An unreachable API server is not an error: requests are retried.
    #[doc(alias = "Start")]
    pub async fn run(self, client: kube::Client, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        self.run_over(client.into(), shutdown).await
    }

    /// Runs as [`run`](Self::run) does, against the API server of a configuration. Requests cost less than with
    /// kube's client: they use the operator's own connections, through a [proxy](crate::proxy) if one is configured.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and when the configuration is invalid.
    pub async fn run_at(self, config: kube::Config, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let endpoint = Endpoint::new(config).map_err(RunError::Configuration)?;
        self.run_over(endpoint, shutdown).await
    }

    async fn run_over(self, endpoint: Endpoint, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let grace = self.grace;
        // Boxed, so that the future is compiled in this crate, and not with each operator.
        let start: BoxFuture<'static, Result<OperatorTasks, RunError>> = Box::pin(self.start(endpoint));
        let mut running = start.await?;
        let outcome = tokio::select! {
            biased;
            () = shutdown => Ok(()),
            error = running.failed() => match error {
                RunError::Task { .. } => Err(error),
                RunError::LeadershipLost { .. } => {
                    running.end_at_once().await;
                    return Err(error);
                }
                _ => return Err(error),
            },
        };
        tracing::info!("shutting down");
        running.end(grace).await;
        outcome
    }

    /// Validates the declarations, and creates deferred reconcilers.
    pub(super) fn set_up(&mut self) -> Result<(), RunError> {
        let wrong = names::qualified_name(&self.name);
        if !wrong.is_empty() {
            return Err(RunError::Name { name: self.name.clone(), why: wrong.join("; ") });
        }
        for namespace in &self.namespaces {
            let wrong = names::dns_label(namespace);
            if !wrong.is_empty() {
                return Err(RunError::Namespace { name: namespace.clone(), why: wrong.join("; ") });
            }
        }
        if let Some(election) = &self.election {
            let lease = election.lease.as_deref().unwrap_or(self.installed_name());
            let wrong = names::dns_subdomain(lease);
            let wrong = (!wrong.is_empty()).then(|| format!("invalid name {lease:?} of a lease: {}", wrong.join("; ")));
            if let Some(why) = wrong.or(election.validation_error().map(Into::into)) {
                return Err(RunError::LeaderElection { why });
            }
        }
        let mut seen: BTreeMap<&str, &Kind> = BTreeMap::new();
        for controller in &self.controllers {
            if let Some(first) = seen.insert(&controller.name, &controller.primary) {
                let (name, second) = (controller.name.clone(), controller.primary.to_string());
                return Err(RunError::SameName { name, first: first.to_string(), second });
            }
        }
        let mut kinds = BTreeSet::new();
        if let Some(twice) = self.webhooks.iter().find(|webhook| !kinds.insert(webhook.scope.kind.resource())) {
            return Err(RunError::SameWebhook { kind: twice.scope.kind.to_string() });
        }
        let mut kinds = BTreeSet::new();
        if let Some(twice) = self.policies.iter().find(|policy| !kinds.insert(policy.kind().resource())) {
            return Err(RunError::SamePolicy { kind: twice.kind().to_string() });
        }
        for plan in self.plans.iter().filter(|plan| plan.loses_fields()) {
            if let Some(controller) = self.controllers.iter().find(|controller| controller.does_replace(&plan.kind)) {
                let name = &controller.name;
                let why =
                    format!("controller {name} replaces its objects, which would drop the fields that are not cached");
                return Err(RunError::Cache { kind: plan.kind.to_string(), why });
            }
        }
        let manager = self.field_manager.as_deref().unwrap_or(&self.name);
        let mut of_kind: BTreeMap<Kind, usize> = BTreeMap::new();
        for controller in &self.controllers {
            *of_kind.entry(controller.primary.clone()).or_default() += 1;
        }
        let mut first = BTreeSet::new();
        for controller in &mut self.controllers {
            let (kind, name) = (controller.primary.clone(), controller.name.clone());
            let mut result = controller.set_up();
            if of_kind.get(&kind).is_some_and(|controllers| *controllers > 1) {
                let writer = StatusWriter::new(manager, (!first.insert(kind)).then_some(&*name));
                result = result.and_then(|()| writer.map(|writer| controller.shares_status(writer)));
            }
            result.map_err(|source| RunError::SetUp { controller: name, source })?;
        }
        Ok(())
    }
}
