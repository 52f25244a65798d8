//! Assigns an address to services of type `LoadBalancer`, like a cloud provider.
//!
//! See <https://kubernetes.io/docs/concepts/services-networking/service/#loadbalancer>. Services wait until the cluster
//! has a ready node.

mod addresses;

use crate::workload::events::Events;
use crate::workload::{owners, pods};
use addresses::Addresses;
use flyball::{Action, Context, Controller, Index, Predicate, Reconcile, Result};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Node, Service, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

/// The finalizer of a service until its address is released.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Creates the controller.
pub(super) fn controller() -> Controller<impl Reconcile> {
    let balancers = LoadBalancers { events: Events::new("service-controller"), addresses: Addresses::default() };
    Controller::new(balancers)
        .watches_by_key::<Node>(|_, caches| {
            Ok(caches.range_by::<LoadBalancerServices>(..)?.into_iter().map(|((), service)| service).collect())
        })
        .index::<LoadBalancerServices>()
        .filter::<Node>(Predicate::new(|old, new| serves(old) != serves(new)))
        .replaces::<Service>()
        .while_deleting()
        .concurrency(1)
}

/// Returns true if this controller is responsible for a service: those with a class belong to other controllers.
fn needs_load_balancer(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let is_balanced = spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"));
    is_balanced && spec.is_some_and(|spec| spec.load_balancer_class.is_none())
}

/// Services that need a load balancer.
struct LoadBalancerServices;

impl Index for LoadBalancerServices {
    type Resource = Service;
    type Value = ();

    fn values(service: &Service) -> Vec<()> {
        needs_load_balancer(service).then_some(()).into_iter().collect()
    }
}

fn serves(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    is_ready && !node.labels().contains_key(EXCLUDED)
}

fn ingress(service: &Service) -> &[LoadBalancerIngress] {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default()
}

struct LoadBalancers {
    events: Events,
    addresses: Addresses,
}

impl Reconcile for LoadBalancers {
    type Resource = Service;

    async fn reconcile(&self, service: &Service, cx: &Context<Service>) -> Result<Action> {
        let has_finalizer = service.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
        if pods::is_deleting(service) || !needs_load_balancer(service) {
            if has_finalizer {
                self.release(service, cx).await?;
            }
            self.addresses.release(service);
        } else if cx.list::<Node>(None).await?.iter().any(serves) {
            self.ensure(service, has_finalizer, cx).await?;
        }
        Ok(Action::done())
    }
}

impl LoadBalancers {
    async fn ensure(&self, service: &Service, has_finalizer: bool, cx: &Context<Service>) -> Result<()> {
        let mut others = Vec::new();
        for key in cx.caches().keys::<Service>(None)? {
            // Keeps only the fields that the assignment depends on: services may be large.
            others.extend(cx.caches().get::<Service>(&key)?.map(|other| Service {
                metadata: ObjectMeta { uid: other.metadata.uid, ..ObjectMeta::default() },
                status: other.status,
                spec: None,
            }));
        }
        let desired = match self.addresses.assign(service, &others) {
            Ok(addresses) => addresses,
            Err(why) => {
                let text = format!("Error syncing load balancer: failed to ensure load balancer: {why}");
                self.events.warning(cx, service, "SyncLoadBalancerFailed", text).await;
                return Ok(());
            }
        };
        let ingress_of = |ip: &std::net::IpAddr| LoadBalancerIngress {
            ip: Some(ip.to_string()),
            ip_mode: Some("VIP".into()),
            ..LoadBalancerIngress::default()
        };
        let desired: Vec<LoadBalancerIngress> = desired.iter().map(ingress_of).collect();
        if has_finalizer && ingress(service) == desired {
            return Ok(());
        }
        self.events.normal(cx, service, "EnsuringLoadBalancer", "Ensuring load balancer").await;
        let mut updated = service.clone();
        if !has_finalizer {
            updated.finalizers_mut().push(FINALIZER.into());
            updated = cx.replace(&updated).await?;
        }
        set(updated, Some(desired), cx).await?;
        self.events.normal(cx, service, "EnsuredLoadBalancer", "Ensured load balancer").await;
        Ok(())
    }

    async fn release(&self, service: &Service, cx: &Context<Service>) -> Result<()> {
        self.events.normal(cx, service, "DeletingLoadBalancer", "Deleting load balancer").await;
        let mut freed = service.clone();
        if !ingress(service).is_empty() {
            let Some(written) = set(freed, None, cx).await? else { return Ok(()) };
            freed = written;
        }
        freed.finalizers_mut().retain(|finalizer| finalizer != FINALIZER);
        owners::tolerate(cx.replace(&freed).await)?;
        self.events.normal(cx, service, "DeletedLoadBalancer", "Deleted load balancer").await;
        Ok(())
    }
}

async fn set(
    service: Service,
    ingress: Option<Vec<LoadBalancerIngress>>,
    cx: &Context<Service>,
) -> Result<Option<Service>> {
    let load_balancer = Some(LoadBalancerStatus { ingress });
    let status = Some(ServiceStatus { load_balancer, ..service.status.clone().unwrap_or_default() });
    owners::tolerate(cx.replace_status(&Service { status, ..service }).await)
}
