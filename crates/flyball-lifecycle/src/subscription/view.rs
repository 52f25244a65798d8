//! Everything that the resolution of a namespace depends on.

use crate::api::labels::{COMPONENT_PREFIX, SKIP_GLOBAL_CATALOGS};
use crate::api::{CatalogSource, ClusterServiceVersion, InstallPlan, OperatorGroup, Subscription, SubscriptionStatus};
use crate::csv::label_of;
use crate::patch::{change_status, merge_patch};
use flyball::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A Subscription, as it was last written, and its new status.
pub(super) struct Tracked {
    pub(super) object: Subscription,
    pub(super) status: SubscriptionStatus,
}

impl Tracked {
    pub(super) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }
}

/// The objects of a namespace.
pub(super) struct View {
    pub(super) namespace: String,
    /// In the order of their names.
    pub(super) subscriptions: Vec<Tracked>,
    /// ClusterServiceVersions, without copies.
    pub(super) csvs: BTreeMap<String, ClusterServiceVersion>,
    pub(super) plans: BTreeMap<String, InstallPlan>,
    pub(super) groups: Vec<OperatorGroup>,
    /// The visible CatalogSources: those of the global namespace, and those of this one.
    pub(super) sources: Vec<CatalogSource>,
}

impl View {
    pub(super) async fn read(namespace: &str, global: &str, cx: &Context<Namespace>) -> Result<Self> {
        let within = Some(namespace);
        let alive = |object: &Subscription| object.metadata.deletion_timestamp.is_none();
        let tracked = |object: Subscription| alive(&object).then(|| Tracked { status: object.status.clone(), object });
        let subscriptions = cx.filter_map(within, tracked).await?;
        if subscriptions.is_empty() {
            let (csvs, plans) = (BTreeMap::new(), BTreeMap::new());
            let (groups, sources) = (Vec::new(), Vec::new());
            return Ok(Self { namespace: namespace.to_owned(), subscriptions, csvs, plans, groups, sources });
        }
        let original = |csv: ClusterServiceVersion| csv.copied_from().is_none().then(|| (csv.name_any(), csv));
        let csvs = cx.filter_map(within, original).await?.into_iter().collect();
        let plan = |plan: InstallPlan| plan.metadata.deletion_timestamp.is_none().then(|| (plan.name_any(), plan));
        let plans = cx.filter_map(within, plan).await?.into_iter().collect();
        let group = |group: OperatorGroup| group.metadata.deletion_timestamp.is_none().then_some(group);
        let groups: Vec<OperatorGroup> = cx.filter_map(within, group).await?;
        let mut sources = Vec::new();
        if !groups.iter().any(excludes_global) && namespace != global {
            sources = cx.list::<CatalogSource>(Some(global)).await?;
        }
        sources.extend(cx.list::<CatalogSource>(within).await?);
        sources.retain(|source| source.metadata.deletion_timestamp.is_none());
        Ok(Self { namespace: namespace.to_owned(), subscriptions, csvs, plans, groups, sources })
    }

    /// Returns the CatalogSource of a Subscription, if it is visible.
    pub(super) fn source_of(&self, subscription: &Subscription) -> Option<&CatalogSource> {
        let (name, namespace) = (&subscription.spec.source, &subscription.spec.source_namespace);
        let is_it =
            |source: &&CatalogSource| source.name_any() == *name && source.namespace().as_ref() == Some(namespace);
        self.sources.iter().find(is_it)
    }

    /// Returns the InstallPlan that a status refers to.
    pub(super) fn plan_of(&self, status: &SubscriptionStatus) -> Option<&InstallPlan> {
        self.plans.get(status.install_plan_ref.as_ref()?.name.as_deref()?)
    }

    /// Writes the status of the Subscriptions that have changed.
    pub(super) async fn write(&mut self, cx: &Context<Namespace>) -> Result<()> {
        for tracked in &mut self.subscriptions {
            let is_same = SubscriptionStatus {
                last_updated: tracked.object.status.last_updated.clone(),
                ..tracked.status.clone()
            } == tracked.object.status;
            if is_same {
                continue;
            }
            tracked.status.last_updated = Some(Time(cx.now()));
            tracked.object = change_status(cx, &tracked.object, &tracked.object.status, &tracked.status).await?;
        }
        Ok(())
    }

    /// Removes the labels of Operators whose Subscriptions no longer refer to an InstallPlan. The controller of
    /// Operators adds them.
    pub(super) async fn unlabel_plans(&self, cx: &Context<Namespace>) -> Result<()> {
        let mut wanted: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for tracked in &self.subscriptions {
            let reference = tracked.status.install_plan_ref.as_ref().and_then(|reference| reference.name.as_deref());
            let label = label_of(&tracked.object.spec.package, &self.namespace);
            if let Some(plan) = reference {
                wanted.entry(plan).or_default().insert(label);
            }
        }
        for (name, plan) in &self.plans {
            let wanted = wanted.remove(name.as_str()).unwrap_or_default();
            let is_surplus = |label: &&String| label.starts_with(COMPONENT_PREFIX) && !wanted.contains(*label);
            let surplus = plan.labels().keys().filter(is_surplus);
            let surplus: Map<String, Value> = surplus.map(|label| (label.clone(), Value::Null)).collect();
            if !surplus.is_empty() {
                merge_patch(cx, plan, "", &json!({"metadata": {"labels": surplus}})).await?;
            }
        }
        Ok(())
    }
}

/// Returns true if an OperatorGroup hides the global catalogs.
pub(super) fn excludes_global(group: &OperatorGroup) -> bool {
    group.annotations().get(SKIP_GLOBAL_CATALOGS).is_some_and(|value| value == "true")
}
