//! Controller for `Firewall`: each one is a firewall in the cloud, with the same rules.

use crate::api::firewall_v1alpha1::{Firewall, FirewallRule, FirewallStatus, Protocol};
use crate::cloud::{self, BoxError, Cloud, Error, Rule};
use crate::status::owner;
use flyball::{Action, Condition, Context, Controller, Event, Reconcile, Result};
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which the deletion of a firewall that is in use is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Reconciles each `Firewall`.
#[derive(Debug)]
pub struct FirewallReconciler<C> {
    cloud: Arc<C>,
}

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller<C: Cloud, E: Into<BoxError>>(
    connect: impl FnOnce() -> Result<Arc<C>, E> + Send + 'static,
) -> Controller<FirewallReconciler<C>> {
    Controller::deferred(|| connect().map(|cloud| FirewallReconciler { cloud }))
}

impl<C: Cloud> Reconcile for FirewallReconciler<C> {
    type Resource = Firewall;
    const FINALIZER: Option<&'static str> = Some("compute.flyball.dev/firewall");

    async fn reconcile(&self, firewall: &Firewall, cx: &Context<Firewall>) -> Result<Action> {
        let id = firewall.uid().unwrap_or_default();
        let rules = firewall.spec.rules.iter().map(rule).collect();
        let desired = cloud::Firewall { owner: owner(cx.key()), rules };
        let mut ready = Condition::new("Ready", true, "Enforced");
        if self.cloud.firewall(&id).await?.as_ref() != Some(&desired) {
            if !cx.confirm_exists().await? {
                return Ok(Action::done());
            }
            match self.cloud.put_firewall(&id, &desired).await {
                Ok(()) => {}
                Err(Error::Rejected(why)) => ready = Condition::new("Ready", false, "Rejected").message(why),
                Err(error) => return Err(error.into()),
            }
        }
        cx.set_status(&FirewallStatus { conditions: vec![ready] }).await?;
        Ok(Action::done())
    }

    async fn finalize(&self, firewall: &Firewall, cx: &Context<Firewall>) -> Result<Action> {
        match self.cloud.delete_firewall(&firewall.uid().unwrap_or_default()).await {
            Ok(()) => Ok(Action::done()),
            Err(error @ Error::InUse { .. }) => {
                cx.event(Event::normal("Waiting", error.to_string()).action("Delete"));
                Ok(Action::requeue_after(RETRY))
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn rule(rule: &FirewallRule) -> Rule {
    let protocol = match rule.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Icmp => "ICMP",
    };
    Rule { protocol, port: rule.port, source: rule.source.clone() }
}
