//! Writes without holding its lease: leadership is checked when a reconcile begins, and the lease is released before
//! running reconciles end. Seen in cilium/cilium #42920 and kubernetes-sigs/controller-runtime #1132.

use crate::objects::rule;
use crate::suite::Bug;
use flyball::{Action, Context, Controller, LeaderElection, Operator, Reconcile, Result, Task, TaskContext};
use flyball_explore::{Explorer, Oracle, Scenario};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::{Api, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const FIRST: &str = "
apiVersion: tunnels.example.com/v1
kind: Tunnel
metadata: {name: berlin}
spec: {peer: 192.0.2.1}
";
const SECOND: &str = "
apiVersion: tunnels.example.com/v1
kind: Tunnel
metadata: {name: oslo}
spec: {peer: 192.0.2.2}
";

const NAME: &str = "tunnel-operator";
const LEASE_DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Number of tunnels for which there are numbers.
const NUMBERS: u32 = 1000;

/// Desired state of a `Tunnel`.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "tunnels.example.com", version = "v1", kind = "Tunnel", namespaced, status = "TunnelStatus")]
pub(crate) struct TunnelSpec {
    /// Address of the other end.
    peer: String,
}

/// Observed state of a `Tunnel`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub(crate) struct TunnelStatus {
    /// Number of the tunnel, which no other one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u32>,
    /// Time at which it got the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allocated: Option<String>,
}

/// A reconciler that works while the flag is set.
struct Tunnels {
    leads: Arc<AtomicBool>,
}

impl Reconcile for Tunnels {
    type Resource = Tunnel;

    async fn reconcile(&self, tunnel: &Tunnel, cx: &Context<Tunnel>) -> Result<Action> {
        if !self.leads.load(Ordering::Relaxed) {
            return Ok(Action::requeue_after(RETRY_PERIOD));
        }
        let name = tunnel.name_any();
        let (number, allocated) = match tunnel.status.clone().unwrap_or_default() {
            TunnelStatus { number: Some(number), allocated } => (number, allocated),
            _ => (free_number(&name, cx).await?, Some(cx.now().to_string())),
        };
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": name},
            "data": {"peer": tunnel.spec.peer, "number": number.to_string()},
        }))?;
        cx.apply(&map).await?;
        cx.set_status(&TunnelStatus { number: Some(number), allocated }).await?;
        Ok(Action::done())
    }
}

/// Returns a number that no tunnel has. The first choice depends on the name only.
async fn free_number(name: &str, cx: &Context<Tunnel>) -> Result<u32> {
    let taken = cx.filter_map::<Tunnel, _>(None, |tunnel| tunnel.status?.number).await?;
    let start = name.bytes().fold(0, |sum, byte| (sum * 31 + u32::from(byte)) % NUMBERS);
    let free = (start..NUMBERS).chain(0..start).find(|number| !taken.contains(number));
    Ok(free.ok_or("all numbers are taken")?)
}

/// Returns a task that competes for the lease, and sets the flag while this replica holds it.
fn election(leads: Arc<AtomicBool>) -> Task {
    let elect = async move |cx: TaskContext| {
        let leases: Api<Lease> = Api::default_namespaced(cx.client().clone());
        let identity = format!("{NAME}-{}", cx.rng().uuid());
        let mut renewed = Instant::now();
        loop {
            let sent = Instant::now();
            match renew(&leases, &identity, &cx).await {
                Ok(true) => {
                    leads.store(true, Ordering::Relaxed);
                    renewed = sent;
                }
                Ok(false) => leads.store(false, Ordering::Relaxed),
                Err(error) if renewed.elapsed() > RENEW_DEADLINE && leads.swap(false, Ordering::Relaxed) => {
                    tracing::warn!(%error, "lost the lease");
                }
                Err(_) => {}
            }
            tokio::select! {
                biased;
                () = cx.stopped() => return release(&leases, &identity).await.map_err(Into::into),
                () = sleep(RETRY_PERIOD) => {}
            }
        }
    };
    Task::new("election", elect).on_every_replica()
}

/// Acquires or renews the lease; returns false if another replica holds it.
async fn renew(leases: &Api<Lease>, identity: &str, cx: &TaskContext) -> kube::Result<bool> {
    let now = cx.now();
    let Some(mut lease) = leases.get_opt(NAME).await? else {
        let mut lease = Lease::default();
        lease.metadata.name = Some(NAME.into());
        hold(&mut lease, identity, MicroTime(now));
        leases.create(&PostParams::default(), &lease).await?;
        return Ok(true);
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let is_held = spec.renew_time.is_some_and(|renewed| now.duration_since(renewed.0).unsigned_abs() < LEASE_DURATION);
    let is_other = spec.holder_identity.is_some_and(|holder| !holder.is_empty() && holder != identity);
    if is_other && is_held {
        return Ok(false);
    }
    hold(&mut lease, identity, MicroTime(now));
    leases.replace(NAME, &PostParams::default(), &lease).await?;
    Ok(true)
}

fn hold(lease: &mut Lease, identity: &str, now: MicroTime) {
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(identity.into());
    spec.lease_duration_seconds = i32::try_from(LEASE_DURATION.as_secs()).ok();
    spec.renew_time = Some(now);
}

/// Releases the lease if this replica holds it.
async fn release(leases: &Api<Lease>, identity: &str) -> kube::Result<()> {
    let Some(mut lease) = leases.get_opt(NAME).await? else { return Ok(()) };
    let spec = lease.spec.get_or_insert_default();
    if spec.holder_identity.as_deref() == Some(identity) {
        spec.holder_identity = Some(String::new());
        leases.replace(NAME, &PostParams::default(), &lease).await?;
    }
    Ok(())
}

fn operator<const FIXED: bool>() -> Operator {
    let leads = Arc::new(AtomicBool::new(FIXED));
    let controller = Controller::new(Tunnels { leads: leads.clone() }).owns::<ConfigMap>();
    let operator = Operator::new(NAME).crd(Tunnel::crd());
    match FIXED {
        true => operator.controller(controller).leader_election(LeaderElection::default()),
        false => {
            let leases = rule("coordination.k8s.io", "leases", &["get", "create", "update"]);
            operator.controller(controller.allows(leases)).task(election(leads))
        }
    }
}

fn explorer<const FIXED: bool>() -> Explorer {
    Explorer::of(operator::<FIXED>).replicas(2).scenario(
        Scenario::new("tunnels").apply(FIRST).wait(Duration::from_secs(5)).apply(SECOND).wait(Duration::from_secs(30)),
    )
}

pub(crate) const BUG: Bug = Bug {
    buggy: explorer::<false>,
    fixed: explorer::<true>,
    oracle: Oracle::Exclusion,
    object: "configmaps/berlin",
    schedule: "tunnels; seed=1; steps=1; patch:configmaps/berlin#1 terminate; patch:configmaps/berlin#1 delay=20",
};
