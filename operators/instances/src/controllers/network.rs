//! Controller for `Network`: each one is a network in the cloud.

use crate::api::network_v1alpha1::{Network, NetworkStatus};
use crate::cloud::{self, BoxError, Cloud, Error};
use crate::status::owner;
use flyball::{Action, Condition, Context, Controller, Event, Reconcile, Result};
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which the deletion of a network that is in use is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Reconciles each `Network`.
#[derive(Debug)]
pub struct NetworkReconciler<C> {
    cloud: Arc<C>,
}

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller<C: Cloud, E: Into<BoxError>>(
    connect: impl FnOnce() -> Result<Arc<C>, E> + Send + 'static,
) -> Controller<NetworkReconciler<C>> {
    Controller::deferred(|| connect().map(|cloud| NetworkReconciler { cloud }))
}

impl<C: Cloud> Reconcile for NetworkReconciler<C> {
    type Resource = Network;
    const FINALIZER: Option<&'static str> = Some("compute.flyball.dev/network");

    async fn reconcile(&self, network: &Network, cx: &Context<Network>) -> Result<Action> {
        let id = network.uid().unwrap_or_default();
        let mut ready = Condition::new("Ready", true, "Created");
        if self.cloud.network(&id).await?.is_none() {
            if !cx.confirm_exists().await? {
                return Ok(Action::done());
            }
            let request = cloud::Network { owner: owner(cx.key()), cidr: network.spec.cidr.clone() };
            match self.cloud.put_network(&id, &request).await {
                Ok(()) => {}
                Err(Error::Rejected(why)) => ready = Condition::new("Ready", false, "Rejected").message(why),
                Err(error) => return Err(error.into()),
            }
        }
        cx.set_status(&NetworkStatus { conditions: vec![ready] }).await?;
        Ok(Action::done())
    }

    async fn finalize(&self, network: &Network, cx: &Context<Network>) -> Result<Action> {
        match self.cloud.delete_network(&network.uid().unwrap_or_default()).await {
            Ok(()) => Ok(Action::done()),
            Err(error @ Error::InUse { .. }) => {
                cx.event(Event::normal("Waiting", error.to_string()).action("Delete"));
                Ok(Action::requeue_after(RETRY))
            }
            Err(error) => Err(error.into()),
        }
    }
}
