//! Subscriptions: the controller that resolves all of a namespace together.
//!
//! The namespace is the unit, so that two Subscriptions never lead to two InstallPlans for the same bundle. A reconcile
//! reads everything that resolution depends on, brings the status of each Subscription up to date, resolves, and
//! creates an InstallPlan for bundles that are not yet planned. It executes nothing.
//!
//! Unlike in OLM, a Subscription that cannot be satisfied, or whose catalog cannot be loaded, affects no other one
//! ([`Isolation`](crate::Isolation)), a change of anything that resolution depends on triggers it, and an upgrade in
//! progress is not a conflict.

mod adoption;
mod approval;
mod conditions;
mod deprecation;
pub mod diagnosis;
mod health;
mod planning;
mod probe;
mod progress;
mod retention;
mod rollback;
mod rollout;
mod selected;
mod stranded;
mod view;
mod withdrawal;

use crate::api::{CatalogSource, ClusterServiceVersion, InstallPlan, OperatorGroup, Subscription};
use crate::contents::CatalogContents;
use crate::resolution::Isolation;
use crate::rules::rule;
use flyball::{Action, Channel, Context, Controller, ObjectKey, Reconcile, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use std::sync::Arc;
use view::View;

/// The reconciler of the Subscriptions of a namespace.
pub(crate) struct Subscriptions {
    pub(crate) contents: Arc<CatalogContents>,
    /// The namespace whose catalogs all namespaces see.
    pub(crate) global_namespace: String,
    pub(crate) isolation: Isolation,
}

impl Reconcile for Subscriptions {
    type Resource = Namespace;

    async fn reconcile(&self, namespace: &Namespace, cx: &Context<Namespace>) -> Result<Action> {
        let mut view = View::read(&namespace.name_any(), &self.global_namespace, cx).await?;
        if view.subscriptions.is_empty() {
            return Ok(Action::done());
        }
        health::report(&mut view, &self.contents, cx).await?;
        adoption::adopt(&mut view, &self.contents);
        rollback::take_over(&mut view);
        progress::report(&mut view, cx);
        view.write(cx).await?;
        deprecation::report(&mut view, &self.contents, cx);
        stranded::report(&mut view, &self.contents, cx);
        view.write(cx).await?;
        withdrawal::delete_withdrawn(&mut view, cx).await?;
        let action = planning::resolve(self, &mut view, cx).await?;
        view.write(cx).await?;
        approval::consume(&mut view, cx).await?;
        view.unlabel_plans(cx).await?;
        retention::delete_old_plans(&view, cx).await?;
        Ok(action)
    }
}

/// Creates the controller.
pub(crate) fn controller(reconciler: Subscriptions, wake: &Channel<Namespace>) -> Controller<Subscriptions> {
    let global = reconciler.global_namespace.clone();
    let own = |namespace: Option<String>| Ok(namespace.map(|name| ObjectKey::new(None, &name)).into_iter().collect());
    Controller::new(reconciler)
        .name("subscription")
        .source(wake)
        .owns::<InstallPlan>()
        .watches::<Subscription>(move |object, _| own(object.namespace()))
        .watches::<ClusterServiceVersion>(move |object, _| own(object.namespace()))
        .watches::<InstallPlan>(move |object, _| own(object.namespace()))
        .watches::<OperatorGroup>(move |object, _| own(object.namespace()))
        .watches::<CatalogSource>(move |source, caches| match source.namespace() {
            Some(namespace) if namespace == global => caches.keys::<Namespace>(None),
            namespace => own(namespace),
        })
        .allows(rule(
            crate::api::GROUP,
            &["clusterserviceversions", "subscriptions/status", "installplans", "installplans/status"],
            &["patch"],
        ))
}
