//! Controller for `Instance`: each one is a machine in the cloud.
//!
//! The idempotency key of the machine's creation is stored before the request is sent, and identifies the machine from
//! then on. A poll of the cloud detects changes that the operator did not make. The public address is that of an
//! `IpClaim`, which the instance owns: so it is released after the machine.

use crate::api::firewall_v1alpha1::Firewall;
use crate::api::instance_v1alpha1::{Instance, InstanceStatus, Power};
use crate::api::ipclaim_v1alpha1::{IpClaim, IpClaimSpec};
use crate::api::network_v1alpha1::Network;
use crate::api::operation_v1alpha1::Operation;
use crate::cloud::{BoxError, Cloud, Error, Machine, MachineRequest, MachineState};
use crate::status::{holds, key_of, owner};
use flyball::{Action, Condition, Context, Controller, Event, ObjectKey, Reconcile, Result, Source};
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Name of the idempotency key of the creation.
const CREATE: &str = "create";
/// Interval at which the cloud is polled for changes.
const DRIFT: Duration = Duration::from_secs(60);
/// Interval at which a machine is checked whose state is about to change.
const PROGRESS: Duration = Duration::from_secs(5);
/// Interval at which a rejected request is tried again: the cloud may offer other sizes and images then.
const REJECTION: Duration = Duration::from_secs(300);

/// Reconciles each `Instance`.
#[derive(Debug)]
pub struct InstanceReconciler<C> {
    cloud: Arc<C>,
}

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller<C: Cloud, E: Into<BoxError>>(
    connect: impl Fn() -> Result<Arc<C>, E> + Clone + Send + Sync + 'static,
) -> Controller<InstanceReconciler<C>> {
    let polled = connect.clone();
    Controller::deferred(move || connect().map(|cloud| InstanceReconciler { cloud }))
        .owns::<IpClaim>()
        .refers_to::<Network>(|instance| vec![ObjectKey::new(None, &instance.spec.network)])
        .refers_to::<Firewall>(|instance| {
            instance.spec.firewall.iter().map(|name| ObjectKey::new(None, name)).collect()
        })
        .watches::<Operation>(|operation, _| {
            Ok(vec![ObjectKey::new(operation.namespace().as_deref(), &operation.spec.instance)])
        })
        .source(Source::poll(DRIFT, move |_| {
            let cloud = polled().map_err(flyball::Error::from);
            async move { machines_by_key(&*cloud?).await }
        }))
}

/// Returns the machines by the objects that they belong to.
async fn machines_by_key<C: Cloud>(cloud: &C) -> Result<BTreeMap<ObjectKey, Machine>> {
    let machines = cloud.machines().await?.into_iter();
    Ok(machines.filter_map(|machine| Some((key_of(&machine.owner)?, machine))).collect())
}

/// The reason why there is no machine to report.
enum Obstacle {
    /// Another object or the cloud has to change.
    Blocked { reason: &'static str, why: String, retry: Option<Duration> },
    /// The instance no longer exists.
    Ended,
}

impl Obstacle {
    fn blocked(reason: &'static str, why: String) -> Self {
        Self::Blocked { reason, why, retry: None }
    }
}

impl<C: Cloud> Reconcile for InstanceReconciler<C> {
    type Resource = Instance;
    const FINALIZER: Option<&'static str> = Some("compute.flyball.dev/machine");

    async fn reconcile(&self, instance: &Instance, cx: &Context<Instance>) -> Result<Action> {
        let machine = match self.machine(instance, cx).await? {
            Ok(machine) => machine,
            Err(Obstacle::Blocked { reason, why, retry }) => {
                let known = instance.status.clone().unwrap_or_default();
                let conditions = vec![Condition::new("Ready", false, reason).message(why)];
                cx.set_status(&InstanceStatus { conditions, ..known }).await?;
                return Ok(retry.map_or_else(Action::done, Action::requeue_after));
            }
            Err(Obstacle::Ended) => return Ok(Action::done()),
        };
        cx.set_status(&status(instance, &machine)).await?;
        Ok(if machine.state.is_busy() { Action::requeue_after(PROGRESS) } else { Action::done() })
    }

    async fn finalize(&self, _: &Instance, cx: &Context<Instance>) -> Result<Action> {
        // Without a key, no machine was requested.
        if let Some(key) = cx.known_idempotency_key(CREATE).await?
            && let Some(machine) = self.cloud.find_machine(&key).await?
        {
            self.cloud.delete_machine(&machine.id).await?;
        }
        Ok(Action::done())
    }
}

impl<C: Cloud> InstanceReconciler<C> {
    /// Creates or changes the machine, and returns its state.
    async fn machine(&self, instance: &Instance, cx: &Context<Instance>) -> Result<Result<Machine, Obstacle>> {
        let (network, firewall) = match network_of(instance, cx).await? {
            Ok(ids) => ids,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        let key = cx.idempotency_key(CREATE).await?;
        let mut machine = match self.cloud.find_machine(&key).await? {
            Some(machine) => machine,
            None => match self.create(instance, cx, &key, network, firewall.clone()).await? {
                Ok(machine) => machine,
                Err(obstacle) => return Ok(Err(obstacle)),
            },
        };
        let address = public_address(instance, cx).await?;
        let mut is_changed = false;
        if machine.firewall != firewall {
            self.cloud.set_firewall(&machine.id, firewall.as_deref()).await?;
            is_changed = true;
        }
        if machine.public_ip != address {
            match self.cloud.set_address(&machine.id, address.as_deref()).await {
                Ok(()) => is_changed = true,
                Err(error @ Error::InUse { .. }) => {
                    let retry = Some(PROGRESS);
                    return Ok(Err(Obstacle::Blocked { reason: "AddressInUse", why: error.to_string(), retry }));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let on = instance.spec.power == Power::Running;
        if !machine.state.is_busy() && on != (machine.state == MachineState::Running) {
            self.cloud.set_power(&machine.id, on).await?;
            is_changed = true;
        }
        if is_changed {
            machine = self.cloud.find_machine(&key).await?.ok_or("the machine was removed in the meantime")?;
        }
        Ok(Ok(machine))
    }

    async fn create(
        &self,
        instance: &Instance,
        cx: &Context<Instance>,
        key: &str,
        network: String,
        firewall: Option<String>,
    ) -> Result<Result<Machine, Obstacle>> {
        if !cx.confirm_exists().await? {
            return Ok(Err(Obstacle::Ended));
        }
        let (size, image) = (instance.spec.size.clone(), instance.spec.image.clone());
        let request = MachineRequest { owner: owner(cx.key()), size, image, network, firewall };
        match self.cloud.create_machine(key, &request).await {
            Ok(machine) => {
                cx.event(Event::normal("Created", format!("created machine {}", machine.id)).action("Create"));
                Ok(Ok(machine))
            }
            Err(Error::Rejected(why)) => Ok(Err(Obstacle::Blocked { reason: "Rejected", why, retry: Some(REJECTION) })),
            Err(error @ Error::Gone(_)) => {
                // It was removed by others. Another key creates another machine.
                cx.event(Event::warning("Lost", "the machine no longer exists in the cloud: creating another one"));
                cx.forget_idempotency_key(CREATE).await?;
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the identities of the network and the firewall of an instance.
async fn network_of(instance: &Instance, cx: &Context<Instance>) -> Result<Result<(String, Option<String>), Obstacle>> {
    let name = &instance.spec.network;
    let network: Option<Network> = cx.get(&cx.sibling(name)).await?;
    let is_ready = |network: &Network| network.status.as_ref().is_some_and(|status| holds(&status.conditions, "Ready"));
    let Some(network) = network.filter(is_ready).and_then(|network| network.uid()) else {
        let why = format!("network {name} does not exist or is not ready");
        return Ok(Err(Obstacle::blocked("NetworkNotReady", why)));
    };
    let Some(name) = &instance.spec.firewall else { return Ok(Ok((network, None))) };
    let firewall: Option<Firewall> = cx.get(&cx.sibling(name)).await?;
    let is_ready =
        |firewall: &Firewall| firewall.status.as_ref().is_some_and(|status| holds(&status.conditions, "Ready"));
    match firewall.filter(is_ready).and_then(|firewall| firewall.uid()) {
        Some(firewall) => Ok(Ok((network, Some(firewall)))),
        None => {
            let why = format!("firewall {name} does not exist or is not ready");
            Ok(Err(Obstacle::blocked("FirewallNotReady", why)))
        }
    }
}

/// Claims the public address that an instance requests, and returns it if the claim has one. Other claims of the
/// instance are deleted.
async fn public_address(instance: &Instance, cx: &Context<Instance>) -> Result<Option<String>> {
    let pool = instance.spec.public_ip.as_ref().map(|wish| &wish.pool);
    let (current, other): (Vec<IpClaim>, Vec<IpClaim>) =
        cx.children::<IpClaim>().await?.into_iter().partition(|claim| Some(&claim.spec.pool) == pool);
    for claim in &other {
        if claim.metadata.deletion_timestamp.is_none() {
            cx.delete(claim).await?;
        }
    }
    let is_deleting = current.iter().any(|claim| claim.metadata.deletion_timestamp.is_some());
    let Some(pool) = pool.filter(|_| other.is_empty() && !is_deleting) else { return Ok(None) };
    let claim = cx.apply(&IpClaim::new(&instance.name_any(), IpClaimSpec { pool: pool.clone() })).await?;
    Ok(claim.status.filter(|status| holds(&status.conditions, "Bound")).and_then(|status| status.address))
}

fn status(instance: &Instance, machine: &Machine) -> InstanceStatus {
    let is_powered = match instance.spec.power {
        Power::Running => machine.state == MachineState::Running,
        Power::Stopped => machine.state == MachineState::Stopped,
    };
    let ready = match (is_powered, instance.spec.public_ip.is_some() == machine.public_ip.is_some()) {
        (false, _) => Condition::new("Ready", false, "NotInPowerState").message(format!("it is {}", machine.state)),
        (true, false) => Condition::new("Ready", false, "WaitingForAddress").message("its claim has no address yet"),
        (true, true) => Condition::new("Ready", true, "InDesiredState"),
    };
    InstanceStatus {
        state: Some(machine.state.to_string()),
        machine_id: Some(machine.id.clone()),
        disk_id: Some(machine.disk.clone()),
        private_ip: Some(machine.private_ip.clone()),
        public_ip: machine.public_ip.clone(),
        conditions: vec![ready],
    }
}
